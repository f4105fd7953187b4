"""Several downloads at once."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread

from localspec.ground.errors import Cancelled
from localspec.pairs.hub.download import Download, Transfer

_WORKERS = 4


def finish_all(downloads: list[Download], cancel: Event, watch: Callable[[list[Transfer]], None]) -> None:
    """Finish all downloads, some at a time, the largest first. The first failure stops the others.

    `watch` is called some times a second. What interrupts it (Ctrl-C) stops the downloads, then passes on.
    """
    waiting = sorted(downloads, key=lambda download: download.size)
    failures: list[BaseException] = []
    at_work = list(range(min(_WORKERS, len(waiting))))
    all_ended = Event()

    def work() -> None:
        while waiting and not cancel.is_set():
            try:
                download = waiting.pop()
            except IndexError:
                return
            try:
                download.finish()
            except BaseException as error:
                download.transfer.state = "failed"
                failures.append(error)
                cancel.set()

    def work_and_tell() -> None:
        work()
        at_work.pop()
        if not at_work:
            all_ended.set()

    # Daemons: a stalled connection must not keep an interrupted program alive; part files survive anything.
    workers = [Thread(target=work_and_tell, daemon=True) for _ in at_work]
    transfers = [download.transfer for download in downloads]
    try:
        for worker in workers:
            worker.start()
        # Not join: it fails for a worker that an interrupt left unstarted, and forgets one that it was waiting for.
        while workers and not all_ended.wait(0.2):
            watch(transfers)
    except BaseException:
        cancel.set()
        all_ended.wait(1.0)
        raise
    watch(transfers)
    real = [error for error in failures if not isinstance(error, Cancelled)]
    if failures:
        raise (real or failures)[0]
