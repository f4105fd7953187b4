"""Prompt lookup: what followed the last tokens earlier in the text is guessed to follow again. Needs no
model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from localspec.engine.drafters.lookup_belief import LookupBelief
from localspec.engine.drafters.ngram_index import NO_MATCH, NgramIndex
from localspec.engine.drafters.protocol import Forecast, Parts, Worth
from localspec.engine.noise import Chance
from localspec.engine.records import Draft, Pass, Round

if TYPE_CHECKING:
    from localspec.engine.settings import SamplerSettings


def open_drafter(parts: Parts) -> LookupDrafter:
    """Any parts will do."""
    return LookupDrafter()


class LookupDrafter:
    """Point guesses (q = 1) from an index over prompt and output."""

    name = "lookup"
    trouble = ""

    def __init__(self) -> None:
        self._index = NgramIndex()
        self._belief = LookupBelief()
        self._offer = NO_MATCH

    def begin(self, tokens: Sequence[int], sampler: SamplerSettings, ends: frozenset[int], related: bool) -> None:
        self._belief.begin(related)
        self._index.sync(tokens)
        self._offer = NO_MATCH

    def forecast(self, room: int) -> Forecast | None:
        """The one search of a round; costs microseconds."""
        self._offer = self._index.propose(room)
        return self._belief.forecast(self._offer, room) if self._offer.ids else None

    def catch_up(self) -> None:
        """It lacks nothing."""

    def propose(self, limit: int, worth: Worth, chance: Chance, probe: bool) -> Draft:
        """What was offered; how much of it is worth its rows was decided with the limit."""
        ids = self._offer.ids[:limit]
        return Draft.chain(self.name, ids, (1.0,) * len(ids))

    def follow(self, tokens: Sequence[int], seen: Pass | None, path: Sequence[int]) -> None:
        self._index.extend(tokens[len(self._index) :])

    def learn(self, round_: Round) -> None:
        """What was offered is judged by the text, whether it was used or not."""
        self._belief.learn(self._offer, round_)
        self._offer = NO_MATCH

    def measure(self) -> None:
        """Guesses cost nothing."""

    def forget(self) -> None:
        self._index.clear()

    def save(self) -> object:
        """The index is made again from the tokens."""
        return None

    def saved_bytes(self) -> int:
        return 0

    def restore(self, saved: object) -> bool:
        return True

    def beliefs(self) -> Mapping[str, Any] | None:
        """What was learned belongs to one text."""
        return None

    def believe(self, stored: Mapping[str, Any]) -> None:
        """Nothing is stored."""

    def close(self) -> None:
        """Nothing was opened."""
