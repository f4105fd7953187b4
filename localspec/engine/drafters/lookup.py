"""Prompt lookup: what followed the last tokens earlier in the text is guessed to follow again. Needs no
model."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.engine.drafters.base import PointDrafter
from localspec.engine.drafters.ngram_index import Match, NgramIndex
from localspec.engine.drafters.protocol import Parts


def open_drafter(parts: Parts) -> LookupDrafter:
    """Any parts will do."""
    return LookupDrafter()


class LookupDrafter(PointDrafter):
    """Guesses from an index over prompt and output."""

    name = "lookup"

    def __init__(self) -> None:
        super().__init__()
        self._index = NgramIndex()

    def start(self, tokens: Sequence[int]) -> None:
        self._index.sync(tokens)

    def add(self, tokens: Sequence[int]) -> None:
        self._index.extend(tokens)

    def offer(self, room: int) -> Match:
        return self._index.propose(room)
