"""What a hostile review found in the engine's core, each with the right value (`tests/known_failures.md`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.engine.control.adaptive import AdaptiveController
from localspec.engine.drafters.model import ModelDrafter
from localspec.engine.engine import Engine
from localspec.engine.llama.context import Context
from localspec.engine.llama.grammar import LlamaGrammar
from localspec.engine.llama.weights import Weights
from localspec.engine.noise import Rejection
from localspec.engine.records import Event, Finished, RoundFinished, StateChange
from localspec.engine.sampling import Sampler
from localspec.engine.settings import GenerationRequest, SamplerSettings, SpeculationSettings
from localspec.engine.templates.chat_template import Message
from localspec.ground.errors import Cancelled, ContextFull, EngineError, InvalidInput, LocalspecError, NotFinite
from localspec.reports.answer import summary_line
from localspec.session import LoadOptions, open_session
from localspec.tui.widgets.panel import PanelState, panel_text
from localspec.ui.meter import Meter
from tests import bigram as bigram_files
from tests.bigram import FIRST_BYTE, SIZE, BigramPair, english_table, mixed_with_uniform
from tests.engine_tools import GREEDY, Answer, ask, model_drafter, open_engine
from tests.fake_model import FakeModel
from tests.test_cli_run import error_of, localspec
from tests.tiny_models import llama

HOT = SamplerSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=3)
NO_VALUE = "the draft model computed no finite value"


@pytest.fixture(scope="module")
def remembering(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose answers depend on all of its text."""
    path = tmp_path_factory.mktemp("tiny") / "llama.gguf"
    llama(path)
    return path


@pytest.fixture
def engine(bigram: BigramPair) -> Iterator[Engine]:
    engine = open_engine(bigram.target, bigram.draft, context=512)
    yield engine
    engine.close()


# --- caches ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drafter", ["none", "lookup", "model"])
def test_an_answer_of_no_tokens_leaves_the_cache_as_it_was(remembering: Path, drafter: str) -> None:
    engine = open_engine(remembering, remembering, context=512)
    ours, theirs = "the capital of France is Paris, and that of Spain is", "water boils at one hundred degrees, and ice"
    try:
        for first, second in ((ours, theirs), (theirs, ours), (theirs + ours, ours)):
            fresh = ask(engine, second, drafter="none", max_tokens=12, keep_cache=False)
            ask(engine, first, drafter=drafter, max_tokens=12, keep_cache=False)
            nothing = ask(engine, second, drafter=drafter, max_tokens=0)
            assert (nothing.ids, nothing.finished.reason) == ((), "length")
            assert ask(engine, second, drafter=drafter, max_tokens=12).ids == fresh.ids
    finally:
        engine.close()


