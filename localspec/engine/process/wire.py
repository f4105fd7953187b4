"""Messages between the engine's process and its parent: length, then pickle, over a pair of pipes.

Both ends are this same package in this same installation, and nobody else holds the pipes.
"""

from __future__ import annotations

import pickle
import struct
import threading
from typing import Any, BinaryIO

_LENGTH = struct.Struct("<Q")


class Sender:
    """Writes whole messages, from any thread. Raises BrokenPipeError when nobody reads any more."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def send(self, message: object) -> None:
        """One message; may be called from several threads."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        with self._lock:
            self._stream.write(_LENGTH.pack(len(data)) + data)
            self._stream.flush()


def receive(stream: BinaryIO) -> Any:
    """The next message. Raises EOFError at the end, also when it comes in the middle of a message."""
    (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
    return pickle.loads(_exactly(stream, length))


def _exactly(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise EOFError("the other side is gone")
    return data
