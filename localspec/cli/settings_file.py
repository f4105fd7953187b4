"""What config.toml says, and how its values become the defaults of options."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from typing import Any

import click

from localspec.cli.setting import Setting
from localspec.cli.settings import KNOWN, known
from localspec.ground import config_file
from localspec.ground.errors import InvalidInput, LocalspecError
from localspec.ground.terminal import one_line

WITHOUT_FILE = frozenset({"doctor", "bug-report"})
"""Commands that work with a damaged file."""


def file_values() -> dict[str, Any]:
    """What config.toml says, by key. Raises InvalidInput that names the file, the key and the value."""
    path = config_file.path()
    values: dict[str, Any] = {}
    for key, value in config_file.flat(config_file.read(path)):
        try:
            setting = known(key)
            if setting.key in values:
                raise InvalidInput(f"{setting.key} is there twice", "Keep one")
            values[setting.key] = setting.expanded(setting.checked(value))
        except LocalspecError as error:
            again = f"Type: localspec config unset {shlex.quote(one_line(key))}"
            raise InvalidInput(f"{path}: {error.message}", f"{error.hint}. {again}") from None
    return values


class CommandDefaults(dict[str, Any]):
    """Defaults of one command's options, read from the file when the first of them is needed.

    A help page, a completion and the commands that look for problems must work while the file is damaged: they see
    no value.
    """

    def __init__(self, command: str, settings: Iterable[Setting]) -> None:
        super().__init__()
        self._command = command
        self._keys = {setting.parameter: setting.key for setting in settings}

    def __contains__(self, parameter: object) -> bool:
        if parameter not in self._keys:
            return False
        try:
            return self._keys[str(parameter)] in file_values_once()
        except LocalspecError:
            context = click.get_current_context(silent=True)
            if self._command in WITHOUT_FILE or (context is not None and context.resilient_parsing):
                return False
            raise

    def __getitem__(self, parameter: str) -> Any:
        return file_values_once()[self._keys[parameter]]


class FileDefaults(dict[str, Any]):
    """click's default map of all commands. `config show` has every setting as an option."""

    def get(self, command: str, default: Any = None) -> Any:
        if command == "config":
            return {"show": CommandDefaults(command, KNOWN.values())}
        return CommandDefaults(command, (setting for setting in KNOWN.values() if setting.acts_in(command)))


_read: dict[str, dict[str, Any]] = {}


def file_values_once() -> dict[str, Any]:
    """`file_values`, read once in a process for each path."""
    path = str(config_file.path())
    if path not in _read:
        _read[path] = file_values()
    return _read[path]


def default_pair() -> str | None:
    """The pair to use when none was named: of the environment, else of the file."""
    pair: str | None = os.environ.get(KNOWN["pair"].variable) or file_values_once().get("pair")
    return pair


def file_error() -> LocalspecError | None:
    """What is wrong with the file, if anything is."""
    try:
        file_values_once()
    except LocalspecError as error:
        return error
    return None
