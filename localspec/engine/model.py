"""What the loop needs of a model and of a vocabulary; libllama's are in `engine/llama`, tests bring their
own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Model(Protocol):
    """A sequence in one model: tokens in, rows of logits out, and back."""

    @property
    def n_vocab(self) -> int:
        """Columns of each logits row."""

    @property
    def length(self) -> int:
        """Tokens held, at positions 0 .. length - 1."""

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

    def rewind(self, length: int) -> int:
        """Forget every token at position `length` and later; how many are left, fewer where the memory cannot go
        back so far."""

    def rewinds_to(self, length: int) -> int:
        """What `rewind(length)` would leave."""


class TextVocabulary(Protocol):
    """Token ids to bytes, and which ids end an answer."""

    @property
    def size(self) -> int:
        """Valid ids are 0 .. size - 1."""

    def token_bytes(self, token: int) -> bytes:
        """The bytes that `token` adds to the text; b"" for control tokens."""

    def is_end(self, token: int) -> bool:
        """Whether `token` ends an answer."""
