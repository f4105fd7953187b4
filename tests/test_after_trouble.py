"""What is left when something went wrong or ended early: books that are right, and a next answer that is."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.engine import generate
from localspec.engine.control.controller import FixedController
from localspec.engine.drafters import table
from localspec.engine.drafters.model import ModelDrafter
from localspec.engine.drive import drive, read
from localspec.engine.engine import Engine
from localspec.engine.generate import Generation, Limits
from localspec.engine.llama.trees import Tree, most_path_rows
from localspec.engine.records import RoundFinished
from localspec.engine.settings import GenerationRequest, SamplerSettings, SpeculationSettings
from localspec.ground.errors import Cancelled, EngineError, NotFinite
from tests import tree_drafter
from tests.bigram import BigramPair
from tests.engine_tools import GREEDY, Answer, ask, model_drafter, open_engine, run_fake
from tests.fake_model import FakeModel, script
from tests.test_generate import END, LETTERS, N, pair, story
from tests.tiny_models import TINY_MODELS

PROMPT = "the quick brown fox jumps over the lazy dog, the quick brown fox "


@pytest.fixture
def engine(bigram: BigramPair) -> Iterator[Engine]:
    engine = open_engine(bigram.target, bigram.draft, context=512)
    yield engine
    engine.close()


# --- a draft beside a target that forgot more -------------------------------------------------------------


def test_a_draft_may_hold_more_of_the_prompt_than_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hybrid goes back to a checkpoint, the draft to where the texts part: slices of the prompt end before that."""
    monkeypatch.setattr(generate, "_PREFILL_STEP", 8)
    text = story()
    target, draft = pair(text, text, max_rewind=8)
    drafter = model_drafter(draft)
    for length in (50, 41):
        generation = Generation(
            target, LETTERS, [drafter], FixedController("model", 4), GREEDY, Limits(20), text[:length]
        )
        assert list(Answer(list(drive(generation, target))).ids) == text[length : length + 20]
    assert max(draft.passes[1:]) < 10, "what the draft held it did not read again"


