"""The engine in its own process: events, cancel, change, swap, and everybody's death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from localspec.engine.process.client import EngineClient
from localspec.engine.process.last_words import last_words
from localspec.engine.records import Finished, PrefillProgress, RoundFinished
from localspec.engine.settings import GenerationRequest, LoadSettings, SamplerSettings, SpeculationSettings
from localspec.ground.errors import Cancelled, EngineDied, EngineError, InvalidInput, LocalspecError, UnreadableFile
from tests.bigram import BigramPair, english_table, write
from tests.engine_tools import Answer, ask, open_engine

ENDLESS = GenerationRequest(prompt="The ", sampler=SamplerSettings(temperature=0.9, seed=1), keep_cache=False)


@pytest.fixture(scope="module")
def client(bigram: BigramPair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineClient]:
    with EngineClient(tmp_path_factory.mktemp("log")) as client:
        client.load(LoadSettings(bigram.target, bigram.draft, context=4000), threads=1)
        yield client


def limited(tokens: int, drafter: str = "model") -> GenerationRequest:
    return GenerationRequest(
        prompt="The ",
        sampler=SamplerSettings(temperature=0.9, seed=1),
        speculation=SpeculationSettings(drafter, 4),
        max_tokens=tokens,
        keep_cache=False,
    )


def test_events_are_those_of_the_loop_in_process(client: EngineClient, bigram: BigramPair) -> None:
    apart = Answer(list(client.generate(limited(200))))
    engine = open_engine(bigram.target, bigram.draft, context=4000)
    try:
        here = ask(
            engine,
            "The ",
            drafter="model",
            length=4,
            sampler=SamplerSettings(temperature=0.9, seed=1),
            max_tokens=200,
        )
    finally:
        engine.close()
    assert apart.ids == here.ids and apart.text == here.text
    assert [round.accepted for round in apart.rounds] == [round.accepted for round in here.rounds]
    assert apart.finished.stats.emitted == 200


def test_what_is_loaded_is_told(client: EngineClient, bigram: BigramPair) -> None:
    info = client.info
    assert info is not None and info.draft is not None
    assert (info.target.path, info.draft.path) == (bigram.target, bigram.draft)
    assert info.context == 4000 and info.has_template and info.speculation_off == ""


def test_cancel_in_the_middle_of_an_answer(client: EngineClient) -> None:
    for _ in range(3):
        events = client.generate(ENDLESS)
        seen = 0
        for event in events:
            seen += isinstance(event, RoundFinished)
            if seen == 3:
                client.cancel()
            last = event
        assert isinstance(last, Finished) and last.reason == "cancelled" and len(last.tokens) >= 3
    assert Answer(list(client.generate(limited(5)))).finished.reason == "length"


def test_cancel_in_the_middle_of_a_prefill(bigram: BigramPair, tmp_path: Path) -> None:
    with EngineClient(tmp_path) as client:
        client.load(LoadSettings(bigram.target, context=60_000), threads=1)
        request = GenerationRequest(prompt="word " * 11_000, max_tokens=5)
        for event in client.generate(request):
            if isinstance(event, PrefillProgress) and event.done:
                client.cancel()
        assert isinstance(event, Finished) and event.reason == "cancelled" and event.tokens == ()


def test_a_caller_that_walks_away_cancels(client: EngineClient) -> None:
    for event in client.generate(ENDLESS):
        if isinstance(event, RoundFinished):
            break
    assert Answer(list(client.generate(limited(5)))).finished.reason == "length"


def test_one_answer_at_a_time(client: EngineClient) -> None:
    events = client.generate(ENDLESS)
    next(events)
    with pytest.raises(EngineError, match="busy"):
        list(client.generate(limited(5)))
    events.close()  # type: ignore[attr-defined]


def test_settings_change_while_it_talks(client: EngineClient) -> None:
    drafters = []
    for event in client.generate(limited(600)):
        if isinstance(event, RoundFinished):
            drafters.append(event.round.drafter)
            if len(drafters) == 10:
                client.change(SpeculationSettings("none"))
    assert drafters[5] == "model" and drafters[-1] == "none"


def test_errors_of_a_request_leave_the_engine_usable(client: EngineClient) -> None:
    with pytest.raises(InvalidInput, match="4000"):
        list(client.generate(GenerationRequest(prompt="x" * 5000)))
    assert len(Answer(list(client.generate(limited(7)))).ids) == 7


def test_closing_waits_for_what_the_engine_stores(bigram: BigramPair, tmp_path: Path) -> None:
    folder = tmp_path / "profiles"
    for _ in range(4):
        with EngineClient(tmp_path) as client:
            client.load(LoadSettings(bigram.target, bigram.draft, context=512, profiles=folder), threads=1)
            list(client.generate(limited(3)))
        (stored,) = folder.iterdir()
        assert stored.suffix == ".json"
        stored.unlink()


def test_the_draft_is_swapped_beside_the_target(
    client: EngineClient, bigram: BigramPair, tmp_path: Path
) -> None:
    other = tmp_path / "other.gguf"
    write(other, english_table())
    before = Answer(list(client.generate(limited(300))))
    info = client.load_draft(other)
    assert info.draft is not None and info.draft.path == other
    after = Answer(list(client.generate(limited(300))))
    assert after.ids == before.ids
    assert (after.finished.stats.acceptance_rate or 0) > 0.99 > (before.finished.stats.acceptance_rate or 0)
    assert client.load_draft(None).draft is None
    with pytest.raises(InvalidInput, match="draft"):
        list(client.generate(limited(5)))
    with pytest.raises(UnreadableFile):
        client.load_draft(tmp_path / "missing.gguf")
    client.load_draft(bigram.draft)
    assert Answer(list(client.generate(limited(300)))).ids == before.ids


def test_native_log_lines_go_to_the_log_only(
    bigram: BigramPair, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with EngineClient(tmp_path) as client:
        client.load(LoadSettings(bigram.target, context=64), threads=1)
        assert "llama" in client.log_path.read_text()
    assert capfd.readouterr() == ("", "")


def test_a_killed_engine_is_an_error_with_the_text_so_far(bigram: BigramPair, tmp_path: Path) -> None:
    client = EngineClient(tmp_path)
    client.load(LoadSettings(bigram.target, context=4000), threads=1)
    text = ""
    with pytest.raises(EngineDied, match="SIGKILL"):
        for event in client.generate(ENDLESS):
            if isinstance(event, RoundFinished):
                text += "".join(token.text for token in event.tokens)
                if len(text) > 20:
                    os.kill(client.pid, signal.SIGKILL)
    assert len(text) > 20 and not client.alive
    with pytest.raises(EngineDied):
        list(client.generate(limited(3)))
    client.close()
    client.close()


def test_an_abort_inside_the_engine_shows_its_last_words(bigram: BigramPair, tmp_path: Path) -> None:
    client = EngineClient(tmp_path)
    client.load(LoadSettings(bigram.target, context=4000), threads=1)
    with pytest.raises(EngineDied, match="SIGABRT"):
        for event in client.generate(ENDLESS):
            if isinstance(event, RoundFinished):
                os.kill(client.pid, signal.SIGABRT)
    client.close()


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "SIGHUP"])
def test_the_engine_ends_with_its_parent(bigram: BigramPair, tmp_path: Path, how: str) -> None:
    program = (
        "import signal, sys\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # ignored by whoever was started by nohup
        "from pathlib import Path\n"
        "from localspec.engine.process.client import EngineClient\n"
        "from localspec.engine.settings import *\n"
        "client = EngineClient(Path(sys.argv[2]))\n"
        "client.load(LoadSettings(Path(sys.argv[1]), context=4000), threads=1)\n"
        "print(client.pid, flush=True)\n"
        "while True:\n"
        "    for event in client.generate(GenerationRequest(prompt='The ', keep_cache=False)): pass\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(bigram.target), str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.send_signal(getattr(signal, how))
    parent.wait()
    parent.stdout.close()
    psutil.wait_procs([child], timeout=60)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_a_file_that_cannot_be_loaded_is_told_and_another_can_be(bigram: BigramPair, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(bigram.target.read_bytes()[:4000])
    with EngineClient(tmp_path) as client:
        with pytest.raises(LocalspecError, match=r"broken\.gguf"):
            client.load(LoadSettings(broken), threads=1)
        client.load(LoadSettings(bigram.target, context=64), threads=1)


def test_a_load_can_be_cancelled(bigram: BigramPair, tmp_path: Path) -> None:
    with EngineClient(tmp_path) as client, pytest.raises(Cancelled):
        client.load(LoadSettings(bigram.target), threads=1, on_progress=lambda progress: client.cancel())


def test_last_words_are_those_that_speak_of_a_failure() -> None:
    ordinary = ["llama_context: n_ctx = 512", "sched_reserve: graph nodes = 6", "print_info: file type = F16"]
    assert last_words(ordinary) == [] and last_words([]) == []
    fatal = "/x/ggml.c:12: GGML_ASSERT(a == b) failed"
    assert last_words([*ordinary, fatal, *ordinary]) == [fatal]
    assert last_words([fatal, *ordinary * 10]) == [], "long ago"
    stopped = ["process_ubatch: failed to compute graph, compute status: 1", "llama_decode: failed to decode, ret = 2"]
    assert last_words(stopped) == [], "a pass that was cancelled"
    card = ["CUDA error: out of memory", "  current device: 0", "ggml_cuda_host_malloc: failed to allocate 5 MiB"]
    assert last_words(card) == [card[0], card[2]]


def test_the_advice_after_a_death_depends_on_what_was_loaded(bigram: BigramPair, tmp_path: Path) -> None:
    for draft, words in ((None, "try again; log"), (bigram.draft, "try again with --no-draft; log")):
        client = EngineClient(tmp_path)
        client.load(LoadSettings(bigram.target, draft, context=64), threads=1)
        os.kill(client.pid, signal.SIGKILL)
        with pytest.raises(EngineDied) as caught:
            list(client.generate(limited(3)))
        client.close()
        assert words in str(caught.value) and "run out of memory: try a smaller --ctx" in str(caught.value)
        assert "last words" not in str(caught.value)


def test_memory_stays_flat_over_edits_and_regenerations(bigram: BigramPair, tmp_path: Path) -> None:
    with EngineClient(tmp_path) as client:
        client.load(LoadSettings(bigram.target, bigram.draft, context=1000), threads=1)
        engine, sizes = psutil.Process(client.pid), []
        for cycle in range(20):
            for last in (f"and so {cycle}", f"or {cycle}"):
                prompt = "The small model guesses a few words ahead " * 10 + last
                request = GenerationRequest(prompt=prompt, sampler=SamplerSettings(1.0), max_tokens=40)
                assert len(Answer(list(client.generate(request))).text) > 20
            sizes.append(engine.memory_info().rss)
    assert sizes[-1] < sizes[2] + (8 << 20)


def test_drafts_are_switched_off_and_on_between_answers(client: EngineClient) -> None:
    pid = client.pid
    on, off, again = (Answer(list(client.generate(limited(400, drafter)))) for drafter in ("model", "none", "model"))
    assert client.pid == pid and on.ids == off.ids == again.ids
    assert {round.drafter for round in off.rounds} == {"none"}
    assert off.finished.stats.drafted == 0 and off.finished.stats.target_passes == 400
    rates = [answer.finished.stats.acceptance_rate or 0 for answer in (on, again)]
    assert rates[0] > 0.3 and abs(rates[0] - rates[1]) < 0.05
