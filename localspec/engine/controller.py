"""What should the next round do: nothing, ask the draft model, or copy? And for how long?

    plan = controller.plan(situation)               # before the round
    while controller.go_on(confidences): guess()    # before each further guess of the draft model
    controller.observe(round)                       # after it

Pure: events in, decisions out, no clock. No decision depends on which token was sampled from a draft distribution,
other than to stop after it.

The rule. Let R be the long-run rate in tokens per second, never below plain decoding. Time spent on a guess could
have made tokens at rate R, so a guess is worth its time while

    P(all guesses so far are kept and this one too)  >  R * (draft step + one more row in the target's pass)

looking ahead over several guesses where rows come in steps. A draft that is not worth it is a draft of length 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from localspec.engine.acceptance import (
    ALL_KEPT,
    NO_DRAFT_BEFORE,
    NOTHING_KEPT,
    PART_KEPT,
    LookupAcceptance,
    ModelAcceptance,
)
from localspec.engine.costs import Costs

if TYPE_CHECKING:
    from localspec.engine.records import Round

Choice = Literal["none", "model", "lookup"]

MAX_MODEL_DRAFT = 16
MAX_LOOKUP_DRAFT = 32

_RATE_MEMORY = 0.97  # per round
_RATE_PRIOR = 24.0  # tokens at plain speed that the long-run rate starts from
_DEBT_ROUNDS = 8  # catching up is an investment in about so many rounds
_VALUE_WEIGHT = 4.0  # rounds that the calculated value of a draft weighs against the met ones
_VALUE_MEMORY = 0.94
_FIRST_TRUST = 6  # guesses in a draft, until one of that length was kept whole
_REFERENCE_ROUNDS = 64  # rounds without a plain pass, at most
_REFERENCE_AT_LEAST = 12
_REFERENCE_CHANGE = 1.2  # of all pass times, that a plain pass has to confirm
MODE = 2
_OPTIMISM = 0.06
_PROBE_MEMORY = 0.7  # a probe is news
_FIRST_GAP = 24.0  # rounds without a draft before the first probe
_GAP_GROWTH = 1.4
_LONGEST_GAP = 48.0
_PROBE_LENGTH = 8
_PROBE_SHARE = 0.01  # of all time
_LOSS_ALLOWED = 8.0  # plain steps that drafting may lose before it has to prove itself
_LOSS_TRICKLE = 0.005  # of a plain step, given back per token
_QUIET_ROUNDS = 6  # rounds without a draft until the state reads off
_NEGLIGIBLE = 0.02


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known before a round."""

    position: int
    """Tokens in the sequence, `last` included."""
    budget: int
    """Guesses that may be made at most: by the context, the tokens left to make, and the widest pass."""
    catch_up_rows: int = 1
    """Rows the draft model would decode before its first guess, `last` included (1 or 2 from round to round)."""
    has_model: bool = False
    lookup_ids: tuple[int, ...] = ()
    """What lookup offers to continue with; () where nothing matches or lookup is not offered."""
    lookup_match: int = 0
    """Tokens that agree before that offer."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do in a round."""

    drafter: Choice
    length: int
    """Guesses at most; for the draft model `go_on` may stop earlier. 0 with `none`."""
    reason: str
    """Why, in a few words a person can act on."""


@dataclass(frozen=True, slots=True)
class StateChange:
    """Guessing was turned on or off."""

    position: int
    state: Literal["on", "off"]
    reason: str


class Controller(Protocol):
    """Decides what each round does."""

    @property
    def state(self) -> Literal["on", "off"]:
        """Whether guesses are in use at the moment."""
        ...

    @property
    def reason(self) -> str:
        """Why, in words a person can act on."""
        ...

    @property
    def changes(self) -> Sequence[StateChange]:
        """Every change of state since the answer began."""
        ...

    def begin(self, related: bool) -> None:
        """An answer begins. `related`: its prompt continues the last one's text."""
        ...

    def plan(self, situation: Situation) -> Plan:
        """Decide on a round."""
        ...

    def go_on(self, confidences: Sequence[float], next_confidence: float | None = None) -> bool:
        """May the draft model guess once more, after guesses with these confidences?

        `next_confidence` is the largest probability of the next guess's distribution, where the draft's pass has
        been run already: then only the row in the target's pass is at stake. It must be known before sampling.
        """
        ...

    def observe(self, round_: Round) -> None:
        """Learn from a finished round."""
        ...


