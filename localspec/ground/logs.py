"""What a command did, for later questions: a small log of our own beside the engines' logs.

Neither prompts nor answers nor what was typed are written, and no text of an error: those may quote any of them.
"""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import os
import traceback
from collections.abc import Iterator
from pathlib import Path

from localspec.ground.file_locks import wait_for_lock
from localspec.ground.locations import state_folder

BYTES, KEPT = 256 << 10, 3
"""Of one file, and how many older ones stay."""

log = logging.getLogger("localspec")
log.addHandler(logging.NullHandler())  # used as a library, we print nothing


def folder() -> Path:
    """Of all logs: `localspec.log` and one `engine-*.log` for each engine."""
    return state_folder() / "log"


def start_logging(to: Path | None = None) -> None:
    """Write warnings and worse, and our own notes, to a file. Where that is impossible nothing is written."""
    if any(isinstance(handler, SharedRotatingFile) for handler in log.handlers):
        return
    path = to or folder() / "localspec.log"
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = SharedRotatingFile(path)
    except OSError:
        return
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(message)s"))
    log.addHandler(handler)
    logging.raiseExceptions = False  # a full disk must not put tracebacks on the terminal


def frames_of(error: BaseException) -> str:
    """Kinds of error and places in the source, without any text that came from a person."""
    lines: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(lines) < 60:
        lines.append(f"{type(cause).__module__}.{type(cause).__name__}")
        for frame in traceback.extract_tb(cause.__traceback__)[-20:]:
            where = "/".join(Path(frame.filename).parts[-3:])
            lines.append(f"    {where}:{frame.lineno} {frame.name}")
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return "\n".join(lines)


class SharedRotatingFile(logging.handlers.RotatingFileHandler):
    """A rotating log that several processes write to: one of them rotates, the others follow to the new file."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=BYTES, backupCount=KEPT, encoding="utf-8", errors="backslashreplace")

    def emit(self, record: logging.LogRecord) -> None:
        self._follow()
        super().emit(record)

    def doRollover(self) -> None:
        with _alone(Path(self.baseFilename + ".lock")) as alone:
            if alone and not self._follow():  # another process may have rotated while we waited
                with contextlib.suppress(OSError):  # Windows: a file that others hold open keeps its name
                    super().doRollover()
            if self.stream is None:
                self.stream = self._open()

    def _follow(self) -> bool:
        """Open the file anew if the one we hold is no longer it; whether that was so."""
        if self.stream is None:
            return False
        try:
            there = os.stat(self.baseFilename)
        except OSError:
            there = None
        ours = os.fstat(self.stream.fileno())
        if there is not None and (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino):
            return False
        self.stream.close()
        self.stream = self._open()
        return True


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """Hold the lock file while the block runs; False when there can be none."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        yield False
        return
    try:
        yield wait_for_lock(handle)
    finally:
        os.close(handle)
