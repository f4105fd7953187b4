"""`localspec serve` with real libllama on a pair with known distributions: the official client, seeds, grammars."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")

from localspec.ground.machine import resident_bytes
from localspec.session import LoadOptions, open_session
from tests.bigram import SIZE, BigramPair
from tests.serve_tools import WAIT, Live, serving, until

CHAT = "/v1/chat/completions"
FIXED = {"k": 4, "drafter": "model"}


@pytest.fixture(scope="module")
def live(bigram: BigramPair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        options = LoadOptions(draft=str(bigram.draft), context=1024, threads=1)
        with serving(lambda draft_off: open_session(str(bigram.target), options)) as running:
            yield running


def text(reply: Any) -> str:
    assert reply.status == 200, reply.body
    return str(reply.json["choices"][0]["message"]["content"])


def test_text_depends_on_the_seed_alone(live: Live) -> None:
    """Whole and streamed, with and without drafts, whatever their length."""
    ways = [
        {}, {"stream": True}, {"speculative": {"enabled": False}}, {"speculative": FIXED, "stream": True},
        {"speculative": {"k": 1, "drafter": "model"}}, {"speculative": {"k": 3, "drafter": "lookup"}, "stream": True},
    ]  # fmt: skip
    for settings in ({"seed": 11}, {"seed": 12, "temperature": 1.2}, {"temperature": 0}):
        replies = [live.chat("tell me", max_tokens=60, **settings, **way) for way in ways]
        texts = [r.streamed if way.get("stream") else text(r) for r, way in zip(replies, ways, strict=True)]
        assert len(set(texts)) == 1 and len(texts[0]) == 60, settings
    assert text(live.chat("tell me", max_tokens=60, seed=13)) != text(live.chat("tell me", max_tokens=60, seed=14))


def test_counts_are_the_engines_own_and_metrics_agree_with_them(live: Live) -> None:
    before = live.host.statistics.live()
    answer = live.chat("count", max_tokens=50, speculative=FIXED).json
    after = live.host.statistics.live()
    stats = answer["speculative"]
    assert answer["usage"]["completion_tokens"] == stats["emitted"] == 50
    assert stats["verified"] == after["verified"] - before["verified"] > 0
    assert stats["accepted"] == after["accepted"] - before["accepted"] > 0
    assert stats["target_passes"] == after["target_passes"] - before["target_passes"] < 50
    page = live.get("/metrics").body.decode()
    rate = next(line for line in page.splitlines() if line.startswith("spec_dec_acceptance_rate "))
    assert float(rate.split()[1]) == pytest.approx(after["accepted"] / after["verified"])


def test_the_next_turn_reuses_what_it_shares(live: Live) -> None:
    first = live.chat("a question of some length", max_tokens=20, seed=1).json
    turns = [
        {"role": "user", "content": "a question of some length"},
        {"role": "assistant", "content": first["choices"][0]["message"]["content"]},
        {"role": "user", "content": "and another"},
    ]
    second = live.post(CHAT, {"messages": turns, "max_tokens": 5}).json
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= first["usage"]["prompt_tokens"] + 18


def test_stop_strings_end_the_text_before_them(live: Live) -> None:
    plain = text(live.chat("stop here", max_tokens=80, seed=5))
    stop = plain[30:33]
    for stream in (False, True):
        reply = live.chat("stop here", max_tokens=80, seed=5, stop=["never so", stop], stream=stream)
        got = reply.streamed if stream else text(reply)
        assert got == plain[: plain.index(stop)]
        last = reply.events[-1] if stream else reply.json
        assert last["choices"][0]["finish_reason"] == "stop"


def test_a_prompt_longer_than_the_context_is_a_400_that_names_both(live: Live) -> None:
    for stream in (False, True):
        reply = live.chat("x" * 2000, stream=stream)
        error = reply.json["error"]
        assert reply.status == 400 and error["code"] == "context_length_exceeded"
        assert error["n_prompt_tokens"] > error["n_ctx"]
        assert "1024" in error["message"] and "20" in error["message"]


def test_control_tokens_in_a_message_are_text(live: Live) -> None:
    spelled = live.chat("<|im_end|><|im_start|>", max_tokens=1).json["usage"]["prompt_tokens"]
    plain = live.chat("x" * len("<|im_end|><|im_start|>"), max_tokens=1).json["usage"]["prompt_tokens"]
    assert spelled == plain, "each character is one token of this vocabulary"


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "kind": {"enum": ["a\"b", "c\\d", "é"]},
        "list": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
        "maybe": {"type": ["boolean", "null"]},
    },
    "required": ["name", "kind", "list", "maybe"],
}  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
def test_answers_in_a_schema_are_json_of_that_shape_and_the_reason_is_said(live: Live, stream: bool) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "thing", "schema": SCHEMA}}
    for seed in range(5):
        reply = live.chat("json", response_format=wanted, max_tokens=400, seed=seed, stream=stream)
        value = json.loads(reply.streamed if stream else text(reply))
        assert list(value) == ["name", "kind", "list", "maybe"]
        assert len(value["name"]) <= 6 and value["kind"] in SCHEMA["properties"]["kind"]["enum"]  # type: ignore[index]
        assert all(isinstance(n, int) for n in value["list"]) and value["maybe"] in (True, False, None)
        last = reply.events[-1] if stream else reply.json
        assert last["choices"][0]["finish_reason"] == "stop"
        stats = last["speculative"]
        assert (stats["state"], stats["reason"], stats["drafted"]) == ("off", "grammar", 0)
    assert live.chat("text", max_tokens=20, speculative=FIXED).json["speculative"]["drafted"] > 0


def test_a_grammar_that_begins_with_itself_is_a_400(live: Live) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": "#"}}}
    assert live.chat(response_format=wanted).status == 400
    assert live.chat(max_tokens=1).status == 200


def test_a_bias_against_all_that_the_grammar_allows_is_a_400_not_a_crash(live: Live) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": 7}}}
    pid = live.host.session.client.pid
    banned = {str(i): -100 for i in range(250)}
    assert live.chat(response_format=wanted, logit_bias=banned, temperature=0).status == 400
    assert live.chat(max_tokens=1).status == 200 and live.host.session.client.pid == pid


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1}, {"seed": 3}])
def test_a_client_that_bans_every_token_is_told_so(live: Live, stream: bool, sampling: dict[str, Any]) -> None:
    banned = {str(token): -100 for token in range(SIZE)}
    reply = live.chat(logit_bias=banned, stream=stream, **sampling)
    if stream and reply.status == 200:  # its first event came before the first token
        assert reply.events[-1]["error"]["type"] == "invalid_request_error"
        assert "banned" in reply.events[-1]["error"]["message"]
    else:
        assert reply.status == 400 and "banned" in reply.json["error"]["message"]
    assert live.chat(max_tokens=1).status == 200


def test_departures_free_the_engine_and_its_memory_stays_flat(live: Live) -> None:
    """Client gone after ten tokens: idle within a second, the next first token as fast as a fresh one, 50 times."""

    def first_token_seconds() -> float:
        return float(live.chat("next", max_tokens=2).json["speculative"]["ttft_seconds"])

    fresh = sorted(first_token_seconds() for _ in range(5))[2]
    pid, idle, after, sizes = live.host.session.client.pid, [], [], []
    for _ in range(50):
        connection, response = live.start_stream("go on", max_tokens=900, temperature=1.0)
        for _ in range(20):
            response.readline()
        response.close()
        connection.close()
        left = time.perf_counter()
        until(lambda: live.host.desk.running == 0)
        idle.append(time.perf_counter() - left)
        after.append(first_token_seconds())
        sizes.append(resident_bytes(pid))
    assert sorted(idle)[25] < 1.0  # each one within WAIT; single ones are late on a busy machine
    assert sorted(after)[25] < 3 * fresh + 0.05
    assert max(sizes[25:]) - sizes[10] < 4 << 20


def test_a_killed_engine_comes_back(live: Live) -> None:
    os.kill(live.host.session.client.pid, signal.SIGKILL)
    assert live.chat(max_tokens=1).status == 500
    until(lambda: live.get("/health").status == 200)
    assert text(live.chat(max_tokens=4))


def test_an_idle_engine_that_was_killed_is_missed_by_the_health_page(live: Live) -> None:
    restarts = live.host.restarts
    os.kill(live.host.session.client.pid, signal.SIGKILL)
    until(lambda: live.get("/health").status == 503)
    until(lambda: live.get("/health").status == 200)
    assert live.host.restarts == restarts + 1
    assert text(live.chat(max_tokens=4)), "no request had to fail for it"


def test_the_official_client(live: Live) -> None:
    openai = pytest.importorskip("openai", reason="the openai package is not installed")
    with openai.OpenAI(base_url=f"http://127.0.0.1:{live.port}/v1", api_key="none", max_retries=0) as client:
        assert [model.id for model in client.models.list()] == [live.host.name]
        messages = [{"role": "user", "content": "hello"}]
        asked = {"model": "any", "messages": messages, "max_tokens": 30, "seed": 3}
        whole = client.chat.completions.create(**asked, extra_body={"speculative": {"k": 2}})
        assert whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 30
        assert whole.model_extra["speculative"]["emitted"] == 30
        stream = client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
        parts = list(stream)
        joined = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
        assert joined == whole.choices[0].message.content
        assert parts[-1].usage.total_tokens == whole.usage.total_tokens
        assert client.completions.create(model="x", prompt="abc", max_tokens=3).usage.completion_tokens == 3
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(**asked, n=2)
        assert caught.value.param == "n" and caught.value.code == "unsupported_parameter"


def serve_process(pair: BigramPair, folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "localspec", "serve", str(pair.target), "--draft", str(pair.draft)]
    return subprocess.Popen(
        [*command, "--port", "0", "--ctx", "512", *options],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": os.getcwd()},
    )  # fmt: skip


@pytest.mark.parametrize(("sign", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_command_within_ten_seconds(
    bigram: BigramPair, tmp_path: Path, sign: signal.Signals, code: int
) -> None:
    process = serve_process(bigram, tmp_path)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("listening on http://127.0.0.1:")
        port = int(line.split()[2].rstrip(";").rsplit(":", 1)[1])

        def ready() -> bool:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)
            connection.request("GET", "/health")
            return connection.getresponse().status == 200

        until(ready)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)
        connection.request(
            "POST",
            "/v1/completions",
            b'{"prompt": "x", "stream": true}',
            {"Content-Type": "application/json"},
        )
        connection.getresponse().readline()
        process.send_signal(sign)
        start = time.perf_counter()
        assert process.wait(WAIT) == code
        assert time.perf_counter() - start < 10
        assert "Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--host", "0.0.0.0"], "no key is asked for"),
        (["--host", "192.0.2.1", "--insecure-no-key"], "cannot listen on 192.0.2.1"),
        (["--api-key", "with space"], "printable ASCII"),
        (["--temp", "-1"], "temperature"),
    ],
)
def test_wrong_options_end_with_2_and_a_line(
    bigram: BigramPair, tmp_path: Path, options: list[str], words: str
) -> None:
    process = serve_process(bigram, tmp_path, *options)
    _, errors = process.communicate(timeout=WAIT)
    assert process.returncode == 2 and words in errors and errors.count("\n") == 1


def test_what_is_wrong_with_the_files_is_said_before_anybody_is_let_in(tmp_path: Path) -> None:
    for name, content in (("missing.gguf", None), ("text.gguf", b"no model at all\n" * 9)):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        command = [sys.executable, "-m", "localspec", "serve", str(path), "--port", "0"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, stdin=subprocess.DEVNULL)
        assert done.returncode == 2 and "listening" not in done.stderr
        assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1 and name in done.stderr
