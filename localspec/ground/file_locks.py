"""Locks on open files, between processes. They end when the file is closed, or with the process.

Why not the library `filelock`: it locks a path that it opens itself and, on Unix, leaves there. So each chat and each
claim would have a second file beside it, to be named, found and removed; here the lock is on the very file that is
written to, and on nothing else.
"""

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
