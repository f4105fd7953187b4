"""A download that a screen watches: a plan first, then the bytes, cancelled at any time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from localspec.pairs.hub.download import Transfer
    from localspec.pairs.pull import Puller


@dataclass(frozen=True, slots=True)
class PullPlanned:
    """What would be downloaded."""

    lines: tuple[str, ...]
    missing_bytes: int


@dataclass(frozen=True, slots=True)
class PullProgress:
    """Where the downloads are."""

    lines: tuple[str, ...]
    fraction: float


@dataclass(frozen=True, slots=True)
class PullEnded:
    """It is over; `name` is the pair's, `error` why there is none."""

    name: str = ""
    error: Exception | None = None


PullNews = PullPlanned | PullProgress | PullEnded


class PullJob:
    """One pull in a thread of its own. `tell` is called there and must only pass the news on."""

    def __init__(
        self, target: str, draft: str | None, tell: Callable[[PullNews], None], make_puller: Any = None
    ) -> None:
        self._target = target
        self._draft = draft
        self._tell = tell
        self._make_puller = make_puller or _puller
        self._cancel = threading.Event()
        self._go = threading.Event()
        threading.Thread(target=self._run, name="localspec-pull", daemon=True).start()

    def go(self) -> None:
        """Download what the plan says."""
        self._go.set()

    def cancel(self) -> None:
        """Stop; what has arrived stays and is gone on with next time."""
        self._cancel.set()
        self._go.set()

    def _run(self) -> None:
        try:
            puller = self._make_puller(self._target, self._draft, self._cancel)
            name = self._pull(puller)
        except Exception as error:
            self._tell(PullEnded(error=error))
        else:
            self._tell(PullEnded(name))

    def _pull(self, puller: Puller) -> str:
        from localspec.ground.errors import Cancelled
        from localspec.reports.pull import plan_lines
        from localspec.reports.transfer import Speed

        plan = puller.plan()
        self._tell(PullPlanned(tuple(plan_lines(plan)), plan.missing_bytes))
        self._go.wait()
        if self._cancel.is_set():
            plan.discard()
            raise Cancelled("the download was stopped")
        speed = Speed()
        return puller.run(plan, lambda transfers: self._watch(transfers, speed)).full_name

    def _watch(self, transfers: Sequence[Transfer], speed: Any) -> None:
        import time

        from localspec.reports.transfer import file_line, total_line

        pace = speed.update(time.monotonic(), sum(one.received for one in transfers))
        done, total = sum(one.done for one in transfers), sum(one.total for one in transfers)
        lines = (*map(file_line, transfers), total_line(transfers, pace))
        self._tell(PullProgress(lines, done / total if total else 0.0))


def _puller(target: str, draft: str | None, cancel: threading.Event) -> Puller:
    from localspec.pairs.pull import Puller, PullRequest

    return Puller(PullRequest(target, draft), cancel=cancel)
