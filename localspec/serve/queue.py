"""One engine, many clients: who is next, how many may wait, how one answer is stopped and no other.

A thread takes jobs and drives the engine; the HTTP side lives in an event loop and reads the events of each
job from the job's own queue.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from localspec.engine.records import Event, Finished
from localspec.engine.settings import GenerationRequest
from localspec.ground.errors import EngineDied, LocalspecError
from localspec.serve.problems import Problem


class Answerer(Protocol):
    """Makes one answer at a time."""

    def generate(self, request: GenerationRequest) -> Iterator[Event]:
        """Events of one answer, the last is `Finished`."""

    def cancel(self) -> None:
        """Stop the running answer; from any thread."""


class Watcher(Protocol):
    """Is told what happens, from the engine's thread."""

    def started(self, job: Job) -> None: ...

    def event(self, job: Job, event: Event) -> None: ...

    def failed(self, job: Job, error: BaseException) -> None: ...


@dataclass(eq=False)
class Job:
    """One answer, from its arrival to its end."""

    request: GenerationRequest
    client: str
    """Turns are given by client."""
    loop: asyncio.AbstractEventLoop
    events: asyncio.Queue[Event | BaseException] = field(default_factory=asyncio.Queue)
    """Events in order; after `Finished` or an exception nothing more comes."""
    cancelled: bool = False
    ended: bool = False
    """Whether the HTTP side has seen the end."""
    arrived: float = field(default_factory=time.perf_counter)
    began: float | None = None
    """When the engine took it."""

    def deliver(self, event: Event | BaseException) -> None:
        """Hand an event to the HTTP side, whose loop may be gone already."""
        try:
            self.loop.call_soon_threadsafe(self.events.put_nowait, event)
        except RuntimeError:
            self.cancelled = True


class FairQueue:
    """Jobs that wait. Clients take turns; one client's jobs keep their order. `Desk` has the lock."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[Job]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, job: Job) -> None:
        self._waiting.setdefault(job.client, deque()).append(job)

    def next(self) -> Job | None:
        """The oldest job of the client that has waited longest for a turn."""
        if not self._waiting:
            return None
        client, jobs = next(iter(self._waiting.items()))
        job = jobs.popleft()
        del self._waiting[client]
        if jobs:
            self._waiting[client] = jobs
        return job

    def remove(self, job: Job) -> bool:
        jobs = self._waiting.get(job.client)
        if jobs is None or job not in jobs:
            return False
        jobs.remove(job)
        if not jobs:
            del self._waiting[job.client]
        return True

    def take_all(self) -> list[Job]:
        jobs = [job for waiting in self._waiting.values() for job in waiting]
        self._waiting.clear()
        return jobs


class Desk:
    """Takes jobs in and has them done one after the other."""

    def __init__(self, limit: int, watcher: Watcher, on_death: Callable[[EngineDied], None]) -> None:
        """`limit`: jobs that may wait besides the running one.

        `on_death` is told when the engine's process ended; until `open` is called again, jobs are refused.
        """
        self._limit = limit
        self._on_death = on_death
        self._watcher = watcher
        self._queue = FairQueue()
        self._changed = threading.Condition()
        self._running: Job | None = None
        self._answerer: Answerer | None = None
        self._closed: Problem | None = None
        self._mean_seconds = 5.0
        threading.Thread(target=self._work, name="localspec-desk", daemon=True).start()

    @property
    def waiting(self) -> int:
        with self._changed:
            return len(self._queue)

    @property
    def running(self) -> int:
        return int(self._running is not None)

    def open(self, answerer: Answerer) -> None:
        """From now on this engine does the jobs."""
        with self._changed:
            self._answerer = answerer
            self._changed.notify_all()

    def submit(self, job: Job) -> None:
        """Line up. Raises a Problem with status 429 when too many wait, 503 when there is no engine."""
        with self._changed:
            if self._closed is not None:
                raise self._closed
            if self._answerer is None:
                raise Problem(503, "the models are being loaded", code="loading", headers={"Retry-After": "2"})
            if len(self._queue) + self.running > self._limit:
                raise self._too_many()
            self._queue.add(job)
            self._changed.notify_all()

    def cancel(self, job: Job) -> None:
        """Take `job` out of the line, or stop it within one round; no other job is touched."""
        with self._changed:
            job.cancelled = True
            if self._queue.remove(job):
                job.deliver(Problem(499, "the client left", code="cancelled"))
            elif self._running is job and self._answerer is not None:
                self._answerer.cancel()

    def close(self, why: Problem) -> None:
        """No new jobs; those that wait are refused, the running one goes on. The thread ends with it."""
        with self._changed:
            self._closed = why
            for job in self._queue.take_all():
                job.deliver(why)
            self._changed.notify_all()

    def stop_running(self) -> None:
        """Cancel what runs now."""
        with self._changed:
            job = self._running
        if job is not None:
            self.cancel(job)

    def _too_many(self) -> Problem:
        wait = max(1, round(self._mean_seconds * (len(self._queue) + 1)))
        return Problem(
            429,
            f"{len(self._queue)} requests are waiting already, which is the limit; try again in {wait} s",
            code="queue_full",
            headers={"Retry-After": str(wait)},
        )

    # --- the engine's thread ---------------------------------------------------------------------------

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            try:
                self._do(*taken)
            finally:
                with self._changed:
                    self._running = None

    def _take(self) -> tuple[Job, Answerer] | None:
        """The next job; None when there will be none any more."""
        with self._changed:
            while self._answerer is None or (job := self._queue.next()) is None:
                if self._closed is not None:
                    return None
                self._changed.wait()
            self._running = job
            job.began = time.perf_counter()
            return job, self._answerer

    def _do(self, job: Job, answerer: Answerer) -> None:
        try:
            self._watcher.started(job)
            for event in answerer.generate(job.request):
                self._watcher.event(job, event)
                job.deliver(event)
                if job.cancelled and not isinstance(event, Finished):
                    # A cancel that came before the engine had begun was forgotten by it: say it again.
                    answerer.cancel()
        except BaseException as error:
            self._failed(job, error)
        took = time.perf_counter() - (job.began or job.arrived)
        self._mean_seconds += 0.2 * (took - self._mean_seconds)

    def _failed(self, job: Job, error: BaseException) -> None:
        if not isinstance(error, LocalspecError):
            traceback.print_exception(error, file=sys.stderr)  # clients only hear that something went wrong
        if isinstance(error, EngineDied):
            with self._changed:
                self._answerer = None
                for waiting in self._queue.take_all():
                    waiting.deliver(error)
            self._on_death(error)
        self._watcher.failed(job, error)
        job.deliver(error)
