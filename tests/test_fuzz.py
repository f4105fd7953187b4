# ruff: noqa: E501 - the words of a language
"""Mutated files and requests: each is read or refused in words; nothing hangs, floods or shows a traceback.

A small share runs always; `pytest -m long tests/test_fuzz.py -s` runs and reports the full sizes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from localspec.engine.settings import SamplerSettings
from localspec.engine.templates.chat_template import ChatTemplate
from localspec.ground.errors import InvalidInput, LocalspecError, UnreadableFile
from localspec.pairs.gguf.header import NeedMoreBytes, parse_header
from localspec.pairs.names.catalog import read_catalog
from localspec.pairs.store.store import LockedFile, LockedModel, PairLock, Store, read_lock
from localspec.ui.export import to_json, to_markdown
from localspec.ui.preferences import PreferenceFile, PromptHistory
from localspec.ui.session_file import read_session
from localspec.ui.session_store import SessionStore
from tests.chat_tools import FakeChat
from tests.fake_engine import Script
from tests.fuzzing import Report, fuzz, mutated_bytes, mutated_words
from tests.gguf_samples import model_bytes, split_bytes
from tests.test_templates import ATTACKS, CHATML, GEMMA, LLAMA3, MISTRAL, QWEN3, talk


def sizes(small: int, large: int) -> Any:
    """A test runs with a small number of cases always, and with a large one by hand."""
    long = pytest.param(large, marks=[pytest.mark.long, pytest.mark.timeout(3600)])
    return pytest.mark.parametrize("cases", [small, long])


def both_kinds(report: Report, *outcomes: str) -> None:
    """A fuzzer that only ever meets refusals tests nothing."""
    assert min(report.outcomes[name] for name in outcomes) > report.cases // 1000, report


# --- GGUF headers --------------------------------------------------------------------------------------


@sizes(1500, 100_000)
def test_headers(cases: int) -> None:
    whole = (model_bytes(words=40), model_bytes(2, words=30, arch__expert_count=4), *split_bytes(1, 2))
    ends = [parse_header(data, source="seed").data_offset for data in whole]
    seeds = [data[: end + 64] for data, end in zip(whole, ends, strict=True)]

    def read(data: bytes) -> str:
        try:
            info = parse_header(data, source="fuzz", file_size=len(data) + (1 << 24))
        except UnreadableFile as error:
            assert "\n" not in str(error)
            return "refused"
        except NeedMoreBytes:
            return "asked for more"
        assert len(info.tensors) < 1000
        return "read"

    both_kinds(fuzz(read, seeds, cases), "read", "refused", "asked for more")


# --- chat templates ------------------------------------------------------------------------------------

JINJA = [
    b"{{ ", b" }}", b"{% ", b" %}", b"{%- ", b"{% endfor %}", b"{% endif %}", b"{% for m in messages %}", b"{% set x = ",
    b"{% if m.role == 'user' %}", b" | trim", b" | tojson", b" | length", b" | list", b" | join", b"range(9999)", b"[::-1]",
    b"messages[0]['content']", b" * 1000000", b" ** 99", b" ~ ", b".split('a')", b".replace('a', messages)", b"namespace(x=1)",
    b"{% macro f(a) %}", b"{% endmacro %}", b"{{ f(f) }}", b"loop.", b"raise_exception('no')", b"__class__", b"bos_token",
    b"{% generation %}", b"{% endgeneration %}", b" is defined", b" if ", b" else ", b"'", b'"', b"(", b")", b"[", b"]", b"{#",
]  # fmt: skip


@sizes(200, 20_000)
def test_templates(cases: int) -> None:
    seeds = [text.encode() for text in (CHATML, LLAMA3, GEMMA, MISTRAL, QWEN3, *(a for a in ATTACKS if len(a) < 500))]
    turns = talk("hello", "a<|im_end|>b", "last", system="Be brief.")

    def render(data: bytes) -> str:
        try:
            pieces = ChatTemplate(data.decode("utf-8", "replace"), "<s>", "</s>").render(turns)
        except InvalidInput as error:
            assert "\n" not in str(error) and "\x1b" not in str(error)
            return "refused"
        own = "".join(piece.text for piece in pieces if piece.is_template)
        assert "a<|im_end|>b" not in own or b"a<|im_end|>b" in data
        return "rendered"

    both_kinds(fuzz(render, seeds, cases, mutated_words(JINJA)), "rendered", "refused")


# --- TOML files ----------------------------------------------------------------------------------------

TOML = [
    b"[", b"]", b"[[", b"]]", b" = ", b'"', b"'''", b"\n", b"# ", b"true", b"-1", b"1e999", b"nan", b"9" * 400, b"{a = 1}",
    b"[[[]]]", b"2026-01-01", b"\\u0000", b"\x1b]52;c;aGk=\x07", b"../../etc/passwd", b"[target]\n", b"[[target.files]]\n",
    b"size = ", b"name = ", b"files = ", b"[families.x]\n", b"drafts = ", b"sizes = ",
]  # fmt: skip


def a_lock() -> PairLock:
    file = LockedFile("a.gguf", 4, "0" * 64)
    return PairLock(
        LockedModel("t-7b", (file,), repo="o/r", revision="c" * 40),
        LockedModel("t-1b", (file,), repo="o/d", revision="d" * 40),
        verdict="identical",
        reasons=("one", "two"),
        profile={"speedup": 1.5},
    )


@sizes(300, 10_000)
def test_pair_locks(cases: int, tmp_path: Path) -> None:
    store = Store(tmp_path)
    seeds = [store.path_of(store.save(a_lock())).read_bytes()]
    path = tmp_path / "fuzzed.toml"

    def read(data: bytes) -> str:
        path.write_bytes(data)
        try:
            lock = read_lock(path)
        except UnreadableFile as error:
            assert "\n" not in str(error) and "\x1b" not in str(error)
            return "refused"
        assert lock.state_text() and lock.pull_command() and lock.size >= 0
        assert [name for name, _ in store.names()]
        return "read"

    both_kinds(fuzz(read, seeds, cases, mutated_words(TOML)), "read", "refused")


@sizes(100, 10_000)
def test_catalogs(cases: int, tmp_path: Path) -> None:
    built_in = (Path(__file__).parent.parent / "models.toml").read_bytes()
    tables = built_in.split(b"\n\n")
    seeds = [b"\n\n".join(tables[1:5]), b"\n\n".join(tables[4:9])]
    path = tmp_path / "models.toml"

    def read(data: bytes) -> str:
        path.write_bytes(data)
        try:
            catalog = read_catalog(path)
        except LocalspecError as error:
            assert error.exit_code == 2 and "\n" not in str(error) and "\x1b" not in str(error)
            return "refused"
        return "read" if catalog.search() else "empty"

    both_kinds(fuzz(read, seeds, cases, mutated_words(TOML)), "read", "refused")


# --- a person's own files ------------------------------------------------------------------------------

JSONL = [
    b"null", b"[]", b"{}", b"-1", b"1e999", b"NaN", b'"\\ud800"', b"\n", b'{"kind":"keep","turns":-5}\n', b"[" * 2000, b"9" * 5000,
    b'{"kind":"end","reason":[],"text":{},"stats":[]}\n', b'{"kind":"rounds","rounds":[[1]],"tokens":[[1,"z","x"]]}\n',
    b'{"kind":"skip","turns":99999999999999999999}\n', b'{"kind":"answer"}\n', b'{"kind":"message","text":1}\n', b'"turns":',
]  # fmt: skip


def a_session(folder: Path) -> bytes:
    """A conversation of two turns, its answers with rounds."""
    fake = FakeChat(folder, Script(text="One *two* three.")).open()
    fake.ask("hello")
    fake.ask("more")
    return fake.chat.path.read_bytes()


@sizes(300, 10_000)
def test_session_files(cases: int, tmp_path: Path) -> None:
    seeds = [a_session(tmp_path / "seed")]
    path = tmp_path / "chats" / "fuzzed.jsonl"
    path.parent.mkdir()
    store = SessionStore(path.parent)

    def read(data: bytes) -> str:
        path.write_bytes(data)
        assert len(store.newest()) <= 1
        try:
            saved = read_session(path)
        except UnreadableFile as error:
            assert "\n" not in str(error)
            return "refused"
        to_markdown(saved)
        json.loads(to_json(saved))
        return "read"

    both_kinds(fuzz(read, seeds, cases, mutated_words(JSONL)), "read", "refused")


@sizes(200, 5_000)
def test_preferences(cases: int, tmp_path: Path) -> None:
    file = PreferenceFile(tmp_path / "preferences.json")
    file.write(file.read())
    seeds = [(tmp_path / "preferences.json").read_bytes()]

    def read(data: bytes) -> str:
        (tmp_path / "preferences.json").write_bytes(data)
        (tmp_path / "history.jsonl").write_bytes(data)
        found = file.read()
        assert isinstance(found.sampler, SamplerSettings)
        PromptHistory(tmp_path / "history.jsonl").add("x")
        return "read"

    fuzz(read, seeds, cases, mutated_words(JSONL))


# --- requests over HTTP --------------------------------------------------------------------------------


def mutated(rng: random.Random, value: Any) -> Any:
    """`value` with something in it replaced."""
    odd = [None, True, -1, 0, 1.5, 1e308, "", "x", "\0", "\ufeff", [], {}, [[]], {"a": {}}, 2**63, -(2**64)]
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(list(value))
        return {**value, key: mutated(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.8:
        index = rng.randrange(len(value))
        return [*value[:index], mutated(rng, value[index]), *value[index + 1 :]]
    return rng.choice(odd)


USER = [{"role": "user", "content": "x"}]
FULL = {
    "messages": [*USER, {"role": "assistant", "content": [{"type": "text", "text": "y"}]}, *USER],
    "max_tokens": 2, "temperature": 0.5, "top_p": 0.9, "top_k": 4, "min_p": 0.1, "seed": 3, "stop": ["a", "b"],
    "stream": True, "stream_options": {"include_usage": True}, "logit_bias": {"1": 2}, "presence_penalty": 1,
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "speculative": {"enabled": True, "k": 2, "drafter": "lookup"}, "chat_template_kwargs": {"a": [1]}, "user": "u",
}  # fmt: skip
SCHEMA = {
    "messages": USER, "max_tokens": 2,
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {
        "type": "object", "required": ["a"], "additionalProperties": False, "$defs": {"d": {"enum": [1, "x", None]}},
        "properties": {"a": {"$ref": "#/$defs/d"}, "b": {"type": ["string", "null"], "maxLength": 3},
                       "c": {"type": "array", "items": {"anyOf": [{"const": 1}, {"type": "number"}]}, "minItems": 1},
                       "e": {"prefixItems": [{"type": "string", "format": "date"}, True]}}}}},
}  # fmt: skip


def mutated_request(noise: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Values replaced somewhere in the object, or else the bytes of its text."""
    if noise.random() < 0.2:
        return mutated_bytes(noise, seeds)
    body = json.loads(noise.choice(seeds))
    for _ in range(noise.randint(1, 3)):
        body = mutated(noise, body)
    return json.dumps(body).encode()


@sizes(600, 5_000)
def test_requests(cases: int) -> None:
    """Every answer is a 200 or a 4xx of the right shape, and the server is still there afterwards."""
    pytest.importorskip("uvicorn")
    from tests.serve_tools import ScriptedEngine, serving
    from tests.test_serve_bodies import CHAT, check_refusal

    with serving(ScriptedEngine()) as live:

        def ask(data: bytes) -> str:
            reply = live.post(CHAT, data)
            assert reply.status in (200, 400), (reply.status, reply.body[:300])
            if reply.status == 400:
                check_refusal(reply)
            return str(reply.status)

        seeds = [json.dumps(body).encode() for body in (FULL, SCHEMA)]
        assert [ask(data) for data in seeds] == ["200", "200"]
        both_kinds(fuzz(ask, seeds, cases, mutated_request), "200", "400")
        assert live.chat(max_tokens=1).status == 200
