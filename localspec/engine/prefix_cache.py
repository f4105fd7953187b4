"""Conversations that take turns on one engine: the cache of each is kept while another goes on, and put back later.

Reading a prompt of a thousand tokens again takes seconds to minutes; copying its cache takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from localspec.engine.model import Model, common_length
from localspec.ground.errors import EngineError

if TYPE_CHECKING:
    from localspec.engine.drafters.protocol import Drafter

WORTH_TOKENS = 64
"""A cache is kept, or put back, when it saves reading so many tokens."""

State = NDArray[np.uint8]
"""One model's cache as libllama writes it."""


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """The caches of one conversation."""

    tokens: tuple[int, ...]
    """What the target's cache holds."""
    target: State
    drafters: Mapping[str, object]
    """What each drafter saved, by name."""
    size: int
    """Bytes, of all of them."""


class PrefixCache:
    """The last conversations, as many as fit into `limit` bytes; the one not used for longest goes first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: list[Kept] = []

    @property
    def size(self) -> int:
        """Bytes kept."""
        return sum(kept.size for kept in self._kept)

    def has_room(self, size: int) -> bool:
        """Whether something of so many bytes would be kept at all: to be asked before it is copied."""
        return size <= self._limit

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, prompt: Sequence[int], shared: int) -> Kept | None:
        """The conversation that shares the most with `prompt`; None if what is at hand (`shared` tokens) is as good."""
        best = max(self._kept, key=lambda kept: common_length(kept.tokens, prompt), default=None)
        if best is None or common_length(best.tokens, prompt) < shared + WORTH_TOKENS:
            return None
        self._kept.remove(best)
        self._kept.append(best)
        return best

    def keep(self, new: Kept) -> None:
        """Add one; those that it continues are dropped, then the oldest until all fit."""
        self._kept = [old for old in self._kept if common_length(old.tokens, new.tokens) < len(old.tokens)]
        self._kept.append(new)
        while self._kept and self.size > self._limit:
            del self._kept[0]

    def swap(self, prompt: Sequence[int], target: Model, drafters: Collection[Drafter]) -> None:
        """Keep the conversation in the caches, if `prompt` leaves it, and put back the one that it continues."""
        shared = common_length(target.tokens, prompt)
        found = self.find(prompt, shared)
        if target.length - shared >= WORTH_TOKENS:
            with suppress(EngineError, MemoryError):  # then it will have to be read again
                self._keep_held(target, drafters)
        if found is not None:
            target.restore(found.target, found.tokens)
            for drafter in drafters:
                saved = found.drafters.get(drafter.name)
                if saved is not None:
                    drafter.restore(saved)

    def _keep_held(self, target: Model, drafters: Collection[Drafter]) -> None:
        size = target.state_size() + sum(drafter.saved_bytes() for drafter in drafters)
        if self.has_room(size):
            saved = {drafter.name: drafter.save() for drafter in drafters}
            self.keep(Kept(tuple(target.tokens), target.save(), saved, size))

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()
