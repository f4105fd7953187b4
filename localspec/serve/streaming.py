"""A response that is made while it is sent, and the watch on the client that it is made for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from localspec.serve.problems import Problem, from_error
from localspec.serve.queue import Desk, Job

STALL_SECONDS = 60.0
"""A client that reads nothing for so long is gone."""


class Watch:
    """Cancels a job when its client leaves or its time is over. Belongs to the event loop it was made in."""

    def __init__(self, desk: Desk, job: Job, receive: Receive, seconds: float) -> None:
        self._desk = desk
        self._job = job
        self._seconds = seconds
        self._timed_out = False
        self._listener = asyncio.create_task(self._listen(receive))
        self._timer = asyncio.get_running_loop().call_later(seconds, self._time_out)

    def explained(self, error: Exception) -> Problem:
        """What an error of this job means to its client."""
        if self._timed_out:
            return Problem(504, f"the answer took more than {self._seconds:g} s", code="timeout")
        return from_error(error)

    def end(self) -> None:
        """Watch no longer; a job that has not ended is cancelled."""
        self._listener.cancel()
        self._timer.cancel()
        if not self._job.ended:
            self._desk.cancel(self._job)

    async def _listen(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._desk.cancel(self._job)

    def _time_out(self) -> None:
        self._timed_out = True
        self._desk.cancel(self._job)


class EventStream(Response):
    """Server-sent events. The watch ends with it, however it ends."""

    media_type = "text/event-stream"

    def __init__(self, parts: AsyncIterator[bytes], watch: Watch) -> None:
        self.status_code = 200
        self.background = None
        self._parts = parts
        self._watch = watch
        self.init_headers({"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for part in self._parts:
                async with asyncio.timeout(STALL_SECONDS):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            pass  # nobody reads
        finally:
            self._watch.end()
