"""SIGTERM as an exception, and Ctrl-C as a request to stop an answer."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Terminated(BaseException):
    """SIGTERM arrived: unwind, clean up, leave with 143."""


def end_politely_on_sigterm() -> None:
    """From now on SIGTERM raises Terminated."""

    def on_sigterm(signum: int, frame: FrameType | None) -> None:
        raise Terminated

    signal.signal(signal.SIGTERM, on_sigterm)


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
