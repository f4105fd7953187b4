"""What a drafter that makes chains with confidences believes: what is kept of them, and what its passes take.

    belief = ModelBelief("model")
    belief.calibrate(time_pass)                      # at load
    forecast = belief.forecast(16, 3, 900)           # before a round
    belief.start()                                   # a draft begins
    while worth(belief.chance_after(sure), made):    # after each guess
    belief.learn(round)                              # after any round

It may belong to any drafter that guesses one token a pass of its own: a small model, a head.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate, repeat
from operator import mul
from typing import TYPE_CHECKING, Any

from localspec.engine.control.costs import time_best
from localspec.engine.control.pass_times import MAX_ROWS, PassTimes
from localspec.engine.drafters.acceptance import NO_DRAFT_BEFORE, ChainAcceptance, what_happened
from localspec.engine.drafters.protocol import Forecast

if TYPE_CHECKING:
    from localspec.engine.control.costs import Costs
    from localspec.engine.records import Round

GLANCE_ROWS = 16
"""Tokens that a probe reads at most of what the drafter lacks."""

CALIBRATED_ROWS = (1, 16)
"""One guess, and catching up."""

_ORDINARY_ROWS = 2  # rows before a first guess: `last`, and the guess before it when all were kept
_BUDGET = 0.6  # seconds
_PACE_CHANGE = 0.15  # in log seconds, of the target's times: less is noise


class ModelBelief:
    """Of one drafter and one target; goes on from text to text and is kept on disk."""

    def __init__(self, name: str = "model", costs: Costs | None = None) -> None:
        """`name`: the drafter's, by which it knows its own rounds. `costs`: of the target, which shares its machine."""
        self.name = name
        self._costs = costs
        self._pace: float | None = None  # the target's, when its own times were true last
        self.times = PassTimes()
        """Its own passes by rows: 1 is a guess, more are catching up."""
        self.acceptance = ChainAcceptance()
        self._before = NO_DRAFT_BEFORE
        self._so_far = 1.0

    def begin(self, related: bool) -> None:
        """An answer begins. What is known of the pair holds for every text."""
        self._before = NO_DRAFT_BEFORE

    # --- before a round and in it ---------------------------------------------------------------------

    def forecast(self, room: int, missing_rows: int, position: int, glance_rows: int | None = None) -> Forecast:
        """Of up to `room` guesses.

        `missing_rows`: rows to decode before the first guess, `last` included. `glance_rows`: the same for a probe,
        where it is not the last 16 of them (a drafter that left out some of the text already need not read that).
        """
        self._keep_pace()
        if glance_rows is None:
            glance_rows = min(missing_rows, GLANCE_ROWS)
        step = self.times.seconds(1, position)
        usual = self._extra_seconds(min(missing_rows, _ORDINARY_ROWS), position)
        steady = self.acceptance.steady
        chances = accumulate(repeat(steady, room - 1), mul, initial=self.acceptance.chance_first(self._before))
        kept = list(accumulate(chances, initial=0.0))
        seconds = [usual + guesses * step for guesses in range(room + 1)]
        seconds[0] = 0.0
        return Forecast(
            kept,
            seconds,
            range(1, room + 2),
            onward=steady,
            debt=max(0.0, self._extra_seconds(missing_rows, position) - usual),
            glance=max(0.0, self._extra_seconds(glance_rows, position) - usual),
        )

    def start(self) -> None:
        """A draft begins."""
        self._so_far = 1.0

    def chance_after(self, confidence: float) -> float:
        """One more guess was made, this sure: the chance that all so far and the next one are kept."""
        so_far = self._so_far
        self._so_far = so_far * self.acceptance.chance(confidence)
        return self._so_far * self.acceptance.chance_after(confidence)

    # --- learning -------------------------------------------------------------------------------------

    def learn(self, round_: Round) -> None:
        """Any round, whoever guessed in it. Round 0 is the end of prefill and says nothing."""
        if round_.index == 0:
            return
        if round_.drafter == self.name:
            if round_.verified:
                self.acceptance.observe(round_.confidences, round_.verified, round_.accepted, self._before)
            self._learn_times(round_)
            self._pace = self._pace_now()
        self._before = what_happened(round_.verified, round_.accepted)

    def observe_catch_up(self, rows: int, position: int, seconds: float) -> None:
        """A pass that only read (its share of a prefill, for example)."""
        self.times.observe(rows, position, seconds)

    def calibrate(self, time_pass: Callable[[int], float], widest: int = MAX_ROWS) -> float:
        """Time its own passes anew; returns the seconds spent after a warm-up pass.

        `time_pass` runs one pass of so many rows and returns its seconds. `widest`: rows that it has room for.
        """
        self.times, self._pace = PassTimes(), self._pace_now()
        time_pass(1)
        return time_best(self.times, time_pass, [rows for rows in CALIBRATED_ROWS if rows <= widest], _BUDGET)

    def _extra_seconds(self, rows: int, position: int) -> float:
        """What its first pass takes longer for the rows it lacks besides `last`."""
        if rows <= 1:
            return 0.0
        return max(0.0, self.times.seconds(rows, position) - self.times.seconds(1, position))

    def _learn_times(self, round_: Round) -> None:
        """A round's passes are timed together: the first of `catch_up_rows` rows, the others of one."""
        first_rows, passes = round_.catch_up_rows, len(round_.drafted)
        position, seconds, times = round_.position, round_.draft_seconds, self.times
        if passes < 1 or seconds <= 0 or first_rows < 1:
            return
        if passes == 1 or not times.curve:
            times.observe(first_rows if passes == 1 else 1, position, seconds / passes)
            return
        step = times.seconds(1, position)
        first = times.seconds(first_rows, position)
        if first_rows <= _ORDINARY_ROWS:
            times.observe(1, position, seconds / (passes - 1 + first / step))
        else:
            times.observe(first_rows, position, max(seconds - (passes - 1) * step, 0.5 * step))

    def _keep_pace(self) -> None:
        """Where the target has become faster or slower meanwhile, so has the drafter: it is the same machine."""
        pace = self._pace_now()
        if pace is None:
            return
        if self._pace is None:
            self._pace = pace
        if abs(pace - self._pace) > _PACE_CHANGE:
            self.times.shift(pace - self._pace)
            self._pace = pace

    def _pace_now(self) -> float | None:
        return self._costs.target.pace if self._costs is not None and self._costs.known else None

    # --- storage --------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON for the disk."""
        # Times are stored without the mood of the moment; they were true at this pace.
        pace = None if self._pace is None else self._pace - self.times.mood
        return {"times": self.times.to_dict(), "pace": pace, "acceptance": self.acceptance.to_dict()}

    def load(self, stored: Mapping[str, Any]) -> None:
        """Take up what `to_dict` gave. Raises ValueError when it is anything else, and changes nothing then."""
        try:
            times = PassTimes.from_dict(stored["times"])
            acceptance = ChainAcceptance.from_dict(stored["acceptance"])
            pace = stored.get("pace")
            if pace is not None and not abs(float(pace)) < 20:
                raise ValueError(f"stored pace out of range: {pace}")
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"not the beliefs of a chain drafter: {error}") from error
        self.times, self.acceptance = times, acceptance
        self._pace = None if pace is None else float(pace)
