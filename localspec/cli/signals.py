"""SIGTERM as an exception, Ctrl-C as a request to stop an answer, and neither of them lost."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs


class Terminated(BaseException):
    """SIGTERM arrived: unwind, clean up, leave with 143."""


_SIGNAL_OF: dict[type[BaseException], int] = {KeyboardInterrupt: signal.SIGINT, Terminated: signal.SIGTERM}
_SOON = 0.01
"""Seconds until a lost signal is sent again: by then the callback that lost it has returned."""


def end_politely_on_sigterm() -> None:
    """From now on SIGTERM raises Terminated."""

    def on_sigterm(signum: int, frame: FrameType | None) -> None:
        raise Terminated

    signal.signal(signal.SIGTERM, on_sigterm)


def send_lost_signals_again() -> None:
    """From now on a Ctrl-C or SIGTERM that arrives inside `__del__` or a callback of the interpreter counts.

    Python prints an exception raised there, drops it and goes on: the program would run on as if nobody had
    pressed anything.
    """
    sys.unraisablehook = _send_again


def _send_again(lost: UnraisableHookArgs) -> None:
    signum = _SIGNAL_OF.get(lost.exc_type)
    if signum is None:
        sys.__unraisablehook__(lost)
        return
    timer = threading.Timer(_SOON, _signal_this_process, (signum,))
    timer.daemon = True
    timer.start()


def _signal_this_process(signum: int) -> None:
    if os.name == "posix":
        os.kill(os.getpid(), signum)  # unlike raise_signal, this wakes a main thread that waits for something
    else:
        signal.raise_signal(signum)  # os.kill would end the process at once there


@contextmanager
def interrupt_calls(cancel: Callable[[], None]) -> Iterator[None]:
    """Inside, the first Ctrl-C calls `cancel`; the second one is a KeyboardInterrupt, and so is any later one.

    Where Ctrl-C is ignored, it stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return

    def on_interrupt(signum: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        cancel()

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
