"""What drafts of the model brought lately, held against what they are calculated to bring."""

from __future__ import annotations

from localspec.engine.drafters.acceptance import NO_DRAFT_BEFORE

_PRIOR_WEIGHT = 4.0  # rounds that the calculated value of a draft weighs against the met ones
_MEMORY = 0.94  # per round
_PROBE_MEMORY = 0.7  # a probe is news


class DraftValue:
    """By what happened to the round before; where little was met, what was met after any round counts."""

    def __init__(self) -> None:
        self._by_before = [_Account() for _ in range(NO_DRAFT_BEFORE + 1)]
        self._pool = _Account()

    def observe(self, before: int, tokens: float, steps: float, is_probe: bool) -> None:
        """A draft was expected to bring so many tokens, and takes so many plain steps."""
        memory = _PROBE_MEMORY if is_probe else _MEMORY
        self._by_before[before].observe(tokens, steps, memory)
        self._pool.observe(tokens, steps, memory)

    def gain(self, before: int, rate: float, calculated: float) -> float:
        """Tokens per draft beyond those its time is worth at `rate` (over plain)."""
        return self._by_before[before].gain(rate, self._pool.gain(rate, calculated))


class _Account:
    """Tokens to expect, plain steps spent, rounds: all slowly forgotten."""

    __slots__ = ("_rounds", "_steps", "_tokens")

    def __init__(self) -> None:
        self._tokens = self._steps = self._rounds = 0.0

    def observe(self, tokens: float, steps: float, memory: float) -> None:
        self._tokens = self._tokens * memory + tokens
        self._steps = self._steps * memory + steps
        self._rounds = self._rounds * memory + 1.0

    def gain(self, rate: float, prior: float) -> float:
        met = self._tokens - rate * self._steps
        return (met + _PRIOR_WEIGHT * prior) / (self._rounds + _PRIOR_WEIGHT)
