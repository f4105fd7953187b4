"""`localspec serve`: the pair for other programs, over HTTP."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.cli import options as cli_options
from localspec.cli.settings import KNOWN
from localspec.ground.errors import InvalidInput

if TYPE_CHECKING:
    from localspec.serve.gate import Rules
    from localspec.session import Session

DEFAULT_PORT = KNOWN["serve.port"].default


@click.command()
@cli_options.pair_argument
@cli_options.setting("serve.host")
@cli_options.setting("serve.port")
@cli_options.option(
    "--api-key",
    metavar="KEY",
    help="Ask clients for this key. Better in LOCALSPEC_API_KEY: command lines can be seen.",
)
@cli_options.setting("serve.api-key-file")
@cli_options.option("--insecure-no-key", is_flag=True, help="Listen beyond this machine without a key.")
@cli_options.option(
    "--allow-host", multiple=True, metavar="NAME", help="Answer for this Host name too; may be repeated."
)
@cli_options.option(
    "--allow-origin", multiple=True, metavar="URL", help="Let web pages of this origin call; may be repeated."
)
@cli_options.setting("serve.queue")
@cli_options.setting("serve.answer-seconds")
@cli_options.pair_options
@cli_options.speculation_options
@cli_options.sampling_options
@cli_options.option("--quiet", "-q", is_flag=True, help="No access log.")
@cli_options.option("--verbose", "-v", is_flag=True, help="More detail, tracebacks included.")
def serve(pair: str, **values: Any) -> int:
    """Serve PAIR over HTTP in OpenAI's protocol, until Ctrl-C.

    Chat: POST /v1/chat/completions; text: /v1/completions; also /v1/models, /v1/pair, /health and /metrics
    (Prometheus). The sampling options are what applies where a request says nothing.
    """
    rules = _rules(values)
    defaults_sampler = cli_options.sampler_settings(values)
    speculation = cli_options.speculation_settings(values)
    if values["stop"] or values["min_tokens"]:
        raise InvalidInput("--stop and --min-tokens belong to a request", "Send them with each request")
    load = cli_options.load_options(values)
    try:
        from localspec.serve.app import Options
        from localspec.serve.run import serve as run_server
    except ImportError as error:
        raise InvalidInput(
            f"the server needs {error.name}, which is not installed", "Type: pip install 'localspec[server]'"
        ) from error
    from dataclasses import replace

    from localspec.remote import is_url
    from localspec.serve.requests import Defaults
    from localspec.session import open_session
    from localspec.session.open import prepare

    said = cli_options.given()

    def open_pair(draft_off: bool) -> Session:
        session = open_session(pair, replace(load, draft="none") if draft_off else load)
        notes = [] if draft_off else cli_options.unheeded(said, session, defaults_sampler)
        for sentence in filter(None, [session.also_open, *notes]):
            print(f"note: {sentence}", file=sys.stderr)
        return session

    if not is_url(pair):
        prepare(pair, load)  # what can be known to be wrong is said before anybody is let in

    options = Options(
        rules,
        Defaults(defaults_sampler, speculation, values["max_tokens"]),
        values["answer_seconds"],
        access_log=not values["quiet"],
    )
    run_server(open_pair, options, (values["host"], values["port"]), values["queue"], _say)
    return 0


def _rules(values: dict[str, Any]) -> Rules:
    """Who may ask. Raises InvalidInput for an open door."""
    from localspec.serve.gate import Rules, is_loopback

    keys = tuple(filter(None, [values["api_key"], *_keys_in(values["api_key_file"])]))
    if any(not key.isascii() or not key.isprintable() or " " in key for key in keys):
        raise InvalidInput("an API key may hold printable ASCII characters only, no spaces", "Choose another")
    if not is_loopback(values["host"]) and not keys and not values["insecure_no_key"]:
        raise InvalidInput(
            f"--host {values['host']} lets other machines in, and no key is asked for",
            "Add --api-key, or --insecure-no-key if you mean it",
        )
    return Rules(values["host"], keys, frozenset(values["allow_host"]), frozenset(values["allow_origin"]))


def _keys_in(path: str | None) -> list[str]:
    if path is None:
        return []
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read {path}: {error}", "Check --api-key-file") from None
    keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not keys:
        raise InvalidInput(f"{path} holds no key", "Put one a line into it")
    return keys


def _say(url: str) -> None:
    print(
        f"listening on {url}; OpenAI clients: base_url {url}/v1; stop with Ctrl-C",
        file=sys.stderr,
        flush=True,
    )
