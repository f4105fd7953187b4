"""The audit passes a sound engine, calls near-ties what they are, and catches and names every sabotage."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.audit.forks import _Judge
from localspec.audit.records import CHECKS, AuditResult, Noise
from localspec.audit.report import fork_line, headline, result_json, summary, text_report
from localspec.audit.run import Audit
from localspec.audit.subject import Subject
from localspec.engine.drafters.model import ModelDrafter
from localspec.engine.llama.memory import Memory
from localspec.engine.records import Draft, Pass
from localspec.engine.sampling import Distribution
from localspec.engine.settings import GenerationRequest, SamplerSettings, SpeculationSettings
from localspec.engine.verify import Verification
from tests.audit_fakes import FakePair
from tests.bigram import BigramPair
from tests.engine_tools import open_engine


def audited(pair: Any, *, quick: bool = True) -> AuditResult:
    return Audit(Subject(pair), has_draft=True, raw=True, quick=quick).run()


def named(result: AuditResult) -> set[str]:
    """The checks that found something no rounding explains."""
    return {fault.check for fault in result.faults} | {fork.check for fork in result.forks if fork.kind == "bug"}


def test_a_sound_engine_passes_token_for_token() -> None:
    result = audited(FakePair(), quick=False)
    assert (result.passed, result.bugs, result.near_ties, result.complete) == (True, 0, 0, True)
    assert result.noise.largest == 0
    assert headline(result) == "The output is the target's own here, token for token."
    assert {check.name for check in result.checks} == {
        "plain twice", "rewind", "distribution", "greedy", "penalties", "stops", "coupled", "seeds",
    }  # fmt: skip
    assert all(check.equal == check.compared > 0 for check in result.checks)
    assert result.tokens > 2000


def test_one_check_alone() -> None:
    for only in CHECKS:
        result = Audit(Subject(FakePair()), has_draft=True, raw=True, quick=True, only=(only,)).run()
        assert result.passed and {check.name for check in result.checks} == {"plain twice", only}
        assert headline(result).endswith(f"Only checked: {only}.")


def test_rounding_is_reported_as_near_ties() -> None:
    found = [audited(FakePair(rounding=0.4, target_seed=seed)) for seed in (1, 2, 3)]
    assert [result.bugs for result in found] == [0, 0, 0], [text_report(result, {}) for result in found]
    assert sum(result.near_ties for result in found) > 0
    fork = next(fork for result in found for fork in result.forks)
    assert fork.gap_single is not None and abs(fork.gap_single) <= fork.tolerance
    assert fork.width > 1 and 0 < fork.moved <= 0.4 * 1.001
    assert fork_line(fork).startswith(f"near-tie {fork.check}: ")
    assert "near-tie" in headline(max(found, key=lambda result: result.near_ties))


def test_short_answers_are_judged_by_what_batches_really_do() -> None:
    """Where no answer is longer than a few tokens, the prompts' rows tell how far batches move the logits."""
    ties = 0
    for seed in range(1, 7):
        pair = FakePair(rounding=0.4, target_seed=seed)

        def generate(request: GenerationRequest, honest: Any = pair.generate) -> Any:
            return honest(replace(request, max_tokens=min(request.max_tokens or 8, 8)))

        pair.generate = generate  # type: ignore[method-assign]
        result = audited(pair)
        assert result.noise.is_known and 0.1 < result.noise.largest <= 0.8
        assert result.bugs == 0, text_report(result, {})
        ties += result.near_ties
    assert ties > 0


def test_what_was_not_measured_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.audit.run.measure", lambda *arguments: Noise(0.0, 12))
    found = [audited(FakePair(rounding=0.4, target_seed=seed)) for seed in (1, 2, 3)]
    assert sum(result.unjudged for result in found) > 0
    for result in found:
        assert not any(fork.kind == "bug" for fork in result.forks), "a tie that nobody could know"
        assert result.passed is not bool(result.unjudged or result.bugs)
    result = next(result for result in found if result.unjudged)
    fork = next(fork for fork in result.forks if fork.kind == "unjudged")
    assert "only 12 rows were measured" in fork.why and fork_line(fork).startswith("unjudged ")
    assert "unjudged" in text_report(result, {})
    if not result.bugs:
        assert "could not be judged" in headline(result)


