"""What a setting is: its names as an option, a variable and a line of config.toml, and which values it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from localspec.cli.value_types import AutoNumber
from localspec.ground import config_file
from localspec.ground.errors import InvalidInput
from localspec.ground.terminal import one_line

ANSWERING = frozenset({"run", "chat", "serve", "export"})
"""Commands that are told how to choose tokens."""
LOADING = ANSWERING | {"bench", "audit", "tune", "fit"}
"""Commands that take a pair and say where it goes."""
EVERYWHERE: frozenset[str] = frozenset()
"""Every command that has the option."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One line that config.toml may hold."""

    key: str
    """`temp`, or `serve.port` for a key of a table; the last part is the option's long name."""
    type: click.ParamType[Any]
    help: str
    default: Any = None
    """None = decided when it is needed."""
    commands: frozenset[str] = LOADING
    """Where the file's value acts."""
    flags: tuple[str, ...] = ()
    """Short names of the option."""
    metavar: str | None = None
    check: Callable[[Any], object] | None = None
    """Raises InvalidInput for a value that its type allows and nothing can use."""
    is_path: bool = False
    """A leading `~` is the home folder; made absolute when it is set."""

    @property
    def name(self) -> str:
        """Of the option, without dashes in front."""
        return self.key.rpartition(".")[2]

    @property
    def parameter(self) -> str:
        """How click calls the option's value."""
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        """Of the environment."""
        return f"LOCALSPEC_{self.parameter.upper()}"

    def acts_in(self, command: str) -> bool:
        """Whether the file's value is a default there."""
        return command in self.commands or not self.commands

    def parse(self, text: str) -> Any:
        """What a person typed, as the value that the file holds. Raises InvalidInput."""
        if self.default is None and not text:
            raise InvalidInput(f"{self.key} cannot be empty", f"To have no value: localspec config unset {self.key}")
        try:
            value = self.type.convert(text, None, None)
        except click.BadParameter as error:
            raise self._wrong(text, error) from None
        value = "auto" if value is None else value
        self.checked(value)
        return value

    def checked(self, value: Any) -> Any:
        """The value of the file, as click is to get it. Raises InvalidInput."""
        kinds = _KINDS.get(type(self.type), (str,))
        if type(value) not in kinds or (isinstance(value, str) and "\0" in value):
            what = f"{self.key} cannot be {one_line(repr(value))}: not {_kind_text(self.type)}"
            raise InvalidInput(what, f"It is: {self.help}")
        try:
            converted = self.type.convert(value, None, None)
        except click.BadParameter as error:
            raise self._wrong(value, error) from None
        if self.check is not None and converted is not None:
            self.check(converted)
        return value

    def expanded(self, value: Any) -> Any:
        """A path that begins with `~`, in full; other values as they are."""
        return config_file.expanded(value) if self.is_path else value

    def _wrong(self, value: Any, error: click.BadParameter) -> InvalidInput:
        said = one_line(error.message).rstrip(".")
        return InvalidInput(f"{self.key} cannot be {one_line(repr(value))}: {said}", f"It is: {self.help}")


def _kind_text(kind: click.ParamType[Any]) -> str:
    if isinstance(kind, click.Choice):
        return f"one of {', '.join(map(str, kind.choices))}"
    for base, text in ((click.FLOAT, "a number"), (click.INT, "a whole number"), (click.BOOL, "true or false")):
        if isinstance(kind, type(base)):
            return text
    return "auto or a whole number" if isinstance(kind, AutoNumber) else "a text"


_NUMBER = (int, float)
_KINDS: dict[type, tuple[type, ...]] = {
    type(click.FLOAT): _NUMBER,
    click.FloatRange: _NUMBER,
    type(click.INT): (int,),
    click.IntRange: (int,),
    type(click.BOOL): (bool,),
    AutoNumber: (int, str),
}
"""What TOML may hold for each kind of option; texts for all others."""
