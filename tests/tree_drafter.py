"""A drafter that guesses trees of 2 x 2 x 2 from a script, for tests: no real drafter makes trees yet.

    monkeypatch.setitem(table.DRAFTERS, "tree", Entry("tests.tree_drafter", "a script"))
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from localspec.engine.drafters.base import DrafterBase
from localspec.engine.drafters.protocol import Forecast, Parts, Wants, Worth
from localspec.engine.noise import Chance
from localspec.engine.records import Draft

SCRIPT: list[int] = []
"""The whole sequence that is expected; guesses are taken from it."""

RIGHT = 0.8
"""Share of the levels at which one of the two guesses is the script's."""

LEAVES = 8
PARENTS = (-1, 0, 1, 1, 0, 4, 4, -1, 7, 8, 8, 7, 11, 11)
"""Depth first: two guesses, two after each, two after each of those."""


def wants(draft: Path | None) -> Wants:
    return Wants(leaves=LEAVES)


def open_drafter(parts: Parts) -> TreeDrafter:
    return TreeDrafter(parts.target.n_vocab)


class TreeDrafter(DrafterBase):
    """At each level one of two siblings, now the first and now the second, may be right."""

    name = "tree"

    def __init__(self, n_vocab: int) -> None:
        self._n_vocab = n_vocab
        self._rng = random.Random(5)

    def forecast(self, room: int) -> Forecast | None:
        if room < len(PARENTS):
            return None
        return Forecast((0.0, *(0.1 * n for n in range(1, 15))), (0.0,) * 15, range(1, 16))

    def propose(self, limit: int, worth: Worth, chance: Chance, probe: bool) -> Draft:
        ids: list[int] = []
        depths: list[int] = []
        on_script: list[bool] = []
        for node, parent in enumerate(PARENTS):
            depth = 1 + depths[parent] if parent >= 0 else 0
            first_child = parent not in PARENTS[:node]
            straight = parent < 0 or on_script[parent]
            sibling = next((ids[at] for at in range(node) if PARENTS[at] == parent), None)
            place = len(self.tokens) + depth
            expected = SCRIPT[place] if place < len(SCRIPT) else 0
            is_right = straight and sibling != expected and self._rng.random() < (RIGHT / 2 if first_child else RIGHT)
            guess = expected if is_right else self._other_than(expected, sibling)
            ids.append(guess)
            depths.append(depth)
            on_script.append(is_right)
        return Draft(self.name, tuple(ids), PARENTS, None, (1.0,) * len(ids))

    def _other_than(self, *taken: int | None) -> int:
        while (guess := self._rng.randrange(self._n_vocab)) in taken:
            pass
        return guess


def expect(sequence: Sequence[int]) -> None:
    """Guesses come from this sequence from now on."""
    SCRIPT[:] = sequence
