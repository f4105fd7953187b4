"""`localspec bug-report`: what a bug report should hold, without anybody's texts."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from localspec.cli import options as cli_options
from localspec.cli.settings import KNOWN
from localspec.cli.settings_file import file_error, file_values_once
from localspec.ground.locations import state_folder
from localspec.ground.terminal import row, visible

_PRIVATE = frozenset({"system"})
"""Settings whose value is a person's text."""


@click.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path, allow_dash=True))
@cli_options.option("--verbose", "-v", is_flag=True, help="Tracebacks of errors.")
def bug_report(file: Path | None, **values: Any) -> int:
    """Write versions, doctor's findings, settings, pairs and the last log lines as Markdown, and print where.

    FILE `-` is stdout. Prompts, answers and tokens are not in it; the home folder is `~`. Read it before you send it.
    """
    text = report()
    if str(file) == "-":
        sys.stdout.write(text)
        return 0
    path = file or state_folder() / f"bug-report-{time.strftime('%Y%m%d-%H%M%S')}.md"
    if file is None:
        path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    print(path)
    print("Read it before you send it.", file=sys.stderr)
    return 0


def report() -> str:
    """The Markdown text."""
    from localspec.doctor.bug_report import Scrubber, engine_lines, environment, newest_logs, own_lines, versions

    own, engine = newest_logs()
    parts = [
        "# Bug report of localspec\n\nWhat I typed, what I expected, what happened instead:\n\n",
        _section("Versions", lambda: (f"{name} {version}" for name, version in versions())),
        _section("Doctor", _findings),
        _section("Settings that are not the default", _settings),
        _section("Environment", lambda: (f"{name} = {value}" for name, value in environment())),
        _section("Pairs", _pairs),
        _section("Log", lambda: own_lines(own)),
        _section("Log of the last engine", lambda: engine_lines(engine)),
    ]
    return Scrubber()(visible("\n".join(parts)))


def _section(title: str, lines: Callable[[], Iterable[str]]) -> str:
    """A report of something broken must not break: what cannot be found out is said in one line."""
    try:
        body = "\n".join(row(line).replace("```", "'''") for line in lines()) or "(nothing)"
    except Exception as error:
        body = f"(cannot be found out: {type(error).__name__})"
    return f"## {title}\n\n```\n{body}\n```\n"


def _findings() -> Iterator[str]:
    from localspec.doctor.gather import gather
    from localspec.doctor.rules import examine

    for finding in examine(gather(offline=True)):
        yield f"{finding.level:8} {finding.area:9} {finding.what}"


def _settings() -> Iterator[str]:
    import os

    if error := file_error():
        yield f"config.toml cannot be used: {type(error).__name__}"
        kept: dict[str, Any] = {}
    else:
        kept = file_values_once()
    for setting in KNOWN.values():
        variable = os.environ.get(setting.variable)
        value, origin = (variable, "environment") if variable else (kept.get(setting.key), "file")
        if value is not None:
            shown = f"({len(str(value))} characters)" if setting.key in _PRIVATE else value
            yield f"{setting.key} = {shown} ({origin})"


def _pairs() -> Iterator[str]:
    from localspec.pairs.store.store import Store

    for name, lock in Store().names():
        models = ", ".join(f"{m.architecture} {m.quant} {m.size / 1e9:.2f} GB" for m in lock.models)
        yield f"{name}: {lock.verdict or 'no draft'}; {models}; {lock.state_text()}"
