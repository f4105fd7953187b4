"""Rows for one libllama call, in arrays of our own: filled as a whole, and nothing for libllama to free."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from localspec.engine.llama.trees import Tree

_Int32 = ctypes.POINTER(ctypes.c_int32)
_Int8 = ctypes.POINTER(ctypes.c_int8)


class Batch:
    """A `llama_batch` of at most `size` rows that belong to at most `sequences` sequences."""

    def __init__(self, library: Any, size: int, sequences: int = 1) -> None:
        self.size = size
        self._tokens = np.zeros(size, np.int32)
        self._positions = np.zeros(size, np.int32)
        self._outputs = np.zeros(size, np.int8)
        self._counts = np.ones(size, np.int32)
        self._ids = np.zeros((size, sequences), np.int32)
        self._mixed = 0  # leading rows that do not belong to sequence 0 alone
        first, step = self._ids.ctypes.data, self._ids.strides[0]
        self._pointers = (_Int32 * size)(*(ctypes.cast(first + row * step, _Int32) for row in range(size)))
        struct = self._struct = library.llama_batch()
        struct.token = self._tokens.ctypes.data_as(_Int32)
        struct.pos = self._positions.ctypes.data_as(_Int32)
        struct.n_seq_id = self._counts.ctypes.data_as(_Int32)
        struct.seq_id = ctypes.cast(self._pointers, ctypes.POINTER(_Int32))
        struct.logits = self._outputs.ctypes.data_as(_Int8)

    def chain(self, tokens: Sequence[int], position: int, rows: int) -> Any:
        """`tokens` in sequence 0 from `position` on; logits wanted of the last `rows`."""
        count = len(tokens)
        if self._mixed:
            self._counts[: self._mixed] = 1
            self._ids[: self._mixed, 0] = 0
            self._mixed = 0
        self._tokens[:count] = tokens
        self._positions[:count] = np.arange(position, position + count, dtype=np.int32)
        self._outputs[:count] = 0
        self._outputs[count - rows : count] = 1
        self._struct.n_tokens = count
        return self._struct

    def tree(self, last: int, tree: Tree, position: int) -> Any:
        """`last` and each node once, in the sequences of the leaves below it. Logits in the order of the nodes."""
        count = 1 + len(tree.ids)
        below: list[list[int]] = [[] for _ in tree.ids]
        for sequence, path in enumerate(tree.paths):
            for node in path:
                below[node].append(sequence)
        self._tokens[:count] = (last, *tree.ids)
        self._positions[:count] = (position, *(position + depth for depth in tree.depths))
        self._outputs[:count] = 1
        for row, sequences in enumerate([list(range(len(tree.paths))), *below]):
            self._counts[row] = len(sequences)
            self._ids[row, : len(sequences)] = sequences
        return self._mixed_rows(count)

    def paths(self, last: int, tree: Tree, paths: Sequence[Sequence[int]], position: int) -> tuple[Any, list[int]]:
        """Each path in a sequence of its own, what they share repeated. Logits of a node only where it occurs
        first; the list says in which order: -1 = `last`."""
        order: list[int] = []
        row = 0
        for sequence, path in enumerate(paths):
            for node in (-1, *path):
                self._tokens[row] = last if node < 0 else tree.ids[node]
                self._positions[row] = position + (0 if node < 0 else tree.depths[node])
                self._ids[row, 0] = sequence
                self._outputs[row] = node not in order
                if node not in order:
                    order.append(node)
                row += 1
        self._counts[:row] = 1
        return self._mixed_rows(row), order

    def _mixed_rows(self, count: int) -> Any:
        self._mixed = max(self._mixed, count)
        self._struct.n_tokens = count
        return self._struct