# --- trees at the context's end ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lfm2", "qwen35", "gemma4"])
def test_a_tree_fits_wherever_its_nodes_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A hybrid reads what the paths share once for each of them."""
    monkeypatch.setitem(table.DRAFTERS, "tree", table.Entry("tests.tree_drafter", "a script"))
    monkeypatch.setattr(table, "NAMES", (*table.NAMES, "tree"))
    TINY_MODELS[name](tmp_path / "tiny.gguf")
    engine = open_engine(tmp_path / "tiny.gguf", context=256, cache_type="f32", flash_attention="off")
    try:
        prompt = PROMPT * 3
        plain = ask(engine, prompt, drafter="none", max_tokens=None, keep_cache=False)
        tree_drafter.expect([*engine.encode(GenerationRequest(prompt=prompt)), *plain.ids])
        tree = ask(engine, prompt, drafter="tree", max_tokens=None)
        assert tree.ids == plain.ids and tree.finished.reason == "length"
        assert max(round_.position for round_ in tree.rounds if round_.drafted) > 256 - 16 - 4
    finally:
        engine.close()


def test_the_rows_of_a_trees_paths_are_bounded() -> None:
    rng = random.Random(1)
    for _ in range(2000):
        count = rng.randrange(1, 20)
        tree = Tree(range(count), [rng.randrange(-1, node) for node in range(count)])
        rows = sum(1 + len(path) for path in tree.paths)
        assert rows <= most_path_rows(1 + count, len(tree.paths))
    assert most_path_rows(1, 8) == 1
    assert most_path_rows(17, 1) == 17
    assert most_path_rows(17, 8) == 80, "eight nodes in a row and eight leaves"


# --- changes in mid-answer --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [5, None])
def test_a_change_from_greedy_to_warm_draws_on_shared_noise(engine: Engine, seed: int | None) -> None:
    """Greedy needs no noise; a warm sampler of the same seed does, or its text would depend on the drafts."""
    cold = SamplerSettings(temperature=0, seed=seed, mode="coupled")
    warm = SamplerSettings(temperature=1.0, seed=seed, mode="coupled")
    texts = []
    for drafter, length in (("none", None), ("model", 1)):
        answer = engine.generate(
            GenerationRequest(
                prompt=PROMPT, sampler=cold, speculation=SpeculationSettings(drafter, length), max_tokens=60,
                keep_cache=False,
            )
        )  # fmt: skip
        events = []
        for event in answer:
            events.append(event)
            if isinstance(event, RoundFinished) and event.round.index == 0:
                engine.change(None, warm)
        texts.append(Answer(events).ids)
    assert len(texts[0]) == 60
    assert (texts[0] == texts[1]) == (seed is not None), "without a seed each answer has its own luck"


def test_no_other_draft_in_the_middle_of_an_answer(engine: Engine, bigram: BigramPair) -> None:
    answer = engine.generate(GenerationRequest(prompt=PROMPT, sampler=GREEDY, max_tokens=20))
    next(answer)
    with pytest.raises(EngineError, match="an answer is being made"):
        engine.load_draft(bigram.draft)
    with pytest.raises(EngineError, match="an answer is being made"):
        engine.unload_draft()
    assert len(Answer(list(answer)).ids) == 20


def test_a_cancel_while_a_draft_is_measured_leaves_the_former_one(
    engine: Engine, bigram: BigramPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a swap would leave a front end and the engine of two minds about which draft is loaded."""

    def cancelled(self: ModelDrafter) -> None:
        raise Cancelled("stopped")

    plain = ask(engine, PROMPT, drafter="none", max_tokens=30)
    monkeypatch.setattr(ModelDrafter, "measure", cancelled)
    with pytest.raises(Cancelled):
        engine.load_draft(bigram.target)
    assert engine.info.draft is not None and engine.info.draft.path == bigram.draft
    assert ask(engine, PROMPT, drafter="model", length=3, max_tokens=30).ids == plain.ids
    with pytest.raises(Cancelled):
        open_engine(bigram.target, bigram.draft, context=512)


# --- a draft that fails -----------------------------------------------------------------------------------


class Failing(FakeModel):
    """Right, until it is told otherwise."""

    error: Exception | None = None
    value: float | None = None
    after = 0

    def extend(self, tokens: Sequence[int], rows: int = 1) -> NDArray[np.float32]:
        logits = super().extend(tokens, rows)
        self.after -= 1
        if self.after < 0 and self.error is not None:
            raise self.error
        if self.after < 0 and self.value is not None:
            logits[:] = self.value
        return logits


@pytest.mark.parametrize("after", [0, 1, 5, 6])
@pytest.mark.parametrize("failure", [EngineError("no room in the cache"), np.nan])
def test_the_answer_goes_on_without_a_draft_that_fails_and_the_next_one_with_it(
    failure: Exception | float, after: int
) -> None:
    text = story()
    target, draft = FakeModel(script(text, N), N), Failing(script(text, N), N)
    drafter = model_drafter(draft)

    def answer(length: int) -> Answer:
        generation = Generation(
            target, LETTERS, [drafter], FixedController("model", 4), GREEDY, Limits(60), text[:length]
        )
        return Answer(list(drive(generation, target)))

    draft.after = after
    draft.error, draft.value = (failure, None) if isinstance(failure, Exception) else (None, failure)
    first = answer(5)
    assert list(first.ids) == text[5:65]
    stats = first.finished.stats
    assert stats.state == "off" and stats.reason.startswith("off: the draft model ")
    assert stats.changes and all(change.reason == stats.reason for change in stats.changes)
    draft.error = draft.value = None
    again = answer(30)
    assert list(again.ids) == text[30:90]
    assert again.finished.stats.state == "on" and again.finished.stats.acceptance_rate == 1.0


