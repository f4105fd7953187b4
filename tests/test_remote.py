"""A server as the engine: `localspec serve` with all it knows, others with what they tell, hostile ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from localspec.engine.inspection import Facts
from localspec.engine.records import Finished, PrefillProgress, Provenance, RoundFinished
from localspec.engine.settings import GenerationRequest, SamplerSettings, SpeculationSettings
from localspec.engine.templates.chat_template import Message
from localspec.ground.errors import ContextFull, EngineDied, EngineError, InvalidInput, LocalspecError
from localspec.remote import is_url, open_remote
from localspec.remote.connection import parse_address
from localspec.remote.question import body_of
from localspec.session import LoadOptions, Session, open_session
from tests.bigram import BigramPair
from tests.engine_tools import Answer
from tests.serve_tools import WAIT, Live, ScriptedEngine, serving, until

ASK = GenerationRequest((Message("user", "hello"),), max_tokens=40, sampler=SamplerSettings(seed=4))


def test_addresses() -> None:
    address = parse_address("http://box.lan:8713/v1#some%2Fmodel")
    assert (address.host, address.port, address.root, address.model) == ("box.lan", 8713, "", "some/model")
    assert parse_address("https://h/proxy/v1/").root == "/proxy" and parse_address("https://h").https
    for wrong in (
        "ftp://x",
        "http://",
        "http://h:99999",
        "http://u:p@h",
        "http://h/a b",
        "http://h/?k=1",
        "box:8713",
    ):
        with pytest.raises(InvalidInput, match="no server's address"):
            parse_address(wrong)
    assert is_url("http://x") and not is_url("model.gguf")


def test_what_each_kind_of_server_is_told() -> None:
    sampler = SamplerSettings(0.5, 0, 0.9, 0.1, 1.2, 0.5, 0.0, 8, ((3, float("-inf")),), seed=2)
    request = GenerationRequest(
        (Message("user", "q", (("name", "Ann"),)),), None, sampler, max_tokens=5, stop=("x",),
        template_arguments=(("tools", [1]), ("enable_thinking", False)),
    )  # fmt: skip
    ours = body_of(request, "m", "localspec")
    assert ours["messages"] == [{"role": "user", "content": "q", "name": "Ann"}]
    assert ours["tools"] == [1] and ours["chat_template_kwargs"] == {"enable_thinking": False}
    assert ours["logit_bias"] == {"3": -100.0} and ours["repeat_last_n"] == 8 and ours["stop"] == ["x"]
    assert ours["speculative"] == {"drafter": "auto", "k": "auto", "rounds": True}
    vllm = body_of(request, "m", "vllm")
    assert vllm["top_k"] == -1 and vllm["repetition_penalty"] == 1.2 and "speculative" not in vllm
    plain = body_of(GenerationRequest(prompt="p"), "m", "other")
    assert set(plain) == {"model", "stream", "stream_options", "prompt", "temperature", "top_p"}
    with pytest.raises(InvalidInput, match="only localspec serve"):
        body_of(replace(request, speculation=SpeculationSettings("none")), "m", "llamacpp")


@pytest.fixture(scope="module")
def live(bigram: BigramPair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        options = LoadOptions(draft=str(bigram.draft), context=512, threads=1)
        with serving(lambda draft_off: open_session(str(bigram.target), options)) as running:
            yield running


def test_localspec_on_the_other_side_is_as_good_as_here(live: Live) -> None:
    """Tokens, provenance, rounds and statistics are those of the engine over there."""
    request = replace(ASK, speculation=SpeculationSettings("model", 3))
    with open_session(f"http://127.0.0.1:{live.port}") as session:
        assert session.info.draft is not None and session.info.context == 512
        assert session.info.target.path.name == "bigram-target.gguf"
        there = Answer(list(session.generate(request)))
    here = Answer(list(live.host.session.generate(request)))
    assert there.ids == here.ids and there.text == here.text
    assert there.tokens == here.tokens, "ids, provenance and text of every token"
    assert [(r.index, r.drafted, r.accepted, r.emitted) for r in there.rounds] == [
        (r.index, r.drafted, r.accepted, r.emitted) for r in here.rounds
    ]
    for name in (
        "emitted",
        "verified",
        "accepted",
        "target_passes",
        "prompt_tokens",
        "acceptance_rate",
        "state",
    ):
        assert getattr(there.finished.stats, name) == getattr(here.finished.stats, name), name
    assert there.finished.stats.accepted > 0 and there.finished.reason == "length"


def test_a_raw_prompt_and_a_refusal(live: Live) -> None:
    with open_remote(f"http://127.0.0.1:{live.port}") as session:
        assert Answer(list(session.generate(GenerationRequest(prompt="abc", max_tokens=7)))).finished.stats.emitted == 7
        with pytest.raises(ContextFull) as caught:
            list(session.generate(GenerationRequest(prompt="x" * 900)))
        assert (caught.value.tokens, caught.value.capacity) == (900, 512)
        assert Answer(list(session.generate(GenerationRequest(prompt="abc", max_tokens=0)))).text == ""


def test_a_server_in_front_of_a_server(live: Live) -> None:
    """Where the models lie is the other one's secret, and nobody asks it whether its engine lives."""
    with serving(lambda draft_off: open_remote(f"http://127.0.0.1:{live.port}")) as front:
        assert front.chat(max_tokens=3).json["usage"]["completion_tokens"] == 3
        front.host.look_after_engine()
        assert front.get("/v1/pair").json["fit"] is None and front.host.state == "ready"
        assert front.get("/metrics").status == 200
        error = front.chat("x" * 900).json["error"]
        assert error["code"] == "context_length_exceeded" and error["n_ctx"] == 512


