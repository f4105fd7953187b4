"""What a drafter's drafts brought lately, held against what they are calculated to bring.

A length set beforehand is calculated; what stopping by confidence adds to it is met.
"""

from __future__ import annotations

_PRIOR_WEIGHT = 4.0  # rounds that the calculated value of a draft weighs against the met ones
_MEMORY = 0.94  # per round
_PROBE_MEMORY = 0.7  # a probe is news


class DraftValue:
    """Expected tokens, plain steps spent and rounds of one drafter: all slowly forgotten."""

    __slots__ = ("_rounds", "_steps", "_tokens")

    def __init__(self) -> None:
        self._tokens = self._steps = self._rounds = 0.0

    def observe(self, tokens: float, steps: float, is_probe: bool) -> None:
        """A draft was expected to bring so many tokens, and takes so many plain steps beyond a plain one."""
        memory = _PROBE_MEMORY if is_probe else _MEMORY
        self._tokens = self._tokens * memory + tokens
        self._steps = self._steps * memory + steps
        self._rounds = self._rounds * memory + 1.0

    @property
    def rounds(self) -> float:
        """How many drafts this is about, the older ones in part."""
        return self._rounds

    @property
    def speedup(self) -> float:
        """Over plain, of drafts like these."""
        return (self._rounds + self._tokens) / (self._rounds + self._steps) if self._rounds else 1.0

    def gain(self, rate: float, calculated: float) -> float:
        """Tokens per draft beyond those that its time is worth at `rate` (over plain)."""
        met = self._tokens - rate * self._steps
        return (met + _PRIOR_WEIGHT * calculated) / (self._rounds + _PRIOR_WEIGHT)
