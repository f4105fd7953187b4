"""The very first lines of the command: a Ctrl-C while everything else is still being imported ends it quietly.

Imports as little as it can. What must be restored on an interrupt does not exist yet, or not any more, while
`_leave` is in force; in between, `cli.main` lets Python raise KeyboardInterrupt.
"""

from __future__ import annotations

import os
import signal
from types import FrameType


def main() -> int:
    """Run the command line of this process; returns the exit code."""
    leave_on_interrupt()
    from localspec.cli.main import main as run

    try:
        return run()
    except KeyboardInterrupt:  # one more, while `run` was dealing with the one before
        return 130
    finally:
        leave_on_interrupt()


def leave_on_interrupt() -> None:
    """From now on a Ctrl-C ends this process at once, without a word from Python."""
    if _is_ours(signal.getsignal(signal.SIGINT)):
        signal.signal(signal.SIGINT, _leave)


def raise_on_interrupt() -> None:
    """From now on a Ctrl-C is a KeyboardInterrupt, and what is open gets closed."""
    if _is_ours(signal.getsignal(signal.SIGINT)):
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_ours(handler: object) -> bool:
    """False where Ctrl-C is ignored, as below nohup or behind `&`: that stays."""
    return handler is not signal.SIG_IGN


def _leave(signum: int, frame: FrameType | None) -> None:
    os._exit(130)
