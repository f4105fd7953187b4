"""Being off, and how to find out that it is time to be on again: what guessing may cost when it does not pay.

Two accounts. Probes, the looks whether the draft model pays again, may lose 1 % of all time: the worst case
of a probe must fit in what is left, so that the bound is a fact. Drafts that the models of cost and
acceptance called worth it may lose a few plain steps beyond what they gain; then those models are wrong
here, and drafting waits.
"""

from __future__ import annotations

from collections.abc import Callable

PROBE_SHARE = 0.01
"""Of all time, that probes may lose."""

_PROBE_LENGTH = 8  # guesses in a probe at most
_FIRST_GAP = 24.0  # rounds without a draft before the first probe
_GAP_GROWTH = 1.4
_LONGEST_GAP = 48.0
_LOSS_ALLOWED = 6.0  # plain steps that drafting may lose before it has to prove itself
_CREDIT = 2.0  # plain steps that drafting starts with
_LOSS_TRICKLE = 0.005  # of a plain step, given back per token
_BLOCK_GAPS = 4.0


class Probing:
    """Keeps both accounts, in seconds and in plain steps."""

    def __init__(self) -> None:
        self.quiet = 0
        """Rounds since the last draft."""
        self._gap = _FIRST_GAP
        self._elapsed = 0.0
        self._lost_seconds = 0.0
        self._balance = _CREDIT
        self._rounds = 0
        self._blocked_until = 0

    @property
    def lost_share(self) -> float:
        """Share of all time that probes have lost."""
        return self._lost_seconds / self._elapsed if self._elapsed else 0.0

    @property
    def blocked(self) -> bool:
        """Whether drafting lost too much and has to wait."""
        return self._rounds < self._blocked_until

    @property
    def ahead(self) -> bool:
        """Whether drafting has gained more than it lost lately."""
        return self._balance > 0.0

    def length(self, longest: int, loss: Callable[[int], float]) -> int:
        """Guesses of a probe now, 0 for none. `loss`: seconds that a draft of n loses if all are rejected."""
        if self.quiet < self._gap or self.blocked:
            return 0
        left = PROBE_SHARE * self._elapsed - self._lost_seconds
        length = 0
        while length < min(longest, _PROBE_LENGTH) and loss(length + 1) <= left:
            length += 1
        return length

    def observe_plain(self, tokens: int, seconds: float) -> None:
        """A round without a draft."""
        self._rounds += 1
        self._elapsed += seconds
        self.quiet += 1
        self._balance = min(_LOSS_ALLOWED, self._balance + _LOSS_TRICKLE * tokens)

    def observe_probe(self, gained_steps: float, step_seconds: float, seconds: float) -> None:
        """A probe. One that gained is followed by another at once."""
        self._rounds += 1
        self._elapsed += seconds
        if gained_steps <= 0:
            self._lost_seconds -= gained_steps * step_seconds
            self._gap = min(_LONGEST_GAP, _GAP_GROWTH * self._gap)
            self.quiet = 0

    def observe_draft(self, tokens: int, gained_steps: float, seconds: float) -> None:
        """A round with a draft that was expected to pay."""
        self._rounds += 1
        self._elapsed += seconds
        self.quiet = 0
        self._gap = _FIRST_GAP
        self._balance = min(_LOSS_ALLOWED, self._balance + gained_steps + _LOSS_TRICKLE * tokens)
        if self._balance < -_LOSS_ALLOWED:
            self._blocked_until = self._rounds + int(_BLOCK_GAPS * self._gap)
            self._balance = -_LOSS_ALLOWED / 2