def test_rounding_of_the_draft_is_no_bug() -> None:
    """Its cache is filled by other passes in an answer than in the audit's own look at it."""
    found = [audited(FakePair(draft_rounding=0.5, target_seed=seed), quick=False) for seed in (1, 2)]
    assert [result.bugs for result in found] == [0, 0], [text_report(result, {}) for result in found]


class Edge:
    """Two tokens, the second near the edge of min-p 0.1; `place` decides the noise of the choice between them."""

    def __init__(self, temperature: float, *, second_wins: bool) -> None:
        self.sampler = SamplerSettings(temperature=temperature, top_k=0, top_p=1.0, min_p=0.1, seed=3)
        self.edge = 5.0 + float(np.log(0.1))  # filters come before the temperature
        self.place = next(
            place for place in range(1, 200) if (self.judge(place).choice(self.row(0.001)) == 1) is second_wins
        )

    def judge(self, place: int) -> _Judge:
        subject: Any = SimpleNamespace(ends=(), suppressed=(2,))
        return _Judge(subject, GenerationRequest(prompt="x", sampler=self.sampler), [0] * place, 0)

    def row(self, inside: float) -> NDArray[np.float32]:
        return np.array([5.0, self.edge + inside, 9.0, -3.0], np.float32)

    def gap(self, inside: float, first: int = 0, second: int = 1) -> float:
        gap = self.judge(self.place).gap(self.row(inside), first, second)
        assert gap is not None
        return gap


@pytest.mark.parametrize(("short", "temperature"), [(0.05, 1.0), (0.5, 1.0), (0.5, 0.8)])
def test_a_token_outside_a_filter_is_as_far_as_its_way_inside(short: float, temperature: float) -> None:
    """Its distance counts in log odds: logits over the temperature."""
    near = Edge(temperature, second_wins=False)
    assert near.gap(0.001) > 0
    assert near.gap(-short) - near.gap(0.001) == pytest.approx(short / temperature, abs=0.01)
    assert near.gap(-short, 1, 0) == -near.gap(-short)
    assert near.judge(1).gap(near.row(0.1), 0, 2) is None, "out for good"


@pytest.mark.parametrize("temperature", [1.0, 0.8])
def test_a_token_that_wins_just_inside_a_filter_is_as_near_as_the_edge(temperature: float) -> None:
    near = Edge(temperature, second_wins=True)
    assert near.gap(0.03) == pytest.approx(-0.03 / temperature, abs=0.005)
    assert near.gap(-0.03) == pytest.approx(0.03 / temperature, abs=0.005)
    assert near.gap(-0.03, 1, 0) == pytest.approx(-0.03 / temperature, abs=0.005)


def test_a_rewind_that_is_off_by_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = FakePair()
    honest = pair.target.keep

    def rewind(length: int) -> int:
        kept = pair.target.tokens
        # One rejected token stays where the last kept one was.
        stale = kept[length] if length < len(kept) and length else None
        del kept[length:]
        if stale is not None:
            kept[-1] = stale
        return length

    def keep(path: Sequence[int]) -> None:
        rejected = pair.target.tokens[-1]
        cut = pair.target.passes[-1] > 1 + len(path)
        honest(path)
        if cut:
            pair.target.tokens[-1] = rejected

    monkeypatch.setattr(pair.target, "rewind", rewind)
    monkeypatch.setattr(pair.target, "keep", keep)
    result = audited(pair)
    assert not result.passed
    assert {"rewind", "greedy", "coupled"} <= named(result)
    assert any("the target's logits differ" in fault.what for fault in result.faults)


