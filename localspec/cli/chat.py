"""`localspec chat`: the terminal UI."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from localspec.cli import options as cli_options
from localspec.cli.value_types import KeyValue
from localspec.ground.terminal import is_terminal


@click.command()
@cli_options.optional_pair_argument
@cli_options.url_option
@cli_options.pair_options
@cli_options.speculation_options
@cli_options.sampling_options
@cli_options.setting("system")
@cli_options.option("--raw", is_flag=True, help="Send the text as it is, without the chat template.")
@cli_options.option("--template-arg", type=KeyValue(), multiple=True, help="Value for the chat template.")
@cli_options.setting("theme")
@cli_options.option("--session", metavar="NAME", help="Go on with a saved conversation: a file, a name or `last`.")
@cli_options.option("--verbose", "-v", is_flag=True, help="Tracebacks of errors.")
def chat(pair: str | None, **values: Any) -> int:
    """Open the terminal UI with PAIR, with the pair of the settings, or with the one that was used last.

    PAIR is a pulled pair's name, a catalog name on this disk, or a GGUF file (give its draft with --draft).
    """
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        raise click.UsageError("chat needs a terminal. For pipes there is: localspec run PAIR PROMPT")
    from localspec.remote import is_url
    from localspec.tui.app import Start, run_app

    if not cli_options.was_typed("pair") and (values["url"] or values["session"]):
        pair = None  # a pair that is only a habit gives way to what was asked for
    if values["raw"]:
        cli_options.refuse_template_options()
    if url := values["url"]:
        if pair is not None:
            raise click.UsageError("give a pair or --url, not both")
        cli_options.refuse_loading_options()
        pair = url if is_url(url) else f"http://{url}"
    options = cli_options.load_options(values)
    _for_every_screen(values)
    if pair is not None and not is_url(pair):
        from localspec.session.open import find

        find(pair, options)  # a name that means nothing is said here, not inside the UI
    session = values["session"] or ""
    if session:
        from localspec.ui.session_file import read_session
        from localspec.ui.session_store import SessionStore

        session = str(SessionStore().find(session))
        read_session(Path(session))
    start = Start(
        pair or "",
        options,
        _settings(values),
        values["system"],
        session,
        theme=values["theme"] or "",
    )
    return run_app(start)


def _for_every_screen(values: dict[str, Any]) -> None:
    """Pulls, lists and benchmarks inside the UI use the same folder and the same network as the pair itself."""
    if values["cache_dir"]:
        os.environ["HF_HUB_CACHE"] = str(Path(values["cache_dir"]).expanduser().absolute())
    if values["offline"]:
        os.environ["HF_HUB_OFFLINE"] = "1"


def _settings(values: dict[str, Any]) -> Any:
    """What was used last, with what this command line says on top."""
    from dataclasses import replace

    from localspec.ui.chat import ChatSettings
    from localspec.ui.preferences import PreferenceFile

    context = click.get_current_context()
    said = {
        name for name in values if context.get_parameter_source(name) not in (None, click.core.ParameterSource.DEFAULT)
    }
    remembered = PreferenceFile().read()
    asked = cli_options.sampler_settings(values)
    fields = {_SAMPLER_FIELDS[name] for name in said if name in _SAMPLER_FIELDS}
    sampler = replace(remembered.sampler, **{field: getattr(asked, field) for field in fields})
    return ChatSettings(
        sampler=sampler,
        speculation=cli_options.speculation_settings(values),
        max_tokens=values["max_tokens"],
        stop=tuple(values["stop"]),
        template_arguments=tuple(values["template_arg"]),
        raw=values["raw"],
    )


_SAMPLER_FIELDS = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repeat_penalty": "repeat_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "repeat_last_n": "penalty_window",
    "logit_bias": "logit_bias",
    "seed": "seed",
    "sampling": "mode",
    "draft_temp": "draft_temperature",
}
