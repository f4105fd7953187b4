"""Events of the engine -> the objects of OpenAI's protocol, whole or in chunks."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from localspec.engine.records import Finished, PrefillProgress, RoundFinished, Token
from localspec.reports.answer import stats_json
from localspec.serve.problems import Problem
from localspec.serve.queue import Job
from localspec.serve.requests import Wanted

_REASONS = {"stop": "stop", "stop_string": "stop", "length": "length"}


@dataclass(frozen=True, slots=True)
class Shape:
    """What the parts of one answer have in common."""

    kind: Literal["chat", "completion"]
    model: str
    """The loaded pair's name, whatever the client asked for."""
    fingerprint: str
    """Versions that made the answer."""
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, end: Finished) -> dict[str, Any]:
        """The answer to a request without `stream`."""
        reason = _reason(end)
        if self.kind == "chat":
            message = {"role": "assistant", "content": end.text, "refusal": None}
            choice: dict[str, Any] = {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": reason,
            }
            return self._object("chat.completion", [choice]) | _ending(end)
        choice = {"index": 0, "text": end.text, "logprobs": None, "finish_reason": reason}
        return self._object("text_completion", [choice]) | _ending(end)

    def chunk(self, text: str | None, reason: str | None = None, *, opening: bool = False) -> dict[str, Any]:
        """A piece of a stream. `opening`: the first, which names the role."""
        if self.kind == "completion":
            choice = {"index": 0, "text": text or "", "logprobs": None, "finish_reason": reason}
            return self._object("text_completion", [choice])
        delta: dict[str, Any] = {"role": "assistant", "content": text or ""} if opening else {}
        if text and not opening:
            delta = {"content": text}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return self._object("chat.completion.chunk", [choice])

    def counts(self) -> dict[str, Any]:
        """The chunk without choices, for usage."""
        return self._object("chat.completion.chunk" if self.kind == "chat" else "text_completion", [])

    def _object(self, name: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        prefix = "chatcmpl" if self.kind == "chat" else "cmpl"
        return {
            "id": f"{prefix}-{self.id}",
            "object": name,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        }


async def whole(job: Job, shape: Shape, first: object) -> dict[str, Any]:
    """The answer, `first` being the event that has come already. Raises what the engine raised."""
    event = first
    while not isinstance(event, Finished):
        event = await next_event(job)
    return shape.whole(event)


async def chunks(
    job: Job, shape: Shape, first: object, wanted: Wanted, explained: Callable[[Exception], Problem]
) -> AsyncIterator[bytes]:
    """Server-sent events of one answer, `first` being the event that has come already.

    Errors become an error event, in the words of `explained`: the status line has gone out by then.
    """
    usage = {"usage": None} if wanted.include_usage else {}
    event = first
    try:
        if shape.kind == "chat":
            yield _sse(shape.chunk(None, opening=True) | usage)
        while not isinstance(event, Finished):
            if isinstance(event, PrefillProgress) and 0 < event.done < event.total:
                yield f": {event.done} of {event.total} prompt tokens read\n\n".encode()
            elif isinstance(event, RoundFinished):
                text = _text(event.tokens)
                if text or wanted.rounds:
                    yield _sse(shape.chunk(text) | usage | (_history(event) if wanted.rounds else {}))
            event = await next_event(job)
        if event.tail and (wanted.rounds or _text(event.tail)):
            rest = {"tokens": _rows(event.tail)} if wanted.rounds else {}
            yield _sse(shape.chunk(_text(event.tail)) | usage | rest)
        last = shape.chunk(None, _reason(event))
        if wanted.include_usage:
            yield _sse(last | usage)
            yield _sse(shape.counts() | _ending(event))
        else:
            yield _sse(last | {"speculative": stats_json(event.stats)})
    except Exception as error:
        yield _sse(explained(error).body)
    yield b"data: [DONE]\n\n"


async def next_event(job: Job) -> object:
    """The next event of an answer. Raises what the engine raised."""
    event = await job.events.get()
    job.ended = isinstance(event, Finished | BaseException)
    if isinstance(event, BaseException):
        raise event
    return event


def _history(event: RoundFinished) -> dict[str, Any]:
    """What happened in a round, for a client that shows it."""
    values = asdict(event.round)
    del values["confidences"]
    more = {"guesses": event.guesses, "plain_token_seconds": event.plain_token_seconds}
    return {"round": values | more, "tokens": _rows(event.tokens)}


def _rows(tokens: tuple[Token, ...]) -> list[list[object]]:
    return [[token.id, token.provenance, token.text] for token in tokens]


def _text(tokens: tuple[Token, ...]) -> str:
    return "".join(token.text for token in tokens)


def _reason(end: Finished) -> str:
    if end.reason not in _REASONS:
        raise Problem(503, "the answer was stopped by the server", code="cancelled")
    return _REASONS[end.reason]


def _ending(end: Finished) -> dict[str, Any]:
    """Token counts in OpenAI's words, and everything else in ours."""
    stats = end.stats
    return {
        "usage": {
            "prompt_tokens": stats.prompt_tokens,
            "completion_tokens": stats.emitted,
            "total_tokens": stats.prompt_tokens + stats.emitted,
            "prompt_tokens_details": {"cached_tokens": stats.reused_tokens},
            "completion_tokens_details": {
                "accepted_prediction_tokens": stats.accepted,
                "rejected_prediction_tokens": stats.verified - stats.accepted,
            },
        },
        "speculative": stats_json(stats),
    }


def _sse(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n\n"
