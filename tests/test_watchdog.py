"""An engine that lives and does nothing is noticed, ended and told; one that sleeps with its parent is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec.engine import inspection
from localspec.engine.process.client import EngineClient
from localspec.engine.process.commands import Alive
from localspec.engine.process.watch import STEP_GROWTH, AwakeClock, Patience, Watch
from localspec.engine.records import RoundFinished
from localspec.engine.settings import GenerationRequest, LoadSettings, SamplerSettings
from localspec.ground.errors import EngineDied
from localspec.session import LoadOptions, open_session
from localspec.ui.chat import Chat, ChatSettings
from localspec.ui.runner import AnswerEnded, Runner
from localspec.ui.session_store import SessionStore
from tests.bigram import END, BigramPair
from tests.serve_tools import serving, until

ENDLESS = GenerationRequest(prompt="The ", sampler=SamplerSettings(temperature=0.9, seed=1), keep_cache=False)
HASTY = Patience(silence=3.0)


@pytest.fixture
def client(bigram: BigramPair, tmp_path: Path) -> Iterator[EngineClient]:
    with EngineClient(tmp_path, HASTY) as client:
        client.load(LoadSettings(bigram.target, context=4000), threads=1)
        yield client


def test_an_engine_that_stands_still_is_ended_and_the_text_so_far_is_kept(client: EngineClient) -> None:
    text, began = "", 0.0
    with pytest.raises(EngineDied, match="the engine did not answer for 3 s; its process was ended") as caught:
        for event in client.generate(ENDLESS):
            if isinstance(event, RoundFinished):
                text += "".join(token.text for token in event.tokens)
                if len(text) > 20 and not began:
                    began = time.monotonic()
                    os.kill(client.pid, signal.SIGSTOP)
    assert len(text) > 20 and 2 < time.monotonic() - began < 20
    assert "try again" in caught.value.hint.lower() and str(client.log_path) in caught.value.hint
    assert not client.alive and str(client.death()) == str(caught.value)
    with pytest.raises(EngineDied, match="did not answer"):
        client.inspect(inspection.Facts())


def test_an_abandoned_answer_of_an_engine_that_stands_still(client: EngineClient) -> None:
    for _ in client.generate(ENDLESS):
        os.kill(client.pid, signal.SIGSTOP)
        break
    with pytest.raises(EngineDied, match="did not answer"):
        list(client.generate(ENDLESS))


def test_a_request_too_big_for_the_pipe_of_an_engine_that_stands_still(client: EngineClient) -> None:
    os.kill(client.pid, signal.SIGSTOP)
    with pytest.raises(EngineDied, match="did not answer"):
        list(client.generate(GenerationRequest(prompt="word " * 200_000)))


def test_closing_an_engine_that_stands_still(bigram: BigramPair, tmp_path: Path) -> None:
    client = EngineClient(tmp_path)
    client.load(LoadSettings(bigram.target, context=64), threads=1)
    os.kill(client.pid, signal.SIGSTOP)
    began = time.monotonic()
    client.close(1.0)
    assert not client.alive and time.monotonic() - began < 10


def test_a_step_that_does_not_end_is_noticed_though_the_engine_beats(bigram: BigramPair, tmp_path: Path) -> None:
    with EngineClient(tmp_path, Patience(step=1.5, growth=1.0)) as client:
        client.load(LoadSettings(bigram.target, context=4000), threads=1)
        question = inspection.Encode(GenerationRequest(prompt="one long step " * 1_000_000))
        with pytest.raises(EngineDied, match=r"one step of the engine did not end within 1\.5 s"):
            client.inspect(question)


def test_a_long_step_is_waited_for(bigram: BigramPair, tmp_path: Path) -> None:
    with EngineClient(tmp_path, Patience(silence=2.5)) as client:
        client.load(LoadSettings(bigram.target, context=4000), threads=1)
        prompt = "one long step " * 400_000
        assert len(client.inspect(inspection.Encode(GenerationRequest(prompt=prompt)))) == len(prompt)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever opens a session loses patience soon."""
    monkeypatch.setattr("localspec.engine.process.client.Patience", lambda: HASTY)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.usefixtures("hasty")
