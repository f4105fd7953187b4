"""All saved conversations of this user."""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from localspec.ground.errors import UnknownName
from localspec.ground.locations import data_folder
from localspec.ground.parsing import parse_json
from localspec.ui.session_file import SUFFIX, SessionMeta, SessionWriter

_MESSAGE = b'{"kind":"message"'
_TITLE = b'{"kind":"title"'


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """One line of the list."""

    path: Path
    title: str
    pair: str
    modified: float
    """Seconds since the epoch."""
    size: int
    """Bytes."""


class SessionStore:
    """The folder of session files."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or data_folder() / "chats"

    def new(self, pair: str, draft: str = "") -> SessionWriter:
        """A session that begins now; nothing is written before its first line."""
        now = datetime.now(UTC)
        name = f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}{SUFFIX}"
        return SessionWriter(self.folder / name, SessionMeta(now.isoformat(timespec="seconds"), pair, draft))

    def newest(self, limit: int = 500) -> list[SessionSummary]:
        """The newest first."""
        found = []
        for path in self.folder.glob("*" + SUFFIX):
            with suppress(OSError):
                found.append((path.stat().st_mtime, path))
        found.sort(reverse=True)
        summaries = (summary for _, path in found if (summary := _summary(path)) is not None)
        return list(islice(summaries, limit))

    def find(self, name: str) -> Path:
        """A file's path, a session's name, or `last`. Raises UnknownName."""
        if name == "last" and (newest := self.newest(1)):
            return newest[0].path
        for path in (Path(name), self.folder / name, self.folder / (name + SUFFIX)):
            if path.is_file():
                return path
        raise UnknownName(f"no session {name!r}", f"Sessions are in {self.folder}")

    def rename(self, path: Path, title: str) -> None:
        """Write a title into the file. Raises OSError, also while another localspec writes to it."""
        writer = SessionWriter(path, SessionMeta(""))
        writer.title(title)
        writer.close()
        if writer.fault:
            raise OSError(writer.fault)

    def delete(self, path: Path) -> None:
        """Remove the file; one that is gone already is fine."""
        path.unlink(missing_ok=True)


def _summary(path: Path) -> SessionSummary | None:
    """None for a file that is no session."""
    try:
        data = path.read_bytes()
        found = path.stat()
    except OSError:
        return None
    meta = _json(data[: data.find(b"\n") + 1])
    if meta.get("kind") != "session":
        return None
    title = _line_at(data, data.rfind(b"\n" + _TITLE)).get("title") or _line_at(data, data.find(b"\n" + _MESSAGE)).get(
        "text", ""
    )
    flat = " ".join(str(title).split())
    return SessionSummary(path, flat[:200] or "(empty)", str(meta.get("pair", "")), found.st_mtime, found.st_size)


def _line_at(data: bytes, newline: int) -> dict[str, Any]:
    if newline < 0:
        return {}
    end = data.find(b"\n", newline + 1)
    return _json(data[newline + 1 : end if end >= 0 else len(data)])


def _json(line: bytes) -> dict[str, Any]:
    try:
        value = parse_json(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
