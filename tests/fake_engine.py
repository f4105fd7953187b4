"""A scripted engine behind the interface of `EngineHandle`, and sessions that use it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from localspec.engine.info import EngineInfo, ModelFacts
from localspec.engine.metrics import StatsBuilder
from localspec.engine.records import (
    Event,
    Finished,
    LoadProgress,
    PrefillProgress,
    Provenance,
    Round,
    RoundFinished,
    Token,
)
from localspec.engine.settings import GenerationRequest, LoadSettings
from localspec.ground.errors import EngineDied, InvalidInput
from localspec.pairs.memory.fit_records import FitPlan, Place, Placement
from localspec.pairs.names.resolve import PairFiles
from localspec.session import LoadOptions, Session

TARGET, DRAFT = Path("big-q4.gguf"), Path("small-q4.gguf")


@dataclass
class Script:
    """What the engine will do. A token is a piece of text; rounds take turns over `pattern`."""

    text: str = "Hello, *world*."
    pieces: Sequence[str] | None = None
    """The tokens; None = four characters each."""
    pattern: Sequence[tuple[int, int]] = ((3, 3), (3, 1), (0, 0))
    """(guesses, accepted) of one round after the other; (0, 0) is a plain round."""
    tokens_per_second: float = 0.0
    """0 = as fast as possible."""
    load_seconds: float = 0.0
    begin_seconds: float = 0.0
    """Before the first event: the request is on its way."""
    prefill_seconds: float = 0.0
    has_template: bool = True
    die_after: int | None = None
    """Tokens after which the process is gone."""
    refuse: Exception | None = None
    """Raised instead of an answer."""
    fail_load: Exception | None = None
    reason: str = "model pays"
    plain_token_seconds: float | None = 0.02
    never_drafts: bool = False
    speculation_off: str = ""
    finish: str = "stop"
    size: int = 1_000_000_000

    def all_pieces(self) -> list[str]:
        if self.pieces is not None:
            return list(self.pieces)
        return [self.text[start : start + 4] for start in range(0, len(self.text), 4)]


@dataclass
class FakeClient:
    """One engine process that is none."""

    script: Script
    info: EngineInfo | None = None
    requests: list[GenerationRequest] = field(default_factory=list)
    changes: list[tuple[Any, Any]] = field(default_factory=list)
    drafts: list[Path | None] = field(default_factory=list)
    alive: bool = True
    pid: int = 0
    log_path: Path = Path("engine.log")

    def __post_init__(self) -> None:
        self._cancel = threading.Event()
        self._busy = threading.Lock()
        self.generated = 0
        self.generated_at_cancel = 0

    def load(
        self, settings: LoadSettings, threads: int, on_progress: Callable[[LoadProgress], None] | None = None
    ) -> EngineInfo:
        script = self.script
        steps = 20
        for step in range(steps + 1):
            if self._cancel.is_set() or not self.alive:
                raise EngineDied("the engine's process ended (SIGTERM)")
            if on_progress is not None:
                on_progress(LoadProgress("target", step / steps))
            time.sleep(script.load_seconds / steps)
        if script.fail_load is not None:
            raise script.fail_load
        self.info = EngineInfo(
            _facts(settings.target, script.size),
            _facts(settings.draft, script.size // 4) if settings.draft else None,
            settings.context or 4096,
            2,
            "fake",
            script.has_template,
            script.load_seconds,
            script.speculation_off,
            _drafters(settings.draft),
        )
        return self.info

    def load_draft(
        self,
        path: Path | None,
        masked_ids: tuple[int, ...] = (),
        shared_rows: int | None = None,
        on_progress: Any = None,
        expectation: Any = None,
    ) -> EngineInfo:
        assert self.info is not None
        with self._busy:
            self.drafts.append(path)
            draft = _facts(path, 1) if path else None
            self.info = replace(self.info, draft=draft, drafters=_drafters(path))
        return self.info

    def generate(self, request: GenerationRequest) -> Iterator[Event]:
        assert self._busy.acquire(blocking=False), "one command at a time"
        try:
            self._cancel.clear()
            self.requests.append(request)
            yield from self._answer(request)
        finally:
            self._busy.release()

    def cancel(self) -> None:
        self.generated_at_cancel = self.generated
        self._cancel.set()

    def change(self, speculation: Any = None, sampler: Any = None) -> None:
        self.changes.append((speculation, sampler))

    def death(self) -> EngineDied | None:
        return None if self.alive else EngineDied("the engine's process ended (SIGTERM)")

    def inspect(self, question: Any) -> Any:
        raise InvalidInput("this engine is scripted")

    def close(self, patience: float = 3.0) -> None:
        self.alive = False
        self._cancel.set()

    def log_tail(self, count: int = 4) -> list[str]:
        return ["ggml: something", "the last words"][-count:]

    # --- the script ----------------------------------------------------------------------------------

    def _answer(self, request: GenerationRequest) -> Iterator[Event]:
        script = self.script
        if script.refuse is not None:
            raise script.refuse
        time.sleep(script.begin_seconds)
        yield PrefillProgress(0, 10)
        if self._cancel.wait(script.prefill_seconds):
            yield self._end(request, StatsBuilder(10, 0), [], "cancelled", 0.1)
            return
        yield PrefillProgress(10, 10)
        stats = StatsBuilder(10, 0)
        stats.ttft_seconds = 0.1
        made: list[Token] = []
        start = time.perf_counter()
        reason = script.finish
        for number, (verified, accepted, tokens) in enumerate(_blocks(script, self._speculates)):
            if self._cancel.is_set():
                reason = "cancelled"
                break
            if script.die_after is not None and len(made) >= script.die_after:
                self.alive = False
                raise EngineDied("the engine's process ended (SIGKILL); its last words: boom", "log: engine.log")
            yield self._round(number, len(made), verified, accepted, tokens, stats)
            made += tokens
            self.generated = len(made)
            if script.tokens_per_second:
                due = start + len(made) / script.tokens_per_second
                self._cancel.wait(max(0.0, due - time.perf_counter()))
        yield self._end(request, stats, made, reason, 0.1 + len(made) * 0.01)

    def _speculates(self) -> bool:
        asked = [speculation for speculation, _ in self.changes if speculation is not None]
        now = asked[-1] if asked else self.requests[-1].speculation
        return now.drafter != "none" and not self.script.never_drafts

    def _round(
        self, number: int, made: int, verified: int, accepted: int, tokens: list[Token], stats: StatsBuilder
    ) -> RoundFinished:
        guesses = tuple(token.text for token in tokens[:accepted]) + ("wrong",) * (verified - accepted)
        finished = Round(
            number,
            10 + made,
            "model" if verified else "none",
            tuple(range(verified)),
            (0.9, 0.8, 0.7, 0.6)[:verified],
            verified,
            accepted,
            tuple(token.id for token in tokens),
            tuple(token.provenance for token in tokens),
            self.script.reason,
            draft_seconds=0.002 * verified,
            verify_seconds=0.02,
            sample_seconds=0.001,
            rewind_seconds=0.0005,
            other_seconds=0.0001,
        )
        stats.add(finished)
        return RoundFinished(finished, tuple(tokens), guesses, self.script.plain_token_seconds)

    def _end(
        self, request: GenerationRequest, stats: StatsBuilder, made: list[Token], reason: Any, wall: float
    ) -> Finished:
        text = "".join(token.text for token in made)
        state = "on" if self._speculates() else "off"
        built = stats.build(wall, self.script.plain_token_seconds, state, self.script.reason)
        return Finished(reason, text, tuple(token.id for token in made), built)


def _blocks(script: Script, speculates: Callable[[], bool]) -> Iterator[tuple[int, int, list[Token]]]:
    pieces = script.all_pieces()
    place = turn = 0
    while place < len(pieces):
        verified, accepted = script.pattern[turn % len(script.pattern)] if turn and speculates() else (0, 0)
        turn += 1
        accepted = min(accepted, len(pieces) - place - 1)
        verified = max(verified, accepted)
        block = pieces[place : place + accepted + 1]
        own = Provenance.PLAIN if not verified else Provenance.BONUS if accepted == verified else Provenance.CORRECTED
        origins = [Provenance.ACCEPTED] * accepted + [own]
        yield (
            verified,
            accepted,
            [Token(place + i, o, t) for i, (o, t) in enumerate(zip(origins, block, strict=True))],
        )
        place += accepted + 1


def _drafters(draft: Path | None) -> tuple[str, ...]:
    return ("model", "lookup") if draft is not None else ("lookup",)


def _facts(path: Path | None, size: int) -> ModelFacts:
    assert path is not None
    return ModelFacts(path, "llama 1B", 1_000_000, size, 1000, 4096)


class FakeOpener:
    """`open_session` without files: remembers every client it made."""

    def __init__(self, script: Script | None = None) -> None:
        self.script = script or Script()
        self.clients: list[FakeClient] = []
        self.options: list[LoadOptions] = []

    def __call__(self, pair: str, options: LoadOptions, on_progress: Any = None, on_client: Any = None) -> Session:
        self.options.append(options)
        client = FakeClient(self.script)
        self.clients.append(client)
        if on_client is not None:
            on_client(client)
        draft = None if options.draft == "none" else Path(options.draft or DRAFT)
        settings = LoadSettings(TARGET, draft, context=options.context)
        client.load(settings, 2, on_progress)
        files = PairFiles(pair, TARGET, draft, (TARGET,), (draft,) if draft else ())
        return FakeSession(files, None, placed(), client, settings)

    @property
    def client(self) -> FakeClient:
        return self.clients[-1]


def placed() -> FitPlan:
    """A plan in which everything is in RAM."""
    place = Place("RAM", "RAM", 32 << 30, 20 << 30, 1 << 30, 2 << 30)
    return FitPlan(True, 4096, "f16", 16, Placement(0, 33, ()), None, "", (), (place,), ())


class FakeSession(Session):
    """A session whose files need not exist."""

    def swap_draft(self, draft: str, options: LoadOptions, on_progress: Any = None) -> None:
        path = None if draft == "none" else Path(draft)
        self.client.load_draft(path)
        self.files = replace(self.files, draft=path)