class FixedController:
    """Does what was ordered: this drafter, this many guesses, as far as the budget goes."""

    def __init__(self, drafter: Choice, length: int) -> None:
        self._drafter: Choice = drafter if length else "none"
        self._length = length
        self._planned = 0
        self.state: Literal["on", "off"] = "off" if self._drafter == "none" else "on"
        self.reason = f"as ordered: {self._drafter}, {length} guesses" if self.state == "on" else "as ordered: plain"
        self.changes: tuple[StateChange, ...] = ()

    def begin(self, related: bool) -> None:
        """Nothing to prepare."""

    def plan(self, situation: Situation) -> Plan:
        """The order, cut to the budget and to what there is to copy."""
        length = min(self._length, situation.budget)
        if self._drafter == "none":
            return Plan("none", 0, self.reason)
        if length <= 0:
            return Plan("none", 0, "no room for a draft")
        if self._drafter == "lookup":
            length = min(length, len(situation.lookup_ids))
            if not length:
                return Plan("none", 0, "nothing to copy")
        elif not situation.has_model:
            return Plan("none", 0, "no draft model")
        self._planned = length
        return Plan(self._drafter, length, self.reason)

    def go_on(self, confidences: Sequence[float], next_confidence: float | None = None) -> bool:
        """Until the ordered length is reached."""
        return len(confidences) < self._planned

    def observe(self, round_: Round) -> None:
        """Nothing to learn."""