def test_bans_that_leave_the_draft_nothing_to_say_end_only_the_drafts() -> None:
    """The target may say one token alone, and that one means something else to the draft."""
    text = [7] * 200
    target, draft = pair(text, text)
    sampler = SamplerSettings(temperature=0, logit_bias=tuple((token, -np.inf) for token in range(N) if token != 7))
    generation = Generation(
        target, LETTERS, [model_drafter(draft, masked_ids=(7,))], FixedController("model", 4), sampler, Limits(20),
        text[:5],
    )  # fmt: skip
    answer = Answer(list(drive(generation, target)))
    assert list(answer.ids) == [7] * 20
    assert answer.finished.stats.reason == "off: no token that both models share may be said"


# --- a target that fails ----------------------------------------------------------------------------------


def test_nothing_is_reused_of_a_cache_that_gave_no_number(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = ask(engine, PROMPT, drafter="model", length=3, max_tokens=30, keep_cache=False)
    score, passes = engine._target.score, 0

    def broken(last: int, ids: Sequence[int], parents: Sequence[int] | None = None) -> NDArray[np.float32]:
        nonlocal passes
        passes += 1
        logits = score(last, ids, parents)
        if passes == 4:
            logits[:] = np.nan
        return logits

    with monkeypatch.context() as patch:
        patch.setattr(engine._target, "score", broken)
        with pytest.raises(NotFinite):
            ask(engine, PROMPT, drafter="model", length=3, max_tokens=30)
    assert engine._target.length == engine._target.cached_length() == 0
    again = ask(engine, PROMPT, drafter="model", length=3, max_tokens=30)
    assert again.finished.stats.reused_tokens == 0 and again.ids == fresh.ids


@pytest.mark.parametrize("name", ["llama", "lfm2"])
def test_a_cancel_between_a_pass_and_what_comes_of_it_loses_no_text(tmp_path: Path, name: str) -> None:
    """A hybrid could not go back before its last pass; it need not."""
    TINY_MODELS[name](tmp_path / "tiny.gguf")
    engine = open_engine(tmp_path / "tiny.gguf", context=256)
    try:
        prompt = engine.encode(GenerationRequest(prompt=PROMPT))
        target, drafters = engine._target, [engine._drafters["lookup"]]
        generation = Generation(
            target, engine._target_weights.vocabulary, drafters, FixedController("lookup", 4), GREEDY, Limits(150),
            prompt,
        )  # fmt: skip
        list(generation.begin())
        while (step := generation.ask()) is not None:
            seen = read(step, target, lambda: 0.0)
            if step.draft is not None and step.draft.ids and len(generation.tokens) > len(prompt) + 3:
                break
            generation.take(seen)
        generation.cancel()
        finished = generation.finish()
        assert finished.reason == "cancelled"
        assert list(target.tokens) == list(generation.tokens)
        assert target.length == target.cached_length()
    finally:
        engine.close()


# --- no tokens --------------------------------------------------------------------------------------------


def test_an_answer_of_no_tokens_takes_nothing_away(engine: Engine) -> None:
    ask(engine, PROMPT, drafter="model", max_tokens=20)
    held = list(engine._target.tokens)
    empty = ask(engine, "another", drafter="auto", max_tokens=0)
    assert empty.ids == () and empty.finished.reason == "length" and not empty.finished.stats.changes
    assert list(engine._target.tokens) == held
    assert ask(engine, PROMPT, drafter="none", max_tokens=5).finished.stats.reused_tokens == len(PROMPT) - 1


def test_end_tokens_inside_a_block_after_an_early_minimum() -> None:
    text = [10, 11, 33, END, 34, 35]
    target, draft = pair(text, text)
    limits = Limits(4, 1)
    answer = run_fake(
        target, LETTERS, text[:2], draft=draft, drafter="model", length=5, limits=limits, ends=frozenset({END})
    )
    assert list(answer.ids) == [33, END]
