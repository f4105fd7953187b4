"""Notices an engine that lives and does nothing: the worker beats, its parent listens.

Two things end the parent's patience. **Silence**: while a command runs the worker beats every second from a thread
of its own, which libllama cannot hold up; nobody beats in a process that was stopped or whose interpreter is stuck.
**A step that never ends**: every beat says how long ago the work last looked at its cancel flag, which it does before
each pass and for each tensor it loads; a card that hangs leaves the beat going and the step without an end.

Seconds count only while the watching side is awake: after Ctrl-Z or a closed lid both sides have slept.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from localspec.engine.process.cancel import CancelFlag
from localspec.engine.process.commands import Alive

BEAT_SECONDS = 1.0

SILENCE_SECONDS = 60.0
"""Sixty beats: a machine that swaps, or a stalled disk under the interpreter, may hold a thread up for several."""

STEP_SECONDS = 1800.0
"""Least bound of one step: a slice of 512 prompt rows at 3.5 s a row, or 180 GB read at 100 MB/s by the first pass."""

STEP_GROWTH = 50.0
"""A step may take so many times what the longest before it took. Loading warms up with passes of 17 rows or more, where
a slice of the prompt has 512: 30 times as much where rows cost most, and some room."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an engine may give no sign."""

    silence: float = SILENCE_SECONDS
    """Seconds without a message or a beat."""
    step: float = STEP_SECONDS
    """Seconds that any step may take."""
    growth: float = STEP_GROWTH
    """Times what the longest step took, where that is more."""


class AwakeClock:
    """Measures in steps of about a second; a far longer one was a sleep, and counts as two."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._before = clock()

    def step(self) -> float:
        """Seconds awake since the last call, or since the beginning."""
        now = self._clock()
        passed, self._before = now - self._before, now
        return min(passed, 2 * BEAT_SECONDS)


class Watch:
    """The parent's side. `heard` comes from the thread that reads, the rest from whoever waits for an answer."""

    def __init__(self, patience: Patience, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience = patience
        self._clock = AwakeClock(clock)
        self._signs = self._seen = 0
        self._silent = 0.0
        self._beat: Alive | None = None

    def heard(self, beat: Alive | None) -> None:
        """Something came from the engine; `beat` when it was no more than that."""
        self._beat = beat
        self._signs += 1

    def begin(self) -> None:
        """Somebody waits from now on: what was silent before was nobody's answer."""
        self._clock.step()
        self._silent, self._beat = 0.0, None

    def trouble(self) -> str:
        """Called about every second of waiting: why there is nothing to wait for any more, "" while there is."""
        passed = self._clock.step()
        if self._signs != self._seen:
            self._seen, self._silent = self._signs, 0.0
        self._silent += passed
        if self._silent > self._patience.silence:
            return f"the engine did not answer for {_span(self._patience.silence)}"
        beat = self._beat
        most = max(self._patience.step, self._patience.growth * beat.longest) if beat is not None else 0.0
        if beat is not None and beat.still > most:
            return f"one step of the engine did not end within {_span(most)}"
        return ""


class Pulse:
    """The worker's side: a thread that beats while a command runs."""

    def __init__(self, cancel: CancelFlag, beat: Callable[[Alive], None]) -> None:
        self._cancel = cancel
        self._beat = beat
        self._working = threading.Event()
        self._longest = 0.0
        threading.Thread(target=self._run, name="localspec-pulse", daemon=True).start()

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Beat while the block runs."""
        self._cancel.looks += 1  # a new command is a new step
        self._working.set()
        try:
            yield
        finally:
            self._working.clear()

    def _run(self) -> None:
        while True:
            self._working.wait()
            clock, still, looks = AwakeClock(), 0.0, self._cancel.looks
            while self._working.is_set():
                time.sleep(BEAT_SECONDS)
                passed = clock.step()
                still += passed
                if self._cancel.looks != looks:  # only what has ended measures what comes: no step excuses itself
                    self._longest = max(self._longest, still)
                    looks, still = self._cancel.looks, 0.0
                self._beat(Alive(still, self._longest))


def _span(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.0f} min"
