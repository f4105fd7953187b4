"""Every error a person may see, with its exit code.

    LocalspecError            1   a bug, or something nobody foresaw
    ├── InvalidInput          2   an option or value that cannot work
    │   ├── UnknownName       2   no such pair, model, quant or command
    │   ├── ContextFull       2   more tokens than the context holds
    │   └── UnreadableFile    2   not a GGUF, cut short, a folder, missing
    ├── IncompatiblePair      3   this draft cannot serve this target
    ├── DoesNotFit            4   not enough memory anywhere
    ├── DownloadFailed        5   hub, network, disk full
    ├── EngineError           6   libllama refused or failed
    │   ├── NotFinite         6   the model computed no finite value
    │   └── EngineDied        6   the engine's process ended
    ├── ProblemFound          7   audit, verify or doctor found something wrong
    └── Cancelled           130   stopped on request

A message is one line that says what is wrong and which value; `hint` says what to type next.
"""

from __future__ import annotations

import errno

DISK_FULL = frozenset({errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)})
"""What a write says when there is no room."""


class LocalspecError(Exception):
    """Base of all expected errors.

    `message`: one line without a full stop at its end: what is wrong, and which value.
    `hint`: the next step, or "" when there is none.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        # Errors cross from the engine's process to its parent.
        return (type(self), (self.message, self.hint))


class InvalidInput(LocalspecError):
    """An option or value that cannot work."""

    exit_code = 2


class UnknownName(InvalidInput):
    """A pair, model, quant or command that does not exist."""


class ContextFull(InvalidInput):
    """More tokens than the context holds."""

    def __init__(self, tokens: int, capacity: int) -> None:
        """`tokens`: how many there would be. `capacity`: how many the context holds."""
        super().__init__(f"{tokens} tokens do not fit into a context of {capacity}", "Use a larger --ctx")
        self.tokens = tokens
        self.capacity = capacity

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return (type(self), (self.tokens, self.capacity))


class UnreadableFile(InvalidInput):
    """A file that is missing, is no GGUF, or is shorter than its header says."""


class IncompatiblePair(LocalspecError):
    """The draft cannot serve this target."""

    exit_code = 3


class DoesNotFit(LocalspecError):
    """Not enough memory for what was asked."""

    exit_code = 4


class DownloadFailed(LocalspecError):
    """The hub, the network or the disk said no."""

    exit_code = 5


class EngineError(LocalspecError):
    """libllama refused or failed."""

    exit_code = 6


class NotFinite(EngineError):
    """A row of logits without a finite value, or with one that is no number."""


class EngineDied(EngineError):
    """The engine's process ended while it was needed."""


class ProblemFound(LocalspecError):
    """A check ran and found something wrong."""

    exit_code = 7


class Cancelled(LocalspecError):
    """Stopped because somebody asked for it."""

    exit_code = 130
