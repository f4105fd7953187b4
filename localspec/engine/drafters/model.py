"""A small model guesses: a chain of its own samples, its cache kept from round to round.

After a round only what was rejected is rewound. The next draft then decodes one missing token (two after a
draft that was kept whole: the last guess was never decoded here), instead of the whole block again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.engine.drafters.protocol import GoOn
from localspec.engine.model import Model
from localspec.engine.noise import Chance
from localspec.engine.records import Draft
from localspec.engine.sampling import Distribution, Sampler, confidence
from localspec.engine.settings import SamplerSettings


class ModelDrafter:
    """Drafts with a second model that shares the target's token ids."""

    name = "model"

    def __init__(self, model: Model, masked_ids: Sequence[int] = (), shared_rows: int | None = None) -> None:
        """`masked_ids`, and every id from `shared_rows` on, mean something else to the target: never
        proposed."""
        self._model = model
        self._masked = tuple(masked_ids)
        self._shared_rows = model.n_vocab if shared_rows is None else min(shared_rows, model.n_vocab)
        self._held: list[int] = []  # the tokens in the model's cache
        self._agreed = 0  # how many of them are known to be the sequence's own
        self.configure(SamplerSettings(), frozenset())

    def configure(self, settings: SamplerSettings, ends: frozenset[int]) -> None:
        """Settings of the coming answer. `ends`: after a guess of one of these nothing more is guessed."""
        cooler = settings.draft_temperature
        self._greedy = settings.greedy
        self._ends = ends
        self._sampler = Sampler(
            settings,
            usable=self._shared_rows,
            banned=self._masked,
            temperature=None if cooler is None or settings.greedy else cooler,
        )

    def missing(self, tokens: Sequence[int]) -> int:
        """Rows to decode before the first guess after `tokens`."""
        return len(tokens) - self._model.length

    def room(self, tokens: Sequence[int]) -> int:
        """Most guesses that the draft model's context has room for after `tokens`."""
        return max(0, self._model.capacity - len(tokens) + 1)

    def prepare(self, tokens: Sequence[int]) -> None:
        """Prefill all of `tokens` but the last, which the first draft decodes."""
        self.drop_unshared(tokens)
        fresh = tokens[self._model.length : min(len(tokens) - 1, self._model.capacity)]
        if fresh:
            self._extend(fresh, 0)
        self._agreed = self._model.length

    def drop_unshared(self, tokens: Sequence[int]) -> None:
        """A new sequence: keep what it shares with the last one, and read nothing yet."""
        common = common_length(self._held, tokens[:-1])
        if common < self._model.length:
            self._rewind(common)
        self._agreed = self._model.length

    def forget(self) -> None:
        """Empty the cache."""
        self._rewind(0)
        self._agreed = 0

    def held(self) -> tuple[int, ...]:
        """The tokens in the model's cache."""
        return tuple(self._held)

    def holds(self, tokens: Sequence[int]) -> None:
        """The model's cache was exchanged: these are in it now."""
        self._held = list(tokens)
        self._agreed = 0

    def propose(self, tokens: Sequence[int], length: int, go_on: GoOn, chance: Chance) -> Draft:
        length = min(length, self.room(tokens))
        if length <= 0:
            return Draft((), self.name, ())
        history = list(tokens) if self._sampler.uses_history else []
        ids: list[int] = []
        rows: list[Distribution] = []
        confidences: list[float] = []
        draft_seconds = sample_seconds = 0.0
        foreign = 0
        catch_up = self.missing(tokens)
        feed = tokens[self._model.length :]
        start = time.perf_counter()
        while True:
            logits = self._extend(feed, 1)[0]
            decoded = time.perf_counter()
            draft_seconds += decoded - start
            foreign += self._wants_foreign(logits)
            q = self._sampler.distribution(logits, history)
            guess = chance.choose(q, len(tokens) + len(ids))
            confidences.append(confidence(logits, guess) if self._greedy else q.probability(guess))
            rows.append(q)
            ids.append(guess)
            history.append(guess)
            more = len(ids) < length and guess not in self._ends and go_on(confidences)
            start = time.perf_counter()
            sample_seconds += start - decoded
            if not more:
                break
            feed = [guess]
        self._agreed = len(tokens)
        return Draft(
            tuple(ids),
            self.name,
            tuple(confidences),
            tuple(rows),
            draft_seconds,
            catch_up,
            sample_seconds,
            foreign,
        )

    def keep(self, tokens: Sequence[int]) -> None:
        """Only guesses can differ from the sequence, so only they are compared."""
        limit = min(len(self._held), len(tokens) - 1)
        while self._agreed < limit and self._held[self._agreed] == tokens[self._agreed]:
            self._agreed += 1
        if self._agreed < self._model.length:
            self._rewind(self._agreed)

    def _extend(self, tokens: Sequence[int], rows: int) -> NDArray[np.float32]:
        try:
            return self._model.extend(tokens, rows)
        finally:
            # A cancelled call leaves the slices that were done.
            self._held.extend(tokens[: self._model.length - len(self._held)])

    def _rewind(self, length: int) -> None:
        del self._held[self._model.rewind(length) :]

    def _wants_foreign(self, logits: NDArray[np.float32]) -> int:
        """1 when the draft's own favourite is an id that the target does not share."""
        if not self._masked and self._shared_rows == len(logits):
            return 0
        favourite = int(np.argmax(logits))
        return int(favourite >= self._shared_rows or favourite in self._masked)


def common_length(held: Sequence[int], tokens: Sequence[int]) -> int:
    """How many leading tokens the two share."""
    for index, (ours, theirs) in enumerate(zip(held, tokens, strict=False)):
        if ours != theirs:
            return index
    return min(len(held), len(tokens))
