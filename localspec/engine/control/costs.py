"""What things cost here, in seconds: measured at load on a few widths, and by every round since.

costs = calibrate(time_pass, time_draft_pass)
costs.observe(round)
costs.round_seconds(rows=4, position=900)   # a target pass of 4 rows and the host's work around it
costs.plain_seconds(range(900, 950))        # what these 50 tokens would have taken without drafts
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from localspec.engine.control.pass_times import MAX_ROWS, PassTimes

if TYPE_CHECKING:
    from localspec.engine.records import Round

CALIBRATED_ROWS = (1, 2, 4, 8)
"""Widths timed at load; the others are interpolated, and learned when they are used."""

CALIBRATED_DRAFT_ROWS = (1, 16)
"""A draft step, and catching up."""

_REPEATS = 3
_LEAST_BUDGET = 2.0  # seconds
_BUDGET_STEPS = 10  # plain steps
_DRAFT_SHARE = 0.3  # of the budget, for the draft model
_HOST_MEMORY = 0.05
_SWITCH_MEMORY = 0.02
_SWITCH_DOUBT = 0.02
_VERSION = 1


class Costs:
    """Measured times of one pair on one machine."""

    def __init__(self) -> None:
        self.target = PassTimes()
        """Target passes by rows."""
        self.draft = PassTimes()
        """Draft model passes by rows: 1 is a draft step, more are catch-up."""
        self.host_row_seconds = 0.0
        """Sampling, rewinding and bookkeeping, per row of a round."""
        self.last_rows = 1
        """Width of the latest target pass."""
        # How far passes of the last one's width, and of another, were from what was expected, in log seconds.
        self._same_width = self._other_width = 0.0

    @property
    def known(self) -> bool:
        """Whether the target was ever timed; decisions by time need that."""
        return bool(self.target.curve)

    def verify_seconds(self, rows: int, position: int) -> float:
        """A target pass of `rows` rows at this depth of context."""
        return self.target.seconds(rows, position)

    def round_seconds(self, rows: int, position: int) -> float:
        """A target pass and the host's work around it, without any drafting."""
        return self.target.seconds(rows, position) + rows * self.host_row_seconds

    @property
    def switch_share(self) -> float:
        """What a pass takes longer, as a share, when its width is not the last one's: graphs are rebuilt."""
        return max(0.0, self._other_width - self._same_width - _SWITCH_DOUBT)

    def draft_step_seconds(self, position: int) -> float:
        """One guess of the draft model."""
        return self.draft.seconds(1, position)

    def catch_up_seconds(self, rows: int, position: int) -> float:
        """What the draft model's first pass takes longer for the rows it lacks besides `last`."""
        if rows <= 1:
            return 0.0
        return max(0.0, self.draft.seconds(rows, position) - self.draft.seconds(1, position))

    def plain_seconds(self, positions: Iterable[int]) -> float:
        """What plain decoding takes for one token at each of these positions, on the machine as it is now."""
        return sum(self.round_seconds(1, position) for position in positions)

    def observe(self, round_: Round) -> None:
        """Learn from a finished round. Round 0 is the end of prefill and says nothing about decoding."""
        if round_.index == 0:
            return
        rows = round_.verified + 1
        surprise = self.target.observe(rows, round_.position, round_.verify_seconds)
        if rows == self.last_rows:
            self._same_width += _SWITCH_MEMORY * (surprise - self._same_width)
        else:
            self._other_width += _SWITCH_MEMORY * (surprise - self._other_width)
        self.last_rows = rows
        host = (round_.sample_seconds + round_.rewind_seconds + round_.other_seconds) / rows
        if self.host_row_seconds:
            # A pause of the whole process is not host work.
            host = min(host, 3 * self.host_row_seconds)
            self.host_row_seconds += _HOST_MEMORY * (host - self.host_row_seconds)
        else:
            self.host_row_seconds = min(host, 0.05 * self.round_seconds(1, round_.position))
        if round_.catch_up_rows:
            self._observe_draft(round_.catch_up_rows, len(round_.drafted), round_.position, round_.draft_seconds)

    def observe_catch_up(self, rows: int, position: int, seconds: float) -> None:
        """Learn from a draft pass that only caught up (its share of a prefill, for example)."""
        self.draft.observe(rows, position, seconds)

    def _observe_draft(self, first_rows: int, passes: int, position: int, seconds: float) -> None:
        """A round's draft passes are timed together: the first of `first_rows` rows, the others of one."""
        if passes < 1 or seconds <= 0:
            return
        if passes == 1 or not self.draft.curve:
            self.draft.observe(first_rows if passes == 1 else 1, position, seconds / passes)
            return
        step = self.draft.seconds(1, position)
        first = self.draft.seconds(first_rows, position)
        if first_rows <= 2:
            self.draft.observe(1, position, seconds / (passes - 1 + first / step))
        else:
            self.draft.observe(first_rows, position, max(seconds - (passes - 1) * step, 0.5 * step))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON for the profile on disk."""
        return {
            "version": _VERSION,
            "target": self.target.to_dict(),
            "draft": self.draft.to_dict(),
            "host_row_seconds": self.host_row_seconds,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Costs:
        """The inverse of `to_dict`. ValueError when it is anything else: calibrate anew."""
        try:
            if stored["version"] != _VERSION:
                raise ValueError(f"profile version {stored['version']}, not {_VERSION}")
            costs = cls()
            costs.target = PassTimes.from_dict(stored["target"])
            costs.draft = PassTimes.from_dict(stored["draft"])
            costs.host_row_seconds = min(1.0, max(0.0, float(stored["host_row_seconds"])))
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"not a cost profile: {error}") from error
        return costs


def calibrate(
    time_pass: Callable[[int], float],
    time_draft_pass: Callable[[int], float] | None = None,
    widest: int = MAX_ROWS,
) -> Costs:
    """Time a few widths of both models, after one warm-up pass of each.

    The callables run one pass of so many rows and return its seconds. The budget is the larger of 2 s and 10
    plain steps. Narrow widths come first; a width that would not fit in what is left is not timed.
    Of several passes the shortest counts: a busy machine only ever adds time, and not the same to each width.
    """
    costs = Costs()
    time_pass(1)
    first = time_pass(1)
    costs.target.set(1, first)
    budget = max(_LEAST_BUDGET, _BUDGET_STEPS * first) - first
    if time_draft_pass is not None:
        budget -= calibrate_draft(costs, time_draft_pass, _DRAFT_SHARE * budget)
    times: dict[int, list[float]] = {1: [first]}
    for repeat in range(_REPEATS):
        for rows in CALIBRATED_ROWS:
            if (rows == 1 and repeat == 0) or rows > widest:
                continue
            if costs.target.seconds(rows, 0) > budget:
                continue
            seconds = time_pass(rows)
            budget -= seconds
            times.setdefault(rows, []).append(seconds)
            costs.target.set(rows, min(times[rows]))
    return costs


def calibrate_draft(
    costs: Costs, time_draft_pass: Callable[[int], float], budget_seconds: float = _LEAST_BUDGET
) -> float:
    """Time the draft model into `costs`, in place of another one's times; returns the seconds spent."""
    costs.draft = PassTimes()
    time_draft_pass(1)
    spent = 0.0
    times: dict[int, list[float]] = {rows: [] for rows in CALIBRATED_DRAFT_ROWS}
    for _ in range(_REPEATS):
        for rows, passes in times.items():
            if spent and spent + costs.draft.seconds(rows, 0) > budget_seconds:
                continue
            passes.append(time_draft_pass(rows))
            spent += passes[-1]
            costs.draft.set(rows, min(passes))
    return spent
