"""The controller that decides by time.

Let R be the long-run rate in tokens per second, never below plain decoding. Time spent on a guess could have
made tokens at rate R, so a guess is worth its time while

    P(all guesses so far are kept, and this one too)  >  R * (its drafter's time + one more row in the target's pass)

looking ahead over several guesses, because rows may come in steps. Times are counted in plain steps, the time that
one token takes without drafts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from localspec.engine.control.controller import Plan
from localspec.engine.control.draft_value import DraftValue
from localspec.engine.control.trials import PROBE_LENGTH, Trials
from localspec.engine.records import State, StateChange

if TYPE_CHECKING:
    from localspec.engine.control.costs import Costs
    from localspec.engine.drafters.protocol import Forecast
    from localspec.engine.records import Round
    from localspec.engine.settings import Expectation

MAX_DRAFT = 16
"""Guesses in a draft at most, unless they are free."""

_RATE_MEMORY = 0.97  # per round
_RATE_PRIOR = 24.0  # tokens at plain speed that the long-run rate starts from
_FIRST_TRUST = 6  # guesses in a draft, until one of that length was kept whole
_DOUBTED_GAIN = 1.0  # tokens that a free draft must promise to gain, where drafts are not expected to pay
_DEBT_ROUNDS = 8  # catching up is an investment in so many rounds at least,
_TOKENS_OF_A_ROUND = 4  # or in as many as these make of the answer so far: it is thought to be half done;
_SHARE_STEP = 0.1
_DEBT_SHARE = 0.05  # of the text's time that this may risk, though,
_PROOF = 2.0  # and so many times what probes in a row have gained
_PROMPT_ROUNDS = 60  # and reading the prompt in so many
_LONGEST_STALL = 1.5  # times what a round like this one takes: what is beyond that was a pause, not the round
_QUIET_ROUNDS = 6  # rounds without a draft until the state reads off
_PLAIN_GAPS = (2, 24, 128)  # rounds between plain passes at most: when plain is in doubt, the first time, later
_LOOK_AHEAD = 8
_DOUBT = 0.6  # tokens that a drafter gets the benefit of the doubt for, once it has begun, ...
_DOUBT_ROUNDS = 8  # ... halved after so many rounds: two drafts that failed are no reason to give up
_WORTH_PROBING = 1.1  # times plain that a drafter must reach if all its guesses are kept
_NEGLIGIBLE = 0.02


class AdaptiveController:
    """Chooses drafter and length by expected tokens per second.

    `drafter` other than "auto" is an order: only that one, and it is never turned off.
    `length` is one, too: only the drafter is chosen.
    `expectation`: what was measured of the pair. If it does not pay, each text begins without drafts: a drafter
    has to be proven by a probe, and a free draft has to promise much.
    """

    def __init__(
        self,
        costs: Costs,
        drafter: str = "auto",
        length: int | None = None,
        longest: int = MAX_DRAFT,
        expectation: Expectation | None = None,
    ) -> None:
        self.costs = costs
        self.trials = Trials()
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
        self._longest_kept: dict[str, int] = {}
        self._rounds = 0
        self._first_round = 0
        self._plain_round = 0
        self._plain_passes = 0
        self._forget_text()
        # The round at hand.
        self._position = 0
        self._plan = Plan("none", 0, "")
        self._forecast: Forecast | None = None
        self._plain = 0.0
        self._rows: Sequence[float] = ()
        self._expected = 0.0

    @property
    def long_run_speedup(self) -> float:
        """R over plain decoding's rate: half what was met, half what seems possible now; at least 1."""
        met = self._tokens / self._steps
        return max(1.0, (met + (self._possible or met)) / 2)

    def begin(self, related: bool) -> None:
        """An answer begins. What was learned of the pair stays; what of another text is forgotten."""
        self.changes = []
        self._first_round = self._rounds
        if not related:
            self._forget_text()

    def pays_debt(self, drafter: str, forecast: Forecast, position: int) -> bool:
        """Whether drafts are expected to earn back the reading of the prompt."""
        if self._drafter not in ("auto", drafter) or self._doubted:
            return False
        if self._ordered or not self.costs.known:
            return True
        self._price(position, self._longest)
        debt = self.long_run_speedup * self._in_steps(forecast.debt)
        most = min(self._longest, forecast.longest)
        return self._value(drafter, forecast, most) * _PROMPT_ROUNDS > debt

    def _forget_text(self) -> None:
        self.trials = Trials()
        self._tokens = self._steps = _RATE_PRIOR
        self._possible = 0.0
        self._not_free = 1.0  # share of the latest rounds that free drafts left to others
        self._values: dict[str, DraftValue] = {}
        self._doubted = self._expectation is not None and not self._expectation.pays
        if self._doubted:
            self.state, self.reason = "off", f"off: {self._why_doubted()}"
        elif self.state == "off":
            self.state, self.reason = "on", "on: a new text"

    # --- before the round ---------------------------------------------------------------------------

    def plan(self, position: int, budget: int, forecasts: Mapping[str, Forecast]) -> Plan:
        """The drafter and the most guesses that are worth their time now."""
        self._position = position
        self._price(position, budget)
        plan = self._decide(budget, self._allowed(forecasts))
        self._plan = plan
        self._forecast = forecasts.get(plan.drafter)
        self._expected = 0.0
        if self._forecast is not None and plan.length:
            self._expected = self._forecast.kept[plan.length if self._forecast.is_free else 1]
        return plan

    def _allowed(self, forecasts: Mapping[str, Forecast]) -> Mapping[str, Forecast]:
        if self._drafter == "auto":
            return forecasts
        return {name: forecast for name, forecast in forecasts.items() if name == self._drafter}

    def _decide(self, budget: int, forecasts: Mapping[str, Forecast]) -> Plan:
        if budget <= 0:
            return Plan("none", 0, "no room for a draft")
        if not self._ordered and self._plain_is_due():
            return Plan("none", 0, "a plain pass, to know what plain takes now")
        best, best_gain = None, 0.0
        for name, forecast in forecasts.items():
            plan, gain = self._offer(name, forecast, budget)
            if gain > best_gain or (self._ordered and (best is None or gain > best_gain)):
                best, best_gain = plan, gain
        if best is not None:
            return best
        if self._ordered:
            return Plan("none", 0, f"{self._drafter} has nothing to guess here")
        return self._probe(budget, forecasts) or Plan("none", 0, self._off(forecasts))

    def _offer(self, name: str, forecast: Forecast, budget: int) -> tuple[Plan, float]:
        """The best that this drafter can do now, and the tokens it gains over plain (negative: it loses)."""
        reason = "as ordered" if self._ordered else f"{name} pays"
        if forecast.is_free:
            length, gain = self._best(forecast, min(budget, forecast.longest), self.long_run_speedup)
            if gain <= _DOUBTED_GAIN and (self._doubted or self.trials.is_wary(name)) and not self._ordered:
                gain = -1.0
            return Plan(name, self._length or length, reason), gain
        longest = min(budget, forecast.longest)
        length = min(longest, self._length or min(self._trusted(name), self._longest))
        gain = self._value(name, forecast, min(longest, self._longest))
        if self._ordered:
            return Plan(name, length, reason), gain
        if gain <= 0.0 or self._doubted or self.trials.is_wary(name):
            return Plan(name, length, reason), -1.0
        rate = self.long_run_speedup
        debt = self._in_steps(forecast.debt)
        if debt:
            debt += self.trials.owed
        if debt <= self._worth_of_catching_up(gain):
            return Plan(name, length, reason), gain - min(gain, debt) / _DEBT_ROUNDS
        glance = self._in_steps(forecast.glance)
        while length and not self.trials.can_lose(glance + self._price_of(forecast, length)):
            length -= 1
        if not length:
            return Plan(name, length, reason), -1.0
        reason = f"{name} pays, not yet what it has missed"
        return Plan(name, length, reason, is_probe=True), gain - rate * glance

    def _worth_of_catching_up(self, gain: float) -> float:
        """The plain steps that reading what a drafter has missed may take, where a draft gains so many tokens."""
        rounds = (self._rounds - self._first_round) / _TOKENS_OF_A_ROUND
        at_risk = min(gain * rounds, _DEBT_SHARE * self.trials.elapsed)
        return (gain * _DEBT_ROUNDS + at_risk) * self._not_free + _PROOF * self.trials.proven

    def _trusted(self, name: str) -> int:
        return max(_FIRST_TRUST, 2 * self._longest_kept.get(name, 0))

    def _price(self, position: int, most: int) -> None:
        """What a plain token takes here, and the target's pass beyond it by rows, in plain steps."""
        costs = self.costs
        plain = self._plain = costs.round_seconds(1, position)
        if plain <= 0:  # nothing was measured: all looks free, and the first rounds measure it
            self._rows = [0.0] * (most + 2)
            return
        curve, scale, host = costs.target.curve, costs.target.scale(position) / plain, costs.host_row_seconds / plain
        one = curve[1]
        self._rows = [0.0, *((curve[rows] - one) * scale + host * (rows - 1) for rows in range(1, most + 2))]

    def _price_of(self, forecast: Forecast, guesses: int) -> float:
        """Of a draft, debts left out, beyond a plain pass, in plain steps."""
        return self._in_steps(forecast.seconds[guesses]) + self._rows[forecast.rows[guesses]]

    def _in_steps(self, seconds: float) -> float:
        return seconds / self._plain if self._plain > 0 else 0.0

    def _best(self, forecast: Forecast, most: int, rate: float) -> tuple[int, float]:
        """The best length set beforehand, and the tokens it gains over plain, when time is worth `rate` times plain."""
        per_second = self._in_steps(1.0)
        rows, kept, seconds, passes = self._rows, forecast.kept, forecast.seconds, forecast.rows
        best, best_gain, possible = 1, -1.0, 1.0
        for length in range(1, most + 1):
            price = seconds[length] * per_second + rows[passes[length]]
            gain = kept[length] - rate * price
            if gain > best_gain:
                best, best_gain = length, gain
            if 1 + kept[length] > possible * (1 + price):
                possible = (1 + kept[length]) / (1 + price)
            if kept[length] - kept[length - 1] < _NEGLIGIBLE:
                break
        self._could = possible
        return best, best_gain

    def _value(self, name: str, forecast: Forecast, most: int) -> float:
        """The tokens that a draft gains over plain, as calculated and as met lately."""
        met, rate = self._values.get(name), self.long_run_speedup
        if met is not None:
            # A lucky streak makes R more than drafts can bring: held against that, plain would look better than they.
            rate = min(rate, max(1.0, met.speedup))
        _, calculated = self._best(forecast, min(most, forecast.longest), rate)
        self._possible = self._could
        if met is None:
            return calculated
        return met.gain(rate, calculated) + _DOUBT / (1 + met.rounds / _DOUBT_ROUNDS)

    def _plain_is_due(self) -> bool:
        since = self._rounds - self._plain_round
        if not self.costs.plain_known:
            return since >= _PLAIN_GAPS[0]
        return since >= _PLAIN_GAPS[1 if self._plain_passes == 0 else 2]

    # --- while guesses are made ---------------------------------------------------------------------

    def worth(self, chance: float, made: int) -> bool:
        """Is one more guess worth its time? The first one was decided by the plan."""
        most = self._plan.length
        if made >= most:
            return False
        if made == 0 or self._length is not None or self._forecast is None:
            return True
        forecast, per_second, rate = self._forecast, self._in_steps(1.0), self.long_run_speedup
        rows, passes, seconds, onward = self._rows, forecast.rows, forecast.seconds, forecast.onward
        before = seconds[made] * per_second + rows[passes[made]]
        gain, further = 0.0, chance
        for length in range(made + 1, min(most, made + _LOOK_AHEAD) + 1):
            gain += further
            if gain > rate * (seconds[length] * per_second + rows[passes[length]] - before):
                self._expected += chance
                return True
            further *= onward
            if further < _NEGLIGIBLE:
                break
        return False

    # --- after the round ----------------------------------------------------------------------------

    def observe(self, round_: Round) -> None:
        """Learn times, the long-run rate, and what was gained or lost."""
        if round_.index == 0:
            return
        self._rounds += 1
        ordinary = self._ordinary_seconds(round_)
        self.costs.observe(round_)
        plain = self.costs.round_seconds(1, round_.position)
        if plain > 0:
            seconds = round_.wall_seconds
            if ordinary:
                seconds = min(seconds, _LONGEST_STALL * ordinary)
            self._account(round_, seconds / plain)
        if round_.verified and round_.accepted == round_.verified:
            name = round_.drafter
            self._longest_kept[name] = max(self._longest_kept.get(name, 0), round_.accepted)

    def _ordinary_seconds(self, round_: Round) -> float:
        """What a round like this one takes, as it was thought before; 0 = unknown."""
        if not self._plain:
            return 0.0
        return self._own_seconds(round_) + self.costs.round_seconds(round_.verified + 1, round_.position)

    def _own_seconds(self, round_: Round) -> float:
        """The drafter's part, catching up included."""
        forecast, made = self._forecast, len(round_.drafted)
        if forecast is None or not made:
            return 0.0
        debt = forecast.glance if self._plan.is_probe else forecast.debt
        return forecast.seconds[min(made, forecast.longest)] + debt

    def _account(self, round_: Round, steps: float) -> None:
        """`steps`: the time of the round, in plain steps as they are now."""
        tokens = len(round_.emitted)
        self._tokens = self._tokens * _RATE_MEMORY + tokens
        self._steps = self._steps * _RATE_MEMORY + steps
        if self.costs.target.revised:  # what drafts brought at other prices says nothing
            self._values.clear()
        name = round_.drafter
        is_free = bool(round_.drafted) and self._forecast is not None and self._forecast.is_free
        self._not_free += _SHARE_STEP * ((not is_free) - self._not_free)
        if not round_.drafted:
            self.trials.observe_plain(tokens, steps)
            self._plain_round, self._plain_passes = self._rounds, self._plain_passes + 1
            return
        if not is_free:
            self._meet(round_)
        if self._plan.is_probe:
            self.trials.observe_probe(name, tokens, steps)
            self._doubted = self._doubted and tokens <= steps
            return
        forecast = self._forecast
        debt = min(self._in_steps(forecast.debt), steps - 1.0) if forecast is not None else 0.0
        self.trials.observe_draft(name, tokens - steps + debt, steps, is_free, debt)
        if self.state == "off":
            self._change("on", f"on: {name} pays again")
        self.reason = f"on: {name} drafts, {self.long_run_speedup:.1f}x plain lately"

    def _meet(self, round_: Round) -> None:
        """What the draft could be expected to bring, and the plain steps it takes, as both are known now.

        Tokens are half what the chances promised, which has little noise, and half what came, which has no error.
        """
        forecast = self._forecast
        if forecast is None:
            return
        costs, position = self.costs, round_.position
        plain = costs.round_seconds(1, position)
        seconds = forecast.seconds[min(len(round_.drafted), forecast.longest)]
        steps = (seconds + costs.round_seconds(round_.verified + 1, position) - plain) / plain
        tokens = (self._expected + len(round_.emitted) - 1) / 2
        self._values.setdefault(round_.drafter, DraftValue()).observe(tokens, steps, self._plan.is_probe)

    # --- being off ----------------------------------------------------------------------------------

    def _probe(self, budget: int, forecasts: Mapping[str, Forecast]) -> Plan | None:
        """A look whether a drafter that costs time pays again."""
        for name, forecast in forecasts.items():
            longest = min(budget, forecast.longest, self._longest)
            if forecast.is_free or self._at_best(forecast, min(longest, PROBE_LENGTH)) < _WORTH_PROBING:
                continue
            own = self._in_steps(forecast.glance)

            def loss(guesses: int, forecast: Forecast = forecast, own: float = own) -> float:
                return own + self._price_of(forecast, guesses)

            length = self.trials.length(longest, loss)
            if length:
                return Plan(name, length, f"a probe: does {name} pay again?", is_probe=True)
        return None

    def _at_best(self, forecast: Forecast, longest: int) -> float:
        """How many times faster than plain it would be if all guesses were kept."""
        return max(((1 + n) / (1 + self._price_of(forecast, n)) for n in range(1, longest + 1)), default=0.0)

    def _off(self, forecasts: Mapping[str, Forecast]) -> str:
        if self.state == "on":
            if self.trials.quiet < _QUIET_ROUNDS and self._rounds > _QUIET_ROUNDS:
                return "the next guess is not worth its time"
            self._change("off", "off: " + (self._why_doubted() if self._doubted else self._why_off(forecasts)))
        return self.reason

    def _why_doubted(self) -> str:
        assert self._expectation is not None
        return self._expectation.why

    def _why_off(self, forecasts: Mapping[str, Forecast]) -> str:
        """In milliseconds, for the best length of the drafter that comes nearest to paying."""
        most = len(self._rows) - 2
        offers = [(self._best(f, min(f.longest, most), 1.0), f) for f in forecasts.values() if not f.is_free]
        if not offers:
            return "nothing worth copying"
        (length, _), forecast = max(offers, key=lambda offer: offer[0][1])
        own, verify = forecast.seconds[length], self.costs.verify_seconds(forecast.rows[length], self._position)
        plain = self._in_steps(own + verify)
        guesses = "a guess" if length == 1 else f"{length} guesses"
        return (
            f"{guesses} {own * 1e3:.1f} ms + verify {verify * 1e3:.1f} ms buys {1 + forecast.kept[length]:.1f} tokens; "
            f"plain {plain:.1f}"
        )

    def _change(self, state: State, reason: str) -> None:
        self.state, self.reason = state, reason
        self.changes.append(StateChange(self._position, state, reason))
