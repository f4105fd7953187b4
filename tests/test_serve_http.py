"""The protocol of `localspec serve` over real HTTP: answers, streams, parameters, refusals, states."""

from __future__ import annotations

import json
import math
import socket
import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("uvicorn")

from localspec.engine.settings import SamplerSettings, SpeculationSettings
from localspec.ground.errors import ContextFull, EngineDied, EngineError, IncompatiblePair, InvalidInput
from tests.serve_tools import WAIT, Live, ScriptedEngine, serving, until

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture(scope="module")
def live(engine: ScriptedEngine) -> Iterator[Live]:
    with serving(engine) as running:
        yield running


def test_chat_answer_has_openais_shape_counts_and_the_statistics(live: Live) -> None:
    reply = live.chat("one two three", model="whatever", max_tokens=5)
    answer = reply.json
    assert reply.status == 200
    assert answer["object"] == "chat.completion" and answer["id"].startswith("chatcmpl-")
    assert answer["model"] == "scripted-pair", "the loaded pair is named, whatever was asked for"
    choice = answer["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "one two three 3 4 ", "refusal": None}
    assert choice["finish_reason"] == "length"
    usage = answer["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (3, 5, 8)
    assert usage["completion_tokens_details"] == {
        "accepted_prediction_tokens": 2,
        "rejected_prediction_tokens": 4,
    }
    assert answer["speculative"]["acceptance_rate"] == pytest.approx(2 / 6)
    assert answer["speculative"]["rounds_by_drafter"] == {"model": 3}


def test_stream_gives_the_same_text_and_ends_with_the_statistics(live: Live) -> None:
    whole = live.chat("a b c", max_tokens=7).json["choices"][0]["message"]["content"]
    reply = live.chat("a b c", max_tokens=7, stream=True)
    assert reply.headers["content-type"].startswith("text/event-stream")
    events = reply.events
    assert reply.streamed == whole
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert events[-1]["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "length"}
    assert events[-1]["speculative"]["emitted"] == 7
    assert len({event["id"] for event in events}) == 1
    assert all("usage" not in event for event in events)


def test_usage_chunk_comes_last_when_asked_for(live: Live) -> None:
    events = live.chat(stream=True, max_tokens=3, stream_options={"include_usage": True}).events
    assert events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] == 3
    assert events[-1]["speculative"]["emitted"] == 3
    assert all(event["usage"] is None for event in events[:-1])


def test_text_completion_whole_and_streamed(live: Live) -> None:
    body = {"prompt": "x y", "max_tokens": 3}
    answer = live.post("/v1/completions", body).json
    assert answer["object"] == "text_completion" and answer["choices"][0]["text"] == "x y 2 "
    events = live.post("/v1/completions", {**body, "stream": True}).events
    assert "".join(event["choices"][0]["text"] for event in events) == "x y 2 "
    assert live.post("/v1/completions", {"prompt": ["only one"], "max_tokens": 1}).status == 200


def test_every_parameter_reaches_the_engine(live: Live, engine: ScriptedEngine) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    reply = live.chat(
        max_completion_tokens=4, temperature=0.5, top_p=0.9, top_k=-1, min_p=0.1, presence_penalty=1,
        frequency_penalty=-1, repetition_penalty=1.1, repeat_last_n=8, seed=7, stop=["END", "END"],
        logit_bias={"5": 2.5, "6": -100}, tools=tools, chat_template_kwargs={"enable_thinking": False},
        speculative={"k": 4, "drafter": "lookup"}, user="me", n=1, store=False, logprobs=False,
    )  # fmt: skip
    assert reply.status == 200, reply.body
    request = engine.requests[-1]
    assert request.max_tokens == 4 and request.stop == ("END",)
    assert request.sampler == SamplerSettings(0.5, 0, 0.9, 0.1, 1.1, 1.0, -1.0, 8, ((5, 2.5), (6, -math.inf)), seed=7)
    assert request.speculation == SpeculationSettings("lookup", 4)
    assert dict(request.template_arguments) == {"tools": tools, "enable_thinking": False}
    assert request.grammar is None


def test_nulls_are_defaults_and_off_switches_work(live: Live, engine: ScriptedEngine) -> None:
    names = (
        "temperature",
        "top_p",
        "stop",
        "seed",
        "tools",
        "response_format",
        "logit_bias",
        "n",
        "stream_options",
    )
    assert live.chat(max_tokens=1, **dict.fromkeys(names)).status == 200
    assert engine.requests[-1].sampler == SamplerSettings()
    live.chat(max_tokens=1, speculative={"enabled": False})
    assert engine.requests[-1].speculation == SpeculationSettings("none")
    live.chat(max_tokens=1, tools=[{"type": "function", "function": {"name": "f"}}], tool_choice="none")
    assert engine.requests[-1].template_arguments == ()


def test_messages_of_every_role_and_text_parts(live: Live, engine: ScriptedEngine) -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]
    messages = [
        {"role": "developer", "content": "be brief"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            "name": "Ann",
        },
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
    ]
    assert live.post(CHAT, {"messages": messages, "max_tokens": 1}).status == 200
    system, user, assistant, tool = engine.requests[-1].messages
    assert (system.role, system.content) == ("system", "be brief")
    assert (user.content, user.extras) == ("ab", (("name", "Ann"),))
    called = [{**calls[0], "function": {"name": "f", "arguments": {"a": 1}}}]
    assert (assistant.content, dict(assistant.extras)) == ("", {"tool_calls": called})
    assert (tool.role, tool.extras) == ("tool", (("tool_call_id", "c1"),))


def test_json_answers_are_asked_for_by_a_grammar(live: Live, engine: ScriptedEngine) -> None:
    assert live.chat(max_tokens=1, response_format={"type": "json_object"}).status == 200
    assert engine.requests[-1].grammar is not None and "root ::= object" in engine.requests[-1].grammar
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    asked = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    assert live.chat(max_tokens=1, response_format=asked).status == 200
    assert '\\"a\\"' in (engine.requests[-1].grammar or "")
    asked["json_schema"]["schema"] = {"type": "string", "pattern": "^a$"}  # type: ignore[index]
    reply = live.chat(max_tokens=1, response_format=asked)
    assert reply.status == 400 and "pattern" in reply.json["error"]["message"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 2), ("logprobs", True), ("top_logprobs", 3), ("functions", []), ("audio", {"voice": "x"}),
        ("reasoning_effort", "low"), ("store", True), ("tool_choice", "required"), ("ignore_eos", True),
        ("parallel_tool_calls", False), ("modalities", ["audio"]), ("mirostat", 2), ("best_of", 1),
    ],
)  # fmt: skip
def test_what_cannot_be_honoured_is_refused_by_name(live: Live, field: str, value: object) -> None:
    reply = live.chat(**{field: value})
    error = reply.json["error"]
    assert reply.status == 400 and error["param"] == field and field in error["message"]
    assert error["type"] == "invalid_request_error" and error["code"] in (
        "unsupported_parameter",
        "unknown_parameter",
    )


