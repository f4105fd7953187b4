"""What the engine knows of the loaded pair's times and acceptance, and the controllers that decide with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from localspec.engine.control.adaptive import AdaptiveController
from localspec.engine.control.controller import Choice, Controller, FixedController
from localspec.engine.control.costs import CALIBRATED_DRAFT_ROWS, Costs, calibrate, calibrate_draft
from localspec.engine.control.profile import Profile, read_profile, write_profile
from localspec.engine.drafters.acceptance import ModelAcceptance
from localspec.engine.settings import Expectation

if TYPE_CHECKING:
    from localspec.engine.model import Model


class Tuning:
    """Lasts as long as the pair is loaded. `longest`: most guesses that are chosen automatically."""

    def __init__(self, target: Model, longest: int) -> None:
        """Nothing is measured yet; `measure` does it."""
        self._target = target
        self._longest = longest
        self._profile = Profile(Costs(), ModelAcceptance())
        self._folder: Path | None = None
        self._key = ""
        self._expectation: Expectation | None = None
        self._controllers: dict[tuple[str, int | None], AdaptiveController] = {}

    @property
    def costs(self) -> Costs:
        """Measured times."""
        return self._profile.costs

    def measure(
        self,
        draft: Model | None,
        token: int,
        folder: Path | None = None,
        key: str = "",
        expectation: Expectation | None = None,
    ) -> None:
        """Take the stored profile, or calibrate. Both models are empty afterwards if they were before.

        A target that holds text is not timed again: its times are known, only the draft is new. `token`: any
        valid id. `expectation`: what `auto` starts from with this draft.
        """
        self._folder, self._key, self._expectation = folder, key, expectation
        self._controllers = {}
        stored = read_profile(folder, key) if folder is not None else None
        time_target = _timer(self._target, token)
        if stored is not None:
            self._profile = stored
            if self._target.length == 0:
                time_target(1)
                self.costs.target.observe(1, 0, time_target(1))
            return
        time_draft = _timer(draft, token) if draft is not None and _has_room(draft) else None
        if self._target.length == 0:
            widest = self._target.max_rows
            costs = calibrate(time_target, time_draft, widest=min(widest, self._target.capacity))
        else:
            costs = self.costs
            if time_draft is not None:
                calibrate_draft(costs, time_draft)
        self._profile = Profile(costs, ModelAcceptance())

    def controller(self, drafter: Choice | Literal["auto"], length: int | None) -> Controller:
        """Who decides. Named drafters and fixed lengths are orders."""
        if drafter == "none" or length == 0:
            return FixedController("none", 0, self.costs)
        if drafter != "auto" and length is not None:
            return FixedController(drafter, length, self.costs)
        key = (drafter, length)
        if key not in self._controllers:
            profile = self._profile
            self._controllers[key] = AdaptiveController(
                profile.costs, profile.acceptance, drafter, length, self._longest, self._expectation
            )
        return self._controllers[key]

    def save(self) -> None:
        """Store what was learned."""
        if self._folder is not None:
            write_profile(self._folder, self._key, self._profile)


def _has_room(draft: Model) -> bool:
    return draft.length == 0 and draft.capacity >= max(CALIBRATED_DRAFT_ROWS)


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
