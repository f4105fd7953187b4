"""Text to token ids and back, in one model's vocabulary."""

from __future__ import annotations

import ctypes
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.engine.llama.binding import library
from localspec.ground.errors import InvalidInput


class Vocabulary:
    """The tokenizer of one loaded model. Thread-safe: libllama's tokenizer has no state."""

    def __init__(self, handle: Any) -> None:
        self._lib = library()
        self.handle = self._handle = handle
        """libllama's pointer, for its other functions that take a vocabulary."""
        self.size: int = int(self._lib.llama_vocab_n_tokens(handle))
        """Rows of the vocabulary, padding included: valid ids are 0 .. size - 1."""
        self._pieces: dict[int, bytes] = {}
        self._buffer = ctypes.create_string_buffer(256)

    def tokenize(self, text: str, *, special: bool, add_bos: bool = False) -> list[int]:
        """Ids of `text`. `special`: whether control tokens written in it count as such (never for a
        person's text). `add_bos`: put the beginning-of-sequence token first where the model wants one."""
        data = text.encode("utf-8", "replace")
        room = len(data) + 8
        while True:
            ids = (ctypes.c_int32 * room)()
            count = self._lib.llama_tokenize(self._handle, data, len(data), ids, room, add_bos, special)
            if count >= 0:
                return list(ids[:count])
            if count == -(2**31):
                raise InvalidInput("the text is too long to tokenize", "Send less of it")
            room = -count

    def token_bytes(self, token: int) -> bytes:
        """The bytes that `token` adds to the text: part of a character at times, b"" for control tokens."""
        piece = self._pieces.get(token)
        if piece is None:
            piece = self._pieces[token] = self._piece(token, special=False)
        return piece

    def token_text(self, token: int) -> str:
        """How the vocabulary writes `token`, control tokens included; for people, not for joining."""
        return self._piece(token, special=True).decode("utf-8", "replace")

    def is_end(self, token: int) -> bool:
        """Whether `token` ends an answer (the model's end-of-generation set)."""
        return bool(self._lib.llama_vocab_is_eog(self._handle, token))

    @cached_property
    def end_tokens(self) -> frozenset[int]:
        """Every id that ends an answer (one call per id: some 40 ms for 152k)."""
        is_eog = self._lib.llama_vocab_is_eog
        return frozenset(token for token in range(self.size) if is_eog(self._handle, token))

    @cached_property
    def control_tokens(self) -> NDArray[np.bool_]:
        """Whether each id is a control token that does not end an answer, shape (size,)."""
        ids = range(self.size)
        return np.array([self.is_control(token) and not self.is_end(token) for token in ids], np.bool_)

    @cached_property
    def suppressed(self) -> tuple[int, ...]:
        """Ids that the model's own file says must never be generated."""
        count = ctypes.c_int32(0)
        ids = self._lib.llama_vocab_get_suppress_tokens(self._handle, ctypes.byref(count))
        return tuple(int(ids[i]) for i in range(count.value)) if ids else ()

    @cached_property
    def bos(self) -> int | None:
        """The token that begins a text; None where there is none."""
        return self._optional(self._lib.llama_vocab_bos(self._handle))

    @cached_property
    def eos(self) -> int | None:
        """The token that ends a text; None where there is none."""
        return self._optional(self._lib.llama_vocab_eos(self._handle))

    @property
    def adds_bos(self) -> bool:
        """Whether the model expects a beginning-of-sequence token before raw text."""
        return bool(self._lib.llama_vocab_get_add_bos(self._handle))

    def is_control(self, token: int) -> bool:
        """Whether the token is markup of the chat format and no text."""
        return bool(self._lib.llama_vocab_is_control(self._handle, token))

    def _optional(self, token: int) -> int | None:
        return token if 0 <= token < self.size else None

    def _piece(self, token: int, special: bool) -> bytes:
        if not 0 <= token < self.size:
            raise InvalidInput(f"token id {token} is outside this vocabulary of {self.size}", "")
        count = self._lib.llama_token_to_piece(
            self._handle, token, self._buffer, len(self._buffer), 0, special
        )
        if count < 0:
            self._buffer = ctypes.create_string_buffer(-count)
            count = self._lib.llama_token_to_piece(self._handle, token, self._buffer, -count, 0, special)
        return self._buffer.raw[: max(count, 0)]
