"""`localspec run`: one answer on stdout."""

from __future__ import annotations

import json
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from localspec.cli import options as cli_options
from localspec.cli.provenance import AnswerPrinter, legend
from localspec.cli.settings import default_pair
from localspec.errors import EngineDied, InvalidInput
from localspec.terminal import is_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from localspec.engine.records import Token
    from localspec.engine.settings import GenerationRequest
    from localspec.session import Session


@click.command(short_help="Answer one prompt on stdout")
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
    type=cli_options.KeyValue(),
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
    from localspec.report import finished_json, run_json, summary_line
    from localspec.session import open_session

    pair, prompt = _where(pair, prompt, values["url"])
    question = _prompt(prompt)
    sampler = cli_options.sampler_settings(values)
    load = cli_options.load_options(values)
    cli_options.speculation_settings(values)  # complains before anything is loaded
    with open_session(pair, load, _progress(values)) as session:
        for sentence in () if values["quiet"] else session.notes:
            print(f"note: {sentence}", file=sys.stderr)
        request = _request(question, session, sampler, values)
        printer = None if values["as_json"] else AnswerPrinter(sys.stdout, show_draft=values["show_draft"])
        if printer is not None and values["show_draft"] and not values["quiet"]:
            print(legend(sys.stderr), file=sys.stderr)
        so_far: list[Token] = []
        try:
            with _cancel_on_interrupt(session):
                for tokens in _answer(session, request):
                    so_far.extend(tokens)
                    if printer is not None:
                        printer.write(tokens)
        except EngineDied:
            if printer is not None:
                printer.end()
            else:
                text, ids = "".join(t.text for t in so_far), tuple(t.id for t in so_far)
                _print_json(run_json(text, "cancelled", ids, None, session, request))
            raise
        finished = session.finished
        assert finished is not None
        if printer is not None:
            printer.end()
            if not values["quiet"]:
                print(summary_line(finished.stats), file=sys.stderr)
        else:
            _print_json(finished_json(finished, session, request))
    return 130 if finished.reason == "cancelled" else 0


def _answer(session: Session, request: GenerationRequest) -> Iterator[tuple[Token, ...]]:
    """Tokens as their text settles."""
    from localspec.engine.records import Finished, RoundFinished

    for event in session.generate(request):
        if isinstance(event, RoundFinished):
            yield event.tokens
        elif isinstance(event, Finished):
            yield event.tail


def _request(question: str, session: Session, sampler: Any, values: dict[str, Any]) -> GenerationRequest:
    from localspec.engine.settings import GenerationRequest
    from localspec.engine.templates import Message

    raw = values["raw"]
    if not raw and not session.info.has_template:
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
    data = sys.stdin.buffer.read()
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
    return text.encode("utf-8", "replace").decode("utf-8")


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


@contextmanager
def _cancel_on_interrupt(session: Session) -> Iterator[None]:
    """The first Ctrl-C stops the answer and keeps what there is; the second one leaves."""

    def on_interrupt(signum: int, frame: object) -> None:
        session.client.cancel()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, ensure_ascii=False, allow_nan=False))
