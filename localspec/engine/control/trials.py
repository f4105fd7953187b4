"""Being off, and how to find out that it is time to be on again: what guessing may cost when it does not pay.

Two accounts. Probes, the looks whether a drafter pays again, may lose 1 % of all time beyond a small credit: the
worst case of a probe must fit in what is left, so that the bound is a fact. Drafts that were thought to be worth
it may lose a few plain steps beyond what they gain; then the thought is wrong here, and drafting waits.
"""

from __future__ import annotations

from collections.abc import Callable

PROBE_SHARE = 0.01
"""Of all time, that probes may lose."""

PROBE_CREDIT = 2.0
"""Plain steps that probes may lose before that."""

_PROBE_LENGTH = 8  # guesses in a probe at most
_FIRST_GAP = 24.0  # rounds without a draft before the first probe
_GAP_GROWTH = 1.4
_LONGEST_GAP = 48.0
_LOSS_ALLOWED = 6.0  # plain steps that drafting may lose before it has to prove itself
_CREDIT = 2.0  # plain steps that drafting starts with
_LOSS_TRICKLE = 0.005  # of a plain step, given back per token
_BLOCK_GAPS = 4.0


class Trials:
    """Keeps both accounts, in plain steps."""

    def __init__(self) -> None:
        self.quiet = 0
        """Rounds since the last draft."""
        self.proven = 0.0
        """Tokens that probes in a row have gained."""
        self._gap = _FIRST_GAP
        self._elapsed = 0.0
        self._lost = 0.0
        self._balance = _CREDIT
        self._rounds = 0
        self._blocked_until = 0

    @property
    def lost_share(self) -> float:
        """Share of all time that probes have lost."""
        return self._lost / self._elapsed if self._elapsed else 0.0

    @property
    def blocked(self) -> bool:
        """Whether drafting lost too much and has to wait."""
        return self._rounds < self._blocked_until

    def length(self, longest: int, loss: Callable[[int], float]) -> int:
        """Guesses of a probe now, 0 for none. `loss`: plain steps that n guesses lose if all are rejected."""
        if self.quiet < self._gap or self.blocked:
            return 0
        left = PROBE_CREDIT + PROBE_SHARE * self._elapsed - self._lost
        length = 0
        while length < min(longest, _PROBE_LENGTH) and loss(length + 1) <= left:
            length += 1
        return length

    def observe_plain(self, tokens: int, steps: float) -> None:
        """A round without a draft took so many plain steps."""
        self._rounds += 1
        self._elapsed += steps
        self.quiet += 1
        self._balance = min(_LOSS_ALLOWED, self._balance + _LOSS_TRICKLE * tokens)

    def observe_probe(self, tokens: int, steps: float) -> None:
        """A probe. One that gained is followed by another at once."""
        self._rounds += 1
        self._elapsed += steps
        if tokens > steps:
            self.proven += tokens - steps
        else:
            self.proven = 0.0
            self._lost += steps - tokens
            self._gap = min(_LONGEST_GAP, _GAP_GROWTH * self._gap)
            self.quiet = 0

    def observe_draft(self, tokens: int, steps: float) -> None:
        """A round with a draft that was expected to pay."""
        self._rounds += 1
        self._elapsed += steps
        self.quiet = 0
        self.proven = 0.0
        self._gap = _FIRST_GAP
        self._balance = min(_LOSS_ALLOWED, self._balance + tokens - steps + _LOSS_TRICKLE * tokens)
        if self._balance < -_LOSS_ALLOWED:
            self._blocked_until = self._rounds + int(_BLOCK_GAPS * self._gap)
            self._balance = -_LOSS_ALLOWED / 2
