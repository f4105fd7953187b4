"""A small model guesses: a chain of its own samples, its cache kept from round to round.

After a round only what was rejected is taken back. The next draft then decodes one missing token (two after a
draft that was kept whole: the last guess was never decoded here), instead of the whole block again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.engine.drafters.model_belief import GLANCE_ROWS, ModelBelief
from localspec.engine.drafters.protocol import Forecast, Parts, Worth
from localspec.engine.model import Model, common_length
from localspec.engine.noise import Chance
from localspec.engine.records import NO_DRAFT, Draft, Pass, Round, Spent
from localspec.engine.sampling import Distribution, Sampler, confidence
from localspec.engine.settings import SamplerSettings
from localspec.ground.errors import ContextFull, EngineError, InvalidInput, NotFinite

_ROWS_WORTH_TIMING = 16
"""Rows of a pass that say something about the cost of catching up."""


def _why(error: EngineError | InvalidInput) -> str:
    """Why there are no guesses any more."""
    if isinstance(error, NotFinite):
        return "the draft model computed no finite value"
    if isinstance(error, EngineError):
        return f"the draft model failed: {error}"
    return "no token that both models share may be said"


def open_drafter(parts: Parts) -> ModelDrafter | None:
    """None without a small model."""
    if parts.draft is None:
        return None
    rows = min(parts.draft.n_vocab, parts.target.n_vocab, parts.shared_rows or parts.draft.n_vocab)
    belief = ModelBelief(ModelDrafter.name, parts.costs)
    return ModelDrafter(parts.draft, belief, parts.masked_ids, rows, parts.stand_in)


class ModelDrafter:
    """Drafts with a second model that shares the target's token ids."""

    name = "model"

    def __init__(
        self,
        model: Model,
        belief: ModelBelief,
        masked_ids: Sequence[int] = (),
        shared_rows: int | None = None,
        stand_in: int = 0,
    ) -> None:
        """`masked_ids`, and every id from `shared_rows` on, mean something else to the target: never
        proposed, and read as `stand_in`."""
        self._model = model
        self._belief = belief
        self._masked = frozenset(masked_ids)
        self._shared_rows = model.n_vocab if shared_rows is None else min(shared_rows, model.n_vocab)
        self._stand_in = stand_in
        self._tokens: Sequence[int] = ()
        self._agreed = 0  # how many tokens in the cache are known to be the sequence's own
        self.trouble = ""
        self._configure(SamplerSettings(), frozenset())

    # --- following the sequence ---------------------------------------------------------------------

    def begin(self, tokens: Sequence[int], sampler: SamplerSettings, ends: frozenset[int], related: bool) -> None:
        self._configure(sampler, ends)
        self._belief.begin(related)
        self._tokens = tokens
        if self.trouble:  # another text, or other settings, may have none; what is in the cache may be no number
            self.trouble = ""
            self.forget()
        common = common_length(self._model.tokens, self._readable(tokens[:-1]))
        self._agreed = self._model.rewind(common)

    def follow(self, tokens: Sequence[int], seen: Pass | None, path: Sequence[int]) -> None:
        """Only guesses can differ from the sequence, so only they are compared."""
        if len(tokens) < len(self._tokens):
            return  # a slice of the prompt: `begin` knew all of it, and this cache may reach further than the target's
        self._tokens = tokens
        held = self._model.tokens
        limit = min(len(held), len(tokens) - 1)
        while self._agreed < limit and held[self._agreed] == self._readable_one(tokens[self._agreed]):
            self._agreed += 1
        if self._agreed < len(held):
            self._agreed = self._model.rewind(self._agreed)
        if self._missing < 1:
            # A cache that is ahead gives useless guesses and no error.
            raise EngineError(f"the draft model is {-self._missing} tokens ahead: this is a bug")

    def catch_up(self) -> None:
        """Read all of the sequence but the last token, which the first draft decodes."""
        start = time.perf_counter()
        fresh = self._tokens[self._model.length : min(len(self._tokens) - 1, self._model.capacity)]
        if not fresh:
            return
        try:
            self._model.extend(self._readable(fresh), 0)
        except EngineError as error:
            self.trouble = _why(error)
            return
        self._agreed = self._model.length
        if len(fresh) >= _ROWS_WORTH_TIMING:
            self._belief.observe_catch_up(len(fresh), len(self._tokens), time.perf_counter() - start)

    @property
    def _missing(self) -> int:
        """Rows to decode before the first guess."""
        return len(self._tokens) - self._model.length

    def _readable(self, tokens: Sequence[int]) -> Sequence[int]:
        """`tokens` with ids that this model does not share replaced."""
        if not self._masked and all(token < self._shared_rows for token in tokens):
            return tokens
        return [self._readable_one(token) for token in tokens]

    def _readable_one(self, token: int) -> int:
        return self._stand_in if token >= self._shared_rows or token in self._masked else token

    # --- guessing -----------------------------------------------------------------------------------

    def forecast(self, room: int) -> Forecast | None:
        room = min(room, self._model.capacity - len(self._tokens) + 1)
        if room <= 0 or self.trouble:
            return None
        return self._belief.forecast(room, self._missing, len(self._tokens))

    def propose(self, limit: int, worth: Worth, chance: Chance, probe: bool) -> Draft:
        limit = min(limit, self._model.capacity - len(self._tokens) + 1)
        if limit <= 0:
            return NO_DRAFT
        return self._guess(limit, worth, chance, self._feed(probe))

    def _feed(self, probe: bool) -> Sequence[int]:
        """What to decode before the first guess. A probe may leave a hole: `follow` takes it back."""
        missing = self._tokens[self._model.length :]
        return self._readable(missing[-GLANCE_ROWS:] if probe else missing)

    def _guess(self, limit: int, worth: Worth, chance: Chance, feed: Sequence[int]) -> Draft:
        position = len(self._tokens)
        history = list(self._tokens) if self._sampler.uses_history else []
        ids: list[int] = []
        q: list[Distribution] = []
        confidences: list[float] = []
        draft_seconds = sample_seconds = 0.0
        foreign = 0
        catch_up = len(feed)
        self._belief.start()
        start = time.perf_counter()
        while True:
            try:
                logits = self._model.extend(feed, 1)[0]
                decoded = time.perf_counter()
                draft_seconds += decoded - start
                row = self._sampler.distribution(logits, history)
            except ContextFull:
                raise  # the limit should have seen to that
            except (EngineError, InvalidInput) as error:
                self.trouble = _why(error)
                break  # guesses that were made are good guesses
            foreign += self._wants_foreign(logits)
            guess = chance.choose(row, position + len(ids))
            confidences.append(confidence(logits, guess) if self._greedy else row.probability(guess))
            q.append(row)
            ids.append(guess)
            history.append(guess)
            more = (
                len(ids) < limit
                and guess not in self._ends
                and worth(self._belief.chance_after(confidences[-1]), len(ids))
            )
            start = time.perf_counter()
            sample_seconds += start - decoded
            if not more:
                break
            feed = [guess]
        spent = Spent(draft_seconds, sample_seconds, catch_up, foreign)
        return Draft.chain(self.name, tuple(ids), tuple(confidences), tuple(q), spent)

    def learn(self, round_: Round) -> None:
        self._belief.learn(round_)

    def _configure(self, settings: SamplerSettings, ends: frozenset[int]) -> None:
        cooler = settings.draft_temperature
        self._greedy = settings.greedy
        self._ends = ends
        self._sampler = Sampler(
            settings,
            usable=self._shared_rows,
            banned=tuple(self._masked),
            temperature=None if cooler is None or settings.greedy else cooler,
        )

    def _wants_foreign(self, logits: NDArray[np.float32]) -> int:
        """1 when the draft's own favourite is an id that the target does not share."""
        if not self._masked and self._shared_rows == len(logits):
            return 0
        favourite = int(np.argmax(logits))
        return int(favourite >= self._shared_rows or favourite in self._masked)

    # --- what stays ---------------------------------------------------------------------------------

    def measure(self) -> None:
        """One draft step, and catching up."""
        if self._model.length == 0:
            self._belief.calibrate(self._time_pass, self._model.capacity)

    def _time_pass(self, rows: int) -> float:
        start = time.perf_counter()
        self._model.extend([self._stand_in] * rows, 1)
        seconds = time.perf_counter() - start
        self._model.rewind(0)
        return seconds

    def forget(self) -> None:
        self._model.rewind(0)
        self._agreed = 0

    def save(self) -> object:
        """The cache, and which tokens are in it."""
        return self._model.save(), tuple(self._model.tokens)

    def saved_bytes(self) -> int:
        return self._model.state_size()

    def restore(self, saved: object) -> bool:
        assert isinstance(saved, tuple)
        state, tokens = saved
        self._agreed = 0
        return self._model.restore(state, tokens)

    def beliefs(self) -> Mapping[str, Any] | None:
        return self._belief.to_dict()

    def believe(self, stored: Mapping[str, Any]) -> None:
        self._belief.load(stored)

    def close(self) -> None:
        """The engine opened the model, and closes it."""

