"""Prompt lookup: what followed the last tokens earlier in the text is guessed to follow again. Needs no
model."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.engine.drafters.ngram_index import Match, NgramIndex
from localspec.engine.drafters.protocol import GoOn
from localspec.engine.noise import Chance
from localspec.engine.records import Draft


class LookupDrafter:
    """Point guesses (q = 1) from an index over prompt and output."""

    name = "lookup"

    def __init__(self) -> None:
        self._index = NgramIndex()

    def offer(self, length: int) -> Match:
        """What could be proposed now, at most `length` guesses; costs microseconds."""
        return self._index.propose(length)

    def prepare(self, tokens: Sequence[int]) -> None:
        self._index.sync(tokens)

    def propose(self, tokens: Sequence[int], length: int, go_on: GoOn, chance: Chance) -> Draft:
        ids = self._index.propose(length).ids
        return Draft(ids, self.name, (1.0,) * len(ids))

    def keep(self, tokens: Sequence[int]) -> None:
        self._index.extend(tokens[len(self._index) :])
