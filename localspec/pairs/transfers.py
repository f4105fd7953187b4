"""Several downloads at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event, Thread

from localspec.errors import Cancelled
from localspec.pairs.download import Download, Transfer

_WORKERS = 4


def finish_all(downloads: list[Download], cancel: Event, watch: Callable[[list[Transfer]], None]) -> None:
    """Finish all downloads, some at a time, the largest first. The first failure stops the others.

    `watch` is called some times a second. What interrupts it (Ctrl-C) stops the downloads, then passes on.
    """
    waiting = sorted(downloads, key=lambda download: download.size)
    failures: list[BaseException] = []

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

    # Daemons: a stalled connection must not keep an interrupted program alive; part files survive anything.
    workers = [Thread(target=work, daemon=True) for _ in range(min(_WORKERS, len(waiting)))]
    transfers = [download.transfer for download in downloads]
    try:
        for worker in workers:
            worker.start()
        while any(worker.is_alive() for worker in workers):
            for worker in workers:
                worker.join(0.2 / len(workers))
            watch(transfers)
    except BaseException:
        cancel.set()
        deadline = time.monotonic() + 1.0
        for worker in workers:
            worker.join(max(deadline - time.monotonic(), 0))
        raise
    watch(transfers)
    real = [error for error in failures if not isinstance(error, Cancelled)]
    if failures:
        raise (real or failures)[0]
