"""The one table of settings: each can be an option, a variable LOCALSPEC_<NAME> and a line of config.toml.

Options are made from this table, so that their types, defaults and help are said once. A setting of the file acts as
the default of the option with its name, in the commands that the table names; option and environment come first.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import click

from localspec import config_file
from localspec.cli.value_types import AutoNumber
from localspec.errors import InvalidInput, LocalspecError
from localspec.terminal import one_line

ANSWERING = frozenset({"run", "chat", "serve", "export"})
"""Commands that are told how to choose tokens."""
LOADING = ANSWERING | {"bench", "audit", "tune", "fit"}
"""Commands that take a pair and say where it goes."""
EVERYWHERE: frozenset[str] = frozenset()
"""Every command that has the option."""
WITHOUT_FILE = frozenset({"doctor", "bug-report"})
"""Commands that work with a damaged file."""
THEMES = (
    *("textual-dark", "textual-light", "nord", "gruvbox", "catppuccin-mocha", "catppuccin-frappe"),
    *("catppuccin-macchiato", "catppuccin-latte", "dracula", "tokyo-night", "monokai", "flexoki", "solarized-light"),
    *("solarized-dark", "rose-pine", "rose-pine-moon", "rose-pine-dawn", "atom-one-dark", "atom-one-light"),
    *("ansi-dark", "ansi-light"),
)
"""Textual's, by name: reading a setting must not import the terminal UI."""


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


def _sampler(field: str) -> Callable[[Any], object]:
    def check(value: Any) -> object:
        from localspec.engine.settings import SamplerSettings

        return SamplerSettings(**{field: value})

    return check


def _load(field: str) -> Callable[[Any], object]:
    def check(value: Any) -> object:
        from localspec.session import LoadOptions

        return LoadOptions(**{field: value})

    return check


def _length(value: int) -> object:
    from localspec.engine.settings import SpeculationSettings

    return SpeculationSettings(length=value)


def _max_tokens(value: int) -> object:
    from localspec.engine.settings import GenerationRequest

    return GenerationRequest(prompt="", max_tokens=value)


_TEXT, _FLOAT, _INT = click.STRING, click.FLOAT, click.INT

KNOWN: dict[str, Setting] = {
    setting.key: setting
    for setting in (
        Setting("pair", _TEXT, "The pair to use when none is named.", metavar="PAIR", is_path=True),
        Setting("draft", _TEXT, "Draft model: a file, a name, `auto` or `none`.", metavar="D", is_path=True),
        Setting(
            "drafter",
            click.Choice(["auto", "model", "lookup", "none"]),
            "What guesses. A named one is an order.",
            "auto",
            ANSWERING,
        ),
        Setting(
            "draft-length",
            AutoNumber(),
            "Guesses per round, 0 to 64. A number is an order.",
            "auto",
            ANSWERING,
            ("-k",),
            check=_length,
        ),
        Setting("ctx", _INT, "Tokens of context (default: min(8192, trained)).", metavar="N", check=_load("context")),
        Setting("threads", _INT, "Threads (default: physical cores).", metavar="N", check=_load("threads")),
        Setting("gpu-layers", AutoNumber(), "Layers of the target on the GPU.", "auto"),
        Setting("draft-gpu-layers", AutoNumber(), "Layers of the draft on the GPU.", "auto"),
        Setting("split-mode", click.Choice(["none", "layer", "row"]), "How several GPUs share a model.", "layer"),
        Setting("main-gpu", _INT, "The GPU that is used when one is.", 0),
        Setting(
            "cache-type",
            _TEXT,
            "Element type of the caches: f16 (default), q8_0, ...",
            metavar="T",
            check=_load("cache_type"),
        ),
        Setting("flash-attn", click.Choice(["auto", "on", "off"]), "Flash attention.", "auto"),
        Setting("offline", click.BOOL, "Never ask the network.", False, EVERYWHERE),
        Setting(
            "cache-dir",
            _TEXT,
            "Folder of the model files (default: the Hugging Face cache).",
            None,
            EVERYWHERE,
            metavar="DIR",
            is_path=True,
        ),
        Setting("temp", _FLOAT, "Temperature; 0 is greedy.", 0.8, ANSWERING, check=_sampler("temperature")),
        Setting("top-k", _INT, "Keep the K likeliest tokens; 0 = off.", 40, ANSWERING, check=_sampler("top_k")),
        Setting(
            "top-p",
            _FLOAT,
            "Keep the likeliest tokens up to this mass; 1 = off.",
            0.95,
            ANSWERING,
            check=_sampler("top_p"),
        ),
        Setting(
            "min-p",
            _FLOAT,
            "Drop tokens below this share of the likeliest; 0 = off.",
            0.05,
            ANSWERING,
            check=_sampler("min_p"),
        ),
        Setting(
            "repeat-penalty",
            _FLOAT,
            "Above 1: repeated tokens become less likely.",
            1.0,
            ANSWERING,
            check=_sampler("repeat_penalty"),
        ),
        Setting(
            "presence-penalty",
            _FLOAT,
            "Taken off tokens that occurred.",
            0.0,
            ANSWERING,
            check=_sampler("presence_penalty"),
        ),
        Setting(
            "frequency-penalty",
            _FLOAT,
            "Taken off tokens for each time they occurred.",
            0.0,
            ANSWERING,
            check=_sampler("frequency_penalty"),
        ),
        Setting(
            "repeat-last-n",
            _INT,
            "Tokens that penalties look back on; -1 = all.",
            64,
            ANSWERING,
            check=_sampler("penalty_window"),
        ),
        Setting(
            "seed",
            _INT,
            "The same seed gives the same text, with and without drafts.",
            None,
            ANSWERING,
            metavar="N",
            check=_sampler("seed"),
        ),
        Setting(
            "sampling",
            click.Choice(["rejection", "coupled"]),
            "Default: coupled with --seed, else rejection.",
            None,
            ANSWERING,
        ),
        Setting(
            "draft-temp",
            _FLOAT,
            "The draft model's own temperature.",
            None,
            ANSWERING,
            metavar="T",
            check=_sampler("draft_temperature"),
        ),
        Setting(
            "max-tokens",
            _INT,
            "Most tokens to generate (default: until the end).",
            None,
            ANSWERING,
            ("-n",),
            "N",
            _max_tokens,
        ),
        Setting("system", _TEXT, "System prompt.", None, frozenset({"run", "chat"}), metavar="TEXT"),
        Setting(
            "theme",
            click.Choice(THEMES),
            "Colours of the terminal UI (default: the ones used last).",
            None,
            frozenset({"chat"}),
            metavar="NAME",
        ),
        Setting(
            "serve.host",
            _TEXT,
            "Address to listen on; 127.0.0.1 is this machine only.",
            "127.0.0.1",
            frozenset({"serve"}),
            metavar="ADDRESS",
        ),
        Setting("serve.port", click.IntRange(0, 65535), "Port; 0 = any free one.", 8713, frozenset({"serve"})),
        Setting(
            "serve.queue",
            click.IntRange(0, 10000),
            "Requests that may wait; more get status 429.",
            32,
            frozenset({"serve"}),
        ),
        Setting(
            "serve.answer-seconds",
            click.FloatRange(1, 86400),
            "Longest time for one answer, waiting included.",
            600.0,
            frozenset({"serve"}),
        ),
        Setting(
            "serve.api-key-file",
            click.Path(dir_okay=False),
            "File of keys, one a line.",
            None,
            frozenset({"serve"}),
            is_path=True,
        ),
    )
}
"""By key, in the order in which people look for them."""

