"""What the terminal UI remembers from one start to the next."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from localspec.engine.settings import SamplerSettings
from localspec.ground.errors import InvalidInput
from localspec.ground.locations import state_folder
from localspec.ground.parsing import parse_json

_HISTORY = 200


@dataclass(frozen=True, slots=True)
class Preferences:
    """Small enough to be written whole at each change.

    Whether to speculate is not among them: every start begins with what is chosen by time.
    """

    theme: str = ""
    """"" = the default one."""
    provenance: bool = False
    """Answers are shown by origin."""
    panel: bool = True
    last_pair: str = ""
    last_draft: str = ""
    sampler: SamplerSettings = field(default_factory=SamplerSettings)
    system: str = ""
    """The system prompt of new chats."""
    templates: dict[str, str] = field(default_factory=dict)
    """By file: the chat template chosen for a model that has none (`base` = no template)."""


class PreferenceFile:
    """Reads and writes them. A damaged file means defaults; one that cannot be written stops nothing."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or state_folder() / "chat.json"

    def read(self) -> Preferences:
        """What is there; the defaults where the file is missing or damaged."""
        try:
            value = parse_json(self.path.read_text("utf-8"))
        except (OSError, ValueError):
            return Preferences()
        return _from_json(value) if isinstance(value, dict) else Preferences()

    def write(self, preferences: Preferences) -> None:
        """Replace the file; a home that cannot be written to costs only the memory."""
        temporary = self.path.with_suffix(".new")
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(asdict(preferences)), "utf-8")
            temporary.replace(self.path)


class Remembered:
    """The preferences as they are now; each change is written at once."""

    def __init__(self, file: PreferenceFile) -> None:
        self._file = file
        self.now = file.read()

    def change(self, **changes: Any) -> None:
        """Fields of `Preferences` by name."""
        self.now = replace(self.now, **changes)
        self._file.write(self.now)

    def choose_template(self, key: str, name: str) -> None:
        """For the model file with that key."""
        self.change(templates=self.now.templates | {key: name})


class PromptHistory:
    """What was typed before, newest last."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or state_folder() / "prompts.jsonl"
        self.entries: list[str] = []
        with suppress(OSError):
            for line in self._path.read_text("utf-8", "replace").splitlines()[-_HISTORY:]:
                with suppress(ValueError):
                    self.entries.append(str(parse_json(line)))

    def add(self, text: str) -> None:
        """Remember a prompt, unless it is the last one again."""
        if self.entries[-1:] == [text]:
            return
        self.entries.append(text)
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(json.dumps(text) + "\n")


def _from_json(value: dict[str, Any]) -> Preferences:
    preferences = Preferences()
    for name in ("theme", "provenance", "panel", "last_pair", "last_draft", "system", "templates"):
        if type(value.get(name)) is type(getattr(preferences, name)):
            preferences = replace(preferences, **{name: value[name]})
    return replace(
        preferences,
        sampler=_record(SamplerSettings, value.get("sampler")),
    )


def _record(kind: Any, value: Any) -> Any:
    """`kind` from its JSON; its defaults when any value is unknown or wrong."""
    if not isinstance(value, dict):
        return kind()
    known = {field.name for field in fields(kind)}
    kept = {name: _as_tuple(part) for name, part in value.items() if name in known}
    try:
        return kind(**kept)
    except (TypeError, InvalidInput):
        return kind()


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value