class AdaptiveController:
    """Chooses drafter and length by expected tokens per second.

    `drafter` "model" or "lookup" is an order: only that one, and it is never turned off.
    `length` fixes the number of guesses and leaves only the choice of the drafter.
    """

    def __init__(
        self,
        costs: Costs,
        acceptance: ModelAcceptance | None = None,
        drafter: Literal["auto", "model", "lookup"] = "auto",
        length: int | None = None,
        longest: int = MAX_MODEL_DRAFT,
    ) -> None:
        self.costs = costs
        self.acceptance = acceptance or ModelAcceptance()
        self.lookup = LookupAcceptance()
        self._drafter = drafter
        self._length = length
        self._longest = longest
        self._trusted = longest if acceptance else _FIRST_TRUST
        # What drafts of the model bring, after each kind of round: tokens expected, plain steps spent, rounds.
        self._values = [[0.0, 0.0, 0.0] for _ in range(4)]
        self._pool = [0.0, 0.0, 0.0]
        # The long-run rate, as a multiple of plain: tokens made, over the plain steps their time was worth.
        self._tokens = self._steps = _RATE_PRIOR
        self._possible = 1.0
        self._before = NO_DRAFT_BEFORE
        self._plan = Plan("none", 0, "")
        self._situation = Situation(0, 0)
        # This round's prices in tokens, by number of guesses: what their time could have made at the long-run rate.
        self._step_price = 0.0
        self._row_prices: list[float] = []
        self._kept_so_far = 1.0
        self._judged = 0
        self._expected = 0.0
        self._extra_pass = False
        # Being off.
        self._quiet = 0
        self._gap = _FIRST_GAP
        self._probing = False
        self._elapsed = 0.0
        self._probe_seconds = 0.0
        self._balance = 0.0
        self._blocked_until = 0
        self._rounds = 0
        self._reference_round = 0
        self._reference_scale = 1.0
        self.state: Literal["on", "off"] = "on"
        self.reason = "on: not measured yet"
        self.changes: list[StateChange] = []

    @property
    def long_run_speedup(self) -> float:
        """Slowly forgetting tokens per second, over plain decoding's; at least 1."""
        met = self._tokens / self._steps
        if MODE == 1:
            return max(1.0, met, .95 * self._possible)
        if MODE == 2:
            return max(1.0, .5*met + .5 * self._possible)
        if MODE == 3:
            return max(1.0, min(met, self._possible*1.15))
        if MODE == 4:
            return max(1.0, min(max(met, .95*self._possible), self._possible*1.2))
        if MODE == 5:
            return max(1.0, self._possible)
        if MODE == 6:
            return max(1.0, met**.5*self._possible**.5)
        return max(1.0, met)

    @property
    def probe_share(self) -> float:
        """Share of all time that probes have lost so far."""
        return self._probe_seconds / self._elapsed if self._elapsed else 0.0

    def begin(self, related: bool) -> None:
        """An answer begins; what lookup earned belongs to the text before."""
        self.changes = []
        self._before = NO_DRAFT_BEFORE
        if not related:
            self.lookup = LookupAcceptance()

    # --- before the round ---------------------------------------------------------------------------

    def plan(self, situation: Situation) -> Plan:
        """The drafter and the most guesses that are worth their time now."""
        self._situation = situation
        self._extra_pass = self._probing = False
        self._kept_so_far, self._judged, self._expected = 1.0, 0, 0.0
        self._price(situation)
        if self._wants_reference(situation):
            self._plan = Plan("none", 0, "a plain pass, to know what plain takes now")
            return self._plan
        lookup_length, lookup_gain = self._lookup_gain(situation)
        model_gain = self._model_gain(situation)
        if lookup_gain > max(0.0, model_gain):
            self._plan = self._on("lookup", lookup_length)
        elif model_gain > 0.0:
            self._plan = self._on("model", min(situation.budget, self._length or self._trusted))
        elif self._probe_length(situation):
            self._probing = True
            self._plan = Plan("model", self._probe_length(situation), "probe: is it worth it again?")
        else:
            self._plan = Plan("none", 0, self._off(situation))
        return self._plan

    def _price(self, situation: Situation) -> None:
        """Turn seconds into the tokens that the long-run rate makes in them."""
        costs, position = self.costs, situation.position
        plain = costs.round_seconds(1, position)
        if plain <= 0:  # nothing was measured: rows look free, and the first rounds measure them
            self._row_prices, self._step_price = [0.0] * (MAX_LOOKUP_DRAFT + 2), 0.0
            return
        self._priced_at = self.long_run_speedup
        per_second = self._priced_at / plain
        row = costs.host_row_seconds * per_second
        scale = costs.target.scale(position) * per_second
        curve = costs.target.curve
        one = curve[1]
        most = min(situation.budget, MAX_LOOKUP_DRAFT)
        self._row_prices = [(curve[n + 1] - one) * scale + row * n for n in range(most + 1)]
        switch = costs.switch_share * one * scale
        if switch and costs.last_rows <= most + 1:
            self._row_prices[costs.last_rows - 1] -= switch
        self._step_price = costs.draft_step_seconds(position) * per_second

    def _wants_reference(self, situation: Situation) -> bool:
        """Whether a plain pass is due: drafts are measured against it, and it is measured only when it is made."""
        if self._drafter != "auto" or self._length is not None:
            return False
        since = self._rounds - self._reference_round
        if since >= _REFERENCE_ROUNDS:
            return True
        scale = self.costs.target.scale(situation.position)
        ratio = scale / self._reference_scale
        return since >= _REFERENCE_AT_LEAST and not 1 / _REFERENCE_CHANGE < ratio < _REFERENCE_CHANGE

    def _lookup_gain(self, situation: Situation) -> tuple[int, float]:
        """The best length of a copy, and the tokens it gains over plain (negative: it loses)."""
        offered = min(len(situation.lookup_ids), situation.budget, MAX_LOOKUP_DRAFT)
        if not offered or self._drafter == "model":
            return 0, -1.0
        chances, match, prices = self.lookup.chances, situation.lookup_match, self._row_prices
        if self._length is not None:
            offered = min(offered, self._length)
        best_length, best, gain, chance = 0, -1.0, 0.0, 1.0
        for length in range(1, offered + 1):
            chance *= chances[match]
            match += match < 90
            gain += chance
            if gain - prices[length] > best:
                best_length, best = length, gain - prices[length]
            if chance < _NEGLIGIBLE:
                break
        if self._drafter == "lookup":
            return max(1, best_length), max(best, _NEGLIGIBLE)
        return best_length, best

    def _model_gain(self, situation: Situation) -> float:
        """The tokens that a draft of the best length gains over plain (negative: it loses)."""
        if not situation.has_model or situation.budget <= 0 or self._drafter == "lookup":
            return -1.0
        if self._drafter == "model":
            return 1.0
        if self._rounds < self._blocked_until:
            return -1.0
        step, rate = self._step_price, self._priced_at
        debt = self.costs.catch_up_seconds(situation.catch_up_rows, situation.position)
        debt_price = debt * step / self.costs.draft_step_seconds(situation.position) if debt else 0.0
        # The best draft of a length set beforehand; what stopping by confidence adds to it is met, not calculated.
        possible = 1.0
        gain, chance, best = 0.0, self.acceptance.first.values[self._before], (-1.0, 0.0, 0.0)
        for length in range(1, min(situation.budget, self._longest) + 1):
            gain += chance
            price = length * step + self._row_prices[length]
            if gain - price > best[0]:
                best = (gain - price, gain, price)
            possible = max(possible, (1 + gain) / (1 + price / rate))
            chance *= self.acceptance.steady
            if chance < step:
                break
        self._possible = possible
        pool_tokens, pool_steps, pool_rounds = self._pool
        weight = pool_rounds + _VALUE_WEIGHT
        pool = (pool_tokens - rate * pool_steps + _VALUE_WEIGHT * best[0]) / weight
        tokens, steps, rounds = self._values[self._before]
        value = (tokens - rate * steps + _VALUE_WEIGHT * pool) / (rounds + _VALUE_WEIGHT)
        if self._balance > 0.0:
            value += _OPTIMISM
        return value - debt_price / _DEBT_ROUNDS

    def _on(self, drafter: Choice, length: int) -> Plan:
        if self._length is not None:
            length = min(length, self._length)
        return Plan(drafter, length, f"{drafter} pays")

    # --- while the draft model guesses ---------------------------------------------------------------

    def go_on(self, confidences: Sequence[float], next_confidence: float | None = None) -> bool:
        """Whether one more guess is worth its time; the first one was decided by the plan."""
        made = len(confidences)
        if made >= self._plan.length:
            return False
        if made == 0 or self._length is not None:
            return True
        acceptance = self.acceptance
        self._judge(confidences)
        prices, step = self._row_prices, self._step_price
        if next_confidence is not None:
            self._extra_pass = True
            chance = self._kept_so_far * acceptance.chance(next_confidence, made)
            paid = prices[made] + step  # the step is spent either way
        else:
            chance = self._kept_so_far * acceptance.chance_after(confidences[-1])
            paid = prices[made]
        gain = 0.0
        for further in range(1, self._plan.length - made + 1):
            gain += chance
            if gain > further * step + prices[made + further] - paid:
                self._extra_pass = False
                return True
            chance *= acceptance.steady
            if chance < _NEGLIGIBLE or further == 8:
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
        passes = len(round_.drafted) + self._extra_pass
        self.costs.observe(round_, passes)
        plain = self.costs.round_seconds(1, round_.position)
        if plain > 0:
            self._observe_time(round_, plain)
        self._observe_guesses(round_)

    def _observe_time(self, round_: Round, plain: float) -> None:
        """The long-run rate, what a draft brought, and what was lost; in plain steps as they are now."""
        emitted = len(round_.emitted)
        steps = min(round_.wall_seconds / plain, 3.0 * (round_.verified + 1))
        self._elapsed += round_.wall_seconds
        self._tokens = self._tokens * _RATE_MEMORY + emitted
        self._steps = self._steps * _RATE_MEMORY + steps
        if self.costs.target.revised:  # what drafts brought at other prices says nothing
            self._values = [[0.0, 0.0, 0.0] for _ in range(4)]
            self._pool = [0.0, 0.0, 0.0]
        if round_.drafter == "model":
            self._observe_value(round_, plain)
        if round_.drafter != "none":
            self._observe_drafting(round_, plain, emitted - steps)
            return
        self._reference_round = self._rounds
        self._reference_scale = self.costs.target.scale(round_.position)
        self._quiet += 1
        self._balance = min(_LOSS_ALLOWED, self._balance + _LOSS_TRICKLE * emitted)

    def _observe_value(self, round_: Round, plain: float) -> None:
        """What the draft could be expected to bring, and the plain steps it takes.

        Tokens by the confidences, time by the costs, both as they are known now: far less noise than counting, and
        the two models see to it that they are true.
        """
        self._judge(round_.confidences[: round_.verified])
        costs, position = self.costs, round_.position
        seconds = len(round_.drafted) * costs.draft_step_seconds(position)
        seconds += costs.round_seconds(round_.verified + 1, position) - plain
        steps = seconds / plain
        memory = _PROBE_MEMORY if self._probing else _VALUE_MEMORY
        for value in (self._values[self._before], self._pool):
            value[0] = value[0] * memory + self._expected
            value[1] = value[1] * memory + steps
            value[2] = value[2] * memory + 1.0

    def _observe_guesses(self, round_: Round) -> None:
        if round_.drafter == "model" and round_.verified:
            if round_.accepted >= self._trusted:
                self._trusted = min(self._longest, 2 * round_.accepted)
            self.acceptance.observe(round_.confidences, round_.verified, round_.accepted, self._before)
        if not round_.verified:
            self._before = NO_DRAFT_BEFORE
        else:
            whole = round_.accepted == round_.verified
            self._before = ALL_KEPT if whole else PART_KEPT if round_.accepted else NOTHING_KEPT
        # What lookup offered is judged by the text, whether it was used or not: that costs nothing.
        offer = self._situation.lookup_ids
        if offer and round_.emitted:
            judged = min(len(offer), len(round_.emitted))
            agreed = 0
            while agreed < judged and offer[agreed] == round_.emitted[agreed]:
                agreed += 1
            self.lookup.observe(self._situation.lookup_match, judged, agreed)

    def _observe_drafting(self, round_: Round, plain: float, gained: float) -> None:
        if self._probing:
            self._probe_seconds += max(0.0, -gained * plain)
            if gained <= 0:  # a probe that gained is followed by another at once
                self._gap = min(_LONGEST_GAP, _GAP_GROWTH * self._gap)
                self._quiet = 0
            return
        self._quiet = 0
        self._gap = _FIRST_GAP
        self._balance = min(_LOSS_ALLOWED, self._balance + gained + _LOSS_TRICKLE * len(round_.emitted))
        if self._balance < -_LOSS_ALLOWED and self._drafter == "auto":
            self._blocked_until = self._rounds + 4 * self._gap
            self._balance = -_LOSS_ALLOWED / 2
        if self.state == "off":
            self._change("on", f"on: {round_.drafter} pays again")

    # --- being off ------------------------------------------------------------------------------------

    def _probe_length(self, situation: Situation) -> int:
        """A look whether the draft model pays again: the most guesses whose loss fits into 1 % of all time.

        The loss reckoned with is that of a draft that is rejected whole. 0: no probe now.
        """
        if not situation.has_model or self._drafter != "auto" or self._quiet < self._gap:
            return 0
        if self._rounds < self._blocked_until:
            return 0
        costs, position = self.costs, situation.position
        step, plain = costs.draft_step_seconds(position), costs.round_seconds(1, position)
        left = _PROBE_SHARE * self._elapsed - self._probe_seconds
        left -= costs.catch_up_seconds(situation.catch_up_rows, position)
        length = 0
        for guesses in range(1, min(situation.budget, self._longest, _PROBE_LENGTH) + 1):
            if guesses * step + costs.round_seconds(guesses + 1, position) - plain > left:
                break
            length = guesses
        return length

    def _off(self, situation: Situation) -> str:
        if self._quiet < _QUIET_ROUNDS and self.state == "on":
            return "the next guess is not worth its time"
        if self.state == "on":
            self._change("off", "off: " + self._why_off(situation))
        return self.reason

    def _why_off(self, situation: Situation) -> str:
        if not situation.has_model:
            return "nothing worth copying"
        costs, position = self.costs, situation.position
        step, verify = costs.draft_step_seconds(position), costs.verify_seconds(2, position)
        buys = 1 + self.acceptance.first.values[self._before]
        plain = (step + verify) / max(costs.round_seconds(1, position), 1e-9)
        return (
            f"draft step {step * 1e3:.1f} ms + verify {verify * 1e3:.1f} ms buys {buys:.1f} tokens; "
            f"plain {plain:.1f}"
        )

    def _change(self, state: Literal["on", "off"], reason: str) -> None:
        self.state, self.reason = state, reason
        self.changes.append(StateChange(self._situation.position, state, reason))
