"""The loop: forecast, propose, verify, keep, follow, learn. One `Generation` is one answer.

Positions: the sequence has N tokens, the target holds N - 1 of them (`last` is not decoded yet). A round decodes
`last` and a draft in one pass, keeps what the target agrees with and one token of the target's own, and takes the
rest back.

A round is two halves around that pass: `ask` says what the target should read next, `take` makes an event of what it
said. `engine.drive` carries one generation's questions to its target. Start reading at `Generation.ask`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from localspec.engine.control.controller import Controller, Plan
from localspec.engine.grammar.masking import Grammar, mask, needed
from localspec.engine.metrics import StatsBuilder
from localspec.engine.model import Model, TextVocabulary, common_length
from localspec.engine.noise import new_chance
from localspec.engine.records import (
    NO_DRAFT,
    Draft,
    Event,
    Finished,
    FinishReason,
    Pass,
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
from localspec.ground.errors import ContextFull, EngineError, InvalidInput

if TYPE_CHECKING:
    from localspec.engine.control.costs import Costs
    from localspec.engine.drafters.protocol import Drafter, Forecast

_PREFILL_STEP = 512
"""Prompt tokens between two progress events: libllama's own slice (`llama.context`)."""

Judge = Callable[[Draft, Pass, int], Verification]
"""judge(draft, seen, position): what the target makes of a draft whose first guess would stand at `position`."""


@dataclass(slots=True)
class Limits:
    """Where an answer ends."""

    max_tokens: int | None = None
    min_tokens: int = 0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """What the target should read next."""

    tokens: Sequence[int]
    """A slice of the prompt, to be read without logits; or `last` alone."""
    draft: Draft | None
    """Guesses after `last`, perhaps none, to be read in the same pass and answered by logits; None = a slice."""


