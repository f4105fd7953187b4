"""Conversations that take turns: what they share with what was read before is not read again; texts stay the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from localspec.engine.engine import Engine
from localspec.engine.prefix_cache import WORTH_TOKENS, Kept, PrefixCache
from localspec.engine.settings import GenerationRequest, LoadSettings, SamplerSettings, SpeculationSettings
from localspec.ground.errors import EngineError
from tests.bigram import BigramPair
from tests.engine_tools import Answer


def kept(tokens: range | list[int], size: int = 100) -> Kept:
    return Kept(tuple(tokens), np.zeros(size, np.uint8), {}, size)


def test_the_one_that_shares_most_is_found_when_it_is_worth_it() -> None:
    cache = PrefixCache(1000)
    one, two = kept(range(200)), kept([*range(100), *range(900, 1000)])
    cache.keep(one)
    cache.keep(two)
    assert cache.find(list(range(150)), 0) is one
    assert cache.find([*range(100), *range(900, 950)], 0) is two
    assert cache.find(list(range(150)), 150 - WORTH_TOKENS + 1) is None, "what is at hand is nearly as good"
    assert cache.find(list(range(500, 600)), 0) is None


def test_what_was_not_used_for_longest_goes_and_the_longer_of_one_conversation_stays() -> None:
    cache = PrefixCache(300)
    first, second, third, fourth = (kept(range(n * 1000, n * 1000 + 100)) for n in range(4))
    for one in (first, second, third):
        cache.keep(one)
    assert cache.find(first.tokens, 0) is first
    cache.keep(fourth)
    assert cache.find(second.tokens, 0) is None and cache.find(first.tokens, 0) is first
    longer = kept(range(300))
    cache.keep(longer)
    assert cache.find(first.tokens, 0) is longer and len(cache) == 3 and cache.size == 300
    cache.keep(kept(range(5000, 5100), size=301))
    assert len(cache) == 0, "one that does not fit is not kept"


QUESTIONS = [f"the story number {n} " * 5 for n in range(3)]


@pytest.fixture(scope="module")
def engine(bigram: BigramPair) -> Iterator[Engine]:
    engine = Engine(LoadSettings(bigram.target, bigram.draft, context=1024), 1)
    yield engine
    engine.close()


def ask(engine: Engine, prompt: str, drafter: str = "model", **more: object) -> Answer:
    request = GenerationRequest(
        prompt=prompt, max_tokens=40, sampler=SamplerSettings(seed=6), speculation=SpeculationSettings(drafter, 3)
    )
    return Answer(list(engine.generate(replace(request, **more))))  # type: ignore[arg-type]


@pytest.mark.parametrize("drafter", ["model", "lookup", "none"])
def test_turns_of_several_conversations_are_read_once(engine: Engine, drafter: str) -> None:
    texts = dict.fromkeys(QUESTIONS, "")
    for turn in range(3):
        for question in QUESTIONS:
            prompt = question + texts[question]
            got = ask(engine, prompt, drafter)
            if turn:
                assert got.finished.stats.reused_tokens >= len(prompt) - 2, "all but the newest token or two"
            assert got.text == ask(engine, prompt, "none", keep_cache=False).text
            ask(engine, prompt, drafter)  # the fresh one above emptied the caches
            texts[question] += got.text


def test_a_failed_copy_costs_only_time(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise EngineError("no memory")

    expected = [ask(engine, question).text for question in QUESTIONS]
    monkeypatch.setattr(engine._target, "save", fail)
    assert [ask(engine, question).text for question in QUESTIONS] == expected
    monkeypatch.undo()
    ask(engine, QUESTIONS[0])
    ask(engine, QUESTIONS[1])
    monkeypatch.setattr(engine._target._lib, "llama_state_seq_set_data", lambda *_: 0)
    again = ask(engine, QUESTIONS[0])
    assert again.text == expected[0] and again.finished.stats.reused_tokens == 0


def test_another_draft_forgets_what_was_kept(engine: Engine, bigram: BigramPair) -> None:
    for question in QUESTIONS:
        ask(engine, question)
    assert len(engine._prefixes) > 0
    engine.load_draft(bigram.draft)
    assert len(engine._prefixes) == 0
    assert ask(engine, QUESTIONS[0]).text == ask(engine, QUESTIONS[0], "none", keep_cache=False).text
