"""What most drafters need not say: `Drafter` has empty answers to every call that one may ignore, and `PointDrafter`
is all but the guesses of those that cost nothing and are sure of themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from localspec.engine.drafters.lookup_belief import LookupBelief
from localspec.engine.drafters.ngram_index import NO_MATCH, Match
from localspec.engine.drafters.protocol import Forecast, Worth
from localspec.engine.records import Draft

if TYPE_CHECKING:
    from localspec.engine.noise import Chance
    from localspec.engine.records import Pass, Round
    from localspec.engine.settings import SamplerSettings


class DrafterBase:
    """Follows the sequence in `self.tokens`; loads, stores and learns nothing."""

    name = ""
    trouble = ""
    tokens: Sequence[int] = ()
    """The sequence; the caller's own list, not to be changed."""

    def begin(self, tokens: Sequence[int], sampler: SamplerSettings, ends: frozenset[int], related: bool) -> None:
        self.tokens = tokens

    def catch_up(self) -> None:
        """It lacks nothing."""

    def follow(self, tokens: Sequence[int], seen: Pass | None, path: Sequence[int]) -> None:
        self.tokens = tokens

    def learn(self, round_: Round) -> None:
        """It believes nothing."""

    def measure(self) -> None:
        """Its guesses cost nothing."""

    def forget(self) -> None:
        """It has no cache."""

    def save(self) -> object:
        """What it holds is made again from the tokens."""
        return None

    def saved_bytes(self) -> int:
        return 0

    def restore(self, saved: object) -> bool:
        return True

    def beliefs(self) -> Mapping[str, Any] | None:
        """Nothing that outlasts a text."""
        return None

    def believe(self, stored: Mapping[str, Any]) -> None:
        """Nothing is stored."""

    def close(self) -> None:
        """Nothing was opened."""


class PointDrafter(DrafterBase, ABC):
    """Point guesses (q = 1), a chain each, from something that is looked up in microseconds.

    A subclass says how it follows the text and what it would guess. How often that is kept is learned here by
    `Match.length`, a measure of how good the ground is: the tokens that agree before it, or any number that grows
    with it.
    """

    def __init__(self) -> None:
        self._belief = LookupBelief()
        self._offer = NO_MATCH
        self._length = 0

    @abstractmethod
    def start(self, tokens: Sequence[int]) -> None:
        """The sequence is `tokens` now; they may share their beginning with the one before."""

    @abstractmethod
    def add(self, tokens: Sequence[int]) -> None:
        """These tokens came at its end."""

    @abstractmethod
    def offer(self, room: int) -> Match:
        """At most `room` guesses for what follows; `NO_MATCH` for none. Asked once a round."""

    def begin(self, tokens: Sequence[int], sampler: SamplerSettings, ends: frozenset[int], related: bool) -> None:
        super().begin(tokens, sampler, ends, related)
        self._belief.begin(related)
        self._offer = NO_MATCH
        self._length = len(tokens)
        self.start(tokens)

    def forecast(self, room: int) -> Forecast | None:
        self._offer = self.offer(room)
        return self._belief.forecast(self._offer, room) if self._offer.ids else None

    def propose(self, limit: int, worth: Worth, chance: Chance, probe: bool) -> Draft:
        """What was offered; how much of it is worth its rows was decided with the limit."""
        ids = self._offer.ids[:limit]
        return Draft.chain(self.name, ids, (1.0,) * len(ids))

    def follow(self, tokens: Sequence[int], seen: Pass | None, path: Sequence[int]) -> None:
        super().follow(tokens, seen, path)
        fresh = tokens[self._length :]
        if fresh:
            self._length = len(tokens)
            self.add(fresh)

    def learn(self, round_: Round) -> None:
        """What was offered is judged by the text, whether it was used or not."""
        self._belief.learn(self._offer, round_)
        self._offer = NO_MATCH
