"""`auto` starts from what the bench of the pair found, as long as files, build and device are the same."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.bench.options import BenchOptions
from localspec.bench.setup import find_pair
from localspec.engine.control.adaptive import AdaptiveController
from localspec.engine.control.controller import Plan
from localspec.engine.control.costs import Costs, calibrate
from localspec.engine.drafters.lookup_belief import LookupBelief
from localspec.engine.drafters.model_belief import ModelBelief
from localspec.engine.drafters.ngram_index import Match
from localspec.engine.drafters.protocol import Forecast
from localspec.engine.records import Finished, GenerationStats, Round
from localspec.engine.settings import Expectation, GenerationRequest, SamplerSettings, SpeculationSettings
from localspec.session import LoadOptions, Session, memory_plan, open_session, verdicts
from localspec.session.open import expectation, prepare
from tests.bigram import BigramPair

LOSES = Expectation(False, "the bench of 2026-11-30 found 0.97x plain")
GAINS = Expectation(True, "the bench of 2026-11-30 found 1.40x plain")
OPTIONS = LoadOptions(context=512, threads=1)


# --- the controller -----------------------------------------------------------------------------------


def cheap(more: float = 0.02) -> Costs:
    return calibrate(lambda rows: 0.1 * (1 + more * (rows - 1)))


def guesses() -> dict[str, Forecast]:
    """What the draft model promises: a step costs a hundredth of a plain one."""
    belief = ModelBelief()
    belief.calibrate(lambda rows: 0.001 + 0.0001 * (rows - 1))
    return {"model": belief.forecast(16, 1, 100)}


def copies(length: int) -> dict[str, Forecast]:
    """What a match of so many tokens promises."""
    forecast = LookupBelief().forecast(Match((7,) * 8, length), 16)
    assert forecast is not None
    return {"lookup": forecast}


def plain_rounds(controller: AdaptiveController, most: int) -> tuple[int, Plan]:
    """Plain rounds until the controller wants something else: how many, and what it wants."""
    for index in range(1, most + 1):
        plan = controller.plan(100, 16, guesses())
        if plan.drafter != "none":
            return index - 1, plan
        controller.observe(Round(index, 100 + index, "none", (), (), 0, 0, (7,), (), verify_seconds=0.1))
    return most, controller.plan(100, 16, guesses())


def drafted(index: int, guesses: int, accepted: int) -> Round:
    seconds = 0.1 * (1 + 0.02 * guesses)
    return Round(
        index, 100 + index, "model", (7,) * guesses, (0.9,) * guesses, guesses, accepted, (7,) * (accepted + 1), (),
        catch_up_rows=1, draft_seconds=0.001 * guesses, verify_seconds=seconds,
    )  # fmt: skip


def test_a_pair_that_does_not_pay_begins_plain_and_probes() -> None:
    controller = AdaptiveController(cheap(), expectation=LOSES)
    assert (controller.state, controller.reason) == ("off", f"off: {LOSES.why}")
    assert not controller.pays_debt("model", guesses()["model"], 10), "the prompt would be read for nothing"
    assert AdaptiveController(cheap()).plan(100, 16, guesses()).drafter == "model", "without the bench it would draft"

    quiet, probe = plain_rounds(controller, 200)
    assert quiet >= 24 and (probe.drafter, controller.state) == ("model", "off") and "probe" in probe.reason
    controller.observe(drafted(quiet + 1, probe.length, 0))
    assert controller.plan(100, 16, guesses()).drafter == "none" and controller.reason == f"off: {LOSES.why}"

    more, probe = plain_rounds(controller, 200)
    assert probe.drafter == "model"
    controller.observe(drafted(quiet + more + 2, probe.length, probe.length))
    plan = controller.plan(100, 16, guesses())
    assert plan.drafter == "model", "a probe that gained proves the bench wrong for this text"
    controller.observe(drafted(quiet + more + 3, 4, 4))
    assert controller.state == "on"

    controller.begin(related=True)
    assert controller.state == "on"
    controller.begin(related=False)
    assert (controller.state, controller.reason) == ("off", f"off: {LOSES.why}")


def test_a_copy_that_promises_much_is_made_all_the_same() -> None:
    def chosen(costs: Costs, length: int, expectation: Expectation | None = None) -> str:
        return AdaptiveController(costs, expectation=expectation).plan(100, 16, copies(length)).drafter

    assert chosen(cheap(), 2) == "lookup"
    assert chosen(cheap(), 40, LOSES) == "lookup"
    assert chosen(cheap(0.1), 2) == "lookup"
    assert chosen(cheap(0.1), 2, LOSES) == "none"


def test_a_pair_that_pays_says_so_from_the_beginning_and_orders_are_orders() -> None:
    assert AdaptiveController(cheap(), expectation=GAINS).reason == f"on: {GAINS.why}"
    ordered = AdaptiveController(cheap(), drafter="model", expectation=LOSES)
    assert ordered.state == "on" and ordered.plan(100, 16, guesses()).drafter == "model"


# --- the whole way ------------------------------------------------------------------------------------


@pytest.fixture
def files(bigram: BigramPair, tmp_path: Path) -> tuple[Path, Path]:
    """A pair of files that a test may change."""
    copies = tmp_path / bigram.target.name, tmp_path / bigram.draft.name
    shutil.copy(bigram.target, copies[0])
    shutil.copy(bigram.draft, copies[1])
    return copies


def store(files: tuple[Path, Path], speedup: float, high: float, word: str) -> None:
    settings = prepare(str(files[0]), replace(OPTIONS, draft=str(files[1]))).settings
    record = {"speedup": speedup, "low": speedup - 0.02, "high": high, "verdict": word, "kinds": {}}
    record["conditions"] = verdicts.conditions(settings)
    verdicts.store(settings.target, settings.draft, settings.device, bench=record)


def found(files: tuple[Path, Path], **options: object) -> Expectation | None:
    load = replace(OPTIONS, draft=str(files[1]), **options)  # type: ignore[arg-type]
    return prepare(str(files[0]), load).settings.expectation


@contextmanager
def loaded(files: tuple[Path, Path]) -> Iterator[Session]:
    with open_session(str(files[0]), replace(OPTIONS, draft=str(files[1]))) as session:
        yield session


def answer(session: Session, speculation: SpeculationSettings = SpeculationSettings()) -> GenerationStats:  # noqa: B008
    request = GenerationRequest(
        prompt="the small model", sampler=SamplerSettings(temperature=0), speculation=speculation, max_tokens=8
    )
    last = list(session.generate(request))[-1]
    assert isinstance(last, Finished)
    return last.stats


def test_the_verdict_decides_how_an_answer_begins(files: tuple[Path, Path]) -> None:
    store(files, 0.95, 0.98, "does not pay")
    with loaded(files) as session:
        stats = answer(session)
        assert stats.state == "off" and "model" not in stats.rounds_by_drafter
        assert stats.reason.startswith("off: the bench of 20") and stats.reason.endswith("found 0.95x plain")
        assert answer(session, SpeculationSettings("model", 3)).rounds_by_drafter["model"] > 0

        session.swap_draft(str(files[1]), OPTIONS)
        assert session.settings.expectation is not None and not session.settings.expectation.pays
        assert "found 0.95x plain" in answer(session).reason
    store(files, 1.4, 1.5, "pays")
    with loaded(files) as session:
        assert session.settings.expectation == found(files)
        assert session.settings.expectation is not None and session.settings.expectation.pays
        assert not answer(session).reason.startswith("off: the bench")


@pytest.mark.parametrize("changed", ["target", "draft", "build", "device", "threads"])
def test_what_was_measured_of_something_else_does_not_count(
    files: tuple[Path, Path], changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(files, 0.95, 0.98, "does not pay")
    before = found(files)
    assert before is not None and not before.pays
    options: dict[str, object] = {}
    if changed in ("target", "draft"):
        os.utime(files[changed == "draft"], ns=(1, 1))
    elif changed == "build":
        monkeypatch.setattr(verdicts, "engine_build", lambda: "llama-cpp-python 99")
    elif changed == "device":
        monkeypatch.setattr(memory_plan, "cpu_name", lambda: "another processor")
    else:
        options["threads"] = 2
    assert found(files, **options) is None


def test_a_bench_does_not_believe_an_earlier_one(files: tuple[Path, Path]) -> None:
    store(files, 0.95, 0.98, "does not pay")
    pair = find_pair(BenchOptions(str(files[0]), replace(OPTIONS, draft=str(files[1]))))
    assert pair is not None and pair.settings.expectation is None
    assert expectation(pair.settings) is not None
