"""Commands that nobody waits for any more: the next one always gets its own answer."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localspec.engine import inspection
from localspec.engine.process.client import EngineClient
from localspec.engine.records import LoadProgress, PrefillProgress, RoundFinished
from localspec.engine.settings import GenerationRequest, LoadSettings, SamplerSettings, SpeculationSettings
from localspec.ground.errors import ContextFull, UnreadableFile
from tests.bigram import BigramPair
from tests.engine_tools import Answer

GREEDY = SamplerSettings(temperature=0)


class Struck(Exception):
    """What a callback raises here."""


@pytest.fixture
def client(bigram: BigramPair, tmp_path: Path) -> Iterator[EngineClient]:
    with EngineClient(tmp_path) as client:
        client.load(LoadSettings(bigram.target, bigram.draft, context=4000), threads=1)
        yield client


def plain(prompt: str, tokens: int | None = 6) -> GenerationRequest:
    return GenerationRequest(
        prompt=prompt, max_tokens=tokens, sampler=GREEDY, speculation=SpeculationSettings("none"), keep_cache=False
    )


def own_answers(client: EngineClient) -> None:
    """Five requests of different lengths: each answer is the one of its request."""
    for count in (3, 10, 20, 30, 40):
        events = list(client.generate(plain("a" * count)))
        answer = Answer(events)
        assert answer.finished.stats.prompt_tokens == count and len(answer.ids) == 6
        assert [event.round.index for event in events if isinstance(event, RoundFinished)] == list(range(6))


def interrupted(after: float) -> None:
    threading.Timer(after, lambda: os.kill(os.getpid(), signal.SIGINT)).start()


def test_ctrl_c_while_a_draft_is_loaded(client: EngineClient, tmp_path: Path) -> None:
    os.kill(client.pid, signal.SIGSTOP)
    interrupted(0.3)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        client.load_draft(tmp_path / "missing.gguf")
    assert time.monotonic() - began < 5, "whoever interrupts is not kept waiting"
    os.kill(client.pid, signal.SIGCONT)
    own_answers(client)


def test_a_callback_that_raises_while_a_draft_is_loaded(client: EngineClient, bigram: BigramPair) -> None:
    def strike(progress: LoadProgress) -> None:
        raise Struck

    for _ in range(3):
        with pytest.raises(Struck):
            client.load_draft(bigram.draft, on_progress=strike)
        own_answers(client)


def test_a_callback_that_raises_while_the_pair_is_loaded(bigram: BigramPair, tmp_path: Path) -> None:
    def strike(progress: LoadProgress) -> None:
        raise Struck

    with EngineClient(tmp_path) as client:
        with pytest.raises(Struck):
            client.load(LoadSettings(bigram.target, bigram.draft, context=4000), 1, strike)
        info = client.load(LoadSettings(bigram.target, context=500), 1)
        assert info.draft is None and info.context == 500
        own_answers(client)


@pytest.mark.parametrize("kind", [PrefillProgress, RoundFinished])
def test_a_reader_that_raises_in_an_answer(client: EngineClient, kind: type) -> None:
    with pytest.raises(Struck):
        for event in client.generate(plain("word " * 300, None)):
            if isinstance(event, kind):
                raise Struck
    own_answers(client)


def test_ctrl_c_while_a_question_is_answered(client: EngineClient) -> None:
    os.kill(client.pid, signal.SIGSTOP)
    interrupted(0.3)
    with pytest.raises(KeyboardInterrupt):
        client.inspect(inspection.Encode(plain("abc")))
    os.kill(client.pid, signal.SIGCONT)
    assert len(client.inspect(inspection.Encode(plain("abcdefgh")))) == 8
    own_answers(client)


def test_what_is_loaded_is_known_after_an_abandoned_swap(client: EngineClient, bigram: BigramPair) -> None:
    """It may have come to its end before it was told to stop."""

    def strike(progress: LoadProgress) -> None:
        if progress.fraction >= 1.0:
            time.sleep(1.0)
            raise Struck

    client.load_draft(None)
    with pytest.raises(Struck):
        client.load_draft(bigram.draft, on_progress=strike)
    own_answers(client)
    assert client.info is not None and client.info.draft is not None
    request = GenerationRequest(
        prompt="The ", max_tokens=40, sampler=GREEDY, speculation=SpeculationSettings("model", 3)
    )
    assert Answer(list(client.generate(request))).finished.stats.drafted > 0


def drafters(client: EngineClient, change: Callable[[], None]) -> list[str]:
    """Of the rounds of an answer with drafts, `change` called as soon as the request was sent."""
    request = GenerationRequest(
        prompt="The ", max_tokens=60, sampler=GREEDY, speculation=SpeculationSettings("model", 3), keep_cache=False
    )
    events = client.generate(request)
    first = next(events)
    change()
    return [event.round.drafter for event in (first, *events) if isinstance(event, RoundFinished)]


def test_a_change_for_an_answer_that_is_over_does_not_reach_the_next(client: EngineClient) -> None:
    list(client.generate(plain("The ")))
    client.change(SpeculationSettings("none"))
    assert "model" in drafters(client, lambda: None)


def test_a_change_that_comes_before_the_answer_has_begun_reaches_it(client: EngineClient) -> None:
    def change_and_wake() -> None:
        client.change(SpeculationSettings("none"))
        os.kill(client.pid, signal.SIGCONT)

    os.kill(client.pid, signal.SIGSTOP)
    threading.Timer(0.5, change_and_wake).start()
    assert "model" not in drafters(client, lambda: None)[2:]


def test_a_full_context_crosses_the_pipe_as_what_it_is(client: EngineClient) -> None:
    with pytest.raises(ContextFull) as caught:
        list(client.generate(plain("x" * 5000)))
    assert (caught.value.tokens, caught.value.capacity) == (5000, 4000)


def test_a_refused_request_is_one_line_of_the_log(client: EngineClient, tmp_path: Path) -> None:
    list(client.generate(plain("a")))
    before = client.log_path.stat().st_size
    for _ in range(20):
        with pytest.raises(ContextFull):
            list(client.generate(plain("x" * 5000)))
    with pytest.raises(UnreadableFile):
        client.load_draft(tmp_path / "missing.gguf")
    added = client.log_path.read_bytes()[before:].decode().splitlines()
    assert len(added) == 21 and all(line.startswith("refused: ") for line in added)
    assert added[0].startswith("refused: ContextFull at generate.py:"), "nothing that a person wrote"
