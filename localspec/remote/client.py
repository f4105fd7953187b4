"""The handle on a remote engine: an `EngineHandle` over HTTP."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from localspec.engine.records import Event
from localspec.ground.errors import EngineError, InvalidInput, LocalspecError
from localspec.ground.terminal import one_line
from localspec.remote.answer import AnswerReader
from localspec.remote.connection import Address, Connection, parse_address
from localspec.remote.counters import Counters, read_counters
from localspec.remote.question import Kind, body_of

if TYPE_CHECKING:
    from localspec.engine.info import EngineInfo, ModelFacts
    from localspec.engine.inspection import Question
    from localspec.engine.process.handle import EngineHandle
    from localspec.engine.settings import GenerationRequest, SamplerSettings, SpeculationSettings
    from localspec.ground.errors import EngineDied
    from localspec.session import Session


def is_url(text: str) -> bool:
    """Whether a pair's name is a server's address."""
    return text.startswith(("http://", "https://"))


def open_remote(url: str, on_client: Callable[[EngineHandle], None] | None = None) -> Session:
    """A session whose engine is the server at `url`. Raises InvalidInput, EngineError.

    The server's key is taken from LOCALSPEC_API_KEY and from nowhere else.
    """
    from localspec.engine.settings import LoadSettings
    from localspec.pairs.names.resolve import PairFiles
    from localspec.session import Session

    client = RemoteClient(parse_address(url), os.environ.get("LOCALSPEC_API_KEY", ""))
    if on_client is not None:
        on_client(client)
    info = client.connect()
    draft = info.draft.path if info.draft is not None else None
    files = PairFiles(client.address.url, info.target.path, draft, (info.target.path,))
    return Session(files, None, None, client, LoadSettings(info.target.path, draft))


class RemoteClient:
    """One server. One answer at a time; `cancel` may come from any thread."""

    pid: int | None = None
    log_path: Path | None = None

    def __init__(self, address: Address, key: str) -> None:
        self.address = address
        self.info: EngineInfo | None = None
        self._connection = Connection(address, key)
        self._kind: Kind = "other"
        self._model = address.model
        self._busy = threading.Lock()

    def connect(self) -> EngineInfo:
        """Ask the server what it is. Raises InvalidInput, EngineError."""
        from localspec.engine.info import EngineInfo

        model = self._chosen(self._connection.facts("/v1/models"))
        self._model = str(model.get("id", "default"))
        self._kind = (
            cast(Kind, model["owned_by"]) if model.get("owned_by") in ("localspec", "llamacpp", "vllm") else "other"
        )
        meta = model["meta"] if isinstance(model.get("meta"), dict) else {}
        pair = self._pair_facts()
        target = _facts(pair.get("target"), self._model)
        draft = _facts(pair["draft"], "draft") if isinstance(pair.get("draft"), dict) else None
        context = _whole(meta.get("context")) or _whole(meta.get("n_ctx")) or _whole(model.get("max_model_len"))
        build = one_line(
            str(pair.get("build") or {"llamacpp": "llama.cpp", "vllm": "vLLM"}.get(self._kind, "OpenAI-compatible")),
            80,
        )
        off = one_line(str(pair.get("speculation_off") or ""), 200)
        self.info = EngineInfo(target, draft, context, 0, f"{build} at {self.address.url}", True, 0.0, off)
        return self.info

    def generate(self, request: GenerationRequest) -> Iterator[Event]:
        """Events of one answer, the last is `Finished`. A caller that stops early hangs up."""
        if not self._busy.acquire(blocking=False):
            raise EngineError("the server is still answering", "Wait for the answer, or cancel it")
        try:
            body = body_of(request, self._model, self._kind)
            path = "/v1/completions" if request.prompt is not None else "/v1/chat/completions"
            if request.max_tokens == 0:
                yield AnswerReader(dict).finish(cancelled=False)
                return
            reader = AnswerReader(dict if self._kind == "localspec" else self._counters)
            stream = self._connection.stream(path, body)
            yield from reader.read(stream)
            yield reader.finish(self._connection.stopped)
        finally:
            self._busy.release()

    def inspect(self, question: Question) -> Any:
        raise InvalidInput("a server answers no questions about its models", "Run this where the models are")

    def cancel(self) -> None:
        """Hang up on the running answer."""
        self._connection.stop()

    def change(self, speculation: SpeculationSettings | None = None, sampler: SamplerSettings | None = None) -> None:
        """Settings reach a server with the next request only."""

    def load_draft(self, path: Path | None, *_: object, **__: object) -> EngineInfo:
        raise InvalidInput("the draft belongs to the server", "Start localspec serve there with another --draft")

    def death(self) -> EngineDied | None:
        """A server is missed when it is asked, not before."""
        return None

    def log_tail(self, count: int = 4) -> list[str]:
        """The server keeps its own log."""
        return []

    def close(self, patience: float = 0.0) -> None:
        """Hang up."""
        self.cancel()

    def _chosen(self, listed: Any) -> dict[str, Any]:
        """The model that the address names, else the first."""
        models = listed.get("data") if isinstance(listed, dict) else None
        found = [model for model in models or () if isinstance(model, dict)] if isinstance(models, list) else []
        if not found:
            raise EngineError(f"{self.address.url} lists no models", "Is it an OpenAI-compatible server?")
        if not self.address.model:
            return found[0]
        for model in found:
            if model.get("id") == self.address.model:
                return model
        names = ", ".join(one_line(str(model.get("id")), 60) for model in found[:8])
        raise InvalidInput(f"{self.address.url} has no model {one_line(self.address.model, 60)!r}", f"It has: {names}")

    def _pair_facts(self) -> dict[str, Any]:
        """What only `localspec serve` tells."""
        if self._kind != "localspec":
            return {}
        try:
            facts = self._connection.facts("/v1/pair")
        except LocalspecError:
            return {}
        engine = facts.get("engine") if isinstance(facts, dict) else None
        return engine if isinstance(engine, dict) else {}

    def _counters(self) -> Counters:
        try:
            return read_counters(self._connection.text("/metrics"))
        except LocalspecError:
            return {}


def _facts(value: object, name: str) -> ModelFacts:
    """One model as the server describes it; the path is a name there, no file here."""
    from localspec.engine.info import ModelFacts

    known = value if isinstance(value, dict) else {}
    shown = one_line(str(known.get("path") or name), 100).replace("/", "_")
    numbers = [_whole(known.get(key)) for key in ("parameters", "size_bytes", "vocabulary", "trained_context")]
    return ModelFacts(Path(shown), one_line(str(known.get("description") or ""), 100), *numbers)


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 50 else 0
