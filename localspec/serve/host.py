"""The loaded pair behind the server: loaded in the background, and again when the engine's process ended."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from localspec.engine.records import Event
from localspec.engine.settings import GenerationRequest
from localspec.ground.errors import EngineDied, LocalspecError
from localspec.ground.machine import resident_bytes
from localspec.ground.terminal import one_line
from localspec.reports.answer import engine_json
from localspec.serve.problems import Problem
from localspec.serve.queue import Desk
from localspec.serve.statistics import Statistics

if TYPE_CHECKING:
    from localspec.session import Session

MAX_RESTARTS = 3

CLOSING = Problem(503, "the server is shutting down", code="closing", headers={"Retry-After": "5"})

State = Literal["loading", "ready", "failed", "closing"]


class Host:
    """One pair, loaded by `open_pair(draft_off)`, and the desk where its jobs line up."""

    def __init__(
        self,
        open_pair: Callable[[bool], Session],
        queue_limit: int,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_failure` is called, from a thread, when there will be no engine any more."""
        self._open_pair = open_pair
        self._on_failure = on_failure
        self._session: Session | None = None
        self._lock = threading.Lock()
        self.state: State = "loading"
        self.error: LocalspecError | None = None
        """Why the state is failed."""
        self.restarts = 0
        self.draft_off: str = ""
        """Why the draft was left out after a restart."""
        self.statistics = Statistics(lambda: (self.desk.running, self.desk.waiting), self._memory)
        self.desk = Desk(queue_limit, self.statistics, self._engine_died)

    @property
    def session(self) -> Session:
        """The loaded pair. Raises a Problem with status 503 while there is none."""
        if self._session is None or self.state != "ready":
            raise Problem(503, self.describe(), code=self.state, headers={"Retry-After": "2"})
        return self._session

    @property
    def name(self) -> str:
        """The pair's name; of plain paths only the file's, which says nothing about this disk."""
        files = self.session.files
        return files.target.stem if files.name.lower().endswith(".gguf") else files.name

    def load(self) -> None:
        """Load in a thread."""
        threading.Thread(target=self._load, args=(False,), name="localspec-load", daemon=True).start()

    def describe(self) -> str:
        """The state in words."""
        if self.error is not None:
            return f"the models could not be loaded: {self.error.message}"
        return {"loading": "the models are being loaded", "closing": "the server is shutting down"}.get(
            self.state, "ready"
        )

    def look_after_engine(self) -> None:
        """Notice that an idle engine's process has ended, of which nobody is told before the next request."""
        session = self._session
        death = session.client.death() if session is not None and not self.desk.running else None
        if death is not None:
            self._engine_died(death)

    def close(self) -> None:
        """Take no more jobs and end the engine's process."""
        self.state = "closing"
        self.desk.close(CLOSING)
        with self._lock:
            if self._session is not None:
                self._session.close()

    def facts(self) -> dict[str, Any]:
        """The part of /v1/pair that stays while a pair is loaded."""
        session = self.session
        verdict = session.verdict
        return {
            "name": self.name,
            "engine": _without_folders(engine_json(session)),
            "verdict": None if verdict is None else verdict.kind,
            "reasons": [] if verdict is None else [reason.detail for reason in verdict.reasons],
            "fit": fit_json(session.placed) if session.placed is not None else None,
            "concessions": session.concessions,
            "restarts": self.restarts,
            "draft_off": self.draft_off,
        }

    # --- parts -----------------------------------------------------------------------------------------

    def _load(self, draft_off: bool) -> None:
        try:
            session = self._open_pair(draft_off)
        except LocalspecError as error:
            self._fail(error)
            return
        except BaseException as error:
            self._fail(LocalspecError(f"{type(error).__name__}: {one_line(str(error))}"))
            return
        with self._lock:
            if self.state == "closing":
                session.close()
                return
            self._session, self.state = session, "ready"
        self.desk.open(_Engine(session))

    def _fail(self, error: LocalspecError) -> None:
        self.error = error
        if self.state != "closing":
            self.state = "failed"
            self._on_failure()

    def _engine_died(self, error: EngineDied) -> None:
        """Start another one without the draft: two models need more of what may have run out."""
        with self._lock:
            if self.state != "ready":
                return
            dead, self._session = self._session, None
            self.state, self.draft_off = "loading", f"left out after: {error.message}"
        print(f"error: {one_line(str(error), 1000)}", file=sys.stderr)
        if dead is not None:
            with contextlib.suppress(Exception):
                dead.close()
        self.restarts += 1
        if self.restarts > MAX_RESTARTS:
            self._fail(error)
            return
        print("starting the engine again, without the draft", file=sys.stderr)
        threading.Thread(target=self._load, args=(True,), name="localspec-load", daemon=True).start()

    def _memory(self) -> Sequence[tuple[tuple[str, ...], float]]:
        sizes: list[tuple[tuple[str, ...], float]] = [(("server",), float(resident_bytes()))]
        session = self._session
        pid = session.client.pid if session is not None else None
        if pid is not None:
            sizes.append((("engine",), float(resident_bytes(pid))))
        return sizes


class _Engine:
    """A session as the desk wants it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def generate(self, request: GenerationRequest) -> Iterator[Event]:
        return self._session.generate(request)

    def cancel(self) -> None:
        self._session.client.cancel()


def _without_folders(engine: dict[str, Any]) -> dict[str, Any]:
    """Clients need not know where files lie."""
    for part in ("target", "draft"):
        if engine[part] is not None:
            engine[part]["path"] = Path(engine[part]["path"]).name
    return engine


def fit_json(plan: Any) -> dict[str, Any]:
    """The memory plan, bytes by part and place."""
    return {
        "fits": plan.fits,
        "context": plan.context,
        "parts": [{"model": part.model, "what": part.what, "bytes": part.bytes} for part in plan.parts],
        "places": [{"name": place.name, "used": place.used, "free": place.free} for place in plan.places],
    }