def test_what_only_the_machine_with_the_models_can_do(live: Live) -> None:
    with open_remote(f"http://127.0.0.1:{live.port}") as session:
        assert session.concessions == [] and session.client.pid is None
        for do in (lambda: session.client.inspect(Facts()), lambda: session.client.load_draft(None)):
            with pytest.raises(InvalidInput):
                do()


def test_cancel_hangs_up_and_keeps_the_text(live: Live) -> None:
    with open_remote(f"http://127.0.0.1:{live.port}") as session:
        events = []
        for event in session.generate(replace(ASK, max_tokens=400)):
            events.append(event)
            if len(events) == 5:
                threading.Thread(target=session.client.cancel).start()
        end = events[-1]
        assert isinstance(end, Finished) and end.reason == "cancelled" and 0 < len(end.text) < 400
        until(lambda: live.host.desk.running == 0)
        assert Answer(list(session.generate(ASK))).finished.reason == "length"


def test_a_caller_that_stops_early_hangs_up() -> None:
    engine = ScriptedEngine(pace=0.002)
    with serving(engine) as live, open_remote(f"http://127.0.0.1:{live.port}") as session:
        for event in session.generate(replace(ASK, max_tokens=1000)):
            if isinstance(event, RoundFinished):
                break
        until(lambda: live.host.desk.running == 0)
        assert engine.rounds < 400


class Stub(BaseHTTPRequestHandler):
    """A server that says what a test wants."""

    pages: dict[str, str] = {}  # noqa: RUF012 - replaced by each test
    chunks: list[Any] = []  # noqa: RUF012
    seen: list[Any] = []  # noqa: RUF012
    status = 200

    def do_GET(self) -> None:
        page = self.pages.get(self.path)
        self._send(200 if page is not None else 404, (page or "no").encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((json.loads(body), self.headers.get("Authorization")))
        lines = [chunk if isinstance(chunk, bytes) else b"data: " + json.dumps(chunk).encode() for chunk in self.chunks]
        self._send(self.status, b"\n\n".join(lines) + b"\n\n")

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def stub() -> Iterator[tuple[type[Stub], str]]:
    class Own(Stub):
        pages: dict[str, str] = {  # noqa: RUF012
            "/v1/models": json.dumps({"data": [{"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx": 99}}]})
        }
        seen: list[Any] = []  # noqa: RUF012

    server = ThreadingHTTPServer(("127.0.0.1", 0), Own)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield Own, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def delta(text: str, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}], **more}


