"""The thread that talks to the engine, so that a screen never waits for it.

Work is queued and done in order: a message sent while models load waits for them, a draft swap asked for
during an answer waits for its end. What happens is told to `tell`, called in this thread: it must only pass
the news on.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from localspec.engine.drafters.table import uses_draft
from localspec.engine.records import Event, Finished, LoadProgress, PrefillProgress, RoundFinished
from localspec.ground.errors import Cancelled, EngineDied, LocalspecError
from localspec.ui.answer import Answer
from localspec.ui.meter import Meter
from localspec.ui.session_file import SessionWriter

if TYPE_CHECKING:
    from localspec.engine.process.handle import EngineHandle
    from localspec.engine.settings import GenerationRequest, SamplerSettings, SpeculationSettings
    from localspec.session import LoadOptions, Session

_SAVE_SECONDS = 0.5
_LAST_CHANCE_SECONDS = 1.0


class OpenSession(Protocol):
    """`localspec.session.open_session`, or a test's own."""

    def __call__(
        self,
        pair: str,
        options: LoadOptions,
        on_progress: Callable[[LoadProgress], None] | None = None,
        on_client: Callable[[EngineHandle], None] | None = None,
    ) -> Session: ...


@dataclass(frozen=True, slots=True)
class Opened:
    """A pair is loaded."""

    session: Session


@dataclass(frozen=True, slots=True)
class OpenFailed:
    """A pair could not be loaded; what was open before is closed."""

    pair: str
    error: Exception


