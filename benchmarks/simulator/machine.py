"""A clock that only simulated passes move, and what passes take on a described machine."""

from __future__ import annotations

import random
from collections.abc import Callable

from benchmarks.simulator.machine_profiles import MachineProfile


class Clock:
    """Seconds since the machine was switched on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Machine:
    """Seconds of passes on a simulated machine."""

    def __init__(
        self, profile: MachineProfile, seed: int = 0, busy: Callable[[float], float] | None = None
    ) -> None:
        """`busy(seconds)`: how many times longer a pass takes at that time, because others use the machine."""
        self.profile = profile
        self.clock = Clock()
        self._busy = busy
        self._rng = random.Random(f"{profile.name} {seed}")
        self._last_rows = 1

    def target_pass(self, rows: int, position: int) -> float:
        """One pass of the target; the clock goes on."""
        profile = self.profile
        steps = profile.verify[rows - 1]
        if rows != self._last_rows:
            steps += profile.rebuild
        self._last_rows = rows
        return self._pass(steps, position)

    def draft_passes(self, catch_up_rows: int, passes: int, position: int) -> float:
        """The draft's passes of one round, the first with the rows it lacks; the clock goes on."""
        profile = self.profile
        return self._pass(profile.draft_step * (passes + (catch_up_rows - 1) * profile.catch_up_row), position)

    def host(self, rows: int) -> None:
        """Work around a target pass."""
        self.clock.now += self.profile.host_row * rows * self.profile.plain_seconds

    def _pass(self, steps: float, position: int) -> float:
        profile = self.profile
        seconds = steps * profile.plain_seconds * (1 + profile.context_growth * position / 1000)
        if profile.noise:
            seconds *= max(0.5, self._rng.gauss(1.0, profile.noise))
        if profile.spike_chance and self._rng.random() < profile.spike_chance:
            seconds *= profile.spike
        if self._busy is not None:
            seconds *= self._busy(self.clock.now)
        self.clock.now += seconds
        return seconds
