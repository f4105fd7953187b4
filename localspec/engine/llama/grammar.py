"""libllama's grammar sampler: which tokens of a model a GBNF grammar lets come next."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.engine.llama.binding import library
from localspec.engine.llama.vocabulary import Vocabulary
from localspec.ground.errors import EngineError, InvalidInput

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
"""llama_token_data."""


class LlamaGrammar:
    """One answer's place in a grammar. Close it; it may be closed twice."""

    def __init__(self, vocabulary: Vocabulary, source: str) -> None:
        """Raises InvalidInput for a grammar that libllama cannot use."""
        self._lib = library()
        self._vocabulary = vocabulary
        self._control = vocabulary.control_tokens
        if "\0" in source or not source.strip():
            raise InvalidInput("the grammar is empty or holds a zero byte", "Give at least the rule `root`")
        self._handle: Any = self._lib.llama_sampler_init_grammar(vocabulary.handle, source.encode(), b"root")
        if not self._handle:
            raise InvalidInput("libllama cannot use this grammar", "Check that no rule begins with itself")

    def allowed(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each of `ids` may come next: end tokens at the end, other control tokens never."""
        candidates = np.zeros(len(ids), _CANDIDATE)
        candidates["id"] = ids
        array = self._lib.llama_token_data_array(
            candidates.ctypes.data_as(ctypes.POINTER(self._lib.llama_token_data)), len(ids), -1, False
        )
        self._lib.llama_sampler_apply(self._handle, ctypes.byref(array))
        return np.asarray((candidates["logit"] > -math.inf) & ~self._control[ids])

    def accept(self, token: int) -> None:
        """Move on. libllama would end the process over a forbidden token, so it is asked first."""
        if not self.allowed(np.array([token], np.int64))[0]:
            raise EngineError("a token came that the grammar forbids: biases or bans left no other")
        if not self._vocabulary.is_end(token):
            self._lib.llama_sampler_accept(self._handle, token)

    def close(self) -> None:
        """Free it; safe to call twice."""
        if self._handle:
            self._lib.llama_sampler_free(self._handle)
            self._handle = None