@dataclass(frozen=True, slots=True)
class AnswerBegan:
    """The engine has taken the request."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class AnswerEnded:
    """An answer ended in whatever way; `error` when not in the ordinary one."""

    answer: Answer
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class DraftSwapped:
    """Another draft model is loaded, or none."""

    session: Session


@dataclass(frozen=True, slots=True)
class SwapFailed:
    """The draft stayed as it was."""

    draft: str
    error: Exception


@dataclass(frozen=True, slots=True)
class Unforeseen:
    """A bug."""

    error: Exception


News = (
    Opened
    | OpenFailed
    | AnswerBegan
    | AnswerEnded
    | DraftSwapped
    | SwapFailed
    | Unforeseen
    | LoadProgress
    | PrefillProgress
)


class Runner:
    """At most one open session, at most one answer at a time."""

    def __init__(self, open_session: OpenSession, tell: Callable[[News], None]) -> None:
        self._open_session = open_session
        self._tell = tell
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._client: EngineHandle | None = None
        self._session: Session | None = None
        self._answering: Answer | None = None
        self._waiting: list[Answer] = []
        self._dropped: set[int] = set()
        self._stopped: Answer | None = None
        self._changes = 0
        self._unloads = 0
        self._closed = False
        self.meter = Meter()
        """Of the running or last answer."""
        self._thread = threading.Thread(target=self._run, name="localspec-engine", daemon=True)
        self._thread.start()

    @property
    def session(self) -> Session | None:
        """The open one; None while nothing is loaded."""
        return self._session

    @property
    def busy(self) -> bool:
        """An answer is being made or waits for its turn."""
        return self._answering is not None or bool(self._waiting)

    def open(self, pair: str, options: LoadOptions) -> None:
        """Load a pair in place of the one that is open."""
        self.unload()
        self._work.put(lambda: self._do_open(pair, options))

    def unload(self) -> None:
        """End the engine's process, in the background."""
        self.stop()
        with self._lock:
            self._unloads += 1
            old, self._client, self._session = self._client, None, None
        if old is not None:
            threading.Thread(target=old.close, daemon=True).start()

    def ask(self, answer: Answer, make_request: Callable[[Session], GenerationRequest], writer: SessionWriter) -> None:
        """Fill `answer`, and write it down as it grows."""
        self._waiting.append(answer)
        self._work.put(lambda: self._do_ask(answer, make_request, writer))

    def swap_draft(self, draft: str, options: LoadOptions) -> None:
        """Load another draft beside the target; `none` unloads it."""
        self._work.put(lambda: self._do_swap(draft, options))

    def change(self, speculation: SpeculationSettings | None, sampler: SamplerSettings | None) -> None:
        """From the next round of the running answer on."""
        self._changes += 1
        client = self._client
        if self._answering is not None and client is not None:
            client.change(speculation, sampler)

    def stop(self) -> None:
        """End the running answer and forget those that wait. A load goes on."""
        with self._lock:
            self._dropped.update(id(answer) for answer in self._waiting)
            self._stopped = self._answering
            if self._answering is not None and self._client is not None:
                self._client.cancel()

    def close(self) -> None:
        """Leave: the engine's process ends, by force if it must."""
        self._closed = True
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close(_LAST_CHANCE_SECONDS)
        self._work.put(lambda: None)
        self._thread.join(_LAST_CHANCE_SECONDS)  # it writes down what there is of the answer

    # --- in the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed:
            try:
                self._work.get()()
            except Exception as error:  # nobody foresaw it; a dead thread would leave the person waiting
                self._answering = None
                self._news(Unforeseen(error))

    def _do_open(self, pair: str, options: LoadOptions) -> None:
        unloads = self._unloads
        try:
            session = self._open_session(pair, options, self._loading(), self._got_client)
        except Exception as error:
            if self._unloads == unloads:
                self._drop_client()
                self._news(OpenFailed(pair, error))
            return
        self._session = session
        self._news(Opened(session))

    def _got_client(self, client: EngineHandle) -> None:
        with self._lock:
            self._client = client
        if self._closed:
            client.close(0.0)

    def _loading(self) -> Callable[[LoadProgress], None]:
        told = 0.0

        def progress(event: LoadProgress) -> None:
            nonlocal told
            now = time.monotonic()
            if event.fraction >= 1.0 or now - told > 0.1:
                told = now
                self._news(event)

        return progress

    def _do_ask(
        self, answer: Answer, make_request: Callable[[Session], GenerationRequest], writer: SessionWriter
    ) -> None:
        with self._lock:
            self._waiting.remove(answer)
            dropped = id(answer) in self._dropped
            self._dropped.discard(id(answer))
            if not dropped:
                self._answering = answer
        error: Exception | None = None
        unloads = self._unloads
        try:
            if dropped:
                raise Cancelled("stopped before it began")
            self._answer(answer, make_request, writer)
        except Exception as caught:
            # An engine that we ended ourselves has not died.
            error = caught if self._unloads == unloads else Cancelled("the models were unloaded")
            answer.fail("localspec was closed in the middle of this answer" if self._closed else str(caught))
        if answer.tokens:
            writer.end(answer)
        if isinstance(error, EngineDied):
            self._drop_client()
        self._answering = None
        self._news(AnswerEnded(answer, error))

    def _answer(
        self, answer: Answer, make_request: Callable[[Session], GenerationRequest], writer: SessionWriter
    ) -> None:
        session = self._session
        if session is None:
            raise LocalspecError("no model is loaded", "Choose a pair: F2")
        changes: int | None = self._changes
        request = make_request(session)
        self.meter = Meter(
            expects_draft=session.info.draft is not None and uses_draft(request.speculation.drafter)
        )
        answer.target = session.files.target.name
        answer.draft = session.files.draft.name if session.files.draft is not None else ""
        recorder = _Recorder(answer, writer)
        try:
            for event in session.generate(request):
                self._take(event, answer, recorder)
                if self._stopped is answer:
                    session.client.cancel()  # again: one that came before the request was taken up was forgotten
                if changes is not None and changes != self._changes:
                    # What was changed between the request and its taking up did not reach the engine.
                    newest = make_request(session)
                    self.change(newest.speculation, newest.sampler)
                changes = None
        finally:
            if answer.tokens:
                recorder.save()

    def _take(self, event: Event, answer: Answer, recorder: _Recorder) -> None:
        if isinstance(event, RoundFinished):
            answer.add(event)
            self.meter.add(event)
            recorder.save_sometimes()
            if event.round.index == 0:
                self._news(AnswerBegan(answer))
        elif isinstance(event, Finished):
            self.meter.finish(event.stats)
            answer.finish(event)
        else:
            self._news(event)

    def _do_swap(self, draft: str, options: LoadOptions) -> None:
        session = self._session
        try:
            if session is None:
                raise LocalspecError("no model is loaded", "Choose a pair: F2")
            session.swap_draft(draft, options, self._loading())
        except Exception as error:
            if isinstance(error, EngineDied):
                self._drop_client()
            self._news(SwapFailed(draft, error))
            return
        self._news(DraftSwapped(session))

    def _drop_client(self) -> None:
        with self._lock:
            client, self._client, self._session = self._client, None, None
        if client is not None:
            client.close(0.0)

    def _news(self, news: Any) -> None:
        if not self._closed:
            self._tell(news)


class _Recorder:
    """Writes what is new of an answer, at most twice a second."""

    def __init__(self, answer: Answer, writer: SessionWriter) -> None:
        self._answer = answer
        self._writer = writer
        self._steps = self._tokens = 0
        self._saved = 0.0

    def save_sometimes(self) -> None:
        now = time.monotonic()
        if now - self._saved >= _SAVE_SECONDS:
            self._saved = now
            self.save()

    def save(self) -> None:
        answer = self._answer
        if self._steps == self._tokens == 0:
            self._writer.answer(answer)
        steps, tokens = answer.steps[self._steps :], answer.tokens[self._tokens :]
        if steps or tokens:
            self._writer.rounds(steps, tokens)
        self._steps += len(steps)
        self._tokens += len(tokens)
