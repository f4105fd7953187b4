"""Decisions round by round, without a model and without a clock."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Literal

import pytest

from localspec.engine.control.adaptive import AdaptiveController
from localspec.engine.control.controller import FixedController, Plan
from localspec.engine.control.costs import Costs, calibrate
from localspec.engine.control.trials import PROBE_CREDIT, PROBE_SHARE, Trials
from localspec.engine.drafters.acceptance import ALL_KEPT, ChainAcceptance
from localspec.engine.drafters.lookup_belief import LookupBelief
from localspec.engine.drafters.model_belief import GLANCE_ROWS, ModelBelief
from localspec.engine.drafters.ngram_index import Match
from localspec.engine.drafters.protocol import Forecast
from localspec.engine.records import Round

Machine = Literal["cheap", "dear"]


def costs_of(machine: Machine) -> Costs:
    """cheap: a GPU, rows nearly free. dear: few CPU cores and a 4-bit target, a row costs most of a plain step."""
    more = 0.02 if machine == "cheap" else 0.8
    return calibrate(lambda rows: 0.1 * (1 + more * (rows - 1)))


class Pair:
    """A controller and the beliefs of both drafters, played by hand."""

    def __init__(self, machine: Machine = "cheap", **options: object) -> None:
        self.costs = costs_of(machine)
        self.controller = AdaptiveController(self.costs, **options)  # type: ignore[arg-type]
        self.model, self.lookup = ModelBelief(), LookupBelief()
        step, row = (0.01, 0.001) if machine == "cheap" else (0.035, 0.01)
        self.model.calibrate(lambda rows: step + row * (rows - 1))
        self.match = Match((), 0)
        self.rounds = 0

    def plan(
        self, missing: int = 1, match: Match | None = None, budget: int = 16, model: bool = True, position: int = 100
    ) -> Plan:
        forecasts: dict[str, Forecast] = {}
        if model and budget:
            forecasts["model"] = self.model.forecast(budget, missing, position)
        self.match = match or Match((), 0)
        copied = self.lookup.forecast(self.match, budget)
        if copied is not None:
            forecasts["lookup"] = copied
        return self.controller.plan(position, budget, forecasts)

    def draft(self, plan: Plan, confidence: float) -> int:
        """Guesses that are made while each is this sure."""
        made = 1
        self.model.start()
        while self.controller.worth(self.model.chance_after(confidence), made):
            made += 1
        return made if plan.length else 0

    def finish(
        self, plan: Plan, made: int, accepted: int, seconds: float, confidence: float = 0.9, token: int = 7
    ) -> None:
        self.rounds += 1
        round_ = Round(
            self.rounds, 100 + self.rounds, plan.drafter if made else "none", (token,) * made, (confidence,) * made,
            made, accepted, (token,) * (accepted + 1), (),
            catch_up_rows=1 if plan.drafter == "model" else 0, verify_seconds=seconds,
        )  # fmt: skip
        self.controller.observe(round_)
        self.model.learn(round_)
        self.lookup.learn(self.match, round_)


STRONG, WEAK = Match((7,) * 16, 30), Match((7,) * 16, 2)


# --- orders -------------------------------------------------------------------------------------------


def test_an_order_is_obeyed_within_the_budget() -> None:
    pair = Pair()
    pair.controller = FixedController("model", 5)  # type: ignore[assignment]
    assert pair.plan().length == 5
    assert pair.plan(budget=2).length == 2
    assert pair.plan(budget=0).drafter == "none"
    assert pair.plan(model=False).drafter == "none"
    pair.controller = FixedController("lookup", 5)  # type: ignore[assignment]
    assert pair.plan(match=Match((1, 2, 3), 2)).length == 3
    assert pair.plan().reason == "lookup has nothing to guess here"


@pytest.mark.parametrize(("drafter", "length"), [("none", 3), ("model", 0)])
def test_an_order_not_to_guess_is_obeyed(drafter: str, length: int) -> None:
    controller = FixedController(drafter, length)
    assert controller.plan(100, 16, {}) == Plan("none", 0, "as ordered: plain")
    assert controller.state == "off"


@pytest.mark.parametrize("drafter", ["model", "lookup"])
def test_a_named_drafter_is_never_turned_off(drafter: str) -> None:
    pair = Pair("dear", drafter=drafter)
    for _ in range(80):
        plan = pair.plan(match=Match((1, 2, 3, 4), 2))
        assert plan.drafter == drafter
        made = pair.draft(plan, 0.2) if drafter == "model" else plan.length
        assert made >= 1
        pair.finish(plan, made, 0, 0.5)
    assert pair.controller.state == "on"


def test_a_fixed_length_leaves_only_the_choice_of_the_drafter() -> None:
    pair = Pair("dear", length=3)
    plan = pair.plan()
    assert plan == Plan("model", 3, "as ordered")
    assert pair.draft(plan, 0.01) == 3
    plan = pair.plan(match=STRONG)
    assert (plan.drafter, plan.length) == ("lookup", 3)


# --- by time ------------------------------------------------------------------------------------------


def test_cheap_rows_draft_and_dear_rows_do_not() -> None:
    assert Pair().plan().drafter == "model"
    pair = Pair("dear")
    plan = pair.plan()
    assert (plan.drafter, plan.length, pair.controller.state) == ("none", 0, "off")
    assert pair.controller.reason == "off: a guess 35.0 ms + verify 180.0 ms buys 1.8 tokens; plain 2.1"
    assert [change.position for change in pair.controller.changes] == [100]


def test_a_confident_draft_goes_on_longer_than_a_doubtful_one() -> None:
    lengths = []
    for confidence in (0.1, 0.6, 0.999):
        pair = Pair()
        lengths.append(pair.draft(pair.plan(), confidence))
    assert lengths == sorted(lengths)
    assert lengths[0] == 1
    assert lengths[2] >= 6


def test_the_best_length_decides_and_not_one_guess() -> None:
    """The first extra row is dear, the next three are free."""
    steps = {1: 1.0, 2: 1.9, 4: 1.95, 8: 2.1}
    costs = calibrate(lambda rows: 0.1 * steps[rows])
    belief = ModelBelief()
    belief.calibrate(lambda rows: 0.02)
    plan = AdaptiveController(costs).plan(100, 16, {"model": belief.forecast(16, 1, 100)})
    assert plan.drafter == "model"
    assert plan.length >= 4


def test_a_strong_match_goes_first_and_a_weak_one_does_not() -> None:
    assert Pair().plan(match=STRONG).drafter == "lookup"
    assert Pair().plan(match=WEAK).drafter == "model"


def test_without_a_model_only_matches_that_pay_are_copied() -> None:
    assert Pair().plan(match=WEAK, model=False).drafter == "lookup"
    assert Pair("dear").plan(match=WEAK, model=False).drafter == "none"
    assert Pair("dear").plan(match=STRONG, model=False).drafter == "lookup"
    assert Pair().plan(model=False).reason == "off: nothing worth copying"


def test_matches_are_judged_by_the_text_even_when_they_were_not_used() -> None:
    belief = LookupBelief()
    plain = Round(1, 100, "none", (), (), 0, 0, (7,), ())

    def chance() -> float:
        forecast = belief.forecast(WEAK, 16)
        assert forecast is not None
        return forecast.kept[1]

    before = chance()
    for _ in range(40):
        belief.learn(WEAK, plain)
    assert chance() > 0.8 > before
    belief.begin(related=True)
    assert chance() > 0.8
    belief.begin(related=False)
    assert chance() == before


def test_no_room_means_plain() -> None:
    assert Pair().plan(budget=0) == Plan("none", 0, "no room for a draft")


def test_any_number_of_drafters_is_weighed_by_what_they_forecast() -> None:
    """No name is known to the controller, and a tree may take more rows than guesses that can be kept."""
    controller = AdaptiveController(costs_of("cheap"))
    poor = Forecast([0.0, 0.3], [0.0, 0.02], [1, 2])
    tree = Forecast([0.0, 0.9, 1.7], [0.0, 0.01, 0.02], [1, 4, 7])
    assert controller.plan(100, 8, {"poor": poor, "tree": tree}).drafter == "tree"


def test_a_plain_pass_is_made_now_and_then_to_measure_plain() -> None:
    pair, plain_at = Pair(), []
    for index in range(1, 200):
        plan = pair.plan()
        if plan.drafter == "none":
            plain_at.append(index)
            pair.finish(plan, 0, 0, 0.1)
        else:
            pair.finish(plan, 4, 4, 0.108, 0.999)
    assert plain_at == [25, 154]


def test_decisions_do_not_depend_on_which_tokens_were_sampled() -> None:
    def run(token: int) -> list[int]:
        pair, lengths = Pair(), []
        for index in range(1, 60):
            plan = pair.plan()
            made = pair.draft(plan, 0.3 + 0.01 * index)
            lengths.append(made)
            pair.finish(plan, made, made // 2, 0.11, token=token)
        return lengths

    assert run(3) == run(4)


# --- what was missed ----------------------------------------------------------------------------------


def test_a_long_way_to_catch_up_counts_as_cost() -> None:
    assert not Pair().plan(missing=2).is_probe
    plan = Pair().plan(missing=4000)
    assert plan.drafter == "none" or plan.is_probe


def test_a_glance_costs_no_more_however_much_was_missed() -> None:
    belief = Pair().model
    near, far = belief.forecast(4, 20, 100), belief.forecast(4, 4000, 4000)
    assert far.debt > 10 * near.debt
    assert far.glance == pytest.approx(near.glance)
    assert near.glance <= near.debt
    assert belief.forecast(4, GLANCE_ROWS, 100).glance == belief.forecast(4, GLANCE_ROWS, 100).debt


def test_the_prompt_is_read_by_the_draft_model_only_where_drafts_earn_it_back() -> None:
    def pays(machine: Machine, drafter: str = "auto") -> bool:
        pair = Pair(machine, drafter=drafter)
        return pair.controller.pays_debt("model", pair.model.forecast(16, 500, 500), 500)

    assert pays("cheap") and not pays("dear")
    assert pays("dear", "model") and not pays("cheap", "lookup")


# --- changes, accounts --------------------------------------------------------------------------------


def test_changes_are_those_of_this_answer_and_nothing_of_one_text_is_left_in_another() -> None:
    pair = Pair("dear")
    pair.plan()
    assert [change.state for change in pair.controller.changes] == ["off"]
    pair.controller.begin(related=True)
    assert (pair.controller.changes, pair.controller.state) == ([], "off")
    pair.controller.begin(related=False)
    assert (pair.controller.changes, pair.controller.state) == ([], "on")


def test_a_stalled_pass_counts_for_no_more_than_a_slow_one() -> None:
    pair = Pair("dear")
    pair.finish(pair.plan(), 0, 0, 3600.0)
    assert pair.controller.trials.elapsed < 3


def test_probes_may_lose_their_credit_and_one_percent() -> None:
    trials = Trials()
    lost = 0.0
    for _ in range(4000):
        length = trials.length(8, lambda guesses: 0.4 + 0.2 * guesses)
        if length:
            lost += 0.4 + 0.2 * length
            trials.observe_probe("model", 1, 1.4 + 0.2 * length)
        else:
            trials.observe_plain(1, 1.0)
    assert 0.5 * PROBE_SHARE * trials.elapsed < lost <= PROBE_CREDIT + PROBE_SHARE * trials.elapsed


def test_a_drafter_that_lost_has_to_prove_itself() -> None:
    trials = Trials()
    for _ in range(5):
        trials.observe_draft("model", -1.0, 2.0, False, 0.0)
    assert trials.is_wary("model") and not trials.is_wary("lookup")
    trials.observe_probe("model", 8, 2.0)
    assert not trials.is_wary("model")


# --- acceptance ---------------------------------------------------------------------------------------


def test_acceptance_is_learned_by_confidence_and_survives_storage() -> None:
    acceptance = ChainAcceptance()
    for _ in range(80):
        acceptance.observe((0.99, 0.4), 2, 1, ALL_KEPT)
    assert acceptance.chance(0.99) > 0.95
    assert acceptance.chance(0.4) < 0.15
    assert acceptance.chance_after(0.99) < 0.2
    again = ChainAcceptance.from_dict(json.loads(json.dumps(acceptance.to_dict())))
    assert again.chance(0.4) == pytest.approx(acceptance.chance(0.4), abs=0.15)
    assert again.chance_first(ALL_KEPT) == pytest.approx(acceptance.chance_first(ALL_KEPT), abs=0.05)


def test_guesses_behind_a_rejection_are_not_counted() -> None:
    """A draft of ten of which the first was rejected says nothing about the other nine."""
    one, ten = ChainAcceptance(), ChainAcceptance()
    for _ in range(30):
        one.observe((0.7,), 1, 0, ALL_KEPT)
        ten.observe((0.7,) * 10, 10, 0, ALL_KEPT)
    assert one.to_dict() == ten.to_dict()


@pytest.mark.parametrize("stored", [{}, {"steady": 3}, {"steady": 0.5, "kept": [[9, 1]]}, {"steady": float("nan")}])
def test_spoiled_acceptance_is_refused(stored: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        ChainAcceptance.from_dict(stored)


def test_a_belief_knows_its_own_rounds_by_its_name() -> None:
    head, other = ModelBelief("head"), ModelBelief("model")
    round_ = Round(1, 100, "head", (7, 7), (0.9, 0.9), 2, 0, (8,), (), catch_up_rows=1, draft_seconds=0.02)
    for belief in (head, other):
        belief.learn(replace(round_))
    assert head.acceptance.chance(0.9) < other.acceptance.chance(0.9)
    assert head.times.curve and not other.times.curve
