"""The controller that decides by time.

Let R be the long-run rate in tokens per second, never below plain decoding. Time spent on a guess could have
made tokens at rate R, so a guess is worth its time while

    P(all guesses so far are kept, and this one too)  >  R * (draft step + one more row in the target's pass)

looking ahead over several guesses, because rows may come in steps. A draft whose first guess is not worth it
has length 0. Prices (`engine.prices`) are times, expressed in the tokens that rate R makes of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from localspec.engine.control.controller import Choice, Plan, Situation
from localspec.engine.control.costs import Costs
from localspec.engine.control.draft_value import DraftValue
from localspec.engine.control.plain_reference import PlainReference
from localspec.engine.control.prices import Prices, prices_at
from localspec.engine.control.trials import Probing
from localspec.engine.drafters.acceptance import (
    ALL_KEPT,
    NO_DRAFT_BEFORE,
    NOTHING_KEPT,
    PART_KEPT,
    LookupAcceptance,
    ModelAcceptance,
)
from localspec.engine.records import State, StateChange

if TYPE_CHECKING:
    from localspec.engine.records import Round
    from localspec.engine.settings import Expectation

MAX_MODEL_DRAFT = 16
MAX_LOOKUP_DRAFT = 32

_RATE_MEMORY = 0.97  # per round
_RATE_PRIOR = 24.0  # tokens at plain speed that the long-run rate starts from
_OPTIMISM = 0.12  # tokens that a draft is given the benefit of the doubt for, while drafting is ahead
_FIRST_TRUST = 6  # guesses in a draft, until one of that length was kept whole
_COPY_RISK = 2.0  # plain steps that a copy may lose at most, until one was kept whole
_FIRST_COPY = (8, 16)  # guesses in it, whatever the risk
_LEAST_COPY = 0.2  # tokens that a copy must promise to gain: smaller promises are kept too rarely
_DOUBTED_COPY = 1.0  # tokens that a copy must promise to gain, where drafts are not expected to pay
_SURE = 0.3  # tokens that a draft must promise, for doing without it to be a loss
_DEBT_ROUNDS = 8  # catching up is an investment in about so many rounds, beyond what waiting has cost already
_PREFILL_ROUNDS = 60  # and reading the prompt in so many
_SPIKE = 1.5  # times what a round like this one takes, beyond which time is nobody's fault
_QUIET_ROUNDS = 6  # rounds without a draft until the state reads off
_LOOK_AHEAD = 8
_NEGLIGIBLE = 0.02


class AdaptiveController:
    """Chooses drafter and length by expected tokens per second.

    `drafter` "model" or "lookup" is an order: only that one, and it is never turned off.
    `length` is one, too: only the drafter is chosen.
    `acceptance`: what an earlier session learned; it is updated in place.
    `expectation`: what was measured of the pair. If it does not pay, each text begins without drafts: the draft
    model has to be proven by a probe, and a copy has to promise much.
    """

    def __init__(
        self,
        costs: Costs,
        acceptance: ModelAcceptance | None = None,
        drafter: Literal["auto", "model", "lookup"] = "auto",
        length: int | None = None,
        longest: int = MAX_MODEL_DRAFT,
        expectation: Expectation | None = None,
    ) -> None:
        self.costs = costs
        self.acceptance = acceptance or ModelAcceptance()
        self.lookup = LookupAcceptance()
        self.probing = Probing()
        self.state: State = "on"
        self.reason = "on: nothing measured yet"
        self.changes: list[StateChange] = []
        self._drafter = drafter
        self._length = length
        self._ordered = drafter != "auto" or length is not None
        self._longest = longest
        self._expectation = None if self._ordered else expectation
        if self._expectation is not None and self._expectation.pays:
            self.reason = f"on: {self._expectation.why}"
        self._before = NO_DRAFT_BEFORE
        self._rounds = 0
        self._reference = PlainReference()
        self._forget_text()
        # The round at hand.
        self._situation = Situation(0, 0)
        self._plan = Plan("none", 0, "")
        self._prices = Prices(1.0, 0.0, (), 0.0)
        self._is_probe = False
        self._kept_so_far, self._judged, self._expected = 1.0, 0, 0.0

    @property
    def long_run_speedup(self) -> float:
        """R over plain decoding's rate: half what was met, half what seems possible now; at least 1."""
        met = self._tokens / self._steps
        return max(1.0, (met + (self._possible or met)) / 2)

    def begin(self, related: bool) -> None:
        """An answer begins. What was learned of the pair stays; what of another text is forgotten."""
        self.changes = []
        self._before = NO_DRAFT_BEFORE
        if not related:
            self._forget_text()

    def wants_model(self, rows: int, position: int) -> bool:
        """Whether drafts are expected to earn back the reading of the prompt."""
        if self._drafter == "lookup" or self._doubted:
            return False
        if self._ordered or not self.costs.known:
            return True
        situation = Situation(position, self._longest, has_model=True)
        self._prices = self._prices_of(situation)
        debt = self._prices.in_tokens(self.costs.catch_up_seconds(rows, position))
        return self._model_gain(situation) * _PREFILL_ROUNDS > debt

    def _forget_text(self) -> None:
        self.lookup = LookupAcceptance()
        self._trusted_copy = 0
        self._tokens = self._steps = _RATE_PRIOR
        self._possible = 0.0
        self._value = DraftValue()
        self._missed = self._forgone = 0.0
        self._doubted = self._expectation is not None and not self._expectation.pays
        if self._doubted:
            self.state, self.reason = "off", f"off: {self._why_doubted()}"

    # --- before the round ---------------------------------------------------------------------------

    def plan(self, situation: Situation) -> Plan:
        """The drafter and the most guesses that are worth their time now."""
        self._situation = situation
        self._is_probe = False
        self._kept_so_far, self._judged, self._expected = 1.0, 0, 0.0
        self._prices = self._prices_of(situation)
        self._plan = self._decide(situation)
        return self._plan

    def _decide(self, situation: Situation) -> Plan:
        if situation.budget <= 0:
            return Plan("none", 0, "no room for a draft")
        target = self.costs.target
        if not self._ordered and self._reference.due(self._rounds, target, situation.position):
            return Plan("none", 0, "a plain pass, to know what plain takes now")
        copy_length, copy_gain = self._lookup_gain(situation)
        model_gain = self._model_gain(situation)
        least = _DOUBTED_COPY if self._doubted else _LEAST_COPY
        if copy_length and copy_gain >= model_gain and (copy_gain > least or self._ordered):
            return self._on("lookup", copy_length)
        if situation.has_model and self._drafter != "lookup" and (model_gain > 0.0 or self._ordered):
            self._forgone = 0.0
            trusted = max(_FIRST_TRUST, 2 * self.acceptance.longest_kept)
            return self._on("model", min(situation.budget, self._length or min(trusted, self._longest)))
        if self._ordered:
            return Plan("none", 0, "nothing to copy")
        probe = self._probe_length(situation)
        if probe:
            self._is_probe = True
            self._forgone = 0.0
            return Plan("model", probe, "a probe: does the draft model pay again?")
        self._forgone += self._missed
        return Plan("none", 0, self._off(situation))

    def _prices_of(self, situation: Situation) -> Prices:
        most = min(situation.budget, MAX_LOOKUP_DRAFT)
        return prices_at(self.costs, self.long_run_speedup, situation.position, most)

    def _lookup_gain(self, situation: Situation) -> tuple[int, float]:
        """The best length of a copy, and the tokens it gains over plain (negative: it loses)."""
        if not situation.lookup_ids or self._drafter == "model":
            return 0, -1.0
        trusted = self._length or self._trusted_copy or self._first_copy()
        offered = min(len(situation.lookup_ids), situation.budget, trusted)
        chances, match, prices = self.lookup.chances, situation.lookup_match, self._prices.rows
        best_length, best, gain, chance = 1, -1.0, 0.0, 1.0
        for length in range(1, offered + 1):
            chance *= chances[match]
            match += match < len(chances) - 1
            gain += chance
            if gain - prices[length] > best:
                best_length, best = length, gain - prices[length]
            if chance < _NEGLIGIBLE:
                break
        return best_length if self._length is None else offered, best

    def _model_gain(self, situation: Situation) -> float:
        """The tokens that a draft of the model gains over plain (negative: it loses)."""
        self._missed = 0.0
        if not situation.has_model or self._drafter == "lookup" or self.probing.blocked or self._doubted:
            return -1.0
        # A length set beforehand is calculated; what stopping by confidence adds to it is met.
        rate, step, prices, steady = self._prices.rate, self._prices.step, self._prices.rows, self.acceptance.steady
        gain, chance, best, possible = 0.0, self.acceptance.chance_first(self._before), -1.0, 1.0
        for length in range(1, min(situation.budget, self._longest) + 1):
            gain += chance
            price = length * step + prices[length]
            best = max(best, gain - price)
            possible = max(possible, (1 + gain) / (1 + price / rate))
            chance *= steady
            if chance < step:
                break
        self._possible = possible
        value = self._value.gain(self._before, rate, best)
        if self.probing.ahead:
            value += _OPTIMISM
        self._missed = max(0.0, value - _SURE)
        debt = self._prices.in_tokens(self.costs.catch_up_seconds(situation.catch_up_rows, situation.position))
        return value - max(0.0, debt - self._forgone) / _DEBT_ROUNDS

    def _on(self, drafter: Choice, length: int) -> Plan:
        return Plan(drafter, length, "as ordered" if self._ordered else f"{drafter} pays")

    # --- while the draft model guesses ---------------------------------------------------------------

    def go_on(self, confidences: Sequence[float]) -> bool:
        """Whether one more guess is worth its time; the first one was decided by the plan."""
        made = len(confidences)
        if made >= self._plan.length:
            return False
        if made == 0 or self._length is not None:
            return True
        self._judge(confidences)
        acceptance, prices, step = self.acceptance, self._prices.rows, self._prices.step
        chance = self._kept_so_far * acceptance.chance_after(confidences[-1])
        gain = 0.0
        for further in range(1, min(self._plan.length - made, _LOOK_AHEAD) + 1):
            gain += chance
            if gain > further * step + prices[made + further] - prices[made]:
                return True
            chance *= acceptance.steady
            if chance < _NEGLIGIBLE:
                break
        return False

    def _judge(self, confidences: Sequence[float]) -> None:
        """Follow the chance that everything so far is kept, and the number of tokens to expect of it."""
        while self._judged < len(confidences):
            self._kept_so_far *= self.acceptance.chance(confidences[self._judged], self._judged)
            self._expected += self._kept_so_far
            self._judged += 1

    # --- after the round ------------------------------------------------------------------------------

    def observe(self, round_: Round) -> None:
        """Learn times, acceptance, the long-run rate, and what was lost."""
        if round_.index == 0:
            return
        self._rounds += 1
        self.costs.observe(round_)
        plain = self.costs.round_seconds(1, round_.position)
        if plain > 0:
            self._observe_time(round_, plain)
        self._observe_guesses(round_)

    def _observe_time(self, round_: Round, plain: float) -> None:
        """The long-run rate, what a draft brought, and what was lost; in plain steps as they are now."""
        tokens, seconds = len(round_.emitted), round_.wall_seconds
        steps = min(seconds / plain, 3.0 * (round_.verified + 1))
        self._tokens = self._tokens * _RATE_MEMORY + tokens
        self._steps = self._steps * _RATE_MEMORY + steps
        if self.costs.target.revised:  # what drafts brought at other prices says nothing
            self._value = DraftValue()
        if round_.drafter == "model":
            self._observe_value(round_, plain)
        if round_.drafter == "none":
            self.probing.observe_plain(tokens, seconds)
            self._reference.observe(self._rounds, self.costs.target, round_.position)
        elif self._is_probe:
            self.probing.observe_probe(tokens - steps, plain, seconds)
            self._doubted = self._doubted and tokens <= steps
        else:
            # A spike in a round with a draft is no more the draft's fault than one in a plain round.
            ordinary = _SPIKE * self._expected_seconds(round_) / plain
            self.probing.observe_draft(tokens, tokens - min(steps, ordinary), seconds)
            if self.state == "off":
                self._change("on", f"on: {round_.drafter} pays again")
        if self.state == "on" and round_.drafter != "none":
            self.reason = f"on: {round_.drafter} drafts, {self.long_run_speedup:.1f}x plain lately"

    def _observe_value(self, round_: Round, plain: float) -> None:
        """What the draft could be expected to bring, and the plain steps it takes.

        Tokens by the confidences, time by the costs, both as they are known now: far less noise than
        counting, and the two models see to it that they are true.
        """
        self._judge(round_.confidences[: round_.verified])
        steps = self._expected_seconds(round_) / plain - 1.0
        self._value.observe(self._before, self._expected, steps, self._is_probe)

    def _expected_seconds(self, round_: Round) -> float:
        """What a round like this one takes, by the costs as they are known now.

        A draft that is kept whole leaves its last guess to be read with the next one; longer debts are not its.
        """
        costs, position = self.costs, round_.position
        seconds = costs.round_seconds(round_.verified + 1, position)
        if round_.drafter == "model":
            seconds += len(round_.drafted) * costs.draft_step_seconds(position)
            seconds += costs.catch_up_seconds(min(2, round_.catch_up_rows), position)
        return seconds

    def _observe_guesses(self, round_: Round) -> None:
        verified, accepted = round_.verified, round_.accepted
        if round_.drafter == "model" and verified:
            self.acceptance.observe(round_.confidences, verified, accepted, self._before)
        if round_.drafter == "lookup":
            self._trust_copies(verified, accepted)
        if not verified:
            self._before = NO_DRAFT_BEFORE
        else:
            self._before = ALL_KEPT if accepted == verified else PART_KEPT if accepted else NOTHING_KEPT
        # What lookup offered is judged by the text, whether it was used or not: that costs nothing.
        offer, emitted = self._situation.lookup_ids, round_.emitted
        judged = min(len(offer), len(emitted))
        if judged:
            agreed = 0
            while agreed < judged and offer[agreed] == emitted[agreed]:
                agreed += 1
            self.lookup.observe(self._situation.lookup_match, judged, agreed)

    def _first_copy(self) -> int:
        affordable = sum(price <= _COPY_RISK * self._prices.rate for price in self._prices.rows[1:])
        return max(_FIRST_COPY[0], min(_FIRST_COPY[1], affordable))

    def _trust_copies(self, verified: int, accepted: int) -> None:
        if accepted == verified >= (self._trusted_copy or self._first_copy()):
            self._trusted_copy = min(MAX_LOOKUP_DRAFT, 2 * verified)
        elif 2 * accepted < verified:
            self._trusted_copy = max(self._first_copy(), self._trusted_copy // 2)

    # --- being off ------------------------------------------------------------------------------------

    def _probe_length(self, situation: Situation) -> int:
        longest = min(situation.budget, self._longest)
        if not situation.has_model or not self._prices.can_pay(longest):
            return 0
        costs, position = self.costs, situation.position
        step, plain = costs.draft_step_seconds(position), costs.round_seconds(1, position)
        debt = costs.catch_up_seconds(situation.catch_up_rows, position)

        def loss(guesses: int) -> float:
            return debt + guesses * step + costs.round_seconds(guesses + 1, position) - plain

        return self.probing.length(longest, loss)

    def _off(self, situation: Situation) -> str:
        if self.state == "on":
            if self.probing.quiet < _QUIET_ROUNDS and self._rounds > _QUIET_ROUNDS:
                return "the next guess is not worth its time"
            self._change("off", "off: " + (self._why_doubted() if self._doubted else self._why_off(situation)))
        return self.reason

    def _why_doubted(self) -> str:
        assert self._expectation is not None
        return self._expectation.why

    def _why_off(self, situation: Situation) -> str:
        if not situation.has_model:
            return "nothing worth copying"
        costs, position = self.costs, situation.position
        step, verify = costs.draft_step_seconds(position), costs.verify_seconds(2, position)
        buys = 1 + self.acceptance.chance_first(self._before)
        plain = (step + verify) / max(costs.round_seconds(1, position), 1e-9)
        return (
            f"draft step {step * 1e3:.1f} ms + verify {verify * 1e3:.1f} ms buys {buys:.1f} tokens; plain {plain:.1f}"
        )

    def _change(self, state: State, reason: str) -> None:
        self.state, self.reason = state, reason
        self.changes.append(StateChange(self._situation.position, state, reason))