def test_a_draft_cache_that_is_not_rewound_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only speed suffers from it, and still it is found."""
    pair = FakePair()

    def rewind(length: int) -> int:
        stale = pair.draft.tokens[length : length + 1]
        del pair.draft.tokens[length:]
        if stale and length:
            pair.draft.tokens[-1] = stale[0]
        return length

    monkeypatch.setattr(pair.draft, "rewind", rewind)
    result = audited(pair)
    assert "rewind" in named(result) and "greedy" not in named(result)
    assert any("the draft's logits differ" in fault.what for fault in result.faults)


def test_a_residual_that_is_not_normalised_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(self: Distribution, other: Distribution, share: float = 1.0) -> Distribution:
        left = np.maximum(share * self.probs - other.probabilities(self.ids), 0.0)
        return Distribution(self.ids[left > 0], left[left > 0]) if left.any() else self

    monkeypatch.setattr(Distribution, "without", without)
    result = audited(FakePair())
    assert "residual" in named(result)
    assert any("not normalised" in fault.what for fault in result.faults)


def test_a_residual_that_forgets_q_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Distribution, "without", lambda self, other, share=1.0: self)
    result = audited(FakePair())
    assert "residual" in named(result)
    assert any("away from the target's distribution" in fault.what for fault in result.faults)


def test_accepting_too_easily_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps a guess with p instead of p / q where that is allowed: plausible text, wrong distribution."""
    from localspec.engine import verify as module

    def share(before: float, p: Distribution, q: Distribution, guess: int) -> float:
        wanted = p.probability(guess)
        return min(1.0, before * (0.2 + wanted / q.probability(guess))) if wanted > 0 else 0.0

    monkeypatch.setattr(module, "share_after", share)
    assert "residual" in named(audited(FakePair()))


@pytest.mark.parametrize("draft_rounding", [0.0, 0.3])
def test_a_stale_q_is_named(monkeypatch: pytest.MonkeyPatch, draft_rounding: float) -> None:
    honest = ModelDrafter.propose

    def propose(self: ModelDrafter, *arguments: Any) -> Draft:
        draft = honest(self, *arguments)
        if draft.q is None or len(draft.q) < 2:
            return draft
        return replace(draft, q=(draft.q[0], *draft.q[:-1]))

    monkeypatch.setattr(ModelDrafter, "propose", propose)
    result = audited(FakePair(draft_rounding=draft_rounding))
    assert "draft distribution" in named(result)
    assert any("q is stale or shifted" in fault.what for fault in result.faults)