class Generation:
    """One answer being made.

    The target may hold any tokens before it: what it shares with `prompt` is not read again. Afterwards, also after
    an exception, the target itself says what it holds. `ends`: the target's end tokens, needed when
    `limits.min_tokens` is set and by drafters that stop there. `related`: the prompt goes on with the text before.
    `familiar`: the controllers and drafters that followed that text, to which those of this answer are added; None =
    all did.

    `clock` gives seconds; `judge` stands in for verification where there are no logits (`benchmarks/simulator`).
    """

    def __init__(
        self,
        target: Model,
        vocabulary: TextVocabulary,
        drafters: Sequence[Drafter],
        controller: Controller,
        sampler: SamplerSettings,
        limits: Limits,
        prompt: Sequence[int],
        *,
        related: bool = False,
        familiar: list[object] | None = None,
        suppressed: Sequence[int] = (),
        ends: frozenset[int] = frozenset(),
        costs: Costs | None = None,
        grammar: Grammar | None = None,
        clock: Callable[[], float] = time.perf_counter,
        judge: Judge | None = None,
    ) -> None:
        """With a `grammar` there must be no drafters.

        Raises InvalidInput for an empty prompt, ContextFull for one longer than the context.
        """
        if not prompt:
            raise InvalidInput("the prompt is empty", "Give at least one character")
        if len(prompt) > target.capacity:
            raise ContextFull(len(prompt), target.capacity)
        self._target = target
        self._vocabulary = vocabulary
        self._drafters = list(drafters)
        self._controller = controller
        self._limits = limits
        self._ends = ends
        self._related = related
        self._familiar = familiar
        self._begun: list[object] = []  # who has followed this answer
        self._costs = costs
        self._clock = clock
        self._judge = judge or self._verify
        self._suppressed = suppressed
        self._settings = sampler
        self._sampler = Sampler(sampler, banned=suppressed)
        self._grammar = grammar
        self._chance = new_chance(sampler)
        self._past_changes: list[StateChange] = []  # of controllers that were replaced, and of drafters that failed
        self._changes: list[tuple[Controller | None, Sequence[Drafter] | None, SamplerSettings | None]] = []
        self._stream = TextStream(vocabulary.token_bytes, limits.stop)
        self._tokens = list(prompt)
        self._prompt_length = len(prompt)
        self._in_prompt = True
        self._read = target.rewinds_to(common_length(target.tokens, prompt[:-1]))  # prompt tokens that are held
        self._stats = StatsBuilder(len(prompt), self._read)
        self._plain_seconds = 0.0  # what plain decoding would have needed for the tokens so far
        self._reason: FinishReason | None = None
        self._trouble = ""  # of the drafter that failed last
        self._rounds = 0
        self._start = 0.0
        # The round at hand.
        self._plan = _FIRST_TOKEN
        self._draft = NO_DRAFT
        self._verifiable = NO_DRAFT
        self._round_start = 0.0

    # --- what a driver calls ------------------------------------------------------------------------

    def begin(self) -> Iterator[Event]:
        """Once, before the first `ask`."""
        self._start = self._clock()
        self._controller.begin(self._knows(self._controller))
        if self._limits.max_tokens == 0:
            self._reason = "length"
            return
        self._read = self._target.rewind(self._read)
        self._begin_drafters(self._drafters)
        if self._read < len(self._tokens) - 1:
            yield self._progress()

    def ask(self) -> Ask | None:
        """The first half of a round: what the target should read next; None = the answer is at its end."""
        if self._reason is not None:
            return None
        if not self._in_prompt:
            return self._ask_round()
        end = len(self._tokens) - 1
        if self._read < end:
            return Ask(self._tokens[self._read : min(self._read + _PREFILL_STEP, end)], None)
        self._target.checkpoint()
        self._pay_debts()
        self._round_start = self._clock()
        return Ask(self._tokens[-1:], NO_DRAFT)

    def take(self, seen: Pass) -> tuple[Event, ...]:
        """The second half: what comes of the pass that was asked for. `seen` need not hold this sequence alone."""
        if not self._in_prompt:
            return (self._settle(seen),)
        if self._read < len(self._tokens) - 1:
            self._read = self._target.length
            for drafter in self._drafters:
                drafter.follow(self._tokens[: self._read + 1], seen, ())
            return (self._progress(),)
        self._in_prompt = False
        total = self._prompt_length - self._stats.reused_tokens
        settled = self._settle(seen)
        return PrefillProgress(total, total), settled

    def cancel(self) -> None:
        """End where the answer stands; the pass that was asked for need not have come to its end."""
        self._reason = "cancelled"

    def change(
        self,
        controller: Controller | None,
        drafters: Sequence[Drafter] | None,
        sampler: SamplerSettings | None,
    ) -> None:
        """Use these from the next round on; may be called from another thread."""
        if self._grammar is not None:
            controller = drafters = None  # drafts cannot be checked against a grammar
        self._changes.append((controller, drafters, sampler))

    @property
    def tokens(self) -> Sequence[int]:
        """Prompt and answer so far."""
        return self._tokens

    def finish(self) -> Finished:
        """Once, when `ask` gave None or after `cancel`."""
        if self._reason == "cancelled" and self._target.length > len(self._tokens):
            self._target.rewind(len(self._tokens))  # in the middle of a round: its guesses go, `last` was read
        tail = self._stream.finish()
        assert self._reason is not None
        ended_off = bool(self._trouble) and not self._drafters
        stats = self._stats.build(
            self._clock() - self._start,
            self._plain_token_seconds(),
            "off" if ended_off else self._controller.state,
            self._reason_now(self._controller.reason),
            (*self._past_changes, *self._controller.changes),
            self._trouble,
        )
        answer = tuple(self._tokens[self._prompt_length :])
        return Finished(self._reason, self._stream.text, answer, stats, tail)

    # --- the first half -----------------------------------------------------------------------------

    def _progress(self) -> PrefillProgress:
        reused = self._stats.reused_tokens
        return PrefillProgress(self._read - reused, self._prompt_length - reused)

    def _pay_debts(self) -> None:
        """Drafters read the prompt where their guesses are expected to earn that back."""
        for name, forecast in self._forecasts(self._budget()).items():
            if self._controller.pays_debt(name, forecast, len(self._tokens)):
                self._drafter_named(name).catch_up()

    def _ask_round(self) -> Ask:
        self._round_start = self._clock()
        if self._changes:
            self._apply_changes()
        budget = self._budget()
        plan = self._controller.plan(len(self._tokens), budget, self._forecasts(budget))
        draft = NO_DRAFT
        if plan.length > 0:
            limit = min(plan.length, budget)
            drafter = self._drafter_named(plan.drafter)
            draft = drafter.propose(limit, self._controller.worth, self._chance, plan.is_probe)
            self._drop_troubled()
        if self._trouble:
            plan = replace(plan, reason=self._reason_now(plan.reason))
        self._plan = plan
        self._draft = draft
        self._verifiable = _only_known(draft, self._target.n_vocab)
        return Ask(self._tokens[-1:], self._verifiable)

    def _forecasts(self, budget: int) -> dict[str, Forecast]:
        """Of those that can guess now, by name."""
        self._drop_troubled()  # also those that failed in an earlier answer
        if budget <= 0:
            return {}
        weighs = self._controller.weighs
        found = {}
        for drafter in self._drafters:
            if weighs is None or drafter.name in weighs:
                forecast = drafter.forecast(budget)
                if forecast is not None:
                    found[drafter.name] = forecast
        return found

    def _drafter_named(self, name: str) -> Drafter:
        return next(drafter for drafter in self._drafters if drafter.name == name)

    def _drop_troubled(self) -> None:
        """Those that cannot guess any more: the answer goes on without them."""
        for drafter in [drafter for drafter in self._drafters if drafter.trouble]:
            self._drafters.remove(drafter)
            self._trouble = drafter.trouble
            if not self._drafters:
                self._past_changes.append(StateChange(len(self._tokens), "off", f"off: {self._trouble}"))

    def _reason_now(self, reason: str) -> str:
        """The controller's, and what it does not know of."""
        if not self._trouble:
            return reason
        return f"{reason}; {self._trouble}" if self._drafters else f"off: {self._trouble}"

    def _begin_drafters(self, drafters: Sequence[Drafter]) -> None:
        for drafter in drafters:
            drafter.begin(self._tokens, self._settings, self._ends, self._knows(drafter))

    def _knows(self, follower: object) -> bool:
        """Whether what it learned last is of this text; asked when it begins to follow it."""
        if follower in self._begun:
            return True
        self._begun.append(follower)
        if self._familiar is None:
            return self._related
        known = self._related and follower in self._familiar
        if follower not in self._familiar:
            self._familiar.append(follower)
        return known

    def _budget(self) -> int:
        """Most guesses of a round: the buffers, the context's end and the token limit all bound it."""
        bounds = [self._target.max_rows - 1, self._target.capacity - len(self._tokens) - 1]
        if self._limits.max_tokens is not None:
            bounds.append(self._limits.max_tokens - self._emitted() - 1)
        if self._target.max_rewind is not None:
            bounds.append(self._target.max_rewind)
        return max(0, min(bounds))

    def _apply_changes(self) -> None:
        while self._changes:
            controller, drafters, sampler = self._changes.pop(0)
            if controller is not None and controller is not self._controller:
                self._past_changes += self._controller.changes
                controller.begin(self._knows(controller))
                self._controller = controller
            fresh = [d for d in drafters if d not in self._drafters] if drafters is not None else []
            if drafters is not None:
                self._drafters, self._trouble = list(drafters), ""
            if sampler is not None:
                self._sampler = Sampler(sampler, banned=self._suppressed)
                if _luck(sampler) != _luck(self._settings):
                    self._chance = new_chance(sampler)
                self._settings = sampler
                fresh = self._drafters
            self._begin_drafters(fresh)

    # --- the second half ----------------------------------------------------------------------------

    def _verify(self, draft: Draft, seen: Pass, position: int) -> Verification:
        return verify(draft, self._rows(draft, seen), self._chance, position)

    def _rows(self, draft: Draft, seen: Pass) -> Callable[[int], Distribution]:
        """The target's distribution in each row of the pass; made only when asked for."""
        history = self._tokens if self._sampler.uses_history else []
        emitted = len(self._tokens) - self._prompt_length

        def row(index: int) -> Distribution:
            logits = seen.logits[index]
            if self._grammar is not None:
                mask(logits, self._grammar, needed(self._settings, self._suppressed))
            path = draft.path_to(index - 1) if index and (history or self._limits.min_tokens) else ()
            so_far = [*history, *(draft.ids[at] for at in path)] if path and history else history
            early = emitted + len(path) < self._limits.min_tokens
            return self._sampler.distribution(logits, so_far, tuple(self._ends) if early else ())

        return row

    def _settle(self, seen: Pass) -> RoundFinished:
        """Keep what was verified up to the first end in it, take the rest back everywhere, and report."""
        draft, verifiable = self._draft, self._verifiable
        position = len(self._tokens)
        before_verification = self._clock()
        verification = self._judge(verifiable, seen, position)
        sampled = self._clock()
        if self._stats.ttft_seconds is None:
            self._stats.ttft_seconds = sampled - self._start
        emitted, provenance = self._emit(verifiable, verification)
        path = verification.path[: len(emitted) - 1]
        before_rewind = self._clock()
        self._target.keep(path)
        for drafter in self._drafters:
            drafter.follow(self._tokens, seen, path)
        end = self._clock()
        if self._target.length != len(self._tokens) - 1:
            # A cache that is off by one gives wrong text and no error.
            raise EngineError(f"the target holds {self._target.length} tokens of {len(self._tokens)}: this is a bug")
        spent = draft.spent
        sample_seconds = sampled - before_verification + spent.sample_seconds
        rewind_seconds = end - before_rewind
        known = spent.draft_seconds + sample_seconds + rewind_seconds + seen.seconds
        round_ = Round(
            index=self._rounds,
            position=position,
            drafter=draft.drafter if draft.ids else "none",
            drafted=draft.ids,
            confidences=draft.confidences,
            verified=verifiable.guesses,
            accepted=verification.accepted,
            emitted=emitted,
            provenance=provenance,
            reason=self._plan.reason,
            catch_up_rows=spent.catch_up_rows,
            parents=None if draft.is_chain else draft.parents,
            draft_seconds=spent.draft_seconds,
            verify_seconds=seen.seconds,
            sample_seconds=sample_seconds,
            rewind_seconds=rewind_seconds,
            other_seconds=max(0.0, end - self._round_start - known),
        )
        self._learn(round_, spent.foreign + len(draft.ids) - len(verifiable.ids))
        return RoundFinished(
            round_, self._stream.release(), self._texts(draft.ids), self._plain_token_seconds()
        )

    def _learn(self, round_: Round, foreign: int) -> None:
        self._rounds += 1
        if self._costs is not None and self._costs.known:
            self._plain_seconds += self._costs.plain_seconds(range(round_.position, len(self._tokens)))
        self._stats.add(round_, foreign)
        self._controller.observe(round_)
        for drafter in self._drafters:
            drafter.learn(round_)

    def _emit(self, draft: Draft, verification: Verification) -> tuple[tuple[int, ...], tuple[Provenance, ...]]:
        """Append the block token by token; a stop, a limit or the context's end cuts it there."""
        block = [(draft.ids[node], Provenance.ACCEPTED) for node in verification.path]
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

    # --- helpers ------------------------------------------------------------------------------------

    def _texts(self, ids: Sequence[int]) -> tuple[str, ...]:
        known = self._target.n_vocab
        return tuple(
            self._vocabulary.token_bytes(token).decode("utf-8", "replace") if 0 <= token < known else ""
            for token in ids
        )

    def _plain_token_seconds(self) -> float | None:
        """Mean time that a plain token would have needed at this answer's positions; None where that is not known."""
        known = self._costs is not None and self._costs.plain_known
        return self._plain_seconds / self._emitted() if known and self._plain_seconds else None

    def _emitted(self) -> int:
        return len(self._tokens) - self._prompt_length


_FIRST_TOKEN = Plan("none", 0, "first token")


def _luck(sampler: SamplerSettings) -> tuple[bool, int | None]:
    """Settings that are alike in this draw on the same randomness."""
    return sampler.coupled and not sampler.greedy, sampler.seed


def _only_known(draft: Draft, n_vocab: int) -> Draft:
    """`draft` up to its first id that the target does not have."""
    for index, guess in enumerate(draft.ids):
        if not 0 <= guess < n_vocab:
            return Draft(
                draft.drafter,
                draft.ids[:index],
                draft.parents[:index],
                None if draft.q is None else draft.q[:index],
                draft.confidences[:index],
                draft.judged if draft.judged < 0 else min(draft.judged, index),
            )
    return draft
