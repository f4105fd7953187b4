"""What guesses cost, as tokens: seconds turned into what the long-run rate makes in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localspec.engine.control.costs import Costs


@dataclass(frozen=True, slots=True)
class Prices:
    """Of one round."""

    rate: float
    """The long-run rate over plain decoding's."""
    step: float
    """One guess of the draft model."""
    rows: Sequence[float]
    """The target's pass beyond a plain one, by number of guesses."""
    per_second: float
    """Tokens that the long-run rate makes in a second; 0 = nothing was measured, and all is free."""

    def in_tokens(self, seconds: float) -> float:
        """What any other time is worth."""
        return seconds * self.per_second

    def can_pay(self, longest: int) -> bool:
        """Whether a draft of up to so many guesses gains anything when it is kept whole."""
        return any(length > length * self.step + self.rows[length] for length in range(1, longest + 1))


def prices_at(costs: Costs, rate: float, position: int, most: int) -> Prices:
    """What up to `most` guesses cost at this depth of context, when time makes tokens at `rate` times plain."""
    plain = costs.round_seconds(1, position)
    if plain <= 0:  # nothing was measured: all looks free, and the first rounds measure it
        return Prices(rate, 0.0, [0.0] * (most + 1), 0.0)
    per_second = rate / plain
    row = costs.host_row_seconds * per_second
    scale = costs.target.scale(position) * per_second
    curve = costs.target.curve
    one = curve[1]
    rows = [(curve[n + 1] - one) * scale + row * n for n in range(most + 1)]
    switch = costs.switch_share * one * scale
    if switch and costs.last_rows <= most + 1:
        rows[costs.last_rows - 1] -= switch
    return Prices(rate, costs.draft_step_seconds(position) * per_second, rows, per_second)
