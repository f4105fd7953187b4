"""The HTTP application: routes, limits, and the order in which a request is checked."""

from __future__ import annotations

import asyncio
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Message, Receive, Scope, Send

from localspec import __version__
from localspec.ground.terminal import one_line
from localspec.serve import gate, requests, statistics
from localspec.serve.answers import Shape, chunks, next_event, whole
from localspec.serve.fields import parse
from localspec.serve.host import Host
from localspec.serve.problems import Problem, from_error
from localspec.serve.queue import Job
from localspec.serve.streaming import EventStream, Watch

BODY_LIMIT = 4 << 20
"""Bytes of a request's body."""
_DRAINED = 1 << 20
"""Bytes beyond the limit that are read and dropped: a client cut off while it sends never sees the refusal."""
BODY_SECONDS = 30.0
"""A body that takes longer to arrive is refused."""


ROUTES: dict[tuple[str, str], tuple[str, str]] = {
    ("POST", "/v1/chat/completions"): ("_chat", "A chat in OpenAI's protocol, streamed or whole"),
    ("POST", "/v1/completions"): ("_completion", "Raw text goes on, without the chat template"),
    ("GET", "/v1/models"): ("_models", "The one pair, as OpenAI lists models; /v1/models/NAME for it alone"),
    ("GET", "/v1/pair"): ("_pair", "Files, verdict, memory plan, state and statistics of the pair"),
    ("GET", "/health"): ("_health", "200 when the pair is loaded, 503 before and when it failed; needs no key"),
    ("GET", "/metrics"): ("_metrics", "Prometheus metrics"),
}
"""(method, path) -> (what answers it, one line for people)."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a server was started with, besides the pair."""

    rules: gate.Rules
    defaults: requests.Defaults
    answer_seconds: float = 600.0
    """Longest time for one answer, waiting included."""
    access_log: bool = True


