"""A server on loopback around a scripted engine, and the plainest of clients."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from localspec.engine.info import EngineInfo, ModelFacts
from localspec.engine.metrics import StatsBuilder
from localspec.engine.records import Event, Finished, PrefillProgress, Provenance, Round, RoundFinished, Token
from localspec.engine.settings import GenerationRequest, SamplerSettings, SpeculationSettings

WAIT = 60.0
"""Longest wait for anything that must happen."""


class ScriptedEngine:
    """Answers with `<last message> 0 1 2 ...`, two tokens a round, one of them a kept guess. Has a session's shape.

    `pace`: seconds a round. `gate`: rounds wait for it while it is clear.
    """

    def __init__(self, pace: float = 0.0) -> None:
        self.pace = pace
        self.gate = threading.Event()
        self.gate.set()
        self.requests: list[GenerationRequest] = []
        self.rounds = 0
        self.busy = threading.Lock()
        self.fails: list[BaseException] = []
        self.closed = False
        self._cancel = threading.Event()
        facts = ModelFacts(Path("models/t.gguf"), "scripted", 10, 20, 1000, 4096)
        self.info = EngineInfo(facts, None, 4096, 1, "scripted", True, 0.1, "")
        self.files = SimpleNamespace(name="scripted-pair", target=Path("models/t.gguf"), draft=None)
        self.settings = SimpleNamespace(max_draft_length=16)
        self.verdict = None
        self.placed = SimpleNamespace(fits=True, context=4096, parts=(), places=())
        self.concessions: list[str] = []
        self.client = SimpleNamespace(cancel=self._cancel.set, pid=None, death=lambda: None)

    def close(self) -> None:
        self.closed = True

    def generate(self, request: GenerationRequest) -> Iterator[Event]:
        assert self.busy.acquire(blocking=False), "two answers at once"
        try:
            self._cancel.clear()
            if self.fails:
                raise self.fails.pop()
            self.requests.append(request)
            yield from self._answer(request)
        finally:
            self.busy.release()

    def _answer(self, request: GenerationRequest) -> Iterator[Event]:
        words = (request.prompt or request.messages[-1].content).split() or ["?"]
        stats = StatsBuilder(len(words), 0)
        stats.ttft_seconds = 0.001
        yield PrefillProgress(0, len(words))
        start = time.perf_counter()
        limit = 1000 if request.max_tokens is None else request.max_tokens
        text, made = "", 0
        reason: Any = "length"
        while made < limit:
            while not self.gate.wait(0.005) and not self._cancel.is_set():
                pass
            if self._cancel.is_set():
                reason = "cancelled"
                break
            time.sleep(self.pace)
            count = min(2, limit - made)
            pieces = [words[made + i] if made + i < len(words) else str(made + i) for i in range(count)]
            tokens = tuple(
                Token(made + i, Provenance.ACCEPTED if i else Provenance.CORRECTED, piece + " ")
                for i, piece in enumerate(pieces)
            )
            made += count
            self.rounds += 1
            text += "".join(token.text for token in tokens)
            finished = Round(
                self.rounds, made, "model", (1, 2), (0.9, 0.9), 2, count - 1,
                tuple(token.id for token in tokens), tuple(token.provenance for token in tokens),
                draft_seconds=0.001, verify_seconds=0.002,
            )  # fmt: skip
            stats.add(finished)
            yield RoundFinished(finished, tokens)
        built = stats.build(time.perf_counter() - start + 0.001, 0.01, "on", "scripted")
        yield Finished(reason, text, tuple(range(made)), built)


@dataclass
class Reply:
    """One whole response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """Server-sent data, [DONE] left out."""
        lines = [line[6:] for line in self.body.decode().split("\n") if line.startswith("data: ")]
        assert lines[-1] == "[DONE]"
        return [json.loads(line) for line in lines[:-1]]

    @property
    def streamed(self) -> str:
        """The text of a streamed chat."""
        choices = [choice for event in self.events for choice in event["choices"]]
        return "".join(choice["delta"].get("content", "") for choice in choices)


@dataclass
class Live:
    """A running server."""

    port: int
    host: Any
    server: Any
    thread: threading.Thread
    log: list[str] = field(default_factory=list)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT)

    def send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        connection = self.connect()
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            response = connection.getresponse()
            return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self.send("GET", path, **headers)

    def post(self, path: str, body: Any, **headers: str) -> Reply:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.send("POST", path, data, **{"content_type": "application/json", **headers})

    def chat(self, content: str = "hello", **body: Any) -> Reply:
        return self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": content}], **body})

    def start_stream(self, content: str = "hello", **body: Any) -> tuple[Any, Any]:
        """A streamed chat whose events have begun to come: the connection and its response."""
        connection = self.connect()
        message = {"messages": [{"role": "user", "content": content}], "stream": True, **body}
        connection.request("POST", "/v1/chat/completions", json.dumps(message), {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        return connection, response


@contextmanager
def serving(engine: Any, *, queue: int = 32, ready: bool = True, **options: Any) -> Iterator[Live]:
    """`engine` (or a function `open_pair(draft_off)`) behind the real HTTP server on a free port."""
    from localspec.serve import run
    from localspec.serve.app import Application, Options
    from localspec.serve.gate import Rules
    from localspec.serve.host import Host
    from localspec.serve.requests import Defaults

    open_pair = engine if callable(engine) else lambda draft_off: engine
    host = Host(open_pair, queue)
    rules = options.pop("rules", None) or Rules("127.0.0.1")
    defaults = Defaults(options.pop("sampler", SamplerSettings()), SpeculationSettings())
    settings = Options(rules, defaults, **{"access_log": False, **options})
    listener = run.listen("127.0.0.1", 0)
    server = run.Server(run.configuration(Application(host, settings)), host)
    thread = threading.Thread(target=lambda: server.run(sockets=[listener]), daemon=True)
    thread.start()
    host.load()
    live = Live(listener.getsockname()[1], host, server, thread)
    try:
        until(lambda: server.started and (not ready or host.state == "ready"))
        yield live
    finally:
        server.should_exit = True
        thread.join(WAIT)
        host.close()
        listener.close()


def until(condition: Callable[[], bool]) -> None:
    """Wait for what happens in another thread."""
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)
