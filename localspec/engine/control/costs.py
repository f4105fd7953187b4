"""What the target's passes cost here, in seconds: measured at load on a few widths, and by every round since.

costs = calibrate(time_pass)
costs.observe(round)
costs.round_seconds(rows=4, position=900)   # a target pass of 4 rows and the host's work around it
costs.plain_seconds(range(900, 950))        # what these 50 tokens would have taken without drafts

What a drafter's own passes take is its own belief (`drafters.model_belief`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from localspec.engine.control.pass_times import MAX_ROWS, PassTimes

if TYPE_CHECKING:
    from localspec.engine.records import Round

CALIBRATED_ROWS = (1, 2, 4, 8)
"""Widths timed at load; the others are interpolated, and learned when they are used."""

_REPEATS = 3
_LEAST_BUDGET = 2.0  # seconds
_BUDGET_STEPS = 10  # plain steps
_HOST_MEMORY = 0.05
_PLAIN_DOUBT = 0.12  # log seconds that all times may have moved by, before a plain pass has to confirm it
_VERSION = 1


class Costs:
    """Measured times of one target on one machine."""

    def __init__(self) -> None:
        self.target = PassTimes()
        """Target passes by rows."""
        self.host_row_seconds = 0.0
        """Sampling, rewinding and bookkeeping, per row of a round."""
        self._mood_at_plain = 0.0

    @property
    def known(self) -> bool:
        """Whether the target was ever timed; decisions by time need that."""
        return bool(self.target.curve)

    @property
    def plain_known(self) -> bool:
        """Whether what plain decoding takes is known now: times have not moved since a plain pass was believed."""
        return (
            self.known
            and not self.target.doubted(1)
            and abs(self.target.mood - self._mood_at_plain) < _PLAIN_DOUBT
        )

    def verify_seconds(self, rows: int, position: int) -> float:
        """A target pass of `rows` rows at this depth of context."""
        return self.target.seconds(rows, position)

    def round_seconds(self, rows: int, position: int) -> float:
        """A target pass and the host's work around it, without any drafting."""
        return self.target.seconds(rows, position) + rows * self.host_row_seconds

    def plain_seconds(self, positions: Iterable[int]) -> float:
        """What plain decoding takes for one token at each of these positions, on the machine as it is now."""
        return sum(self.round_seconds(1, position) for position in positions)

    def observe(self, round_: Round) -> None:
        """Learn from a finished round. Round 0 is the end of prefill and says nothing about decoding."""
        if round_.index == 0:
            return
        rows = round_.verified + 1
        self.target.observe(rows, round_.position, round_.verify_seconds)
        if rows == 1:
            self._mood_at_plain = self.target.mood
        host = (round_.sample_seconds + round_.rewind_seconds + round_.other_seconds) / rows
        if self.host_row_seconds:
            # A pause of the whole process is not host work.
            host = min(host, 3 * self.host_row_seconds)
            self.host_row_seconds += _HOST_MEMORY * (host - self.host_row_seconds)
        else:
            self.host_row_seconds = min(host, 0.05 * self.round_seconds(1, round_.position))

    def look_again(self, rows: int, seconds: float) -> None:
        """A pass that was made only to see how fast the machine is now."""
        self.target.observe(rows, 0, seconds)
        if rows == 1:
            self._mood_at_plain = self.target.mood

    def take(self, other: Costs) -> None:
        """Know what `other` knows, in place of what was known."""
        self.target, self.host_row_seconds = other.target, other.host_row_seconds
        self._mood_at_plain = other._mood_at_plain

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON for the profile on disk."""
        return {"version": _VERSION, "target": self.target.to_dict(), "host_row_seconds": self.host_row_seconds}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Costs:
        """The inverse of `to_dict`. ValueError when it is anything else: calibrate anew."""
        try:
            if stored["version"] != _VERSION:
                raise ValueError(f"costs of version {stored['version']}, not {_VERSION}")
            costs = cls()
            costs.target = PassTimes.from_dict(stored["target"])
            costs.host_row_seconds = min(1.0, max(0.0, float(stored["host_row_seconds"])))
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"not a cost profile: {error}") from error
        return costs


def calibrate(time_pass: Callable[[int], float], widest: int = MAX_ROWS) -> Costs:
    """Time a few widths of the target.

    `time_pass` runs one pass of so many rows and returns its seconds. The budget is the larger of 2 s and 10 plain
    steps, a warm-up pass left out.
    """
    costs = Costs()
    time_pass(1)
    first = time_pass(1)
    costs.target.set(1, first)
    budget = max(_LEAST_BUDGET, _BUDGET_STEPS * first) - first
    rows = [rows for rows in CALIBRATED_ROWS if rows <= widest]
    time_best(costs.target, time_pass, rows, budget, {1: [first]})
    return costs


def time_best(
    times: PassTimes,
    time_pass: Callable[[int], float],
    widths: Sequence[int],
    budget: float,
    known: Mapping[int, list[float]] | None = None,
) -> float:
    """Time each width up to three times into `times`; returns the seconds spent.

    Narrow widths come first; a pass that would not fit in what is left of `budget` (seconds) is not made. Of several
    passes the shortest counts: a busy machine only ever adds time, and not the same to each width.
    `known`: passes already made.
    """
    made = {rows: list((known or {}).get(rows, ())) for rows in widths}
    spent = 0.0
    for repeat in range(_REPEATS):
        for rows, passes in made.items():
            if len(passes) > repeat or spent + times.seconds(rows, 0) > budget:
                continue
            passes.append(time_pass(rows))
            spent += passes[-1]
            times.set(rows, min(passes))
    return spent
