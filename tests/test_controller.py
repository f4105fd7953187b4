"""Decisions round by round, without a model and without a clock."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from localspec.engine.control.adaptive import AdaptiveController
from localspec.engine.control.controller import FixedController, Plan, Situation
from localspec.engine.control.costs import Costs, calibrate
from localspec.engine.drafters.acceptance import ALL_KEPT, LookupAcceptance, ModelAcceptance
from localspec.engine.records import Round


def cheap_rows() -> Costs:
    """A GPU: rows nearly free, a draft step a tenth of a plain one."""
    return calibrate(lambda rows: 0.1 * (1 + 0.02 * (rows - 1)), lambda rows: 0.01 + 0.001 * (rows - 1))


def dear_rows() -> Costs:
    """Few CPU cores and a 4-bit target: every row costs most of a plain step."""
    return calibrate(lambda rows: 0.1 * (1 + 0.8 * (rows - 1)), lambda rows: 0.035 + 0.01 * (rows - 1))


def situation(**changes: object) -> Situation:
    values = {"position": 100, "budget": 16, "has_model": True, **changes}
    return Situation(**values)  # type: ignore[arg-type]


def draft(controller: AdaptiveController, confidence: float) -> int:
    made: list[float] = []
    while controller.go_on(made):
        made.append(confidence)
    return len(made)


def finished(
    index: int, plan: Plan, made: int, accepted: int, seconds: float, confidence: float = 0.9
) -> Round:
    return Round(
        index, 100 + index, plan.drafter if made else "none", (7,) * made, (confidence,) * made, made, accepted,
        (7,) * (accepted + 1), (), catch_up_rows=1 if plan.drafter == "model" else 0, verify_seconds=seconds,
    )  # fmt: skip


def test_an_order_is_obeyed_within_the_budget() -> None:
    controller = FixedController("model", 5)
    assert controller.plan(situation()).length == 5
    assert [controller.go_on([0.1] * made) for made in (0, 4, 5)] == [True, True, False]
    assert controller.plan(situation(budget=2)).length == 2
    assert controller.plan(situation(budget=0)).drafter == "none"
    assert controller.plan(situation(has_model=False)).drafter == "none"
    copy = FixedController("lookup", 5)
    assert copy.plan(situation(lookup_ids=(1, 2, 3), lookup_match=2)) == Plan("lookup", 3, copy.reason)
    assert copy.plan(situation()).reason == "nothing to copy"


@pytest.mark.parametrize(("drafter", "length"), [("none", 3), ("model", 0)])
def test_an_order_not_to_guess_is_obeyed(drafter: str, length: int) -> None:
    controller = FixedController(drafter, length)  # type: ignore[arg-type]
    assert controller.plan(situation()) == Plan("none", 0, "as ordered: plain")
    assert controller.state == "off"


def test_cheap_rows_draft_and_dear_rows_do_not() -> None:
    assert AdaptiveController(cheap_rows()).plan(situation()).drafter == "model"
    controller = AdaptiveController(dear_rows())
    plan = controller.plan(situation())
    assert (plan.drafter, plan.length) == ("none", 0)
    assert controller.state == "off"
    assert controller.reason.startswith("off: draft step 35.0 ms + verify 180.0 ms buys 1.")
    assert controller.reason.endswith("tokens; plain 2.1")
    assert controller.changes[0].position == 100


def test_a_confident_draft_goes_on_longer_than_a_doubtful_one() -> None:
    lengths = []
    for confidence in (0.1, 0.6, 0.999):
        controller = AdaptiveController(cheap_rows())
        controller.plan(situation())
        lengths.append(draft(controller, confidence))
    assert lengths == sorted(lengths)
    assert lengths[0] == 1
    assert lengths[2] >= 6


def test_the_first_guess_is_decided_by_the_plan_alone() -> None:
    """`go_on([])` may not stop: what is known by then was known to the plan."""
    controller = AdaptiveController(cheap_rows())
    controller.plan(situation())
    assert controller.go_on([])


def test_a_strong_match_goes_first_and_a_weak_one_does_not() -> None:
    strong = situation(lookup_ids=tuple(range(16)), lookup_match=30)
    weak = situation(lookup_ids=tuple(range(16)), lookup_match=2)
    assert AdaptiveController(cheap_rows()).plan(strong).drafter == "lookup"
    assert AdaptiveController(cheap_rows()).plan(weak).drafter == "model"


def test_without_a_model_only_matches_that_pay_are_copied() -> None:
    offer = tuple(range(16))
    rich, poor = AdaptiveController(cheap_rows()), AdaptiveController(dear_rows())
    assert rich.plan(situation(has_model=False, lookup_ids=offer, lookup_match=2)).drafter == "lookup"
    assert poor.plan(situation(has_model=False, lookup_ids=offer, lookup_match=2)).drafter == "none"
    assert poor.plan(situation(has_model=False, lookup_ids=offer, lookup_match=30)).drafter == "lookup"
    assert rich.plan(situation(has_model=False)).reason == "off: nothing worth copying"


def test_matches_are_judged_by_the_text_even_when_they_were_not_used() -> None:
    controller = AdaptiveController(calibrate(lambda rows: 0.1 * (1 + 0.6 * (rows - 1))), drafter="auto")
    offer = situation(has_model=False, lookup_ids=(7,) * 16, lookup_match=2)
    assert controller.plan(offer).drafter == "none"
    for index in range(1, 120):
        controller.observe(finished(index, controller.plan(offer), 0, 0, 0.1))
    assert controller.plan(offer).drafter == "lookup"
    controller.begin(related=True)
    assert controller.plan(offer).drafter == "lookup"
    controller.begin(related=False)
    assert controller.plan(offer).drafter == "none"


@pytest.mark.parametrize("drafter", ["model", "lookup"])
def test_a_named_drafter_is_never_turned_off(drafter: str) -> None:
    controller = AdaptiveController(dear_rows(), drafter=drafter)  # type: ignore[arg-type]
    for index in range(1, 80):
        plan = controller.plan(situation(lookup_ids=(1, 2, 3, 4), lookup_match=2))
        assert plan.drafter == drafter
        made = draft(controller, 0.2) if drafter == "model" else plan.length
        assert made >= 1
        controller.observe(finished(index, plan, made, 0, 0.5))
    assert controller.state == "on"


def test_a_fixed_length_leaves_only_the_choice_of_the_drafter() -> None:
    controller = AdaptiveController(dear_rows(), length=3)
    assert controller.plan(situation()) == Plan("model", 3, "as ordered")
    assert draft(controller, 0.01) == 3
    plan = controller.plan(situation(lookup_ids=tuple(range(16)), lookup_match=30))
    assert (plan.drafter, plan.length) == ("lookup", 3)


def test_no_room_means_plain() -> None:
    assert AdaptiveController(cheap_rows()).plan(situation(budget=0)) == Plan(
        "none", 0, "no room for a draft"
    )


def test_a_long_way_to_catch_up_counts_as_cost() -> None:
    assert AdaptiveController(cheap_rows()).plan(situation(catch_up_rows=2)).drafter == "model"
    assert AdaptiveController(cheap_rows()).plan(situation(catch_up_rows=4000)).drafter == "none"


def test_the_prompt_is_read_by_the_draft_model_only_where_drafts_earn_it_back() -> None:
    assert AdaptiveController(cheap_rows()).wants_model(500, 500)
    assert not AdaptiveController(dear_rows()).wants_model(500, 500)
    assert AdaptiveController(dear_rows(), drafter="model").wants_model(500, 500)
    assert not AdaptiveController(cheap_rows(), drafter="lookup").wants_model(500, 500)


def test_a_plain_pass_is_made_now_and_then_to_measure_plain() -> None:
    controller = AdaptiveController(cheap_rows())
    plain_at = []
    for index in range(1, 200):
        plan = controller.plan(situation())
        if plan.drafter == "none":
            plain_at.append(index)
            controller.observe(finished(index, plan, 0, 0, 0.1))
        else:
            controller.observe(finished(index, plan, 4, 4, 0.108, 0.999))
    assert plain_at == [25, 154]


def test_decisions_do_not_depend_on_which_tokens_were_sampled() -> None:
    """Same confidences, other ids: the same decisions."""

    def run(token: int) -> list[int]:
        controller = AdaptiveController(cheap_rows())
        lengths = []
        for index in range(1, 60):
            plan = controller.plan(situation())
            made = draft(controller, 0.3 + 0.01 * index)
            lengths.append(made)
            round_ = finished(index, plan, made, made // 2, 0.11)
            kept = (token,) * (made // 2 + 1)
            controller.observe(replace(round_, drafted=(token,) * made, emitted=kept))
        return lengths

    assert run(3) == run(4)


def test_acceptance_is_learned_by_confidence_and_survives_storage() -> None:
    acceptance = ModelAcceptance()
    for _ in range(80):
        acceptance.observe((0.99, 0.4), 2, 1, ALL_KEPT)
    assert acceptance.chance(0.99, 0) > 0.95
    assert acceptance.chance(0.4, 1) < 0.15
    assert acceptance.chance_after(0.99) < 0.2
    again = ModelAcceptance.from_dict(json.loads(json.dumps(acceptance.to_dict())))
    assert again.chance(0.4, 1) == pytest.approx(acceptance.chance(0.4, 1), abs=0.15)
    assert again.chance_first(ALL_KEPT) == pytest.approx(acceptance.chance_first(ALL_KEPT), abs=0.05)


def test_guesses_behind_a_rejection_are_not_counted() -> None:
    """A draft of ten of which the first was rejected says nothing about the other nine."""
    one, ten = ModelAcceptance(), ModelAcceptance()
    for _ in range(30):
        one.observe((0.7,), 1, 0, ALL_KEPT)
        ten.observe((0.7,) * 10, 10, 0, ALL_KEPT)
    assert one.to_dict() == ten.to_dict()


@pytest.mark.parametrize(
    "stored", [{}, {"trend": 0, "steady": 3}, {"trend": 0.0, "steady": 0.5, "kept": [[9, 1]]}]
)
def test_a_spoiled_acceptance_profile_is_refused(stored: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        ModelAcceptance.from_dict(stored)


def test_matches_are_learned_by_the_length_they_have_reached() -> None:
    lookup = LookupAcceptance()
    before = list(lookup.chances)
    for _ in range(40):
        lookup.observe(2, 4, 4)
    assert min(lookup.chances[2:6]) > 0.8
    assert lookup.chances[30] == before[30]
