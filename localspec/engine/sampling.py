"""Logits to a sparse distribution, and a distribution to a token.

A row of logits has up to 262k columns; all but a few dozen are cut by top-k, top-p and min-p. So nothing
here sorts or exponentiates a whole row unless every filter is off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.engine.settings import SamplerSettings
from localspec.ground.errors import InvalidInput, LocalspecError, NotFinite

_GROUPS = 128
"""Rows of the reshaped logits in `largest`: maxima over this axis run at memory speed."""


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """Probabilities of the few tokens that can be chosen; every other id has 0."""

    ids: NDArray[np.int64]
    """Distinct token ids, in any order."""
    probs: NDArray[np.float64]
    """Same length, sum 1."""

    @staticmethod
    def certain(token: int) -> Distribution:
        """All the mass on one token: greedy targets and point guesses."""
        return Distribution(np.array([token], np.int64), np.ones(1))

    @property
    def top(self) -> int:
        """The most probable id; of equals the first."""
        return int(self.ids[int(np.argmax(self.probs))])

    def probability(self, token: int) -> float:
        """Of one id."""
        found = np.flatnonzero(self.ids == token)
        return float(self.probs[found[0]]) if found.size else 0.0

    def probabilities(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Of each of `ids`, same shape."""
        order = np.argsort(self.ids)
        ranked = self.ids[order]
        place = np.minimum(np.searchsorted(ranked, ids), len(ranked) - 1)
        return np.where(ranked[place] == ids, self.probs[order[place]], 0.0)

    def sample(self, uniform: float) -> int:
        """The id at quantile `uniform` in [0, 1)."""
        cumulative = np.cumsum(self.probs)
        place = int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
        return int(self.ids[min(place, len(self.ids) - 1)])

    def sample_with_noise(self, noise: NDArray[np.float64]) -> int:
        """argmax(log prob + noise), noise as `gumbel_noise(..., self.ids)` gives it."""
        with np.errstate(divide="ignore"):
            return int(self.ids[int(np.argmax(np.log(self.probs) + noise))])

    def excess(self, other: Distribution, share: float = 1.0) -> float:
        """Sum of max(0, share * self - other)."""
        return float(np.maximum(share * self.probs - other.probabilities(self.ids), 0.0).sum())

    def without(self, other: Distribution, share: float = 1.0) -> Distribution:
        """norm(max(0, share * self - other)): what is left to choose from after a sample of `other` was rejected."""
        left = np.maximum(share * self.probs - other.probabilities(self.ids), 0.0)
        total = left.sum()
        # Rounding alone can leave nothing; the two are then equal and either one is right.
        if total <= 0.0:
            return self
        keep = left > 0.0
        return Distribution(self.ids[keep], left[keep] / total)


