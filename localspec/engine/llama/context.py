"""One model's running state: tokens in, rows of logits out, and back to any earlier length.

libllama ends the process on several mistakes. Each call here is checked first, so that a mistake of ours is
an exception.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from localspec.engine.llama.binding import last_log_lines, library
from localspec.engine.llama.weights import Weights
from localspec.engine.process.cancel import CancelFlag, strlen_address
from localspec.engine.process.last_words import last_words
from localspec.engine.settings import CACHE_TYPES
from localspec.ground.errors import Cancelled, EngineError, InvalidInput

_GGML_TYPES = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20, "bf16": 30,
}  # fmt: skip
_FLASH = {"auto": -1, "off": 0, "on": 1}
_SLICE = 512
"""Rows per libllama call while reading a prompt: between slices a GPU run can be cancelled."""

assert set(_GGML_TYPES) == set(CACHE_TYPES)


@dataclass(frozen=True, slots=True)
class ContextSettings:
    """How one context is made."""

    tokens: int
    """Context length; libllama rounds its own up to 256, the limit kept here is this one."""
    rows: int
    """Most rows of logits in one pass: draft length + 1. Sizes the compute buffers."""
    threads: int
    cache_type: str = "f16"
    flash_attention: Literal["auto", "on", "off"] = "auto"


class Context:
    """A sequence in one model. One thread at a time.

    `length` tokens are in the cache, at positions 0 .. length - 1.
    """

    def __init__(self, weights: Weights, settings: ContextSettings, cancel: CancelFlag) -> None:
        """Raises EngineError when libllama cannot make the context (memory, cache type)."""
        self._lib = library()
        self._weights = weights
        self._cancel = cancel
        self.n_vocab = weights.vocabulary.size
        self.capacity = settings.tokens
        """Most tokens that `length` may reach."""
        self.max_rows = settings.rows
        self._handle = self._open(settings)
        self._memory = self._lib.llama_get_memory(self._handle)
        self.length = 0
        self._batch_size = min(_SLICE, int(self._lib.llama_n_batch(self._handle)))
        self._batch = self._lib.llama_batch_init(self._batch_size, 0, 1)
        self._tokens, self._positions, self._outputs = self._batch_views()
        self.max_rewind = self._find_max_rewind()
        """Most tokens that `rewind` can take back after a pass; None = any number."""

    def extend(self, tokens: Sequence[int], rows: int = 1) -> NDArray[np.float32]:
        """Decode `tokens` at the end of the sequence; logits of the last `rows` of them, shape (rows,
        n_vocab).

        The array is libllama's own memory: valid, and free to be written to, until the next call.
        Raises Cancelled; `length` then tells what stayed.
        """
        self._check(tokens, rows)
        head = len(tokens) - rows
        done = 0
        while head - done > 0 and len(tokens) - done > self._batch_size:
            count = min(self._batch_size, head - done)
            self._decode(tokens[done : done + count], 0)
            done += count
        self._decode(tokens[done:], rows)
        return self._logits(rows)

    def rewind(self, length: int) -> None:
        """Forget every token at position `length` and later. Raises EngineError where the model cannot."""
        if length == self.length:
            return
        if not 0 <= length < self.length:
            raise EngineError(f"cannot rewind from {self.length} to {length} tokens")
        if length == 0:
            self._lib.llama_memory_clear(self._memory, False)
        elif not self.can_rewind(length) or not self._lib.llama_memory_seq_rm(self._memory, 0, length, -1):
            raise EngineError(f"this model's memory cannot go back from {self.length} to {length} tokens")
        self.length = length

    def save(self) -> NDArray[np.uint8]:
        """A copy of the cache, for `restore`. Raises EngineError where libllama cannot make one."""
        state = np.empty(self._lib.llama_state_seq_get_size(self._handle, 0), np.uint8)
        pointer = state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        if self._lib.llama_state_seq_get_data(self._handle, pointer, len(state), 0) != len(state):
            raise EngineError("libllama could not copy the cache")
        return state

    def restore(self, state: NDArray[np.uint8], length: int) -> bool:
        """Put a saved cache of `length` tokens in place of this one; False when it is empty instead."""
        self._lib.llama_memory_clear(self._memory, False)
        self.length = 0
        pointer = state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        done = self._lib.llama_state_seq_set_data(self._handle, pointer, len(state), 0)
        if done != len(state) or self.cached_length() != length:
            self._lib.llama_memory_clear(self._memory, False)
            return False
        self.length = length
        return True

    def can_rewind(self, length: int) -> bool:
        """Whether `rewind(length)` would work now."""
        back = self.length - length
        return length == 0 or back == 0 or self.max_rewind is None or back <= self.max_rewind

    def cached_length(self) -> int:
        """What libllama itself says the sequence holds; equals `length` unless something is wrong."""
        return int(self._lib.llama_memory_seq_pos_max(self._memory, 0)) + 1

    def warm_up(self) -> None:
        """Pay for page faults, repacking and kernel set-up now instead of in the first answer."""
        token = self._weights.vocabulary.bos or 0
        for rows in {1, min(self.max_rows, self.capacity, self._batch_size)}:
            self.extend([token] * rows, rows)
            self.rewind(0)

    def close(self) -> None:
        """Free it; safe to call twice. Its weights must still be there."""
        if self._handle:
            self._lib.llama_batch_free(self._batch)
            self._lib.llama_free(self._handle)
            self._handle = None

    def _open(self, settings: ContextSettings) -> Any:
        params = context_parameters(self._lib, settings, self._weights.is_recurrent)
        self._abort = self._lib.ggml_abort_callback(strlen_address())
        params.abort_callback = self._abort
        params.abort_callback_data = self._cancel.address
        handle = self._lib.llama_init_from_model(self._weights.handle, params)
        if not handle:
            raise EngineError(
                f"libllama cannot make a context of {settings.tokens} tokens for {self._weights.path.name} "
                f"({'; '.join(last_words(last_log_lines(20))) or 'it did not say why'})",
                "Try a smaller --ctx, or another --cache-type",
            )
        return handle

    def _batch_views(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int8]]:
        """numpy views of the batch's arrays; the sequence ids never change, so they are written once."""
        size = (self._batch_size,)
        for row in range(self._batch_size):
            self._batch.n_seq_id[row] = 1
            self._batch.seq_id[row][0] = 0
        view = np.ctypeslib.as_array
        return view(self._batch.token, size), view(self._batch.pos, size), view(self._batch.logits, size)

    def _check(self, tokens: Sequence[int], rows: int) -> None:
        if not tokens or not 0 <= rows <= min(len(tokens), self.max_rows):
            raise EngineError(
                f"{rows} rows of logits asked for {len(tokens)} tokens (at most {self.max_rows})"
            )
        if self.length + len(tokens) > self.capacity:
            raise InvalidInput(
                f"{self.length + len(tokens)} tokens do not fit into a context of {self.capacity}",
                "Use a larger --ctx",
            )
        if min(tokens) < 0 or max(tokens) >= self.n_vocab:
            raise EngineError(f"a token id is outside this model's vocabulary of {self.n_vocab}")

    def _decode(self, tokens: Sequence[int], rows: int) -> None:
        count = len(tokens)
        self._tokens[:count] = tokens
        self._positions[:count] = np.arange(self.length, self.length + count, dtype=np.int32)
        self._outputs[:count] = 0
        self._outputs[count - rows : count] = 1
        self._batch.n_tokens = count
        if self._cancel.is_set():  # GPU backends do not poll the flag
            raise Cancelled("stopped")
        code = self._lib.llama_decode(self._handle, self._batch)
        if code == 0:
            self.length += count
            return
        # Earlier micro-batches of a failed call stay in the cache: start again from what is really there.
        self.length = self.cached_length()
        if code == 2:
            raise Cancelled("stopped")
        reason = {1: "no room in the cache", -1: "invalid batch", -2: "out of memory"}.get(
            code, f"code {code}"
        )
        raise EngineError(f"libllama could not decode {count} tokens at position {self.length}: {reason}")

    def _logits(self, rows: int) -> NDArray[np.float32]:
        if rows == 0:
            return np.empty((0, self.n_vocab), np.float32)
        pointer = self._lib.llama_get_logits(self._handle)
        if not pointer:
            raise EngineError("libllama returned no logits")
        flat: NDArray[np.float32] = np.ctypeslib.as_array(pointer, (rows * self.n_vocab,))
        return flat.reshape(rows, self.n_vocab)

    def _find_max_rewind(self) -> int | None:
        """Try it: two tokens in, one back. Known at load, never at the first request."""
        if self._weights.is_recurrent:
            return int(self._lib.llama_n_rs_seq(self._handle))
        if self.capacity < 2:
            return 0
        self.extend([self._weights.vocabulary.bos or 0] * 2, 0)
        works = bool(self._lib.llama_memory_seq_rm(self._memory, 0, 1, -1))
        self._lib.llama_memory_clear(self._memory, True)
        self.length = 0
        return None if works else 0


def context_parameters(lib: Any, settings: ContextSettings, recurrent: bool) -> Any:
    """libllama's own parameters for these settings."""
    params = lib.llama_context_default_params()
    params.n_ctx = settings.tokens
    params.n_batch = max(_SLICE, settings.rows)
    params.n_ubatch = max(_SLICE, settings.rows)
    params.n_seq_max = 1
    params.n_outputs_max = settings.rows
    params.n_threads = params.n_threads_batch = settings.threads
    params.type_k = params.type_v = _GGML_TYPES[settings.cache_type]
    params.flash_attn_type = _FLASH[settings.flash_attention]
    # The full-size window costs memory but lets a sliding-window model go back to any earlier turn.
    params.swa_full = True
    if recurrent:
        params.n_rs_seq = max(settings.rows - 1, 0)
    return params