END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
DONE = b"data: [DONE]"


def ask(session: Session) -> Answer:
    return Answer(list(session.generate(ASK)))


def test_llama_servers_timings_make_the_statistics(
    stub: tuple[type[Stub], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_API_KEY", "secret")
    server, url = stub
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 3}}
    server.chunks = [
        b": 4 of 9 prompt tokens read", delta("a "), delta("b "), delta("c"),
        END | {"timings": {"draft_n": 6, "draft_n_accepted": 2}}, {"choices": [], "usage": usage}, DONE,
    ]  # fmt: skip
    with open_remote(url) as session:
        assert session.info.context == 99 and session.info.build == f"llama.cpp at {url}"
        events = list(session.generate(ASK))
        assert events[0] == PrefillProgress(4, 9)
        answer = Answer(events)
    stats = answer.finished.stats
    assert answer.text == "a b c" and answer.finished.reason == "stop"
    assert [token.provenance for token in answer.tokens] == [Provenance.PLAIN] * 3
    assert (stats.prompt_tokens, stats.reused_tokens, stats.emitted) == (9, 3, 4)
    assert (stats.verified, stats.accepted, stats.acceptance_rate) == (6, 2, pytest.approx(1 / 3))
    assert stats.mean_acceptance_length == 2.0 and stats.state == "on"
    assert answer.ids == (), "ids that nobody told are not made up"
    assert stats.prompt_tokens_per_second == pytest.approx(6 / (stats.ttft_seconds or 0))
    body, key = server.seen[0]
    assert key == "Bearer secret" and body["model"] == "m" and body["top_k"] == 40


def test_counters_in_vllms_names_make_the_statistics_too(stub: tuple[type[Stub], str]) -> None:
    server, url = stub
    server.pages = {
        "/v1/models": json.dumps({"data": [{"id": "x"}, {"id": "big", "owned_by": "vllm", "max_model_len": 77}]}),
        "/metrics": "".join(
            f'vllm:spec_decode_num_{name}_tokens_total{{m="big"}} {value}\n'
            for name, value in (("draft", "10.0"), ("accepted", "4"))
        ),
    }
    server.chunks = [delta("ab"), END, DONE]
    with open_remote(f"{url}#big") as session:
        assert session.info.context == 77
        stream = session.generate(ASK)
        first = next(stream)
        server.pages["/metrics"] = server.pages["/metrics"].replace("10.0", "14").replace("} 4", "} 7")
        answer = Answer([first, *stream])
    assert (answer.finished.stats.verified, answer.finished.stats.accepted) == (4, 3)
    with pytest.raises(InvalidInput, match="It has: x, big"):
        open_remote(f"{url}#none")


def test_thoughts_that_come_apart_are_marked(stub: tuple[type[Stub], str]) -> None:
    server, url = stub
    thought = {"choices": [{"delta": {"reasoning_content": "hm"}}]}
    server.chunks = [thought, thought, delta("yes"), END, DONE]
    with open_remote(url) as session:
        assert ask(session).text == "<think>hmhm</think>\nyes"


