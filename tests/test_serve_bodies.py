"""Bad requests: malformed, oversized and hostile bodies are 4xx in OpenAI's shape; none is a 500, none hangs."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("uvicorn")

from localspec.serve.app import BODY_LIMIT
from tests.serve_tools import WAIT, Live, ScriptedEngine, serving

CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "x"}]


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with serving(ScriptedEngine()) as running:
        yield running
        assert running.chat(max_tokens=1).status == 200, "still alive after all of it"


def chat(**fields: Any) -> bytes:
    return json.dumps({"messages": USER, **fields}).encode()


def message(value: Any) -> bytes:
    return json.dumps({"messages": [value]}).encode()


def schema(value: Any) -> bytes:
    return chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": value}})


def nested(depth: int) -> Any:
    value: Any = {"type": "string"}
    for _ in range(depth):
        value = {"type": "object", "properties": {"a": value}}
    return value


MALFORMED: dict[str, bytes] = {
    "empty": b"",
    "not json": b"hello",
    "cut short": b'{"messages": [{"role": "user"',
    "two values": chat() + chat(),
    "a list": b"[]",
    "a string": b'"x"',
    "null": b"null",
    "a number": b"12",
    "utf-16": chat().decode().encode("utf-16"),
    "latin-1": b'{"messages": [{"role": "user", "content": "\xe9"}]}',
    "byte order mark": b"\xef\xbb\xbf" + chat(),
    "zero bytes": b"\0" * 100,
    "100000 brackets": b"[" * 100_000,
    "100000 objects": b'{"a":' * 100_000,
    "nan": b'{"messages": [{"role":"user","content":"x"}], "temperature": NaN}',
    "infinity": b'{"messages": [{"role":"user","content":"x"}], "top_p": -Infinity}',
    "1e999": b'{"messages": [{"role":"user","content":"x"}], "temperature": 1e999}',
    "5000 digits": b'{"messages": [{"role":"user","content":"x"}], "seed": ' + b"9" * 5000 + b"}",
    "half a surrogate": b'{"messages": [{"role":"user","content":"\\ud800"}]}',
    "half a surrogate as a name": b'{"messages": [{"role":"user","content":"x"}], "\\ud800": 1}',
    "half a surrogate as a stop": b'{"messages": [{"role":"user","content":"x"}], "stop": "\\udfff"}',
    "half a surrogate in a bias": b'{"messages": [{"role":"user","content":"x"}], "logit_bias": {"\\udfff": 1}}',
    "no messages": b"{}",
    "messages null": b'{"messages": null}',
    "messages a string": b'{"messages": "hi"}',
    "messages empty": b'{"messages": []}',
    "5000 messages": json.dumps({"messages": USER * 5000}).encode(),
    "message a string": message("hi"),
    "message a list": message([]),
    "role missing": message({"content": "x"}),
    "role a number": message({"role": 1, "content": "x"}),
    "role unknown": message({"role": "wizard", "content": "x"}),
    "role with control token": message({"role": "<|im_start|>", "content": "x"}),
    "content missing": message({"role": "user"}),
    "content a number": message({"role": "user", "content": 7}),
    "content an object": message({"role": "user", "content": {}}),
    "content an empty list": message({"role": "user", "content": []}),
    "part without type": message({"role": "user", "content": [{"text": "x"}]}),
    "part a string": message({"role": "user", "content": ["x"]}),
    "part with a number": message({"role": "user", "content": [{"type": "text", "text": 1}]}),
    "image": message({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}),
    "unknown in a message": message({"role": "user", "content": "x", "weight": 0}),
    "tool call a string": message({"role": "assistant", "content": "", "tool_calls": ["f"]}),
    "tool call without function": message({"role": "assistant", "content": "", "tool_calls": [{}]}),
    "tool call with half an object": message(
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}
    ),
    "tool calls of a user": message({"role": "user", "content": "x", "tool_calls": []}),
    "max_tokens 0": chat(max_tokens=0),
    "max_tokens negative": chat(max_tokens=-5),
    "max_tokens a half": chat(max_tokens=1.5),
    "max_tokens a string": chat(max_tokens="10"),
    "max_tokens true": chat(max_tokens=True),
    "max_tokens huge": chat(max_tokens=10**30),
    "temperature negative": chat(temperature=-0.1),
    "temperature a string": chat(temperature="hot"),
    "temperature a list": chat(temperature=[1]),
    "top_p 2": chat(top_p=2),
    "top_k -2": chat(top_k=-2),
    "min_p 5": chat(min_p=5),
    "penalty 3": chat(presence_penalty=3),
    "seed a half": chat(seed=0.5),
    "seed too big": chat(seed=2**64),
    "stream a string": chat(stream="yes"),
    "stream_options without stream": chat(stream_options={"include_usage": True}),
    "stream_options unknown": chat(stream=True, stream_options={"x": 1}),
    "stop a number": chat(stop=5),
    "stop of numbers": chat(stop=[1, 2]),
    "stop empty": chat(stop=""),
    "stop with an empty one": chat(stop=["a", ""]),
    "10000 stops": chat(stop=["x"] * 10_000),
    "a stop of 100000": chat(stop="x" * 100_000),
    "bias a list": chat(logit_bias=[1]),
    "bias of words": chat(logit_bias={"the": 1}),
    "bias of no token": chat(logit_bias={"1000": 1}),
    "bias negative id": chat(logit_bias={"-1": 1}),
    "bias huge": chat(logit_bias={"1": 1000}),
    "bias a string": chat(logit_bias={"1": "1"}),
    "n 0": chat(n=0),
    "n true": chat(n=True),
    "tools a string": chat(tools="f"),
    "tool without function": chat(tools=[{"type": "function"}]),
    "tool of another type": chat(tools=[{"type": "retrieval"}]),
    "200 tools": chat(tools=[{"type": "function", "function": {"name": "f"}}] * 200),
    "tool nested deeply": chat(tools=[{"type": "function", "function": {"name": "f", "parameters": nested(90)}}]),
    "template argument messages": chat(chat_template_kwargs={"messages": []}),
    "template argument no name": chat(chat_template_kwargs={"a b": 1}),
    "format a string": chat(response_format="json"),
    "format unknown": chat(response_format={"type": "xml"}),
    "format without schema": chat(response_format={"type": "json_schema"}),
    "schema a string": schema("x"),
    "schema nested deeply": schema(nested(60)),
    "schema with itself": schema({"$ref": "#/$defs/none"}),
    "schema from elsewhere": schema({"$ref": "http://127.0.0.1:1/x"}),
    "schema of a billion": schema({"type": "string", "maxLength": 10**9}),
    "schema too wide": schema({"enum": ["x" * 1000] * 1000}),
    "schema with a pattern": schema({"type": "string", "pattern": "(a+)+$"}),
    "speculative a list": chat(speculative=[]),
    "speculative unknown": chat(speculative={"depth": 3}),
    "speculative k a string": chat(speculative={"k": "many"}),
    "speculative k 65": chat(speculative={"k": 65}),
    "speculative drafter unknown": chat(speculative={"drafter": "psychic"}),
    "model a number": chat(model=1),
    "unknown parameter": chat(frobnicate=True),
    "unknown parameter with escapes": chat(**{"\x1b[31m\u202e": 1}),
    "a very long name": chat(**{"x" * 100_000: 1}),
}  # fmt: skip
"""Name -> body for the chat endpoint. More than 60."""

COMPLETIONS: dict[str, Any] = {
    "no prompt": {},
    "prompt a number": {"prompt": 1},
    "prompt empty": {"prompt": ""},
    "prompt null": {"prompt": None},
    "two prompts": {"prompt": ["a", "b"]},
    "token ids": {"prompt": [1, 2, 3]},
    "messages": {"prompt": "x", "messages": USER},
    "echo": {"prompt": "x", "echo": True},
    "suffix": {"prompt": "x", "suffix": "y"},
    "best_of": {"prompt": "x", "best_of": 3},
    "tools": {"prompt": "x", "tools": []},
}


def check_refusal(reply: Any, statuses: tuple[int, ...] = (400,)) -> None:
    assert reply.status in statuses, reply.body[:300]
    error = reply.json["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"]
    assert len(reply.body) < 2000 and b"Traceback" not in reply.body and b"\\u001b" not in reply.body


def test_there_are_sixty() -> None:
    assert len(MALFORMED) >= 60


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_chat_is_refused(live: Live, name: str) -> None:
    check_refusal(live.post(CHAT, MALFORMED[name]))


@pytest.mark.parametrize("name", COMPLETIONS)
def test_a_malformed_completion_is_refused(live: Live, name: str) -> None:
    check_refusal(live.post("/v1/completions", COMPLETIONS[name]))


def test_a_body_too_big_is_413_by_length_and_in_chunks(live: Live) -> None:
    big = b'{"messages": [{"role": "user", "content": "' + b"x" * BODY_LIMIT + b'"}]}'
    try:
        check_refusal(live.post(CHAT, big), (413,))
    except (BrokenPipeError, ConnectionResetError):
        pytest.fail("the refusal must be readable")
    connection = live.connect()
    parts = (b"x" * 65536 for _ in range(BODY_LIMIT // 65536 + 2))
    connection.request("POST", CHAT, parts, {"Content-Type": "application/json"}, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


@pytest.mark.parametrize(
    "headers",
    [{"content_type": "text/plain"}, {"content_type": ""}, {"content_type": "application/x-www-form-urlencoded"},
     {"content_encoding": "gzip"}, {"content_type": "multipart/form-data; boundary=x"}],
)  # fmt: skip
def test_other_kinds_of_body_are_415(live: Live, headers: dict[str, str]) -> None:
    check_refusal(live.post(CHAT, chat(), **headers), (415,))


def test_a_body_that_never_comes_is_408(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.serve.app.BODY_SECONDS", 0.1)
    with socket.create_connection(("127.0.0.1", live.port), WAIT) as raw:
        raw.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 100\r\n\r\n{"
        )
        assert raw.recv(100).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    "raw",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"GET /health HTTP/9.9\r\n\r\n",
     b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
     b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", b"GET " + b"a" * 70_000 + b"\r\n"],
)  # fmt: skip
def test_broken_http_is_4xx_or_closed(live: Live, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", live.port), WAIT) as connection:
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_WR)
        try:
            answer = connection.recv(100)
        except ConnectionResetError:
            return
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