def test_images_are_refused_by_name(live: Live) -> None:
    content = [{"type": "text", "text": "what?"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    reply = live.post(CHAT, {"messages": [{"role": "user", "content": content}]})
    assert reply.status == 400 and reply.json["error"]["code"] == "unsupported_content"
    assert "image_url" in reply.json["error"]["message"]
    assert reply.json["error"]["param"] == "messages[0].content[1].type"


def test_a_typing_mistake_gets_the_nearest_name(live: Live) -> None:
    assert "Did you mean temperature?" in live.chat(temprature=1).json["error"]["message"]


def test_models_health_pair_and_unknown_places(live: Live) -> None:
    assert live.get("/health").json == {"status": "ok", "detail": "ready"}
    assert [model["id"] for model in live.get("/v1/models").json["data"]] == ["scripted-pair"]
    assert live.get("/v1/models/scripted-pair").json["owned_by"] == "localspec"
    assert live.get("/v1/models/other").status == 404
    assert live.get("/v1/nothing").json["error"]["type"] == "not_found_error"
    wrong = live.get(CHAT)
    assert wrong.status == 405 and wrong.headers["allow"] == "POST"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ContextFull(9, 8), 400, "context_length_exceeded"),
        (InvalidInput("the chat template says: roles must alternate"), 400, "invalid_value"),
        (EngineError("libllama failed"), 500, "engine_error"),
        (ZeroDivisionError("secret detail"), 500, "internal_error"),
    ],
)
def test_errors_of_the_engine_have_a_status_and_no_traceback(
    live: Live, engine: ScriptedEngine, error: Exception, status: int, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for stream in (False, True):
        engine.fails.append(error)
        reply = live.chat(stream=stream)
        assert reply.status == status and reply.json["error"]["code"] == code
        assert b"Traceback" not in reply.body and b"secret" not in reply.body
    assert live.chat(max_tokens=1).status == 200
    assert ("secret detail" in capsys.readouterr().err) == isinstance(error, ZeroDivisionError), "bugs are logged"


def test_health_is_503_while_loading_and_the_rest_says_so() -> None:
    engine, gate = ScriptedEngine(), threading.Event()

    def open_pair(draft_off: bool) -> ScriptedEngine:
        gate.wait(WAIT)
        return engine

    with serving(open_pair, ready=False) as live:
        assert live.get("/health").status == 503 and live.get("/health").json["status"] == "loading"
        refused = live.chat()
        assert refused.status == 503 and refused.json["error"]["code"] == "loading"
        assert refused.headers["retry-after"] == "2"
        assert live.get("/metrics").status == 200
        gate.set()
        until(lambda: live.get("/health").status == 200)


def test_a_pair_that_cannot_be_loaded_ends_the_server_with_its_error() -> None:
    from localspec.serve import run
    from localspec.serve.app import Options
    from localspec.serve.gate import Rules
    from localspec.serve.requests import Defaults

    def open_pair(draft_off: bool) -> ScriptedEngine:
        raise IncompatiblePair("these two do not match")

    options = Options(Rules("127.0.0.1"), Defaults(SamplerSettings(), SpeculationSettings()))
    heard: list[str] = []
    with pytest.raises(IncompatiblePair, match="do not match"):
        run.serve(open_pair, options, ("127.0.0.1", 0), 4, heard.append)  # type: ignore[arg-type]
    assert heard[0].startswith("http://127.0.0.1:")


def test_a_dead_engine_is_started_again_without_the_draft(capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[bool] = []
    engines = [ScriptedEngine() for _ in range(3)]

    def open_pair(draft_off: bool) -> ScriptedEngine:
        asked.append(draft_off)
        return engines[len(asked) - 1]

    with serving(open_pair) as live:
        engines[0].fails.append(EngineDied("the engine's process ended (SIGKILL)"))
        reply = live.chat()
        assert reply.status == 500 and "SIGKILL" in reply.json["error"]["message"]
        until(lambda: live.host.state == "ready" and len(asked) == 2)
        assert live.chat(max_tokens=1).status == 200
        assert asked == [False, True] and engines[0].closed
        pair = live.get("/v1/pair").json
        assert pair["restarts"] == 1 and "SIGKILL" in pair["draft_off"]
    assert "starting the engine again, without the draft" in capsys.readouterr().err


def test_the_pair_page_follows_the_answers() -> None:
    engine = ScriptedEngine()
    engine.files.name = "models/t.gguf"
    with serving(engine) as live:
        assert live.get("/v1/pair").json["statistics"]["last_answer"] is None
        live.chat(max_tokens=4)
        page = live.get("/v1/pair").json
        assert page["name"] == "t" and page["state"] == "ready", "a path says nothing about this disk"
        assert page["engine"]["target"]["path"] == "t.gguf" and page["engine"]["context"] == 4096
        assert page["statistics"]["generated_tokens"] == 4 and page["statistics"]["verified"] == 4
        assert page["statistics"]["last_answer"]["emitted"] == 4


def test_answers_that_take_too_long_are_stopped() -> None:
    with serving(ScriptedEngine(pace=0.02), answer_seconds=0.2) as live:
        reply = live.chat()
        assert reply.status == 504 and reply.json["error"]["code"] == "timeout"
        streamed = live.chat(stream=True)
        assert streamed.status == 200 and streamed.events[-1]["error"]["code"] == "timeout"
        assert live.chat(max_tokens=2).status == 200


def test_a_shutdown_lets_the_answer_finish_and_refuses_the_rest() -> None:
    engine = ScriptedEngine(pace=0.01)
    with serving(engine) as live:
        connection, response = live.start_stream(max_tokens=40)
        waiting: list[int] = []
        thread = threading.Thread(target=lambda: waiting.append(live.chat(max_tokens=1).status))
        thread.start()
        until(lambda: live.host.desk.waiting == 1)
        live.server.should_exit = True
        body = response.read().decode()
        thread.join(WAIT)
        assert waiting == [503]
        assert '"finish_reason":"length"' in body and body.rstrip().endswith("[DONE]")
        connection.close()
        live.thread.join(WAIT)
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", live.port), 1)


def test_the_log_names_path_and_status_but_no_contents(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(ScriptedEngine(), access_log=True) as live:
        live.chat("my secret words", max_tokens=1)
        live.get("/health?token=secret")
    lines = [line for line in capsys.readouterr().err.splitlines() if "127.0.0.1" in line]
    assert lines[0].split()[1:4] == ["POST", CHAT, "200"]
    assert lines[1].split()[1:4] == ["GET", "/health", "200"]
    assert not any("secret" in line for line in lines)


def test_json_is_written_once_and_whole(live: Live) -> None:
    reply = live.chat("é日本 \U0001f600 \u2028", max_tokens=4)
    assert reply.json["choices"][0]["message"]["content"].startswith("é日本 \U0001f600 ")
    assert json.loads(reply.body.decode("utf-8")) == reply.json
