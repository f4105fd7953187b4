"""What the loop needs of a model and of a vocabulary; libllama's are in `engine/llama`, tests bring their
own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Model(Protocol):
    """A sequence in one model: tokens in, rows of logits out, and back. It alone knows which tokens it holds."""

    @property
    def n_vocab(self) -> int:
        """Columns of each logits row."""

    @property
    def tokens(self) -> Sequence[int]:
        """The tokens held, at positions 0 .. length - 1; not to be changed by the caller."""

    @property
    def length(self) -> int:
        """Their number."""

    @property
    def capacity(self) -> int:
        """Most tokens that can be held."""

    @property
    def max_rows(self) -> int:
        """Most rows of logits in one pass."""

    @property
    def max_rewind(self) -> int | None:
        """Most tokens that can be taken back after a pass; None = any number."""

    def extend(self, tokens: Sequence[int], rows: int = 1) -> NDArray[np.float32]:
        """Decode `tokens` at the end; logits of the last `rows`, shape (rows, n_vocab), valid until the
        next call."""

    def score(
        self, last: int, ids: Sequence[int], parents: Sequence[int] | None = None
    ) -> NDArray[np.float32]:
        """Decode `last` and a tree of guesses in one pass; shape (1 + guesses, n_vocab), row i + 1 after guess i.

        `parents` as in `Draft`, None = a chain. `keep` must follow.
        """

    def keep(self, path: Sequence[int]) -> None:
        """Of the last `score` hold `last` and these guesses, one after the other; all others go."""

    def rewind(self, length: int) -> int:
        """Go back to `length` tokens, or as near below as this memory can; returns what is held now."""

    def rewinds_to(self, length: int) -> int:
        """What `rewind(length)` would leave."""

    def checkpoint(self) -> None:
        """Remember this length as one to go back to, where the memory cannot go back anywhere."""


    def state_size(self) -> int:
        """Bytes that `save` would take now."""

    def save(self) -> NDArray[np.uint8]:
        """A copy of the cache, for `restore`."""

    def restore(self, state: NDArray[np.uint8], tokens: Sequence[int]) -> bool:
        """Put a saved cache of these tokens in place of this one; False when it is empty instead."""


class TextVocabulary(Protocol):
    """Token ids to bytes, and which ids end an answer."""

    @property
    def size(self) -> int:
        """Valid ids are 0 .. size - 1."""

    def token_bytes(self, token: int) -> bytes:
        """The bytes that `token` adds to the text; b"" for control tokens."""

    def is_end(self, token: int) -> bool:
        """Whether `token` ends an answer."""


def common_length(held: Sequence[int], tokens: Sequence[int]) -> int:
    """How many leading tokens the two share."""
    for index, (ours, theirs) in enumerate(zip(held, tokens, strict=False)):
        if ours != theirs:
            return index
    return min(len(held), len(tokens))
