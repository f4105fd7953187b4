"""Keeping an answer inside a grammar: rows of logits lose the tokens that may not come next.

Exact, as if every token of the vocabulary had been asked about, but mostly without asking about them all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.engine.control.controller import FixedController
from localspec.engine.sampling import largest
from localspec.engine.settings import SamplerSettings
from localspec.ground.errors import EngineError

_FIRST_ASKED = 512
"""Likeliest tokens asked about before all of them are."""


class Grammar(Protocol):
    """What may come next, moved on token by token."""

    def allowed(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each of `ids` may come next, same shape."""

    def accept(self, token: int) -> None:
        """`token` came next. Raises EngineError when it was not allowed."""


def plain_controller() -> FixedController:
    """Drafts cannot be checked against a grammar yet: no guesses, and the reason said."""
    controller = FixedController("none", 0)
    controller.reason = "grammar"
    return controller


def needed(settings: SamplerSettings, banned: Sequence[int]) -> int | None:
    """How many of the likeliest allowed tokens decide what is sampled; None = all may."""
    if settings.penalises or settings.logit_bias or banned:
        return None  # the likeliest by these logits need not be the likeliest in the end
    if settings.greedy:
        return 1
    return settings.top_k or None


def mask(row: NDArray[np.float32], grammar: Grammar, enough: int | None) -> None:
    """Set `row`, shape (n_vocab,), to -inf wherever the grammar forbids the token.

    `enough` as `needed` gives it: allowed tokens behind the first `enough` ones may become -inf too.
    """
    kept = np.empty(0, np.int64)
    if enough is not None and enough < _FIRST_ASKED < len(row):
        likely = largest(row, _FIRST_ASKED)
        kept = likely[grammar.allowed(likely)]
    if enough is None or len(kept) < enough:
        everything = np.arange(len(row), dtype=np.int64)
        kept = everything[grammar.allowed(everything)]
    if not len(kept):
        raise EngineError("the grammar allows no token of this model here", "Change the grammar")
    logits = row[kept]
    row.fill(-math.inf)
    row[kept] = logits
