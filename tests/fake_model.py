"""A scripted model behind the engine's model protocol: no libllama, exact logits, every call recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.ground.errors import InvalidInput


class FakeModel:
    """Logits come from `row(tokens so far)`; keeps the same books as a libllama context."""

    def __init__(
        self,
        row: Callable[[Sequence[int]], NDArray[np.float32]],
        n_vocab: int,
        *,
        capacity: int = 4096,
        max_rows: int = 65,
        max_rewind: int | None = None,
    ) -> None:
        self._row = row
        self.n_vocab = n_vocab
        self.capacity = capacity
        self.max_rows = max_rows
        self.max_rewind = max_rewind
        self.tokens: list[int] = []
        self._scored: tuple[int, int, tuple[int, ...]] | None = None
        self.passes: list[int] = []
        """Tokens of each `extend` call."""

    @property
    def length(self) -> int:
        return len(self.tokens)

    def extend(self, tokens: Sequence[int], rows: int = 1) -> NDArray[np.float32]:
        assert tokens and 0 <= rows <= min(len(tokens), self.max_rows)
        if self.length + len(tokens) > self.capacity:
            raise InvalidInput("context full")
        self.passes.append(len(tokens))
        out = np.empty((rows, self.n_vocab), np.float32)
        for index, token in enumerate(tokens):
            assert 0 <= token < self.n_vocab
            self.tokens.append(token)
            if index >= len(tokens) - rows:
                out[index - (len(tokens) - rows)] = self._row(self.tokens)
        return out

    def score(
        self, last: int, ids: Sequence[int], parents: Sequence[int] | None = None
    ) -> NDArray[np.float32]:
        assert len(ids) < self.max_rows and self._scored is None
        before = [*self.tokens, last]
        self._scored = (len(self.tokens), last, tuple(ids))
        if parents is None:
            return self.extend([last, *ids], 1 + len(ids))
        out = [self._row(before)]
        paths: list[list[int]] = []
        for guess, parent in zip(ids, parents, strict=True):
            paths.append([*(paths[parent] if parent >= 0 else []), guess])
            out.append(self._row([*before, *paths[-1]]))
        self.passes.append(1 + len(ids))
        self.tokens.append(last)
        return np.stack(out)

    def keep(self, path: Sequence[int]) -> None:
        assert self._scored is not None
        base, last, ids = self._scored
        self._scored = None
        self.tokens[base:] = [last, *(ids[node] for node in path)]

    def checkpoint(self) -> None:
        pass

    def state_size(self) -> int:
        return 4 * self.length

    def save(self) -> NDArray[np.uint8]:
        return np.zeros(self.state_size(), np.uint8)

    def restore(self, state: NDArray[np.uint8], tokens: Sequence[int]) -> bool:
        self.tokens = list(tokens)
        return True

    def rewind(self, length: int) -> int:
        assert 0 <= length <= self.length
        length = self.rewinds_to(length)
        self._scored = None
        del self.tokens[length:]
        return length

    def rewinds_to(self, length: int) -> int:
        return length if self.max_rewind is None or self.length - length <= self.max_rewind else 0


class FakeVocabulary:
    """Token t is the byte string `pieces[t]`; `ends` end an answer."""

    def __init__(self, pieces: Sequence[bytes], ends: Sequence[int] = ()) -> None:
        self._pieces = list(pieces)
        self._ends = frozenset(ends)
        self.size = len(pieces)

    def token_bytes(self, token: int) -> bytes:
        return b"" if token in self._ends else self._pieces[token]

    def is_end(self, token: int) -> bool:
        return token in self._ends


def script(sequence: Sequence[int], n_vocab: int) -> Callable[[Sequence[int]], NDArray[np.float32]]:
    """Logits that say `sequence[i]` after i tokens, whatever they were; the last entry is repeated."""

    def row(tokens: Sequence[int]) -> NDArray[np.float32]:
        logits = np.zeros(n_vocab, np.float32)
        logits[sequence[min(len(tokens), len(sequence) - 1)]] = 10.0
        return logits

    return row


def markov(table: NDArray[np.float64]) -> Callable[[Sequence[int]], NDArray[np.float32]]:
    """Logits of P(next | previous)."""
    with np.errstate(divide="ignore"):
        logits = np.log(table).astype(np.float32)
    return lambda tokens: logits[tokens[-1]]
