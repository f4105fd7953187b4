"""How likely is a guess to be kept? Learned per drafter, slowly forgotten, carried from turn to turn.

For chains with confidences three questions, each answered by a table of (kept, seen) counts over a prior:

- `kept`: this guess, made with this confidence;
- `following`: the next guess, not made yet, after one of this confidence: is it worth its time?
- `first`: the first guess of a round, by what happened to the round before.

Only guesses whose predecessors were all kept are counted: what stands behind a rejection was never judged.

For lookup one question: the next token of a match, by the number of tokens that agree up to it. A match that
has held for three tokens and is followed for two is a match of five.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

CONFIDENCE_EDGES = (0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.98, 0.995)
"""Bounds of the ten confidence bins; narrow where a small difference decides over a long draft."""

# Rates of an ordinary same-family pair on mixed text, one per bin. They are where learning starts.
_KEPT = (0.16, 0.38, 0.46, 0.60, 0.72, 0.82, 0.89, 0.94, 0.96, 0.985)
_FOLLOWING = (0.50, 0.50, 0.64, 0.62, 0.67, 0.71, 0.77, 0.86, 0.88, 0.93)
_FIRST = (0.66, 0.68, 0.85, 0.75)
_STEADY = 0.85

NOTHING_KEPT, PART_KEPT, ALL_KEPT, NO_DRAFT_BEFORE = range(4)
"""What happened to the round before."""

LOOKUP_EDGES = (3, 4, 5, 6, 7, 9, 13, 21)
_LOOKUP = (0.33, 0.42, 0.50, 0.60, 0.68, 0.76, 0.85, 0.91, 0.95)
_LOOKUP_SPAN = 96  # matches longer than this are one

_PRIOR_WEIGHT = 4.0  # guesses that a prior weighs
_MEMORY = 0.985  # per observation of one cell
_LOOKUP_MEMORY = 0.97
_STEADY_STEP = 0.03
_STORED_WEIGHT = 30.0  # stored rates yield to what a session shows


class Rates:
    """A row of rates, each (prior * weight + kept) / (weight + seen), with slow forgetting."""

    __slots__ = ("_kept", "_memory", "_prior", "_seen")

    def __init__(self, prior: Sequence[float], memory: float) -> None:
        self._prior = prior
        self._memory = memory
        self._kept = [0.0] * len(prior)
        self._seen = [0.0] * len(prior)

    def rate(self, cell: int) -> float:
        """The rate as it is known now."""
        return (self._kept[cell] + _PRIOR_WEIGHT * self._prior[cell]) / (self._seen[cell] + _PRIOR_WEIGHT)

    def observe(self, cell: int, kept: bool) -> None:
        """Count one judged guess."""
        self._kept[cell] = self._kept[cell] * self._memory + kept
        self._seen[cell] = self._seen[cell] * self._memory + 1.0

    def to_list(self) -> list[list[float]]:
        """(kept, seen) per cell, at most 30 seen."""
        shares = [min(1.0, _STORED_WEIGHT / seen) if seen else 0.0 for seen in self._seen]
        cells = zip(self._kept, self._seen, shares, strict=True)
        return [[round(kept * share, 3), round(seen * share, 3)] for kept, seen, share in cells]

    def load(self, stored: Sequence[Sequence[float]]) -> None:
        """The inverse of `to_list`; ValueError when it does not fit this table."""
        if len(stored) != len(self._prior):
            raise ValueError(f"{len(stored)} stored cells, {len(self._prior)} expected")
        for cell, (kept, seen) in enumerate(stored):
            if not 0 <= kept <= seen <= _STORED_WEIGHT:
                raise ValueError(f"stored counts out of range: {kept} of {seen}")
            self._kept[cell], self._seen[cell] = float(kept), float(seen)


class ChainAcceptance:
    """What happens to the guesses of a drafter that makes chains and is more or less sure of each."""

    def __init__(self) -> None:
        self._kept = Rates(_KEPT, _MEMORY)
        self._following = Rates(_FOLLOWING, _MEMORY)
        self._first = Rates(_FIRST, _MEMORY)
        self.steady = _STEADY
        """Chance that a guess is kept, given all before it were: the average over recent text."""

    def chance(self, confidence: float) -> float:
        """Chance that a guess is kept, given that all before it were."""
        return self._kept.rate(bisect_right(CONFIDENCE_EDGES, confidence))

    def chance_after(self, confidence: float) -> float:
        """Chance that the guess after one of this confidence is kept, given that one is."""
        return self._following.rate(bisect_right(CONFIDENCE_EDGES, confidence))

    def chance_first(self, before: int) -> float:
        """Chance that the first guess of a round is kept, after a round to which `before` happened."""
        return self._first.rate(before)

    def observe(self, confidences: Sequence[float], verified: int, accepted: int, before: int) -> None:
        """Learn from one verified draft. `before`: what happened to the round before it."""
        last = 0
        for place in range(min(verified, accepted + 1)):
            kept = place < accepted
            cell = bisect_right(CONFIDENCE_EDGES, confidences[place])
            self.steady += _STEADY_STEP * (kept - self.steady)
            self._kept.observe(cell, kept)
            if place == 0:
                self._first.observe(before, kept)
            else:
                self._following.observe(last, kept)
            last = cell

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON for the profile on disk."""
        return {
            "kept": self._kept.to_list(),
            "following": self._following.to_list(),
            "first": self._first.to_list(),
            "steady": round(self.steady, 4),
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> ChainAcceptance:
        """The inverse of `to_dict`; ValueError when it is anything else."""
        acceptance = cls()
        try:
            acceptance.steady = float(stored["steady"])
            if not 0 <= acceptance.steady <= 1:
                raise ValueError(f"stored rate {stored['steady']} out of range")
            acceptance._kept.load(stored["kept"])
            acceptance._following.load(stored["following"])
            acceptance._first.load(stored["first"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not stored acceptance: {error}") from error
        return acceptance


def what_happened(verified: int, accepted: int) -> int:
    """To a round: one of NOTHING_KEPT, PART_KEPT, ALL_KEPT and NO_DRAFT_BEFORE."""
    if not verified:
        return NO_DRAFT_BEFORE
    return ALL_KEPT if accepted == verified else PART_KEPT if accepted else NOTHING_KEPT


class MatchAcceptance:
    """What happens to the continuations of matches; belongs to one text and is cleared with it."""

    def __init__(self) -> None:
        self._rates = Rates(_LOOKUP, _LOOKUP_MEMORY)
        self.chances = [0.0] * _LOOKUP_SPAN
        """Chance that the next token of a match is kept, by tokens that agree so far."""
        self._spread(range(len(_LOOKUP)))

    def observe(self, match_length: int, judged: int, agreed: int) -> None:
        """Learn from an offer, used or not: `agreed` of its first `judged` tokens were the text's."""
        touched = set()
        for place in range(min(judged, agreed + 1)):
            cell = bisect_right(LOOKUP_EDGES, match_length + place)
            self._rates.observe(cell, place < agreed)
            touched.add(cell)
        self._spread(touched)

    def _spread(self, cells: Iterable[int]) -> None:
        for cell in cells:
            low = LOOKUP_EDGES[cell - 1] if cell else 0
            high = LOOKUP_EDGES[cell] if cell < len(LOOKUP_EDGES) else _LOOKUP_SPAN
            self.chances[low:high] = [self._rates.rate(cell)] * (high - low)