def test_the_chat_keeps_the_text_and_goes_on_with_another_engine(bigram: BigramPair, tmp_path: Path) -> None:
    news: list[Any] = []
    sampler = SamplerSettings(logit_bias=((END, float("-inf")),))  # it does not end by itself
    chat = Chat(Runner(open_session, news.append), SessionStore(tmp_path), ChatSettings(sampler))
    try:
        chat.open_pair(str(bigram.target), LoadOptions(draft="none", context=4000, threads=1))
        answer = chat.send("hello").answer
        assert answer is not None
        until(lambda: len(answer.tokens) > 10)
        first = chat.runner.session
        assert first is not None
        os.kill(first.client.pid or 0, signal.SIGSTOP)
        until(lambda: any(isinstance(each, AnswerEnded) for each in news))
        (ended,) = (each for each in news if isinstance(each, AnswerEnded))
        assert isinstance(ended.error, EngineDied) and "did not answer" in answer.note
        assert len(answer.tokens) > 10 and chat.runner.session is None
        assert first.client.death() is not None
        chat.open_pair(str(bigram.target), LoadOptions(draft="none", context=4000, threads=1))
        until(lambda: chat.runner.session is not None)
    finally:
        chat.runner.close()


@pytest.mark.usefixtures("hasty")
def test_the_server_starts_another_engine(bigram: BigramPair, capsys: pytest.CaptureFixture[str]) -> None:
    options = LoadOptions(draft="none", context=4000, threads=1)
    with serving(lambda draft_off: open_session(str(bigram.target), options)) as live:
        os.kill(live.host.session.client.pid, signal.SIGSTOP)
        reply = live.chat(max_tokens=3)
        said = "the engine did not answer for 3 s; it is being started again"
        assert reply.status == 500 and reply.json["error"]["message"] == said
        until(lambda: live.host.state == "ready")
        assert live.chat(max_tokens=3).status == 200 and live.host.restarts == 1
    assert "did not answer" in capsys.readouterr().err


SLEEPER = """
import sys
from pathlib import Path
from localspec.engine.process.client import EngineClient
from localspec.engine.process.watch import Patience
from localspec.engine.records import RoundFinished
from localspec.engine.settings import *
with EngineClient(Path(sys.argv[2]), Patience(2.0, 2.0)) as client:
    client.load(LoadSettings(Path(sys.argv[1]), context=4000), threads=1)
    plain = SpeculationSettings("none")
    request = GenerationRequest(prompt="The ", speculation=plain, max_tokens=600, keep_cache=False)
    for event in client.generate(request):
        if isinstance(event, RoundFinished) and event.round.index in (0, 50):
            print(event.round.index, flush=True)
    print(event.reason)
"""


def test_a_program_that_was_stopped_as_a_whole_goes_on(bigram: BigramPair, tmp_path: Path) -> None:
    """Ctrl-Z stops the engine and whoever watches it; afterwards nobody is blamed for the pause."""
    program = [sys.executable, "-c", SLEEPER, str(bigram.target), str(tmp_path)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        for line in ("0", "50"):
            assert process.stdout.readline().strip() == line
            os.killpg(process.pid, signal.SIGSTOP)
            time.sleep(5.0)
            os.killpg(process.pid, signal.SIGCONT)
        assert process.stdout.read().strip() in ("length", "stop") and process.wait() == 0


class Clock:
    """Time that tests move."""

    now = 100.0

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


def test_a_jump_of_the_clock_counts_as_two_seconds() -> None:
    clock = Clock()
    awake = AwakeClock(clock)
    for passed, counted in ((1.0, 1.0), (1.5, 1.5), (3600.0, 2.0), (0.5, 0.5)):
        clock.pass_(passed)
        assert awake.step() == counted


def trouble_after(watch: Watch, clock: Clock, seconds: int, beat: Alive | None = None) -> str:
    """What there is to say after so many seconds of waiting, with a beat in each unless it is None."""
    for _ in range(seconds):
        clock.pass_(1.0)
        if beat is not None:
            watch.heard(beat)
        if said := watch.trouble():
            return said
    return ""


def test_beats_are_signs_of_life() -> None:
    clock = Clock()
    watch = Watch(Patience(), clock)
    watch.begin()
    assert trouble_after(watch, clock, 3600, Alive(1.0, 1.0)) == ""
    assert trouble_after(watch, clock, 55) == ""
    assert trouble_after(watch, clock, 10) == "the engine did not answer for 60 s"


def test_the_bound_of_a_step_grows_with_what_steps_took() -> None:
    for longest, still, said in (
        (0.1, 1799.0, ""), (0.1, 1801.0, "one step of the engine did not end within 30 min"),
        (100.0, 1801.0, ""), (100.0, STEP_GROWTH * 100 + 1, "one step of the engine did not end within 83 min"),
    ):  # fmt: skip
        clock = Clock()
        watch = Watch(Patience(), clock)
        watch.begin()
        assert trouble_after(watch, clock, 1, Alive(still, longest)) == said


def test_what_happened_before_somebody_waited_does_not_count() -> None:
    clock = Clock()
    watch = Watch(Patience(), clock)
    watch.heard(Alive(9999.0, 0.0))
    clock.pass_(9999.0)
    watch.begin()
    assert trouble_after(watch, clock, 5) == ""
