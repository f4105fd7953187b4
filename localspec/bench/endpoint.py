"""Any OpenAI-compatible server as something to measure: streamed chat completions, and its counters around them.

Chunks are never counted as tokens where the server says how many there were: with drafts one chunk holds several.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from localspec.bench.plan import Speeds
from localspec.bench.prompts import filler
from localspec.bench.records import Arm, Cell, Measurement, Prompt
from localspec.ground.errors import EngineError, LocalspecError
from localspec.ground.terminal import one_line
from localspec.remote.connection import Connection, parse_address
from localspec.remote.counters import read_counters


@dataclass(slots=True)
class _Reply:
    """What came back for one question."""

    text: str = ""
    chunks: int = 0
    first: float | None = None
    """When the first text came, in seconds since the request."""
    wall: float = 0.0
    finish: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)
    timings: Mapping[str, Any] = field(default_factory=dict)
    """llama-server's own."""


class Endpoint:
    """One server. `extra` is added to every request's body."""

    def __init__(
        self,
        url: str,
        model: str = "",
        api_key: str = "",
        extra: Mapping[str, object] | None = None,
        seed: int = 1,
    ) -> None:
        address = parse_address(url if "://" in url else f"http://{url}")
        self._connection = Connection(address, api_key)
        self._model = model or address.model
        self._extra = dict(extra or {})
        self._seed = seed
        self.url = url

    def model(self) -> str:
        """The name to ask for: as given, else the first that the server lists, else `default`."""
        if not self._model:
            try:
                self._model = str(self._connection.facts("/v1/models")["data"][0]["id"])
            except (LocalspecError, KeyError, IndexError, TypeError):
                self._model = "default"
        return self._model

    def warm_up(self) -> Speeds:
        """One short answer."""
        start = time.perf_counter()
        reply = self._ask("List the months of the year, one a line.", 16, 0.0, 0)
        decode = reply.wall - (reply.first or 0.0)
        tokens = int(reply.usage.get("completion_tokens", reply.chunks))
        prompt = int(reply.usage.get("prompt_tokens", 30))
        return Speeds(
            max(tokens - 1, 1) / max(decode, 1e-3),
            prompt / max(reply.first or 1.0, 1e-3),
            time.perf_counter() - start,
        )

    def measure(self, cell: Cell, prompt: Prompt, arm: Arm, reuse: bool) -> Measurement:
        text = f"{filler(cell.depth)}\n\n{prompt.text}" if cell.depth else prompt.text
        before = self._counters()
        reply = self._ask(text, cell.max_tokens, cell.temperature, self._seed + cell.start)
        return _measurement(reply, before, self._counters())

    def close(self) -> None:
        """Nothing is held between requests."""

    def ready(self) -> bool:
        """Whether the server answers at all."""
        try:
            self._connection.text("/health")
        except LocalspecError:
            return False
        return True

    # --- parts ----------------------------------------------------------------------------------------

    def _ask(self, text: str, tokens: int, temperature: float, seed: int) -> _Reply:
        body = {
            "model": self.model(),
            "messages": [{"role": "user", "content": text}],
            "max_tokens": tokens,
            "temperature": temperature,
            "seed": seed,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self._extra,
        }
        reply = _Reply()
        start = time.perf_counter()
        for data in self._connection.stream("/v1/chat/completions", body):
            if not isinstance(data, str):
                self._take(reply, data, time.perf_counter() - start)
        reply.wall = time.perf_counter() - start
        return reply

    def _take(self, reply: _Reply, data: Mapping[str, Any], at: float) -> None:
        if "error" in data:
            raise EngineError(f"the server says: {one_line(str(data['error']))}")
        reply.usage = data.get("usage") or reply.usage
        reply.timings = data.get("timings") or reply.timings
        for choice in data.get("choices") or ():
            delta = choice.get("delta") or {}
            piece = delta.get("content") or ""
            if piece or delta.get("reasoning_content"):
                reply.first = at if reply.first is None else reply.first
                reply.chunks += 1
                reply.text += piece
            reply.finish = choice.get("finish_reason") or reply.finish

    def _counters(self) -> dict[str, float]:
        """Speculative counters of /metrics by name; empty where there are none."""
        try:
            return read_counters(self._connection.text("/metrics"))
        except LocalspecError:
            return {}


def _measurement(reply: _Reply, before: Mapping[str, float], after: Mapping[str, float]) -> Measurement:
    made = {key: int(after[key] - before.get(key, 0.0)) for key in after}
    rounds = made.get("drafts", 0)
    drafted = made.get("draft_tokens", int(reply.timings.get("draft_n", 0)))
    accepted = made.get("accepted_tokens", int(reply.timings.get("draft_n_accepted", 0)))
    counted = "completion_tokens" in reply.usage
    emitted = int(reply.usage["completion_tokens"]) if counted else reply.chunks
    kept = tuple(made[f"kept {place}"] for place in range(64) if f"kept {place}" in made)
    while kept and not kept[-1]:
        kept = kept[:-1]
    details = reply.usage.get("prompt_tokens_details") or {}
    return Measurement(
        emitted=emitted,
        prompt_tokens=int(reply.usage.get("prompt_tokens", 0)),
        reused_tokens=int(details.get("cached_tokens") or 0),
        ttft_seconds=reply.first or reply.wall,
        wall_seconds=reply.wall,
        finish=reply.finish,
        text_hash=hashlib.sha256(reply.text.encode()).hexdigest()[:16],
        answer_empty=not reply.text.strip(),
        drafted=drafted,
        verified=drafted,
        accepted=accepted,
        target_passes=emitted - accepted if drafted else 0,
        reached=(rounds,) * len(kept) if rounds else (),
        kept=kept if rounds else (),
        engine_rate=_positive(reply.timings.get("predicted_per_second")),
        tokens_counted=counted,
    )


def _positive(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and value > 0 else None
