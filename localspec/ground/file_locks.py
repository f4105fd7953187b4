"""Locks on open files, between processes. They end when the file is closed, or with the process."""

from __future__ import annotations

import errno
import sys
from typing import IO, Any

_HELD = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)


def try_lock(file: IO[Any]) -> bool:
    """Lock a file without waiting; False when another process holds it. Where the file system knows no locks: True."""
    try:
        if sys.platform == "win32":
            import msvcrt

            place = file.tell()
            file.seek(1 << 30)  # a byte that nobody reads: there locks keep readers out
            try:
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            finally:
                file.seek(place)
        else:
            import fcntl

            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _HELD
    return True


def wait_for_lock(descriptor: int) -> bool:
    """Lock a file when the others have let go; False when it cannot be locked."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        return False
    return True
