"""Other programs as arms: tokens by their own count, counters from /metrics, reports read as they are printed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from localspec.bench.endpoint import Endpoint
from localspec.bench.peers import parse_peer, read_report
from localspec.bench.records import Arm, Cell, Prompt
from localspec.ground.errors import EngineError, InvalidInput, LocalspecError, UnreadableFile
from localspec.remote.counters import read_counters

CELL = Cell(0, 0, 0, "main", "p", "code", "server", 0.0, 0, 64)
PROMPT = Prompt("p", "code", "Say something.")


class Server:
    """A scripted OpenAI-compatible server: `chunks` of text, a usage record at the end, counters that grow."""

    def __init__(self) -> None:
        self.chunks = ["one two three", " four", " five six"]
        self.usage: dict[str, Any] | None = {"prompt_tokens": 9, "completion_tokens": 12}
        self.timings: dict[str, Any] | None = None
        self.status = 200
        self.counters: dict[str, int] | None = None
        self.gain: dict[str, int] = {}
        self.asked: list[dict[str, Any]] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/v1/models":
                    owner.answer(self, json.dumps({"data": [{"id": "the-model"}]}))
                elif self.path == "/metrics" and owner.counters is not None:
                    lines = [f"vllm:spec_decode_num_{k} {v}" for k, v in owner.counters.items()]
                    owner.answer(self, "# HELP x\n" + "\n".join(lines) + "\n")
                else:
                    owner.answer(self, "no", 404)

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                owner.asked.append(json.loads(self.rfile.read(length)) | {"path": self.path})
                owner.stream(self)

            def log_message(self, *arguments: Any) -> None:
                """Quiet."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def answer(self, handler: BaseHTTPRequestHandler, text: str, status: int = 200) -> None:
        handler.send_response(status)
        handler.end_headers()
        handler.wfile.write(text.encode())

    def stream(self, handler: BaseHTTPRequestHandler) -> None:
        if self.status != 200:
            self.answer(handler, '{"error": "no such model"}', self.status)
            return
        events: list[dict[str, Any]] = [{"choices": [{"delta": {"content": chunk}}]} for chunk in ["", *self.chunks]]
        events.append({"choices": [{"delta": {}, "finish_reason": "stop"}], "timings": self.timings})
        events.append({"choices": [], "usage": self.usage})
        body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        if self.counters is not None:
            for name, gain in self.gain.items():
                self.counters[name] = self.counters.get(name, 0) + gain
        self.answer(handler, ": a comment\n\n" + body)

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def test_tokens_are_the_servers_count_and_never_chunks(server: Server) -> None:
    for url in (server.url, server.url + "/v1", server.url + "/v1/"):
        found = Endpoint(url).measure(CELL, PROMPT, Arm("server"), False)
        assert (found.emitted, found.prompt_tokens, found.tokens_counted) == (12, 9, True)
        assert (found.finish, found.answer_empty) == ("stop", False)
        assert 0 < found.ttft_seconds <= found.wall_seconds
    assert {request["path"] for request in server.asked} == {"/v1/chat/completions"}
    asked = server.asked[0]
    assert (asked["model"], asked["max_tokens"], asked["temperature"]) == ("the-model", 64, 0.0)
    assert asked["stream_options"] == {"include_usage": True}


def test_without_a_count_the_row_says_so(server: Server) -> None:
    server.usage = None
    found = Endpoint(server.url).measure(CELL, PROMPT, Arm("server"), False)
    assert (found.emitted, found.tokens_counted) == (3, False)


def test_counters_before_and_after_make_the_acceptance(server: Server) -> None:
    server.counters = {"drafts_total": 100, "draft_tokens_total": 300, "accepted_tokens_total": 200}
    per_position = {
        'accepted_tokens_per_pos_total{position="0"}': 4,
        'accepted_tokens_per_pos_total{position="1"}': 2,
    }
    server.gain = {"drafts_total": 5, "draft_tokens_total": 10, "accepted_tokens_total": 6, **per_position}
    found = Endpoint(server.url).measure(CELL, PROMPT, Arm("server"), False)
    assert (found.drafted, found.verified, found.accepted) == (10, 10, 6)
    assert (found.reached, found.kept) == ((5, 5), (4, 2))
    assert found.target_passes == 6


def test_llama_servers_timings_serve_where_there_are_no_counters(server: Server) -> None:
    server.timings = {"draft_n": 8, "draft_n_accepted": 5, "predicted_per_second": 20.5}
    found = Endpoint(server.url).measure(CELL, PROMPT, Arm("server"), False)
    assert (found.drafted, found.accepted, found.engine_rate) == (8, 5, 20.5)


def test_errors_say_what_the_server_said(server: Server) -> None:
    server.status = 404
    with pytest.raises(LocalspecError, match=r"answers 404: .*no such model"):
        Endpoint(server.url).measure(CELL, PROMPT, Arm("server"), False)
    server.close()
    with pytest.raises(EngineError, match="no answer from"):
        Endpoint(server.url, "m").measure(CELL, PROMPT, Arm("server"), False)


def test_the_key_is_sent_and_addresses_are_checked(server: Server) -> None:
    Endpoint(server.url.removeprefix("http://"), "mine", "secret").measure(CELL, PROMPT, Arm("server"), False)
    assert server.asked[-1]["model"] == "mine"
    for wrong in ("ftp://host", "http://", "http:///v1"):
        with pytest.raises(InvalidInput, match="no server's address"):
            Endpoint(wrong)


def test_counters_of_any_program_with_vllms_names() -> None:
    page = (
        'vllm:spec_decode_num_drafts_total{model_name="m",engine="0"} 7.0\n'
        'vllm:spec_decode_num_drafts_total{model_name="m",engine="1"} 3.0\n'
        "llamacpp:spec_decode_num_draft_tokens_total 21\n"
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="2"} 4\n'
        "vllm:spec_decode_num_drafts_created 1.7e9\n"
        "vllm:request_success_total 3\n"
    )
    assert read_counters(page) == {"drafts": 10.0, "draft_tokens": 21.0, "kept 2": 4.0}
    assert read_counters("") == {}


REPORT = """
0.41.450.129 I encoded   10 tokens in    1.660 seconds, speed:    6.023 t/s
0.41.450.132 I decoded   40 tokens in    2.000 seconds, speed:   20.000 t/s
0.41.450.135 I n_draft   = 3
0.41.450.136 I n_predict = 40
0.41.450.136 I n_drafted = 36
0.41.450.136 I n_accept  = 24
0.41.450.137 I accept    = 66.667%
"""


def test_the_report_of_llama_speculative_simple() -> None:
    found = read_report("text", REPORT, 128)
    assert (found.emitted, found.prompt_tokens, found.drafted, found.accepted) == (40, 10, 36, 24)
    assert (found.finish, found.target_passes) == ("stop", 16)
    assert found.rate == pytest.approx(20.0)
    assert read_report("text", REPORT, 40).finish == "length"
    with pytest.raises(EngineError, match=r"no report: .*out of memory"):
        read_report("", "ggml: out of memory", 128)


def test_peers_are_named_with_their_path(tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_text("")
    assert parse_peer(f"llama-server={program}") == ("llama-server", program)
    with pytest.raises(InvalidInput, match="not NAME=PATH"):
        parse_peer("vllm=/bin/true")
    with pytest.raises(UnreadableFile, match="no program"):
        parse_peer(f"llama-server={tmp_path / 'other'}")