class Application:
    """An ASGI application around one `Host`."""

    def __init__(self, host: Host, options: Options) -> None:
        self._host = host
        self._options = options
        self._created = int(time.time())
        self._routes: dict[tuple[str, str], Callable[[Request], Awaitable[Response]]] = {
            route: getattr(self, method) for route, (method, _) in ROUTES.items()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive, send)
        log = AccessLog(send, request, request.client.host if request.client else "-")
        try:
            response = await self._answer(request)
            await response(scope, receive, log.send)
        except ClientDisconnect:
            log.status = 499
        except Exception:
            # Nothing of this may reach the client, and a stream that has begun cannot be answered otherwise.
            traceback.print_exc(file=sys.stderr)
            if log.status is None:
                await _problem(from_error(RuntimeError()))(scope, receive, log.send)
        finally:
            self._host.statistics.request(self._label(request.scope["path"]), log.status or 499)
            if self._options.access_log:
                log.write()

    async def _answer(self, request: Request) -> Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        rules, origin, path = self._options.rules, headers.get("origin"), request.scope["path"]
        asks_first = request.method == "OPTIONS" and origin is not None
        try:
            gate.check(rules, headers, needs_key=not asks_first and path != "/health")
            response = Response(status_code=204) if asks_first else await self._route(request)(request)
        except Problem as problem:
            response = _problem(problem)
        if origin is not None and gate.allowed_origin(rules, headers, origin):
            response.headers.update(_cors(origin))
        return response

    def _route(self, request: Request) -> Callable[[Request], Awaitable[Response]]:
        path, method = request.scope["path"], request.method
        if path.startswith("/v1/models/") and method == "GET":
            return self._model
        route = self._routes.get(("GET" if method == "HEAD" else method, path))
        if route is not None:
            return route
        allowed = sorted(method for method, known in self._routes if known == path)
        if allowed:
            raise Problem(405, f"use {' or '.join(allowed)} here", headers={"Allow": ", ".join(allowed)})
        raise Problem(404, f"nothing is served at {one_line(path, 100)}", code="not_found")

    def _label(self, path: str) -> str:
        """`path` for a metric: clients must not be able to make new ones."""
        return path if any(path == known for _, known in self._routes) else "other"

    # --- routes ----------------------------------------------------------------------------------------

    async def _health(self, request: Request) -> Response:
        self._host.look_after_engine()
        state = self._host.state
        word = "ok" if state == "ready" else state
        return JSONResponse({"status": word, "detail": self._host.describe()}, 200 if state == "ready" else 503)

    async def _metrics(self, request: Request) -> Response:
        return PlainTextResponse(self._host.statistics.page(), media_type=statistics.CONTENT_TYPE)

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._model_object()]})

    async def _model(self, request: Request) -> Response:
        name = request.scope["path"].removeprefix("/v1/models/")
        if name != self._host.name:
            raise Problem(404, f"the loaded pair is {self._host.name}", param="model", code="model_not_found")
        return JSONResponse(self._model_object())

    async def _pair(self, request: Request) -> Response:
        host = self._host
        live = {
            "state": host.state,
            "requests": {"running": host.desk.running, "waiting": host.desk.waiting},
            "statistics": host.statistics.live(),
        }
        return JSONResponse({"schema": 1, **host.facts(), **live})

    async def _chat(self, request: Request) -> Response:
        return await self._generate(request, "chat", requests.chat)

    async def _completion(self, request: Request) -> Response:
        return await self._generate(request, "completion", requests.completion)

    # --- answering -------------------------------------------------------------------------------------

    async def _generate(
        self,
        request: Request,
        kind: Literal["chat", "completion"],
        read: Callable[[dict[str, Any], requests.Defaults], requests.Wanted],
    ) -> Response:
        body = parse(await read_body(request))
        session = self._host.session
        defaults = replace(
            self._options.defaults,
            vocabulary=session.info.target.vocabulary,
            longest_draft=session.settings.max_draft_length,
        )
        wanted = read(body, defaults)
        shape = Shape(kind, self._host.name, f"localspec-{__version__}/{session.info.build}")
        client = wanted.user or (request.client.host if request.client else "")
        job = Job(wanted.request, client, asyncio.get_running_loop())
        self._host.desk.submit(job)
        watch = Watch(self._host.desk, job, request.receive, self._options.answer_seconds)
        streaming = False
        try:
            first = await next_event(job)
            if not wanted.stream:
                return JSONResponse(await whole(job, shape, first))
            streaming = True
            return EventStream(chunks(job, shape, first, wanted, watch.explained), watch)
        except Exception as error:
            raise watch.explained(error) from error
        finally:
            if not streaming:
                watch.end()

    def _model_object(self) -> dict[str, Any]:
        info = self._host.session.info
        return {
            "id": self._host.name,
            "object": "model",
            "created": self._created,
            "owned_by": "localspec",
            "meta": {
                "context": info.context,
                "vocabulary": info.target.vocabulary,
                "parameters": info.target.parameters,
            },
        }


class AccessLog:
    """Watches one response go out, and writes one line about it: no query, no contents."""

    def __init__(self, send: Send, request: Request, client_label: str) -> None:
        self._send = send
        self._request = request
        self._client = client_label
        self._start = time.perf_counter()
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)

    def write(self) -> None:
        seconds = time.perf_counter() - self._start
        path = one_line(self._request.scope["path"], 120)
        print(
            f"{self._client} {self._request.method} {path} {self.status or 499} {seconds:.3f}s",
            file=sys.stderr,
        )


async def read_body(request: Request) -> bytes:
    """The whole body. Raises a Problem for one that is not JSON by its headers, too big, or too slow."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem(415, "send JSON, with the header Content-Type: application/json", code="wrong_content_type")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem(415, "compressed bodies are not read", code="wrong_content_encoding")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size <= BODY_LIMIT:
                    parts.append(part)
                elif size > BODY_LIMIT + _DRAINED:
                    break
    except TimeoutError:
        raise Problem(408, f"the body took more than {BODY_SECONDS:g} s", code="body_too_slow") from None
    if size > BODY_LIMIT:
        raise Problem(
            413,
            f"the body has more than {BODY_LIMIT:,} bytes",
            code="body_too_large",
            headers={"Connection": "close"},
        )
    return b"".join(parts)


def _problem(problem: Problem) -> Response:
    return JSONResponse(problem.body, problem.status, problem.headers)


def _cors(origin: str) -> dict[str, str]:
    """For pages that were let in; the same for a preflight and for the request itself."""
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Methods": "GET, POST",
        "Access-Control-Allow-Headers": "Authorization, Content-Type",
        "Vary": "Origin",
    }