class Sampler:
    """Turns rows of logits into distributions under fixed settings; keeps no state between rows."""

    def __init__(
        self,
        settings: SamplerSettings,
        *,
        usable: int | None = None,
        banned: Sequence[int] = (),
        temperature: float | None = None,
    ) -> None:
        """`usable`: ids at and above it do not exist (None = all do). `banned`: ids that must not be chosen.
        `temperature`: instead of the settings' own (a draft model may be cooler or warmer than its
        target)."""
        self._settings = settings
        self._temperature = settings.temperature if temperature is None else temperature
        self._usable = usable
        self._biased = np.array([token for token, _ in settings.logit_bias] + list(banned), np.int64)
        self._bias = np.array(
            [bias for _, bias in settings.logit_bias] + [-math.inf] * len(banned), np.float32
        )

    @property
    def uses_history(self) -> bool:
        """Whether `distribution` looks at the tokens so far."""
        return self._settings.penalises

    def distribution(
        self, row: NDArray[np.float32], history: Sequence[int], banned: Sequence[int] = ()
    ) -> Distribution:
        """What may follow `history` (prompt and output so far; only penalties look at it) by these logits.

        `row`, shape (n_vocab,), is used as scratch and is as before afterwards. `banned`: further ids, this
        time only.
        """
        if self._usable is not None:
            row = row[: self._usable]
        touched, saved = self._adjust(row, history, banned)
        try:
            if self._temperature == 0:
                top = int(np.argmax(row))  # the first NaN, where there is one
                if math.isfinite(row[top]):
                    return Distribution.certain(top)
                ids, logits = _NO_IDS, _NO_LOGITS
            else:
                ids, logits = self._filtered(row)
        finally:
            if touched is not None:
                row[touched] = saved
        if not ids.size or not np.isfinite(logits).all():
            raise _nothing_to_choose(row)
        return _softmax(ids, logits, self._temperature)

    def _adjust(
        self, row: NDArray[np.float32], history: Sequence[int], banned: Sequence[int]
    ) -> tuple[NDArray[np.int64] | None, NDArray[np.float32] | None]:
        """Apply biases, bans and penalties in place; which entries changed and what stood there."""
        penalised, counts = self._window(history)
        parts = [self._biased, penalised, np.asarray(banned, np.int64)]
        touched = np.concatenate(parts)
        touched = touched[(touched >= 0) & (touched < len(row))]
        if not touched.size:
            return None, None
        saved = row[touched]
        if self._biased.size:
            inside = self._biased < len(row)
            with np.errstate(invalid="ignore"):  # a broken model's infinities; said by `distribution`
                np.add.at(row, self._biased[inside], self._bias[inside])
        if penalised.size:
            inside = penalised < len(row)
            row[penalised[inside]] = self._penalise(row[penalised[inside]], counts[inside])
        if len(banned):
            row[np.asarray(banned, np.int64)] = -math.inf
        return touched, saved

    def _window(self, history: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Ids in the penalty window and how often each stands there."""
        settings = self._settings
        if not settings.penalises or settings.penalty_window == 0:
            return _NO_IDS, _NO_IDS
        window = history if settings.penalty_window < 0 else history[-settings.penalty_window :]
        return np.unique(np.asarray(window, np.int64), return_counts=True)

    def _penalise(self, logits: NDArray[np.float32], counts: NDArray[np.int64]) -> NDArray[np.float32]:
        """llama.cpp's rule: repeat divides positive logits and multiplies negative ones, the others
        subtract."""
        settings = self._settings
        scaled = np.where(logits > 0, logits / settings.repeat_penalty, logits * settings.repeat_penalty)
        lowered = scaled - counts * settings.frequency_penalty - settings.presence_penalty
        return np.asarray(lowered, np.float32)

    def _filtered(self, row: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Ids that pass top-k, top-p and min-p, and their logits."""
        settings = self._settings
        if not settings.truncates:
            ids = np.flatnonzero(row > -math.inf)
            return ids, row[ids].astype(np.float64)
        if settings.top_k and settings.top_k < len(row):
            ids = largest(row, settings.top_k)
            total = None
        else:
            ids, total = self._without_top_k(row)
        logits = row[ids].astype(np.float64)
        if not len(ids) or not math.isfinite(logits[0]):
            return ids, logits  # the caller says what is wrong
        keep = len(ids)
        if settings.top_p < 1.0:
            weights = np.exp(logits - logits[0])
            share = np.cumsum(weights) / (weights.sum() if total is None else total)
            keep = min(keep, int(np.searchsorted(share, settings.top_p, side="left")) + 1)
        if settings.min_p > 0.0:
            keep = min(
                keep, int(np.searchsorted(-logits, -(logits[0] + math.log(settings.min_p)), side="right"))
            )
        keep = max(keep, 1)
        return ids[:keep], logits[:keep]

    def _without_top_k(self, row: NDArray[np.float32]) -> tuple[NDArray[np.int64], float | None]:
        """Candidates in falling order when top-k is off, and the sum of exp(logit - max) over the whole
        row."""
        top = float(row.max())
        if not math.isfinite(top):
            return _NO_IDS, None
        total = (
            float(np.exp(row - np.float32(top)).sum(dtype=np.float64)) if self._settings.top_p < 1.0 else None
        )
        if self._settings.min_p > 0.0:
            floor = top + math.log(self._settings.min_p)
        else:
            floor = self._top_p_floor(row, top, total or 1.0)
        ids = np.flatnonzero(row >= floor) if floor > -math.inf else np.flatnonzero(row > -math.inf)
        return ids[np.argsort(-row[ids], kind="stable")], total

    def _top_p_floor(self, row: NDArray[np.float32], top: float, total: float) -> float:
        """A logit below which the top-p set surely does not reach, found in steps: sorting the row is
        dearer."""
        for depth in (4.0, 8.0, 12.0, 16.0):
            inside = row[row >= top - depth]
            if float(np.exp(inside - np.float32(top)).sum(dtype=np.float64)) >= self._settings.top_p * total:
                return top - depth
        return -math.inf


def largest(row: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Indices of the `count` largest entries, largest first, equal ones by index.

    Exact without a partition of the row: the count-th largest of the column maxima bounds the answer from
    below, and few entries pass that bound.
    """
    columns = len(row) // _GROUPS
    if columns < 2 * count:
        candidates = np.flatnonzero(row > -math.inf)
    else:
        main = columns * _GROUPS
        maxima = row[:main].reshape(_GROUPS, columns).max(axis=0)
        bound = np.partition(maxima, columns - count)[columns - count]
        candidates = np.flatnonzero(row >= bound) if bound > -math.inf else np.flatnonzero(row > -math.inf)
    order = np.argsort(-row[candidates], kind="stable")[:count]
    return candidates[order]


def confidence(row: NDArray[np.float32], token: int) -> float:
    """About the softmax probability of `token`: entries more than 8 below it are left out of the sum.

    For the controller of a greedy draft, which needs no exact figure and cannot wait for a whole softmax.
    """
    own = row[token]
    near = row[row > own - np.float32(8.0)]
    return float(1.0 / np.exp(near - own).sum())


def _softmax(ids: NDArray[np.int64], logits: NDArray[np.float64], temperature: float) -> Distribution:
    if temperature < _TINY_TEMPERATURE:
        logits = logits - logits.max()  # dividing first would give infinities on both sides
    with np.errstate(over="ignore"):
        scaled = logits / temperature
    weights = np.exp(scaled - scaled.max())
    return Distribution(ids, weights / weights.sum())


_TINY_TEMPERATURE = 1e-300
"""Logits of some hundreds, divided by less, are beyond the largest number."""


def _nothing_to_choose(row: NDArray[np.float32]) -> LocalspecError:
    """Why a row, shape (n_vocab,), gave no token: it holds no number, or settings forbid all that it allows."""
    if np.isfinite(row.max()):
        return InvalidInput("every token is banned here", "Ban fewer: see logit bias and min tokens")
    return NotFinite("the model computed no finite value", "Its file may be damaged. Type: localspec verify")


_NO_IDS = np.empty(0, np.int64)
_NO_LOGITS = np.empty(0)
