"""`localspec config`: settings that stay."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from localspec.cli import options as cli_options
from localspec.cli.completing import setting_keys
from localspec.cli.setting import Setting
from localspec.cli.settings import KNOWN, known
from localspec.cli.streams import print_json
from localspec.ground import config_file
from localspec.ground.errors import InvalidInput
from localspec.ground.terminal import one_line, row

SCHEMA = 1


@click.group()
def config() -> None:
    """Settings that stay, in the file config.toml. Options and LOCALSPEC_* variables come before it."""


def _every_setting(command: Any) -> Any:
    for key in reversed(KNOWN):
        command = cli_options.setting(key)(command)
    return command


@config.command(short_help="Every setting, its value and where that comes from")
@click.argument("key", required=False, shell_complete=setting_keys)
@click.option("--origin", is_flag=True, help="Say where each value comes from.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
@_every_setting
def show(key: str | None, origin: bool, as_json: bool, **values: Any) -> int:
    """Print every setting with the value that counts, or KEY's value alone.

    Options of other commands can be given here too, to see what they would change.
    """
    context = click.get_current_context()
    wanted = [known(key)] if key is not None else list(KNOWN.values())
    rows = [(setting, values[setting.parameter], _origin(context, setting)) for setting in wanted]
    if as_json:
        settings = {s.key: {"value": _plain(s, value), "origin": o, "help": s.help} for s, value, o in rows}
        print_json({"schema": SCHEMA, "file": str(config_file.path()), "settings": settings})
    elif key is not None and not origin:
        print(one_line(_text(*rows[0][:2]), 10_000))
    else:
        _print_table(rows, origin)
    return 0


@config.command("set", short_help="Keep a value", context_settings={"ignore_unknown_options": True})
@click.argument("key", shell_complete=setting_keys)
@click.argument("value")
def set_(key: str, value: str) -> int:
    """Keep VALUE for KEY in config.toml. Comments and everything else in the file stay."""
    setting = known(key)
    kept = _absolute(setting, setting.parse(value)) if setting.is_path else setting.parse(value)
    file = config_file.path()
    config_file.change(file, setting.key, kept)
    print(f"{setting.key} = {one_line(_text(setting, kept))} (in {file})", file=sys.stderr)
    if os.environ.get(setting.variable):
        print(f"note: {setting.variable} is set in the environment, and comes before it", file=sys.stderr)
    return 0


@config.command(short_help="Go back to the default")
@click.argument("key", shell_complete=setting_keys)
def unset(key: str) -> int:
    """Take KEY's line out of config.toml."""
    file = config_file.path()
    if key not in KNOWN and key in dict(config_file.flat(config_file.read(file))):
        config_file.change(file, key, None)  # a line that nobody knows must be easy to get rid of
        print(f"{one_line(key)} is out of {file}", file=sys.stderr)
        return 0
    setting = known(key)
    there = setting.key in dict(config_file.flat(config_file.read(file)))
    config_file.change(file, setting.key, None)
    what = "has its default again" if there else f"was not set in {file}; its default is"
    print(f"{setting.key} {what}: {_text(setting, setting.default)}", file=sys.stderr)
    return 0


@config.command(short_help="Where the file is")
def path() -> int:
    """Print the path of config.toml, whether it exists or not."""
    print(config_file.path())
    return 0


def _absolute(setting: Setting, value: str) -> str:
    """Paths are kept in full: a setting acts in every folder. Names of pairs and models stay names."""
    full = Path(config_file.expanded(value))
    if setting.key in ("pair", "draft") and not full.exists():
        return value
    if setting.key == "serve.api-key-file" and not full.exists():
        raise InvalidInput(f"no file {full}", "Write the keys into it first, one a line")
    return value if value.startswith("~") else str(full.absolute())


def _origin(context: click.Context, setting: Setting) -> str:
    source = context.get_parameter_source(setting.parameter)
    names = {
        ParameterSource.COMMANDLINE: "option",
        ParameterSource.ENVIRONMENT: f"environment ({setting.variable})",
        ParameterSource.DEFAULT_MAP: "file",
    }
    return names.get(source, "default") if source is not None else "default"


def _plain(setting: Setting, value: Any) -> Any:
    """As the file would hold it: what click made of `auto` is `auto` again."""
    return "auto" if value is None and setting.default == "auto" else value


def _text(setting: Setting, value: Any) -> str:
    value = _plain(setting, value)
    if value is None:
        return "(not set)"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _print_table(rows: list[tuple[Setting, Any, str]], origin: bool) -> None:
    texts = [(s.key, one_line(_text(s, value), 60), where, s.help) for s, value, where in rows]
    wide = max(len(key) for key, *_ in texts)
    wide_value = max(len(value) for _, value, *_ in texts)
    for key, value, where, about in texts:
        last = where if origin else about
        print(row(f"{key:{wide}}  {value:{wide_value}}  {last}").rstrip())
    if origin:
        file = config_file.path()
        print(f"file: {row(str(file))}{'' if file.exists() else ' (not there yet)'}", file=sys.stderr)