def test_a_guess_that_was_not_sampled_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The likeliest token instead of a sample, judged as if it were one."""
    from localspec.engine.noise import Rejection

    audit_owned = Rejection.choose

    def propose(self: ModelDrafter, *arguments: Any) -> Draft:
        monkeypatch.setattr(Rejection, "choose", lambda self, distribution, position: distribution.top)
        try:
            return honest(self, *arguments)
        finally:
            monkeypatch.setattr(Rejection, "choose", audit_owned)

    honest = ModelDrafter.propose
    monkeypatch.setattr(ModelDrafter, "propose", propose)
    result = audited(FakePair())
    assert any("was not sampled" in fault.what for fault in result.faults)


def test_the_wrong_row_for_the_bonus_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from localspec.audit import algebra
    from localspec.engine import generate
    from localspec.engine.verify import verify

    def late(draft: Draft, target_row: Any, chance: Any, position: int) -> Verification:
        last = len(draft.ids)
        return verify(draft, lambda i: target_row(max(0, i - 1) if i == last else i), chance, position)

    monkeypatch.setattr(generate, "verify", late)
    monkeypatch.setattr(algebra, "verify", late)
    result = audited(FakePair())
    assert {"row order", "greedy"} <= named(result)


def test_penalties_counted_once_per_round_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from localspec.engine.generate import Generation

    honest = Generation._rows

    def rows(self: Generation, draft: Draft, seen: Pass) -> Any:
        def row(index: int) -> Distribution:
            return self._sampler.distribution(seen.logits[index], self._tokens)

        return row if draft.ids else honest(self, draft, seen)

    monkeypatch.setattr(Generation, "_rows", rows)
    result = audited(FakePair(), quick=False)
    assert "penalties" in named(result)


def test_an_engine_that_fails_is_a_finding_and_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    from localspec.ground.errors import EngineError

    pair = FakePair()
    honest = pair.generate

    def generate(request: Any) -> Any:
        if request.speculation.drafter == "lookup":
            raise EngineError("libllama could not decode 7 tokens")
        return honest(request)

    monkeypatch.setattr(pair, "generate", generate)
    result = audited(pair)
    assert any("the engine failed: libllama could not decode" in fault.what for fault in result.faults)
    assert result.complete and not result.passed
    assert any(check.name == "greedy" and check.equal for check in result.checks)


def test_an_engine_that_dies_ends_it_with_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from localspec.ground.errors import EngineDied

    pair = FakePair()
    honest = pair.generate

    def generate(request: Any) -> Any:
        if request.speculation.drafter == "model":
            raise EngineDied("the engine's process ended (SIGABRT)")
        return honest(request)

    monkeypatch.setattr(pair, "generate", generate)
    result = audited(pair)
    assert (result.complete, result.passed) == (False, False)
    assert headline(result).startswith("Not finished")


def test_the_report_names_every_finding_and_goes_to_json(monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    monkeypatch.setattr(Distribution, "without", lambda self, other, share=1.0: self)
    result = audited(FakePair())
    text = text_report(result, {"build": "llama-cpp-python 1", "device": "a CPU"})
    assert "BUG residual: row 1:" in text and "llama-cpp-python 1, a CPU" in text
    stored = json.loads(json.dumps(result_json(result, {"target": "t.gguf"}), allow_nan=False))
    assert (stored["schema"], stored["passed"], stored["bugs"]) == (1, False, result.bugs)
    assert stored["faults"][0]["check"] == "residual"
    assert summary(result)["passed"] is False


def test_targets_without_a_draft_or_without_rewinding_are_audited_too() -> None:
    alone = Audit(Subject(FakePair()), has_draft=False, raw=True, quick=True).run()
    assert alone.passed and {"stops", "penalties", "rewind"} <= {check.name for check in alone.checks}
    stuck = FakePair()
    stuck.generate = lambda request, honest=stuck.generate: honest(  # type: ignore[method-assign,misc]
        replace(request, speculation=SpeculationSettings("none"))
    )
    found = Audit(Subject(stuck), has_draft=False, raw=True, quick=True, speculates=False).run()
    assert found.passed and "rewind" not in {check.name for check in found.checks}


def test_nothing_claims_what_only_an_audit_may() -> None:
    """No text that a person or a program gets to see says that the output is the same, but the audit's own."""
    root = Path(__file__).parents[1] / "localspec"
    claim = re.compile(r"lossless|identical (text|output)|same text as", re.IGNORECASE)
    claims = []
    for path in root.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        documentation = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            text = node.value if isinstance(node, ast.Constant) and id(node) not in documentation else ""
            if isinstance(text, str) and claim.search(text):
                claims.append(f"{path.relative_to(root)}: {text[:60]!r}")
    assert claims == []


class TestRealLibrary:
    """The same on libllama with files whose distributions are known."""

    @pytest.fixture
    def pair(self, bigram: BigramPair) -> Any:
        engine = open_engine(bigram.target, bigram.draft, context=512)
        yield engine
        engine.close()

    def test_passes(self, pair: Any) -> None:
        result = audited(pair)
        assert result.passed, text_report(result, {})
        assert result.noise.largest < 1e-3

    def test_a_rewind_that_is_off_by_one_is_caught(self, pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """libllama's cache keeps one row more than is thought."""
        honest = Memory.rewind

        def rewind(self: Memory, now: int, length: int) -> int:
            honest(self, now, length + 1 if 0 < length < now - 1 else length)
            return length

        monkeypatch.setattr(Memory, "rewind", rewind)
        result = audited(pair)
        assert not result.passed
        assert {"rewind", "greedy"} <= named(result)
        assert any("the engine failed" in fault.what for fault in result.faults)


@pytest.mark.model
@pytest.mark.long
def test_a_real_pair_passes(real_pair: tuple[Path, Path]) -> None:
    engine = open_engine(*real_pair, context=1024)
    try:
        result = Audit(Subject(engine), has_draft=True, raw=False, quick=True).run()
    finally:
        engine.close()
    assert result.passed, text_report(result, {})
