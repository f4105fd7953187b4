"""What the engine knows of the loaded pair's times, and the controllers that decide with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.engine.control.adaptive import AdaptiveController
from localspec.engine.control.controller import Controller, FixedController
from localspec.engine.control.costs import Costs, calibrate
from localspec.engine.control.profile import Profile, read_profile, write_profile
from localspec.engine.settings import Expectation

if TYPE_CHECKING:
    from localspec.engine.drafters.protocol import Drafter
    from localspec.engine.model import Model

_LOOKED_AT_AGAIN = (1, 1, 4)
"""Passes, by rows, that tell how fast the machine is today, where times are stored; the first one warms up."""


class Tuning:
    """Lasts as long as the target is loaded."""

    def __init__(self, target: Model, longest: int) -> None:
        """`longest`: most guesses that are chosen automatically. Nothing is measured yet; `measure` does it."""
        self.longest = longest
        self.costs = Costs()
        """Measured times; the same object for as long as the target is loaded."""
        self._target = target
        self._folder: Path | None = None
        self._key = ""
        self._expectation: Expectation | None = None
        self._controllers: dict[tuple[str, int | None], AdaptiveController] = {}

    def measure(
        self,
        drafters: Mapping[str, Drafter],
        token: int,
        folder: Path | None = None,
        key: str = "",
        expectation: Expectation | None = None,
    ) -> None:
        """Take the stored profile, or calibrate. All models are empty afterwards if they were before.

        A target that holds text is not timed again: its times are known, only the drafters are new. `token`: any
        valid id. `expectation`: what `auto` starts from with these drafters.
        """
        self._folder, self._key, self._expectation = folder, key, expectation
        self._controllers = {}
        stored = read_profile(folder, key) if folder is not None else None
        if self._target.length == 0:
            self._measure_target(stored, token)
        for name, drafter in drafters.items():
            if stored is None or not _believes(drafter, stored.beliefs.get(name)):
                drafter.measure()

    def _measure_target(self, stored: Profile | None, token: int) -> None:
        time_pass, widest = _timer(self._target, token), min(self._target.max_rows, self._target.capacity)
        if stored is None:
            self.costs.take(calibrate(time_pass, widest))
            return
        self.costs.take(stored.costs)
        for index, rows in enumerate(_LOOKED_AT_AGAIN):
            if rows <= widest:
                seconds = time_pass(rows)
                if index:
                    self.costs.look_again(rows, seconds)

    def controller(self, drafter: str, length: int | None) -> Controller:
        """Who decides. Named drafters and fixed lengths are orders."""
        if drafter == "none" or length == 0:
            return FixedController("none", 0, self.costs)
        if drafter != "auto" and length is not None:
            return FixedController(drafter, length, self.costs)
        key = (drafter, length)
        if key not in self._controllers:
            self._controllers[key] = AdaptiveController(
                self.costs, drafter, length, self.longest, self._expectation
            )
        return self._controllers[key]

    def save(self, drafters: Mapping[str, Drafter]) -> None:
        """Store what was learned."""
        if self._folder is not None:
            beliefs = {name: drafter.beliefs() for name, drafter in drafters.items()}
            known = {name: belief for name, belief in beliefs.items() if belief is not None}
            write_profile(self._folder, self._key, Profile(self.costs, known))


def _believes(drafter: Drafter, stored: Mapping[str, object] | None) -> bool:
    """Whether stored beliefs were taken up."""
    if stored is None:
        return False
    try:
        drafter.believe(stored)
    except ValueError:
        return False
    return True


def _timer(model: Model, token: int) -> Callable[[int], float]:
    """Seconds of one pass of so many rows at the end of what `model` holds, taken back afterwards."""

    def seconds(rows: int) -> float:
        held = model.length
        tokens: Sequence[int] = [token] * rows
        start = time.perf_counter()
        model.extend(tokens, min(rows, model.max_rows))
        taken = time.perf_counter() - start
        model.rewind(held)
        return taken

    return seconds