def test_a_cache_too_large_to_be_kept_is_never_copied(bigram: BigramPair, monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[int] = []
    honest = Context.save

    def save(self: Context) -> Any:
        copies.append(self.length)
        return honest(self)

    monkeypatch.setattr(Context, "save", save)
    first, second = "the small model guesses " * 6, "A list of names, a poem " * 6
    for limit, copied in ((0, False), (1000, False), (1 << 24, True)):
        engine = open_engine(bigram.target, bigram.draft, context=512, prefix_cache_bytes=limit)
        try:
            copies.clear()
            for prompt in (first, second, first, second):
                ask(engine, prompt, max_tokens=2)
            assert bool(copies) is copied, limit
        finally:
            engine.close()


@pytest.mark.parametrize("error", [MemoryError("10 GiB for an array"), EngineError("libllama said no")])
def test_a_copy_that_cannot_be_made_costs_no_answer(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def save(self: Context) -> Any:
        raise error

    monkeypatch.setattr(Context, "save", save)
    first, second = "the small model guesses " * 6, "A list of names, a poem " * 6
    for prompt in (first, second, first):
        assert ask(engine, prompt, max_tokens=2).finished.reason == "length"


def test_without_the_cache_nothing_is_reused(engine: Engine) -> None:
    first, second = "the story number 1 " * 5, "A list of names, a poem is hard. " * 4
    for prompt in (first, second, first, second):
        ask(engine, prompt, max_tokens=40)
    assert ask(engine, first, max_tokens=4).finished.stats.reused_tokens > 0
    ask(engine, second, max_tokens=4)
    for prompt in (first, second, second):
        assert ask(engine, prompt, max_tokens=4, keep_cache=False).finished.stats.reused_tokens == 0


# --- one conversation or another ---------------------------------------------------------------------


class Told:
    """What the controller and the small model were told of each text."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.controller: list[bool] = []
        self.drafter: list[bool] = []
        of_controller, of_drafter = AdaptiveController.begin, ModelDrafter.begin

        def begin(controller: AdaptiveController, related: bool) -> None:
            self.controller.append(related)
            of_controller(controller, related)

        def begin_draft(drafter: ModelDrafter, *arguments: Any) -> None:
            self.drafter.append(arguments[-1])
            of_drafter(drafter, *arguments)

        monkeypatch.setattr(AdaptiveController, "begin", begin)
        monkeypatch.setattr(ModelDrafter, "begin", begin_draft)

    def take(self) -> list[bool]:
        """Of the answers since the last call; both were told the same."""
        told, others = self.controller[:], self.drafter[:]
        self.controller.clear()
        self.drafter.clear()
        assert told == others
        return told


def chat(engine: Engine, *said: str, system: str = "", tokens: int = 20, drafter: str = "auto") -> str:
    """An answer to turns of person and model."""
    turns = [Message("system", system)] if system else []
    turns += [Message("assistant" if at % 2 else "user", text) for at, text in enumerate(said)]
    request = GenerationRequest(
        tuple(turns), sampler=GREEDY, max_tokens=tokens, speculation=SpeculationSettings(drafter)
    )
    return Answer(list(engine.generate(request))).text


def test_raw_texts_are_related_when_one_goes_on_with_the_other(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch)
    for prompt in ("the small model ", "a table of numbers", "zzz qqq", "the next one "):
        ask(engine, prompt)
    assert told.take() == [False] * 4, "unrelated prompts"
    for prompt in ("the small model ", "a table of numbers", "a table of numbers"):
        ask(engine, prompt, keep_cache=False)
    assert told.take() == [False] * 3, "nothing may be kept"
    first, second = "the story number 1 " * 5, "A list of names, a poem is hard. " * 4
    for prompt in (first, second, first, second):
        ask(engine, prompt, max_tokens=40)
    assert told.take() == [False] * 4, "two texts recalled in turn"
    answer = ask(engine, first, max_tokens=40)
    told.take()
    ask(engine, first, max_tokens=40)
    ask(engine, first + answer.text + " and then", max_tokens=40)
    ask(engine, (first + answer.text)[:-6] + "another end", max_tokens=40)
    assert told.take() == [True, True, True], "regenerated, gone on with, edited near its end"


def test_chats_are_known_by_how_they_began(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch)
    system = "You answer in one short sentence, and you never use a long word where a short one will do. "
    one = chat(engine, "tell me a story", system=system)
    other = chat(engine, "list the names", system=system)
    assert told.take() == [False, False], "a system prompt that both have says nothing"
    chat(engine, "tell me a story", one, "go on", system=system)
    chat(engine, "list the names", other, "more", system=system)
    assert told.take() == [False, False], "two chats in turn"
    more = chat(engine, "list the names", other, "more", system=system, tokens=90)
    chat(engine, "list the names", other, "fewer", system=system)
    chat(engine, "list the names", "thoughts were dropped", "fewer", more, "now the last", system=system)
    assert told.take() == [True, True, True], "regenerated, its last message edited, gone on with"
    chat(engine, "list the towns", system=system)
    ask(engine, "list the towns")
    assert told.take() == [False, False]


def test_what_another_text_taught_is_not_taken_for_this_ones(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto` saw one chat, then another went on without it: what `auto` knows is of the first."""
    told = Told(monkeypatch)
    chat(engine, "tell me a story")
    answer = chat(engine, "list the names", drafter="none")
    told.take()
    chat(engine, "list the names", answer, "more")
    chat(engine, "list the names", answer, "fewer")
    assert told.take() == [False, True]


# --- drafts ------------------------------------------------------------------------------------------


def test_a_target_with_tokens_that_its_draft_lacks_answers_and_drafts(tmp_path: Path) -> None:
    """Chat markup of the target's own: in the prompt, and said by the target in its answers."""
    p = english_table()
    big = np.full((SIZE + 1, SIZE + 1), 1e-9)
    big[:SIZE, :SIZE] = p
    big[SIZE] = big[FIRST_BYTE + ord("t")]
    big[FIRST_BYTE + ord("e"), SIZE] = 0.2
    texts, _, _ = bigram_files.vocabulary(SIZE)
    template = bigram_files.TEMPLATE.replace("<|im_start|>", "<|turn|>")
    with pytest.MonkeyPatch.context() as patch:
        honest = bigram_files.vocabulary

        def vocabulary(rows: int) -> tuple[list[str], list[int], list[str]]:
            texts, types, merges = honest(rows)
            return [*texts[:-1], "<|turn|>"], [*types[:-1], 3], merges

        patch.setattr(bigram_files, "vocabulary", vocabulary)
        bigram_files.write(
            tmp_path / "target.gguf", big / big.sum(1, keepdims=True), rows=SIZE + 1, template=template
        )
    bigram_files.write(tmp_path / "draft.gguf", mixed_with_uniform(p, 0.3), texts=texts)
    with (tmp_path / "target.gguf").open("ab") as file:
        file.write(bytes(200_000))  # a draft must be the smaller file
    options = LoadOptions(draft=str(tmp_path / "draft.gguf"), context=512, threads=1)
    with open_session(str(tmp_path / "target.gguf"), options) as session:
        assert session.verdict is not None and session.verdict.kind == "shared"
        said = []
        for drafter, length in (("none", None), ("model", 3), ("auto", None)):
            request = GenerationRequest(
                (Message("user", "hello"),), sampler=HOT, max_tokens=120,
                speculation=SpeculationSettings(drafter, length),
            )  # fmt: skip
            *_, end = session.generate(request)
            assert isinstance(end, Finished)
            said.append(end.tokens)
            if drafter == "model":
                assert end.stats.accepted > 20
        assert said[0] == said[1] == said[2]
        assert SIZE in said[0]


def fail_to_open(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Its weights load; then no context can be made."""
    honest = Engine._context

    def context(self: Engine, weights: Weights, *arguments: Any, **more: Any) -> Context:
        if weights.path == path:
            raise EngineError("no memory")
        return honest(self, weights, *arguments, **more)

    monkeypatch.setattr(Engine, "_context", context)


def stop_while_measuring(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    def measure(self: ModelDrafter) -> None:
        raise Cancelled("stopped")

    monkeypatch.setattr(ModelDrafter, "measure", measure)


def cut_short(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    path.write_bytes(path.read_bytes()[:2000])


@pytest.mark.parametrize("fail", [fail_to_open, stop_while_measuring, cut_short])
def test_a_failed_swap_keeps_the_old_draft(
    engine: Engine, bigram: BigramPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    fail: Callable[[pytest.MonkeyPatch, Path], None],
) -> None:  # fmt: skip
    before, facts = ask(engine, "the ", drafter="model", length=3), engine.info
    other = tmp_path / "other.gguf"
    other.write_bytes(bigram.draft.read_bytes())
    opened: list[Weights] = []
    closed: list[Weights] = []
    opens, closes = Weights.__init__, Weights.close

    def opening(self: Weights, *arguments: Any) -> None:
        opens(self, *arguments)
        opened.append(self)

    def closing(self: Weights) -> None:
        closed.append(self)
        closes(self)

    with monkeypatch.context() as patch:
        patch.setattr(Weights, "__init__", opening)
        patch.setattr(Weights, "close", closing)
        fail(patch, other)
        with pytest.raises(LocalspecError):
            engine.load_draft(other)
    assert closed == opened, "what was loaded is freed, and nothing else is"
    assert engine.info.draft == facts.draft and engine.info.drafters == facts.drafters
    after = ask(engine, "the ", drafter="model", length=3)
    assert after.ids == before.ids and after.finished.stats.accepted == before.finished.stats.accepted > 0
    assert ask(engine, "the ", drafter="auto").ids == before.ids
    engine.load_draft(bigram.draft)
    assert ask(engine, "the ", drafter="model", length=3).ids == before.ids


@pytest.mark.parametrize("length", [32, 64])
def test_an_ordered_length_of_lookup_is_obeyed(bigram: BigramPair, length: int) -> None:
    engine = open_engine(bigram.target, context=1024, max_draft_length=64)
    try:
        answer = ask(engine, "abcdefghij" * 8, drafter="lookup", length=length, max_tokens=400)
        drafts = [round_ for round_ in answer.rounds if round_.drafted]
        assert drafts
        left = [400 - (round_.position - 80) - 1 for round_ in drafts]
        assert [len(round_.drafted) for round_ in drafts] == [min(length, room) for room in left]
    finally:
        engine.close()


def test_speculation_turned_on_in_an_answer_with_a_grammar_changes_nothing(engine: Engine) -> None:
    def answer(seed: int, change: SpeculationSettings | None) -> Finished:
        request = GenerationRequest(
            prompt="the ", grammar='root ::= ([a-z] [0-9])* "."', max_tokens=20,
            sampler=SamplerSettings(seed=seed, temperature=1.5, top_k=0, top_p=1, min_p=0),
        )  # fmt: skip
        *_, end = changed_in(engine, request, {1: change} if change else {})
        assert isinstance(end, Finished)
        return end

    for seed in range(6):
        plain, changed = answer(seed, None), answer(seed, SpeculationSettings("model", 4))
        assert changed.tokens == plain.tokens
        assert (changed.stats.drafted, changed.stats.state, changed.stats.reason) == (0, "off", "grammar")


def changed_in(
    engine: Engine, request: GenerationRequest, changes: dict[int, SpeculationSettings]
) -> Iterator[Event]:
    """An answer in which speculation is changed after these rounds."""
    for event in engine.generate(request):
        if isinstance(event, RoundFinished) and event.round.index in changes:
            engine.change(changes[event.round.index], None)
        yield event


def test_state_changes_are_counted_once_and_are_of_this_answer(engine: Engine) -> None:
    auto = engine._controller(SpeculationSettings())
    assert isinstance(auto, AdaptiveController)
    request = GenerationRequest(prompt="the ", max_tokens=60, sampler=GREEDY)
    auto.changes.append(StateChange(999, "off", "of an earlier answer"))
    end: Event | None = None
    swaps = {1: SpeculationSettings("none"), 3: SpeculationSettings("auto"), 5: SpeculationSettings("none"),
             7: SpeculationSettings("auto")}  # fmt: skip
    for end in changed_in(engine, request, swaps):
        if isinstance(end, RoundFinished) and end.round.index == 0:
            auto.changes.append(StateChange(5, "off", "seen"))
    assert isinstance(end, Finished)
    changes = end.stats.changes
    assert [change.reason for change in changes].count("seen") == 1
    assert len(set(changes)) == len(changes) and all(change.position < 999 for change in changes)

    auto.changes[:] = [StateChange(999, "off", "of the answer before")]
    plain = GenerationRequest(prompt="the ", max_tokens=40, sampler=GREEDY, speculation=SpeculationSettings("none"))
    *_, end = changed_in(engine, plain, {1: SpeculationSettings("auto")})
    assert isinstance(end, Finished) and all(change.position < 999 for change in end.stats.changes)


# --- grammars ----------------------------------------------------------------------------------------


def test_a_grammar_whose_prompt_is_refused_is_freed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[LlamaGrammar] = []
    honest = LlamaGrammar.__init__

    def make(self: LlamaGrammar, *arguments: Any) -> None:
        honest(self, *arguments)
        made.append(self)

    monkeypatch.setattr(LlamaGrammar, "__init__", make)
    for _ in range(400):
        with pytest.raises(ContextFull):
            ask(engine, "a" * 600, grammar="root ::= [a-z]+")
    for _ in range(5):
        ask(engine, "a" * 20, grammar="root ::= [a-z]+", max_tokens=3)
    with pytest.raises(InvalidInput):
        ask(engine, "a", grammar="root ::= [a-z]+", sampler=SamplerSettings(logit_bias=((SIZE, 1.0),)))
    assert len(made) >= 5 and all(grammar._handle is None for grammar in made)


# --- logits that are no numbers ----------------------------------------------------------------------


def write_broken(path: Path, table: bigram_files.Table, after: str = "") -> None:
    """A model that computes NaN for every token: always, or from the first of the letters `after` on."""
    honest = bigram_files._tensors

    def tensors(*arguments: Any) -> Any:
        made = honest(*arguments)
        if after:
            made["token_embd.weight"][[FIRST_BYTE + code for code in after.encode()]] = np.nan
        else:
            made["output.weight"][:] = np.nan
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bigram_files, "_tensors", tensors)
        bigram_files.write(path, table)


@pytest.mark.parametrize("after", ["", " "])
@pytest.mark.parametrize("sampler", [GREEDY, HOT, SamplerSettings()])
def test_a_target_without_a_finite_value_is_an_error(tmp_path: Path, after: str, sampler: SamplerSettings) -> None:
    """In the first token, or later: then what was said before it stays said."""
    write_broken(tmp_path / "broken.gguf", english_table(), after)
    engine = open_engine(tmp_path / "broken.gguf", context=512)
    try:
        for drafter in ("none", "lookup"):
            events: list[Event] = []
            request = GenerationRequest(
                prompt="t", sampler=sampler, speculation=SpeculationSettings(drafter), keep_cache=False
            )
            with pytest.raises(NotFinite, match="the model computed no finite value"):
                events.extend(engine.generate(request))
            # `extend` keeps what came before the error.
            assert any(isinstance(event, RoundFinished) for event in events) == bool(after)
    finally:
        engine.close()


@pytest.mark.parametrize("value", [np.nan, -np.inf, np.inf])
@pytest.mark.parametrize(
    "settings",
    [
        GREEDY,
        HOT,
        SamplerSettings(),
        SamplerSettings(top_k=0),
        SamplerSettings(top_k=0, top_p=1.0),
        SamplerSettings(top_k=0, min_p=0.0),
        SamplerSettings(repeat_penalty=1.2, logit_bias=((3, 2.0), (4, -np.inf))),
    ],
)
def test_a_row_without_a_number_is_named_and_bans_are_not_blamed(settings: SamplerSettings, value: float) -> None:
    for size in (20, 20_000):
        with pytest.raises(NotFinite, match="no finite value"):
            Sampler(settings).distribution(np.full(size, value, np.float32), [3, 5])
        with pytest.raises(InvalidInput, match="banned"):
            Sampler(settings, banned=range(size)).distribution(np.zeros(size, np.float32), [3, 5])


def test_run_says_in_one_line_that_the_model_computes_nothing(bigram: BigramPair, tmp_path: Path) -> None:
    write_broken(tmp_path / "broken.gguf", english_table())
    small = ("--ctx", "512", "--threads", "1", "-n", "20")
    for sampling in (("--temp", "0"), ("--seed", "1")):
        result = localspec("run", tmp_path / "broken.gguf", "The ", *small, *sampling)
        assert "the model computed no finite value" in error_of(result, 6)


@pytest.mark.parametrize("after", ["", "w"])
@pytest.mark.parametrize("sampler", [GREEDY, HOT])
@pytest.mark.parametrize("drafter", ["model", "auto"])
def test_a_draft_without_a_finite_value_is_turned_off_and_the_target_goes_on(
    bigram: BigramPair, tmp_path: Path, after: str, sampler: SamplerSettings, drafter: str
) -> None:
    """Known broken from the start, or in the middle of an answer and of a draft; and it stays off."""
    write_broken(tmp_path / "broken.gguf", english_table(), after)
    engine = open_engine(bigram.target, tmp_path / "broken.gguf", context=512)
    try:
        prompt = "The " if not after or sampler is HOT else "the w"
        plain = ask(engine, prompt, drafter="none", sampler=sampler, max_tokens=200)
        if after and drafter == "model" and sampler is HOT:
            assert "w" in plain.text[20:]
        meter = Meter(expects_draft=True)
        first: Answer | None = None
        for _ in range(2):
            length = 3 if drafter == "model" else None
            answer = ask(engine, prompt, drafter=drafter, length=length, sampler=sampler, max_tokens=200)
            assert answer.ids == plain.ids
            stats = answer.finished.stats
            if drafter == "auto" and NO_VALUE not in stats.reason:
                assert not any(round_.drafter == "model" for round_ in answer.rounds), "never asked"
                break
            assert stats.trouble == NO_VALUE
            if drafter == "model":
                assert (stats.state, stats.reason) == ("off", f"off: {NO_VALUE}")
                assert [change.reason for change in stats.changes] == [f"off: {NO_VALUE}"]
                assert summary_line(stats).endswith(f"speculation off: {NO_VALUE}")
                assert answer.rounds[-1].reason == f"off: {NO_VALUE}"
            else:
                assert stats.reason.endswith(NO_VALUE)
                assert summary_line(stats).endswith(NO_VALUE)
            if first is None:
                first = answer
                if after and drafter == "model" and sampler is HOT:
                    assert stats.drafted > 0, "before"
            else:
                assert not any(round_.drafter == "model" for round_ in answer.rounds)
            for round_ in answer.rounds:
                meter.add(RoundFinished(round_, ()))
            shown = panel_text(PanelState(meter.reading(), SpeculationSettings(drafter), loaded=True), 200).plain
            assert NO_VALUE in shown
            meter.finish(stats)
            assert NO_VALUE in panel_text(PanelState(meter.reading(), loaded=True), 200).plain
    finally:
        engine.close()


def test_a_draft_that_breaks_within_a_draft_keeps_its_samples() -> None:
    """Dropping a sampled guess because of what came after it would favour other tokens."""
    calls = 0

    def row(tokens: Sequence[int]) -> Any:
        nonlocal calls
        calls += 1
        return np.full(8, np.nan if calls > 2 else 0.0, np.float32)

    drafter = model_drafter(FakeModel(row, 8))
    drafter.begin([1, 2, 3], HOT, frozenset(), False)
    assert drafter.forecast(5) is not None
    draft = drafter.propose(5, lambda chance, made: True, Rejection(1), False)
    assert len(draft.ids) == 2 and draft.q is not None and len(draft.q) == 2
    assert drafter.trouble == NO_VALUE and drafter.forecast(5) is None


def test_a_draft_whose_every_token_is_banned_leaves_the_answer_to_the_target(engine: Engine) -> None:
    """Nothing that the draft may propose is allowed; the target has one token more."""
    drafter = engine._drafters["model"]
    assert isinstance(drafter, ModelDrafter)
    last = FIRST_BYTE + ord("z")
    drafter._masked = frozenset([last])
    banned = tuple((token, -np.inf) for token in range(SIZE) if token != last)
    answer = ask(engine, "the ", drafter="model", length=3, sampler=SamplerSettings(logit_bias=banned), max_tokens=5)
    assert answer.ids == (last,) * 5
    assert not drafter.trouble


# --- values at the edge ------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [5e-324, 1e-310, 1e-307, 1e-40])
def test_a_temperature_next_to_nothing_is_greedy(engine: Engine, temperature: float) -> None:
    greedy = ask(engine, "the ", drafter="none", max_tokens=30)
    for mode in ("rejection", "coupled"):
        sampler = SamplerSettings(temperature=temperature, seed=1, mode=mode)  # type: ignore[arg-type]
        for drafter in ("none", "model"):
            assert ask(engine, "the ", drafter=drafter, sampler=sampler, max_tokens=30).ids == greedy.ids


@pytest.mark.parametrize("bias", [1e39, -1e39, 1e10, np.inf, np.nan])
def test_a_bias_beyond_any_logit_is_refused(bias: float) -> None:
    with pytest.raises(InvalidInput, match="bias"):
        SamplerSettings(logit_bias=((5, bias),))
