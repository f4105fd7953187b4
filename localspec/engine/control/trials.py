"""What guessing may cost when it does not pay, and how to find out that it pays again.

Two accounts, both of one text and in plain steps. Probes, the looks whether a drafter pays again, may lose 1 % of all
time beyond a small credit: the worst case of a probe must fit in what is left, so that the bound is a fact. And a
drafter whose drafts were thought to be worth it may lose a few steps more than it gains; then the thought is wrong
here, and it has to prove itself.
"""

from __future__ import annotations

from collections.abc import Callable

PROBE_SHARE = 0.01
"""Of all time, that probes may lose."""

PROBE_CREDIT = 2.0
"""Plain steps that probes may lose before that."""

PROBE_LENGTH = 8
"""Guesses in a probe at most."""

_FIRST_GAP = 24.0  # rounds without a draft before the first probe
_GAP_GROWTH = 1.4
_LONGEST_GAP = 48.0
_LOSS_ALLOWED = 4.0  # plain steps that a drafter may lose before it has to prove itself
_MOST_SAVED = 6.0  # plain steps that it may have in hand
_TRICKLE = 0.005  # of a plain step, given back per token


class Trials:
    """Keeps both accounts."""

    def __init__(self) -> None:
        self.quiet = 0
        """Rounds since the last draft that cost time."""
        self.proven = 0.0
        """Plain steps that probes in a row have gained."""
        self.owed = 0.0
        """Plain steps that reading what a drafter had missed has taken, and drafts have not earned back."""
        self._gap = _FIRST_GAP
        self.elapsed = 0.0
        """All of the text's rounds, in plain steps."""
        self._lost = 0.0
        self._balance: dict[str, float] = {}
        self._wary: set[str] = set()

    @property
    def lost_share(self) -> float:
        """Share of all time that probes have lost."""
        return self._lost / self.elapsed if self.elapsed else 0.0

    def is_wary(self, drafter: str) -> bool:
        """Whether this drafter lost too much and has to prove itself."""
        return drafter in self._wary

    def can_lose(self, steps: float) -> bool:
        """Whether a probe may: the account allows for it, or those just before have gained as much."""
        return steps <= PROBE_CREDIT + PROBE_SHARE * self.elapsed - self._lost + self.proven

    def length(self, longest: int, loss: Callable[[int], float]) -> int:
        """Guesses of a probe now, 0 for none. `loss`: plain steps that n guesses lose if all are rejected."""
        if self.quiet < self._gap:
            return 0
        length = 0
        while length < min(longest, PROBE_LENGTH) and self.can_lose(loss(length + 1)):
            length += 1
        return length if length > loss(length) else 0

    def observe_plain(self, tokens: int, steps: float) -> None:
        """A round without a draft took so many plain steps."""
        self.elapsed += steps
        self.quiet += 1
        for drafter in tuple(self._wary):
            self._enter(drafter, _TRICKLE * tokens)

    def observe_probe(self, drafter: str, tokens: int, steps: float) -> None:
        """A probe. One that gained is followed by another at once."""
        self.elapsed += steps
        gained = tokens - steps
        if gained > 0:
            self.proven += gained
            self._enter(drafter, gained)
        else:
            self.proven = 0.0
            self._lost -= gained
            self._gap = min(_LONGEST_GAP, _GAP_GROWTH * self._gap)
            self.quiet = 0

    def observe_draft(self, drafter: str, gained: float, steps: float, is_free: bool, debt: float) -> None:
        """A round with a draft that was thought to pay.

        `gained`: what it could be expected to gain, `debt` left out: reading what the drafter had missed before.
        """
        self.elapsed += steps
        if not is_free:
            self.owed = max(0.0, self.owed - gained) + max(0.0, debt)
        self._enter(drafter, gained)
        if is_free:
            self.quiet += 1
        else:
            self.quiet = 0
            self.proven = 0.0
            self._gap = _FIRST_GAP

    def _enter(self, drafter: str, gained: float) -> None:
        balance = self._balance[drafter] = min(_MOST_SAVED, self._balance.get(drafter, 0.0) + gained)
        if balance < -_LOSS_ALLOWED:
            self._wary.add(drafter)
        elif balance >= 0:
            self._wary.discard(drafter)