_OTHER_NAMES = {"k": "draft-length", "n": "max-tokens", "temperature": "temp", "context": "ctx", "ngl": "gpu-layers"}


def known(key: str) -> Setting:
    """The setting of that key. Raises InvalidInput with the nearest ones."""
    tidy = key.strip().lower().replace("_", "-")
    setting = KNOWN.get(tidy)
    if setting is not None:
        return setting
    close = [_OTHER_NAMES[tidy]] if tidy in _OTHER_NAMES else get_close_matches(tidy, KNOWN, n=3, cutoff=0.5)
    near = f"Close: {', '.join(close)}. " if close else ""
    raise InvalidInput(f"no setting named {one_line(key)!r}", f"{near}See all: localspec config show")


def file_values() -> dict[str, Any]:
    """What config.toml says, by key. Raises InvalidInput that names the file, the key and the value."""
    path = config_file.path()
    values: dict[str, Any] = {}
    for key, value in config_file.flat(config_file.read(path)):
        try:
            setting = known(key)
            if setting.key in values:
                raise InvalidInput(f"{setting.key} is there twice", "Keep one")
            values[setting.key] = expanded(setting, setting.checked(value))
        except LocalspecError as error:
            again = f"Type: localspec config unset {shlex.quote(one_line(key))}"
            raise InvalidInput(f"{path}: {error.message}", f"{error.hint}. {again}") from None
    return values


def expanded(setting: Setting, value: Any) -> Any:
    """A path that begins with `~`, in full."""
    return config_file.expanded(value) if setting.is_path else value


class CommandDefaults(dict[str, Any]):
    """Defaults of one command's options, read from the file when the first of them is needed.

    A help page, a completion and the commands that look for problems must work while the file is damaged: they see
    no value.
    """

    def __init__(self, command: str) -> None:
        super().__init__()
        self._command = command
        self._keys = {s.parameter: s.key for s in KNOWN.values() if s.acts_in(command)}

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
            return {"show": _AllDefaults()}
        return CommandDefaults(command)


class _AllDefaults(CommandDefaults):
    def __init__(self) -> None:
        super().__init__("")
        self._keys = {setting.parameter: setting.key for setting in KNOWN.values()}


_read: dict[str, dict[str, Any]] = {}


def file_values_once() -> dict[str, Any]:
    """`file_values`, read once in a process for each path."""
    path = str(config_file.path())
    if path not in _read:
        _read[path] = file_values()
    return _read[path]


def default_pair() -> str | None:
    """The pair to use when none was named: of the environment, else of the file."""
    variable: str | None = os.environ.get(KNOWN["pair"].variable) or file_values_once().get("pair")
    return variable


def file_error() -> LocalspecError | None:
    """What is wrong with the file, if anything is."""
    try:
        file_values_once()
    except LocalspecError as error:
        return error
    return None


def settings_of(command: str) -> Iterator[Setting]:
    """The settings whose file value acts in a command."""
    return (setting for setting in KNOWN.values() if setting.acts_in(command))
