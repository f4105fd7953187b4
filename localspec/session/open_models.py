"""Which models are open in other windows: a second copy takes as much memory again.

Each loaded target has a small file that its process keeps locked. The lock ends with the process, however it
ends; a file that nobody locks is removed by whoever sees it. It is advice: nothing is refused because of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from localspec.ground.file_locks import try_lock
from localspec.ground.locations import state_folder
from localspec.ground.terminal import one_line

_MOST_BYTES = 4096
_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class Claim:
    """One process that has a target loaded, or is loading it."""

    pid: int
    """Of the program a person started; its engine is a child of it."""
    program: str
    """What it was called as: `localspec chat`, or a script's name."""
    bytes: int
    """Memory it planned to take, draft included."""
    since: float
    """Unix time."""


class HeldClaim:
    """This process' own claim. Never raises: a home that cannot be written to only means that nobody is told."""

    def __init__(self, target: Path, needs: int) -> None:
        self._file: IO[str] | None = None
        claim = Claim(os.getpid(), _program(), needs, time.time())
        self._path = _folder() / f"{_key(target)}-{os.getpid()}-{time.time_ns():x}.json"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self._path, "x", encoding="utf-8")  # noqa: SIM115 - held until `close`
            for _ in range(_ATTEMPTS):  # somebody may be looking whether anybody holds it
                if try_lock(self._file):
                    break
                time.sleep(0.01)
            json.dump(asdict(claim), self._file)  # only now: what is empty is not removed
            self._file.flush()
        except OSError:
            self.close()

    def close(self) -> None:
        """Let go; safe to call twice."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # on a full disk closing writes once more
                file.close()
            with suppress(OSError):
                self._path.unlink()


def others(target: Path) -> list[Claim]:
    """Other processes that have `target` open, oldest first."""
    found = []
    for path in sorted(_folder().glob(f"{_key(target)}-*.json")):
        claim = _read(path)
        if claim is not None and claim.pid != os.getpid():
            found.append(claim)
    return sorted(found, key=lambda claim: claim.since)


def sentence(claims: list[Claim]) -> str:
    """One line about them, "" without any."""
    if not claims:
        return ""
    from localspec.pairs.memory.fit_records import size_text

    first = claims[0]
    more = f" and {len(claims) - 1} more" if len(claims) > 1 else ""
    return (
        f"the same target is open in process {first.pid} ({first.program}){more}, with up to "
        f"{size_text(sum(claim.bytes for claim in claims))} of memory; a second copy takes as much again"
    )


def _read(path: Path) -> Claim | None:
    """The claim in a file that is locked; None for others, which are removed."""
    try:
        with open(path, "r+", encoding="utf-8", errors="replace") as file:
            text = file.read(_MOST_BYTES)
            if not try_lock(file):
                return Claim(**dict(_fields(json.loads(text))))
        if text:
            path.unlink()
    except (OSError, ValueError, TypeError, LookupError, ArithmeticError):
        pass  # not ours, or gone meanwhile
    return None


def _fields(table: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What stands there, as the types it must have."""
    yield "pid", int(table["pid"])
    yield "program", one_line(str(table["program"]), 60)
    yield "bytes", int(table["bytes"])
    yield "since", float(table["since"])


def _folder() -> Path:
    return state_folder() / "open"


def _key(target: Path) -> str:
    return hashlib.sha256(os.fsencode(os.path.realpath(target))).hexdigest()[:16]


def _program() -> str:
    name = Path(sys.argv[0]).name or "python"
    if name.removesuffix(".exe") not in ("localspec", "__main__.py"):
        return name
    return f"localspec {next((word for word in sys.argv[1:] if word.isalpha()), 'chat')}"
