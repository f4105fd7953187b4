"""`localspec run`: one answer on stdout."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from localspec.cli import options as cli_options
from localspec.cli.provenance import AnswerPrinter, legend
from localspec.cli.settings_file import default_pair
from localspec.cli.signals import Terminated, interrupt_calls
from localspec.cli.streams import print_json
from localspec.cli.value_types import KeyValue
from localspec.ground.errors import Cancelled, EngineDied, InvalidInput
from localspec.ground.terminal import is_terminal

if TYPE_CHECKING:
    from localspec.engine.records import Finished, Token
    from localspec.engine.settings import GenerationRequest
    from localspec.session import Session

_MOST_STDIN = 16 << 20  # bytes: more than any context holds, and an endless pipe must not fill the memory


@click.command()
@cli_options.optional_pair_argument
@click.argument("prompt", required=False)
@cli_options.url_option
@cli_options.pair_options
@cli_options.speculation_options
@cli_options.sampling_options
@cli_options.setting("system")
@cli_options.option("--raw", is_flag=True, help="Send the prompt as it is, without the chat template.")
@cli_options.option(
    "--template-arg",
    type=KeyValue(),
    multiple=True,
    help="Value for the chat template; may be repeated.",
)
@cli_options.option("--show-draft", is_flag=True, help="Show which tokens were guessed.")
@cli_options.output_options
def run(pair: str | None, prompt: str | None, **values: Any) -> int:
    """Answer PROMPT with PAIR and print the answer on stdout.

    PAIR is a pulled pair's name, a catalog name on this disk, or a GGUF file (give its draft with --draft).
    It may be left out, or `-`, when a pipe brings the prompt and the setting `pair` names one.
    PROMPT `-`, or none while a pipe stands in for it, is read from stdin.
    """
    from localspec.session import open_session

    pair, prompt = _where(pair, prompt, values["url"])
    _refuse_contradictions(values)
    question = _prompt(prompt)
    sampler = cli_options.sampler_settings(values)
    load = cli_options.load_options(values)
    cli_options.speculation_settings(values)  # complains before anything is loaded
    output = _JsonOutput() if values["as_json"] else _TextOutput(values["show_draft"], values["quiet"])
    with output, open_session(pair, load, _progress(values)) as session:
        request = _request(question, session, sampler, values)
        notes = [*session.notes, *cli_options.unheeded(cli_options.given(), session, sampler)]
        for sentence in () if values["quiet"] else notes:
            print(f"note: {sentence}", file=sys.stderr)
        output.begin(session, request)
        finished = _answer(session, request, output)
    return 130 if finished.reason == "cancelled" else 0


def _answer(session: Session, request: GenerationRequest, output: _Output) -> Finished:
    """Hand tokens over as their text settles; a Ctrl-C stops the answer and keeps what there is."""
    from localspec.engine.records import Finished, RoundFinished

    with interrupt_calls(session.client.cancel):
        for event in session.generate(request):
            if isinstance(event, RoundFinished):
                output.add(event.tokens)
            elif isinstance(event, Finished):
                output.add(event.tail)
    assert session.finished is not None
    output.end(session.finished)
    return session.finished


class _TextOutput:
    """The answer on stdout as it comes, its statistics on stderr at the end."""

    def __init__(self, show_draft: bool, quiet: bool) -> None:
        self._quiet = quiet
        self._show_draft = show_draft
        self._printer: AnswerPrinter | None = None

    def begin(self, session: Session, request: GenerationRequest) -> None:
        if self._show_draft and not self._quiet:
            print(legend(sys.stderr), file=sys.stderr)
        self._printer = AnswerPrinter(sys.stdout, show_draft=self._show_draft)

    def add(self, tokens: tuple[Token, ...]) -> None:
        if self._printer is not None:
            self._printer.write(tokens)

    def end(self, finished: Finished) -> None:
        from localspec.reports.answer import summary_line

        self._close()
        if not self._quiet:
            print(summary_line(finished.stats), file=sys.stderr)

    def _close(self) -> None:
        printer, self._printer = self._printer, None
        if printer is not None:
            printer.end()

    def __enter__(self) -> _TextOutput:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if not isinstance(error, OSError):  # then stdout itself is what is wrong
            self._close()


class _JsonOutput:
    """One object on stdout, also when the answer was cut: then with what is known."""

    def __init__(self) -> None:
        self._session: Session | None = None
        self._request: GenerationRequest | None = None
        self._tokens: list[Token] = []
        self._said = False

    def begin(self, session: Session, request: GenerationRequest) -> None:
        self._session, self._request = session, request

    def add(self, tokens: tuple[Token, ...]) -> None:
        self._tokens.extend(tokens)

    def end(self, finished: Finished) -> None:
        from localspec.reports.answer import finished_json

        assert self._session is not None and self._request is not None
        self._said = True
        print_json(finished_json(finished, self._session, self._request))

    def __enter__(self) -> _JsonOutput:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        from localspec.reports.answer import run_json

        if not self._said and isinstance(error, KeyboardInterrupt | Terminated | Cancelled | EngineDied):
            text, ids = "".join(token.text for token in self._tokens), tuple(token.id for token in self._tokens)
            print_json(run_json(text, "cancelled", ids, None, self._session, self._request))


_Output = _TextOutput | _JsonOutput


def _refuse_contradictions(values: dict[str, Any]) -> None:
    """Options that leave no room for another one that was given too. Raises InvalidInput."""
    if values["raw"]:
        cli_options.refuse_template_options()
    if values["as_json"]:
        cli_options.refuse(("show_draft",), "--json", "Leave one of them out")


def _request(question: str, session: Session, sampler: Any, values: dict[str, Any]) -> GenerationRequest:
    from localspec.engine.settings import GenerationRequest
    from localspec.engine.templates.chat_template import Message

    raw = values["raw"]
    if not raw and not session.info.has_template:
        cli_options.refuse(("system", "template_arg"), "a model without a chat template", "Leave it out")
        raw = True
        if not values["quiet"]:
            print(
                "note: this model has no chat template; the prompt is sent as it is (--raw)", file=sys.stderr
            )
    system = (Message("system", values["system"]),) if values["system"] else ()
    return GenerationRequest(
        messages=() if raw else (*system, Message("user", question)),
        prompt=question if raw else None,
        sampler=sampler,
        speculation=cli_options.speculation_settings(values),
        max_tokens=values["max_tokens"],
        min_tokens=values["min_tokens"],
        stop=tuple(values["stop"]),
        template_arguments=tuple(values["template_arg"]),
    )


def _where(pair: str | None, prompt: str | None, url: str | None) -> tuple[str, str | None]:
    """What answers, and the prompt: with --url the only argument is the prompt."""
    if not cli_options.was_typed("pair"):
        pair = None if url is not None else pair  # a pair that is only a habit gives way to a server
    elif pair == "-" and prompt is None and url is None:
        pair, prompt = default_pair(), "-"
    if url is not None:
        from localspec.remote import is_url

        if prompt is not None:
            raise click.UsageError("give a pair or --url, not both")
        cli_options.refuse_loading_options()
        return url if is_url(url) else f"http://{url}", pair
    if pair is None:
        raise click.UsageError("no pair given. Name one, a server with --url, or set: localspec config set pair NAME")
    return pair, prompt


def _prompt(argument: str | None) -> str:
    """The argument, or stdin for `-` and for a pipe in place of an absent one."""
    if argument is not None and argument != "-":
        return _checked(argument)
    if argument is None and is_terminal(sys.stdin):
        raise click.UsageError("no prompt given. Write it after the pair, or pipe it in")
    data = sys.stdin.buffer.read(_MOST_STDIN + 1)
    if len(data) > _MOST_STDIN:
        raise InvalidInput(f"stdin has more than {_MOST_STDIN >> 20} MiB", "Pipe in a shorter prompt")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"stdin is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}", "Convert it first"
        ) from None
    return _checked(text)


def _checked(text: str) -> str:
    if not text.strip():
        raise InvalidInput("the prompt is empty", "Write it after the pair, or pipe it in")
    # An argument is bytes; where the locale is not UTF-8, Python has kept those it did not understand.
    return os.fsencode(text).decode("utf-8", "replace") if _has_surrogates(text) else text


def _has_surrogates(text: str) -> bool:
    return any(0xD800 <= ord(letter) <= 0xDFFF for letter in text)


def _progress(values: dict[str, Any]) -> Any:
    """A line on stderr that says what is being loaded, on terminals only."""
    if values["quiet"] or not is_terminal(sys.stderr):
        return None

    def show(progress: Any) -> None:
        done = progress.fraction >= 1.0
        print(
            f"\rloading the {progress.part}: {progress.fraction:4.0%}",
            end="\r\x1b[K" if done else "",
            file=sys.stderr,
            flush=True,
        )

    return show
