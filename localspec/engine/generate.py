"""The loop: propose, verify, keep, rewind, observe. One `Generation` is one answer.

Positions: the sequence has N tokens, the target holds N - 1 of them (`last` is not decoded yet). A round
decodes [last, d1 .. dn] in one pass, keeps what the target agrees with and one token of the target's own,
and rewinds both models to that. Start reading at `Generation.run`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.engine.control.controller import Controller, Plan, Situation
from localspec.engine.control.costs import Costs
from localspec.engine.drafters.lookup import LookupDrafter
from localspec.engine.drafters.model import ModelDrafter, common_length
from localspec.engine.grammar.masking import Grammar, mask, needed
from localspec.engine.metrics import StatsBuilder
from localspec.engine.model import Model, TextVocabulary
from localspec.engine.noise import new_chance
from localspec.engine.records import (
    Draft,
    Event,
    Finished,
    FinishReason,
    PrefillProgress,
    Provenance,
    Round,
    RoundFinished,
    StateChange,
)
from localspec.engine.sampling import Distribution, Sampler
from localspec.engine.settings import SamplerSettings
from localspec.engine.stream import TextStream
from localspec.engine.verify import Verification, verify
from localspec.ground.errors import Cancelled, ContextFull, EngineError, InvalidInput

_PREFILL_STEP = 512
"""Prompt tokens between two progress events."""

_ROWS_WORTH_TIMING = 16
"""Prompt rows of the draft model that say something about the cost of catching up."""

_OFFER = 16
"""Guesses asked of prompt lookup before the controller decides."""


@dataclass(slots=True)
class Limits:
    """Where an answer ends."""

    max_tokens: int | None = None
    min_tokens: int = 0
    stop: tuple[str, ...] = ()


@dataclass(slots=True)
class Drafters:
    """The ways to guess that this engine has; None where it has not."""

    model: ModelDrafter | None = None
    lookup: LookupDrafter | None = None

    def each(self) -> list[ModelDrafter | LookupDrafter]:
        """Those that there are."""
        return [drafter for drafter in (self.model, self.lookup) if drafter is not None]


class Generation:
    """One answer being made.

    `held` are the tokens in the target's cache before it, `prompt` the tokens to answer. Afterwards, also
    after an exception, `held()` says what the cache holds. `ends`: the target's end tokens, needed when
    `limits.min_tokens` is set.
    """

    def __init__(
        self,
        target: Model,
        vocabulary: TextVocabulary,
        drafters: Drafters,
        controller: Controller,
        sampler: SamplerSettings,
        limits: Limits,
        prompt: Sequence[int],
        held: Sequence[int] = (),
        suppressed: Sequence[int] = (),
        ends: frozenset[int] = frozenset(),
        costs: Costs | None = None,
        grammar: Grammar | None = None,
    ) -> None:
        """With a `grammar` there must be no drafters.

        Raises InvalidInput for a prompt that is empty or longer than the context.
        """
        if not prompt:
            raise InvalidInput("the prompt is empty", "Give at least one character")
        if len(prompt) > target.capacity:
            raise ContextFull(
                f"the prompt has {len(prompt)} tokens, the context {target.capacity}",
                "Use a larger --ctx",
                tokens=len(prompt),
                capacity=target.capacity,
            )
        self._target = target
        self._vocabulary = vocabulary
        self._drafters = drafters
        self._controller = controller
        self._limits = limits
        self._ends = ends
        self._costs = costs
        self._plain_seconds = 0.0  # what plain decoding would have needed for the tokens so far
        self._suppressed = suppressed
        self._settings = sampler
        self._sampler = Sampler(sampler, banned=suppressed)
        self._grammar = grammar
        self._chance = new_chance(sampler)
        self._past_changes: list[StateChange] = []  # of controllers that were replaced
        self._changes: list[tuple[Controller | None, Drafters | None, SamplerSettings | None]] = []
        self._stream = TextStream(vocabulary.token_bytes, limits.stop)
        self._tokens = list(prompt)
        self._prompt_length = len(prompt)
        self._held_before = held
        common = min(common_length(held, prompt[:-1]), target.length)
        self._reused = target.rewinds_to(common)
        self._stats = StatsBuilder(len(prompt), self._reused)
        self._reason: FinishReason | None = None
        self._rounds = 0
        self._start = 0.0

    def run(self) -> Iterator[Event]:
        """Every event of the answer; the last is `Finished`, also when it was cancelled."""
        self._start = time.perf_counter()
        try:
            if self._limits.max_tokens == 0:
                self._reason = "length"
            else:
                yield from self._prefill()
            while self._reason is None:
                yield self._round()
        except Cancelled:
            self._reason = "cancelled"
        yield self._finish()

    def change(
        self, controller: Controller | None, drafters: Drafters | None, sampler: SamplerSettings | None
    ) -> None:
        """Use these from the next round on; may be called from another thread."""
        self._changes.append((controller, drafters, sampler))

    def held(self) -> list[int]:
        """The tokens in the target's cache now."""
        return self._tokens[: self._target.length]

    # --- stages -------------------------------------------------------------------------------------

    def _prefill(self) -> Iterator[Event]:
        """Read the prompt on every model; its last row gives the first token, without a draft."""
        self._target.rewind(self._reused)
        fresh = self._tokens[self._reused :]
        total = len(fresh)
        for done in range(0, total - 1, _PREFILL_STEP):
            yield PrefillProgress(done, total)
            self._target.extend(fresh[done : min(done + _PREFILL_STEP, total - 1)], 0)
        self._prepare_drafters()
        before = time.perf_counter()
        logits = self._target.extend(fresh[-1:], 1)
        verified = time.perf_counter()
        yield PrefillProgress(total, total)
        verification = verify(_NO_DRAFT, self._rows(logits, _NO_DRAFT), self._chance, len(self._tokens))
        self._stats.ttft_seconds = time.perf_counter() - self._start
        plan = Plan("none", 0, "first token")
        yield self._settle(
            plan, _NO_DRAFT, verification, _Clock(before, before, verified, time.perf_counter())
        )

    def _prepare_drafters(self) -> None:
        """Drafters read the prompt; the draft model only where its guesses are expected to earn that back."""
        self._controller.begin(related=2 * self._reused >= len(self._held_before))
        for drafter in self._drafters.each():
            if isinstance(drafter, ModelDrafter):
                self._prepare_model(drafter)
            else:
                drafter.prepare(self._tokens)

    def _prepare_model(self, drafter: ModelDrafter) -> None:
        drafter.drop_unshared(self._tokens)
        rows, position = drafter.missing(self._tokens) - 1, len(self._tokens)
        if not self._controller.wants_model(rows, position):
            return
        start = time.perf_counter()
        drafter.prepare(self._tokens)
        if self._costs is not None and rows >= _ROWS_WORTH_TIMING:
            self._costs.observe_catch_up(rows, position, time.perf_counter() - start)

    def _round(self) -> RoundFinished:
        start = time.perf_counter()
        if self._changes:
            self._apply_changes()
        plan, draft = self._draft()
        drafted = time.perf_counter()
        logits = self._target.extend([self._tokens[-1], *draft.ids], 1 + len(draft.ids))
        verified = time.perf_counter()
        verification = verify(draft, self._rows(logits, draft), self._chance, len(self._tokens))
        return self._settle(plan, draft, verification, _Clock(start, drafted, verified, time.perf_counter()))

    def _draft(self) -> tuple[Plan, Draft]:
        """Ask the controller, then the drafter it named. Ids that the target does not have end a draft."""
        budget = self._budget()
        situation = self._situation(budget)
        plan = self._controller.plan(situation)
        length = min(plan.length, budget)
        drafter = {"model": self._drafters.model, "lookup": self._drafters.lookup}.get(plan.drafter)
        if drafter is None or length <= 0:
            return plan, _NO_DRAFT
        draft = drafter.propose(self._tokens, length, self._controller.go_on, self._chance)
        return plan, _only_known(draft, self._target.n_vocab)

    def _settle(self, plan: Plan, draft: Draft, verification: Verification, clock: _Clock) -> RoundFinished:
        """Keep what was verified up to the first end in it, rewind every cache to that, and report."""
        position = len(self._tokens)
        emitted, provenance = self._keep(draft, verification)
        before_rewind = time.perf_counter()
        self._target.rewind(len(self._tokens) - 1)
        for drafter in self._drafters.each():
            drafter.keep(self._tokens)
        end = time.perf_counter()
        self._check_positions()
        host = clock.drafted - clock.start - draft.draft_seconds - draft.sample_seconds
        finished = Round(
            index=self._rounds,
            position=position,
            drafter=draft.drafter,
            drafted=draft.ids,
            confidences=draft.confidences,
            verified=len(draft.ids),
            accepted=verification.accepted,
            emitted=emitted,
            provenance=provenance,
            reason=plan.reason,
            catch_up_rows=draft.catch_up_rows,
            draft_seconds=draft.draft_seconds,
            verify_seconds=clock.verified - clock.drafted,
            sample_seconds=clock.sampled - clock.verified + draft.sample_seconds,
            rewind_seconds=end - before_rewind,
            other_seconds=host + before_rewind - clock.sampled,
        )
        self._rounds += 1
        if self._costs is not None and self._costs.known:
            self._plain_seconds += self._costs.plain_seconds(range(position, len(self._tokens)))
        self._stats.add(finished, draft.out_of_vocabulary)
        self._controller.observe(finished)
        return RoundFinished(
            finished, self._stream.release(), self._texts(draft.ids), self._plain_token_seconds()
        )

    def _keep(
        self, draft: Draft, verification: Verification
    ) -> tuple[tuple[int, ...], tuple[Provenance, ...]]:
        """Append the block token by token; a stop, a limit or the context's end cuts it there."""
        block = [(guess, Provenance.ACCEPTED) for guess in draft.ids[: verification.accepted]]
        block.append((verification.token, verification.provenance))
        kept = 0
        for token, provenance in block:
            if self._grammar is not None:
                self._grammar.accept(token)
            self._tokens.append(token)
            kept += 1
            self._reason = self._ends_with(token, provenance)
            if self._reason is not None:
                break
        return tuple(token for token, _ in block[:kept]), tuple(origin for _, origin in block[:kept])

    def _ends_with(self, token: int, provenance: Provenance) -> FinishReason | None:
        """Whether the answer ends with `token`, which was just appended."""
        if self._vocabulary.is_end(token):
            self._stream.push_end(token, provenance)
            return "stop"
        if self._stream.push(token, provenance):
            return "stop_string"
        if self._limits.max_tokens is not None and self._emitted() >= self._limits.max_tokens:
            return "length"
        return "length" if len(self._tokens) >= self._target.capacity else None

    def _finish(self) -> Finished:
        if self._target.length > len(self._tokens):
            self._target.rewind(len(self._tokens) - 1)  # cancelled in the middle of a verify pass
        wall = time.perf_counter() - self._start
        tail = self._stream.finish()
        assert self._reason is not None
        stats = self._stats.build(
            wall,
            self._plain_token_seconds(),
            self._controller.state,
            self._controller.reason,
            (*self._past_changes, *self._controller.changes),
        )
        return Finished(
            self._reason, self._stream.text, tuple(self._tokens[self._prompt_length :]), stats, tail
        )

    def _apply_changes(self) -> None:
        while self._changes:
            controller, drafters, sampler = self._changes.pop(0)
            if controller is not None:
                self._past_changes += self._controller.changes
                self._controller = controller
            if drafters is not None:
                self._use(drafters)
            if sampler is not None:
                self._sampler = Sampler(sampler, banned=self._suppressed)
                if (sampler.coupled, sampler.seed) != (self._settings.coupled, self._settings.seed):
                    self._chance = new_chance(sampler)
                self._settings = sampler
                if self._drafters.model is not None:
                    self._drafters.model.configure(sampler, self._ends)

    def _use(self, drafters: Drafters) -> None:
        """Guess with these from now on; those that were left out so far catch up with the text."""
        known = self._drafters.each()
        for drafter in drafters.each():
            if drafter in known:
                continue
            if isinstance(drafter, ModelDrafter):
                drafter.drop_unshared(self._tokens)
            else:
                drafter.prepare(self._tokens)
        self._drafters = drafters

    # --- helpers ------------------------------------------------------------------------------------

    def _texts(self, ids: Sequence[int]) -> tuple[str, ...]:
        return tuple(self._vocabulary.token_bytes(token).decode("utf-8", "replace") for token in ids)

    def _plain_token_seconds(self) -> float | None:
        """Mean time that a plain token would have needed at this answer's positions."""
        return self._plain_seconds / self._emitted() if self._plain_seconds else None

    def _emitted(self) -> int:
        return len(self._tokens) - self._prompt_length

    def _budget(self) -> int:
        """Most guesses of a round: the buffers, the context's end and the token limit all bound it."""
        bounds = [self._target.max_rows - 1, self._target.capacity - len(self._tokens) - 1]
        if self._limits.max_tokens is not None:
            bounds.append(self._limits.max_tokens - self._emitted() - 1)
        if self._target.max_rewind is not None:
            bounds.append(self._target.max_rewind)
        return max(0, min(bounds))

    def _situation(self, budget: int) -> Situation:
        model, lookup = self._drafters.model, self._drafters.lookup
        match = lookup.offer(min(budget, _OFFER)) if lookup is not None and budget else None
        return Situation(
            position=len(self._tokens),
            budget=budget,
            catch_up_rows=model.missing(self._tokens) if model is not None else 0,
            has_model=model is not None and model.room(self._tokens) > 0,
            lookup_ids=match.ids if match is not None else (),
            lookup_match=match.length if match is not None else 0,
        )

    def _rows(self, logits: NDArray[np.float32], draft: Draft) -> Callable[[int], Distribution]:
        """The target's distribution after the first i guesses, made only when asked for."""
        history = self._tokens if self._sampler.uses_history else []

        def row(index: int) -> Distribution:
            if self._grammar is not None:
                mask(logits[index], self._grammar, needed(self._settings, self._suppressed))
            so_far = [*history, *draft.ids[:index]] if index and history else history
            early = self._emitted() + index < self._limits.min_tokens
            return self._sampler.distribution(logits[index], so_far, tuple(self._ends) if early else ())

        return row

    def _check_positions(self) -> None:
        """A cache that is off by one gives wrong text or a useless draft, and no error: so ask after every
        round."""
        if self._target.length != len(self._tokens) - 1:
            raise EngineError(
                f"the target holds {self._target.length} tokens of {len(self._tokens)}: this is a bug"
            )
        model = self._drafters.model
        if model is not None and model.missing(self._tokens) < 1:
            raise EngineError(
                f"the draft model is {-model.missing(self._tokens)} tokens ahead: this is a bug"
            )


@dataclass(frozen=True, slots=True)
class _Clock:
    """Times of one round, in seconds of the performance counter."""

    start: float
    drafted: float
    verified: float
    sampled: float


_NO_DRAFT = Draft((), "none", ())


def _only_known(draft: Draft, n_vocab: int) -> Draft:
    """`draft` up to its first id that the target does not have."""
    for index, guess in enumerate(draft.ids):
        if not 0 <= guess < n_vocab:
            rows = None if draft.rows is None else draft.rows[:index]
            return Draft(
                draft.ids[:index], draft.drafter, draft.confidences[:index], rows, draft.draft_seconds,
                draft.catch_up_rows, draft.sample_seconds, draft.out_of_vocabulary + 1,
            )  # fmt: skip
    return draft
