"""How likely is a guess to be kept? Learned per drafter, slowly forgotten, carried from turn to turn.

For the draft model three questions, each answered by a table of (kept, seen) counts over a prior:

- `kept`: this guess, made with this confidence, at this place of the draft;
- `following`: the next guess, not made yet, after one of this confidence: is it worth its draft step?
- `first`: the first guess of a round, by what happened to the round before.

Only guesses whose predecessors were all kept are counted: what stands behind a rejection was never judged.
One trend moves all priors together, in log odds: an easy text or a poor draft shows in every cell. It follows
what is kept beyond expectation.

For lookup one question: the next token of a match, by the number of tokens that agree up to it. A match that
has held for three tokens and is followed for two is a match of five.
"""

from __future__ import annotations

import math
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

_PRIOR_WEIGHT = 4.0
_PLACE_WEIGHT = 16.0  # guesses that a place's own rate needs to weigh as much as its bin's
_MEMORY = 0.985  # per observation of one cell
_LOOKUP_MEMORY = 0.97
_STEADY_STEP = 0.03
_TREND_STEP = 0.25
_TREND_MEMORY = 0.998
_TREND_RANGE = 4.0
_STORED_WEIGHT = 30.0


class Rates:
    """A row of rates, each (prior * weight + kept) / (weight + seen), with slow forgetting."""

    __slots__ = ("_kept", "_memory", "_odds", "_seen")

    def __init__(self, prior: Sequence[float], memory: float) -> None:
        self._odds = [math.log(rate / (1 - rate)) for rate in prior]
        self._memory = memory
        self._kept = [0.0] * len(prior)
        self._seen = [0.0] * len(prior)

    def expected(self, cell: int, trend: float) -> float:
        """The prior, moved by `trend` in log odds."""
        return 1 / (1 + math.exp(-self._odds[cell] - trend))

    def rate(self, cell: int, trend: float = 0.0) -> float:
        """The rate as it is known now."""
        kept = self._kept[cell] + _PRIOR_WEIGHT / (1 + math.exp(-self._odds[cell] - trend))
        return kept / (self._seen[cell] + _PRIOR_WEIGHT)

    def observe(self, cell: int, kept: bool) -> None:
        """Count one judged guess."""
        self._kept[cell] = self._kept[cell] * self._memory + kept
        self._seen[cell] = self._seen[cell] * self._memory + 1.0

    def to_list(self) -> list[list[float]]:
        """(kept, seen) per cell, at most 30 seen: stored rates yield to what a session shows."""
        shares = [min(1.0, _STORED_WEIGHT / seen) if seen else 0.0 for seen in self._seen]
        cells = zip(self._kept, self._seen, shares, strict=True)
        return [[round(kept * share, 3), round(seen * share, 3)] for kept, seen, share in cells]

    def load(self, stored: Sequence[Sequence[float]]) -> None:
        """The inverse of `to_list`; ValueError when it does not fit this table."""
        if len(stored) != len(self._odds):
            raise ValueError(f"{len(stored)} stored cells, {len(self._odds)} expected")
        for cell, (kept, seen) in enumerate(stored):
            if not 0 <= kept <= seen <= _STORED_WEIGHT:
                raise ValueError(f"stored counts out of range: {kept} of {seen}")
            self._kept[cell], self._seen[cell] = float(kept), float(seen)


class ModelAcceptance:
    """What happens to the guesses of the draft model."""

    def __init__(self) -> None:
        self._kept = Rates(_KEPT, _MEMORY)
        self._following = Rates(_FOLLOWING, _MEMORY)
        self._first = Rates(_FIRST, _MEMORY)
        self._places = [Rates(_KEPT, _MEMORY) for _ in range(3)]
        self._trend = 0.0
        self.steady = _STEADY
        """Chance that a guess is kept, given all before it were: the average over recent text."""
        self.longest_kept = 0
        """Guesses of the longest draft that was kept whole."""

    def chance(self, confidence: float, place: int) -> float:
        """Chance that a guess is kept, given that all before it were. `place` counts from 0."""
        cell = bisect_right(CONFIDENCE_EDGES, confidence)
        here = self._places[_group(place)]
        kept = here._kept[cell] + _PLACE_WEIGHT * self._kept.rate(cell, self._trend)
        return kept / (here._seen[cell] + _PLACE_WEIGHT)

    def chance_after(self, confidence: float) -> float:
        """Chance that the guess after one of this confidence is kept, given that one is."""
        return self._following.rate(bisect_right(CONFIDENCE_EDGES, confidence), self._trend)

    def chance_first(self, before: int) -> float:
        """Chance that the first guess of a round is kept, after a round to which `before` happened."""
        return self._first.rate(before, self._trend)

    def observe(self, confidences: Sequence[float], verified: int, accepted: int, before: int) -> None:
        """Learn from one verified draft. `before`: what happened to the round before it."""
        if accepted == verified:
            self.longest_kept = max(self.longest_kept, accepted)
        last = 0
        for place in range(min(verified, accepted + 1)):
            kept = place < accepted
            cell = bisect_right(CONFIDENCE_EDGES, confidences[place])
            surprise = kept - self._kept.expected(cell, self._trend)
            self._trend = self._trend * _TREND_MEMORY + _TREND_STEP * surprise
            self.steady += _STEADY_STEP * (kept - self.steady)
            self._kept.observe(cell, kept)
            self._places[_group(place)].observe(cell, kept)
            if place == 0:
                self._first.observe(before, kept)
            else:
                self._following.observe(last, kept)
            last = cell
        self._trend = max(-_TREND_RANGE, min(_TREND_RANGE, self._trend))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON for the profile on disk."""
        return {
            "kept": self._kept.to_list(),
            "following": self._following.to_list(),
            "first": self._first.to_list(),
            "trend": round(self._trend, 4),
            "steady": round(self.steady, 4),
            "longest_kept": self.longest_kept,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> ModelAcceptance:
        """The inverse of `to_dict`; ValueError when it is anything else."""
        acceptance = cls()
        try:
            acceptance._trend, acceptance.steady = float(stored["trend"]), float(stored["steady"])
            if not (abs(acceptance._trend) <= _TREND_RANGE and 0 <= acceptance.steady <= 1):
                raise ValueError(f"stored trend {stored['trend']} or rate {stored['steady']} out of range")
            acceptance.longest_kept = max(0, int(stored["longest_kept"]))
            acceptance._kept.load(stored["kept"])
            acceptance._following.load(stored["following"])
            acceptance._first.load(stored["first"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not an acceptance profile: {error}") from error
        return acceptance


def _group(place: int) -> int:
    """The first guess, the next two, and the rest are told apart."""
    return 0 if place == 0 else 1 if place < 3 else 2


class LookupAcceptance:
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
