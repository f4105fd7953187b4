"""What a command did, for later questions: small logs of our own beside the engines' logs, one for each process.

Neither prompts nor answers nor what was typed are written, and no text of an error: those may quote any of them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
import traceback
from pathlib import Path

from localspec.ground.locations import state_folder

KEPT = 40
"""Files of earlier processes that stay: one holds a line or two, and the engine's deaths."""

log = logging.getLogger("localspec")
log.addHandler(logging.NullHandler())  # used as a library, we print nothing


def folder() -> Path:
    """Of all logs: one `localspec-*.log` for each process and one `engine-*.log` for each engine."""
    return state_folder() / "log"


def start_logging() -> None:
    """Write warnings and worse, and our own notes, to a file. Where that is impossible nothing is written."""
    if any(isinstance(handler, logging.FileHandler) for handler in log.handlers):
        return
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        folder().mkdir(parents=True, exist_ok=True)
        for old in _by_age(folder())[:-KEPT]:
            with contextlib.suppress(OSError):  # Windows: others hold it open
                old.unlink()
        path = folder() / f"localspec-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
        handler = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace")
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


def own_logs() -> list[Path]:
    """Our own logs that there are, the one written to last at the end."""
    return _by_age(folder())


def _by_age(where: Path) -> list[Path]:
    found = []
    for path in where.glob("localspec-*.log"):
        with contextlib.suppress(OSError):  # another process has just removed it
            found.append((path.stat().st_mtime, path))
    return [path for _, path in sorted(found)]