@pytest.mark.parametrize(
    ("status", "chunks", "kind", "words"),
    [
        (200, [delta("half")], EngineDied, "in the middle"),
        (200, [delta("x"), {"error": {"message": "out of\nmemory"}}], EngineError, "out of memory"),
        (401, [{"error": {"message": "no key"}}], InvalidInput, "401: .*LOCALSPEC_API_KEY"),
        (
            400,
            [b'{"error": {"message": "bad \\u001b[31m value"}}'],
            InvalidInput,
            r"400: bad \\x1b\[31m value",
        ),
        (
            400,
            [b'{"error": {"message": "too long", "n_prompt_tokens": 70, "n_ctx": 64}}'],
            ContextFull,
            "70 tokens .* 64",
        ),
        (429, [b"busy"], EngineError, "429: busy"),
        (500, [b"<html>"], EngineError, "500"),
    ],
)
def test_failures_are_one_line(
    stub: tuple[type[Stub], str], status: int, chunks: list[Any], kind: type[LocalspecError], words: str
) -> None:
    server, url = stub
    server.status, server.chunks = status, chunks
    with open_remote(url) as session, pytest.raises(kind, match=words) as caught:
        ask(session)
    assert "\n" not in str(caught.value)


ODD: list[Any] = [None, True, -1, 1e300, "x" * 50, [], {}, [[1, "accepted", "t"]], {"a": [None]}, 2**70]


def test_nonsense_from_a_server_is_never_a_crash(stub: tuple[type[Stub], str]) -> None:
    server, url = stub
    server.pages["/v1/models"] = json.dumps({"data": [{"id": 5, "owned_by": "localspec", "meta": 3}]})
    server.pages["/v1/pair"] = json.dumps({"engine": {"target": [], "draft": {"path": "../../x", "parameters": "y"}}})
    names = ("choices", "usage", "timings", "speculative", "round", "tokens")
    server.chunks = [{name: value} for name in names for value in ODD]
    for field in ("verified", "emitted", "provenance", "drafter", "index", "verify_seconds", "guesses"):
        server.chunks += [{"choices": [], "round": {field: value}} for value in ODD]
    for field in (
        "accepted",
        "acceptance_rate",
        "accepted_per_position",
        "rounds_by_drafter",
        "state",
        "reason",
    ):
        server.chunks += [{"speculative": {field: value}} for value in ODD]
    server.chunks += [b"data: {broken", b"event: x", delta("fine"), END, DONE]
    with open_remote(url) as session:
        answer = ask(session)
    assert answer.text.endswith("fine") and answer.finished.reason == "stop"


@pytest.mark.parametrize("page", ["", "[]", '{"data": []}', '{"data": 3}', "<html>"])
def test_something_else_that_listens_is_said(stub: tuple[type[Stub], str], page: str) -> None:
    server, url = stub
    server.pages["/v1/models"] = page
    with pytest.raises(EngineError, match="OpenAI-compatible"):
        open_remote(url)


def test_nobody_there() -> None:
    with pytest.raises(EngineError, match=r"no answer from http://127\.0\.0\.1:9"):
        open_remote("http://127.0.0.1:9")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    return subprocess.run(
        [sys.executable, "-m", "localspec", "run", *arguments],
        capture_output=True, text=True, timeout=WAIT, check=False, env=environment, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_the_command(live: Live) -> None:
    url = f"http://127.0.0.1:{live.port}"
    expected = Answer(list(live.host.session.generate(ASK))).text
    base = ["--url", url, "hello", "-n", "40", "--seed", "4"]
    done = run(*base)
    assert done.returncode == 0 and done.stdout.rstrip("\n") == expected.rstrip("\n") and "40 tokens" in done.stderr
    facts = json.loads(run(*base, "--json", "-k", "3", "--drafter", "model").stdout)
    assert facts["text"] == expected and facts["stats"]["accepted"] > 0 and len(facts["tokens"]) == 40
    assert facts["engine"]["draft"]["path"] == "bigram-draft.gguf"
    for wrong in (
        ["pair.gguf", *base],
        [*base, "--ctx", "9"],
        ["--url", "http://127.0.0.1:9#x", "hi", "--draft", "d"],
    ):
        assert run(*wrong).returncode == 2
    assert run("--url", "http://127.0.0.1:9", "hi").returncode == 6
