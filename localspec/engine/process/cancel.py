"""A cancel flag that libllama itself polls, without the interpreter's lock, across processes.

libllama asks an abort callback after each node of its compute graph. A Python callback would take the
interpreter's lock hundreds of times a token. The C library's `strlen` has the right shape: given the
address of a byte string it returns 0 while the first byte is 0, and 1 once it is set. The bytes may lie in
memory that two processes share.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import tempfile
from pathlib import Path


class CancelFlag:
    """One byte that says stop. `path` None = private to this process, else a small file both sides map."""

    def __init__(self, path: Path | None = None) -> None:
        self.looks = 0
        """How often this side has asked: before each pass, and for each tensor that is loaded."""
        self._map: mmap.mmap | None = None
        if path is None:
            self._bytes: ctypes.Array[ctypes.c_char] = ctypes.create_string_buffer(2)
        else:
            with open(path, "r+b") as file:
                self._map = mmap.mmap(file.fileno(), 2)
            self._bytes = (ctypes.c_char * 2).from_buffer(self._map)

    @property
    def address(self) -> int:
        """Where the byte lies, for `abort_callback_address`."""
        return ctypes.addressof(self._bytes)

    def set(self) -> None:
        """Ask for the end."""
        self._bytes[0] = b"\x01"

    def clear(self) -> None:
        """Take it back, before the next piece of work."""
        self._bytes[0] = b"\x00"

    def is_set(self) -> bool:
        """Whether the end was asked for."""
        self.looks += 1
        return self._bytes[0] != b"\x00"


def new_shared_flag_file() -> Path:
    """Make the small file behind a flag that a child process will map too."""
    handle, name = tempfile.mkstemp(prefix="localspec-cancel-")
    os.write(handle, b"\0\0")
    os.close(handle)
    return Path(name)


def strlen_address() -> int:
    """The address of the C library's strlen."""
    library = ctypes.CDLL("msvcrt") if sys.platform == "win32" else ctypes.CDLL(None)
    address = ctypes.cast(library.strlen, ctypes.c_void_p).value
    assert address is not None
    return address
