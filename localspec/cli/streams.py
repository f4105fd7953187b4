"""The three standard streams, whatever was done to them: closed, full, or left by their reader."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from contextlib import suppress
from typing import Any

from localspec.ground.errors import DISK_FULL

UNWRITABLE = DISK_FULL | {errno.EIO, errno.EBADF}
"""What a write says when something is wrong with the place, no room included."""


def prepare() -> None:
    """Give closed streams a place to go to, and let no odd character end an answer.

    A closed descriptor would otherwise be given to the next file that is opened, and be written to by accident.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if not _is_open(descriptor):
            _to_nowhere(descriptor)
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a locale without UTF-8 must not end an answer
            if stream is sys.__stderr__:
                sys.stderr = _Remarks(stream)


class _Remarks(io.TextIOWrapper):
    """stderr on which a remark that cannot be written costs that remark, and nothing else."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        super().__init__(stream.buffer, stream.encoding, "replace", line_buffering=True)
        self._first = stream  # would close the descriptor when it goes

    def write(self, text: str) -> int:
        with suppress(OSError):
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


def print_json(value: Any) -> None:
    """One object on one line of stdout; only ASCII where the locale has no more to offer."""
    plain = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    print(json.dumps(value, ensure_ascii=plain, allow_nan=False))


def settle() -> OSError | None:
    """Write out what is waiting; what cannot be written is dropped, and the interpreter's own flush stays quiet.

    Returns the error of stdout, None when all went well or when the reader just went away.
    """
    fault = None
    for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except OSError as error:
            _to_nowhere(descriptor)
            if descriptor == 1 and not isinstance(error, BrokenPipeError):
                fault = error
        except ValueError:  # somebody closed it
            pass
    return fault


def say(line: str) -> None:
    """A line on stderr; nobody may be there to read it."""
    with suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _to_nowhere(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere == descriptor:
        os.set_inheritable(descriptor, True)
    else:
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
