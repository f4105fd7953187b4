"""Messages between the engine's process and its parent: length, then pickle, over a pair of pipes.

Both ends are this same package in this same installation, and nobody else holds the pipes.
"""

from __future__ import annotations

import pickle
import queue
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
        data = _packed(message)
        with self._lock:
            self._stream.write(data)
            self._stream.flush()


class Outbox:
    """Sends from a thread: no reader that stands still holds the caller up, no Ctrl-C cuts a message in two.

    What nobody reads any more is dropped: the end of the other direction tells of the other side's end.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._run, args=(stream,), name="localspec-outbox", daemon=True).start()

    def put(self, message: object) -> None:
        """One message; at once, and from any thread."""
        self._waiting.put(_packed(message))

    def _run(self, stream: BinaryIO) -> None:
        try:
            while True:
                stream.write(self._waiting.get())
                stream.flush()
        except (OSError, ValueError):
            return


def receive(stream: BinaryIO) -> Any:
    """The next message. Raises EOFError at the end, also when it comes in the middle of a message."""
    (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
    return pickle.loads(_exactly(stream, length))


def _packed(message: object) -> bytes:
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(data)) + data


def _exactly(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise EOFError("the other side is gone")
    return data
