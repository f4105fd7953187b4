"""A download: what it would be, then how it goes. Esc stops it, and the next one goes on from there."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Static

from localspec.ground.errors import Cancelled
from localspec.ground.terminal import one_line, visible
from localspec.tui import numbers
from localspec.tui.screens.page import notify, tell
from localspec.ui.pulling import PullEnded, PullJob, PullNews, PullPlanned, PullProgress


class PullScreen(ModalScreen[str | None]):
    """Returns the name of the pair that is here now, or None."""

    BINDINGS = [  # noqa: RUF012 - textual's interface
        Binding("enter", "go", "Download"),
        Binding("escape", "stop", "Stop, or go back"),
    ]

    class Arrived(Message):
        """News of the download."""

        def __init__(self, news: PullNews) -> None:
            super().__init__()
            self.news = news

    def __init__(self, target: str, draft: str | None = None) -> None:
        super().__init__()
        self._target = target
        self._draft = draft
        self._job: PullJob | None = None
        self._planned = self._over = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(one_line(f"Pull {self._target}"), classes="heading", markup=False)
            yield Static("asking the hub what there is …", id="lines", markup=False)
            yield Static("", id="bar", markup=False)
            yield Static("Esc stops", classes="note", id="hint", markup=False)

    def on_mount(self) -> None:
        make = getattr(self.app, "make_puller", None)
        self._job = PullJob(self._target, self._draft, lambda news: self._pass_on(news), make)

    def _pass_on(self, news: PullNews) -> None:
        tell(self, self.Arrived(news))

    def on_pull_screen_arrived(self, message: Arrived) -> None:
        match message.news:
            case PullPlanned(lines, _):
                self._planned = True
                self._show("\n".join(lines), "Enter downloads, Esc goes back")
            case PullProgress(lines, fraction):
                self._show("\n".join(lines), "Esc stops; the next pull goes on from there")
                self.query_one("#bar", Static).update(numbers.bar(fraction, 50))
            case PullEnded(name, error) if error is None:
                self.dismiss(name)
            case PullEnded(_, error):
                self._over = True
                if isinstance(error, Cancelled):
                    notify(self.app, "The download was stopped. Pulling again goes on from there.")
                    self.dismiss(None)
                else:
                    self._show(str(error), "Esc goes back")

    def _show(self, lines: str, hint: str) -> None:
        self.query_one("#lines", Static).update(Text(visible(lines), no_wrap=False, overflow="fold"))
        self.query_one("#hint", Static).update(hint)

    def action_go(self) -> None:
        if self._job is not None and self._planned:
            self._show("starting …", "Esc stops")
            self._job.go()

    def action_stop(self) -> None:
        if self._job is None or self._over:
            self.dismiss(None)
        elif not self._planned:
            self._job.cancel()
            self.dismiss(None)
        else:
            self._job.cancel()
            self.query_one("#hint", Static).update("stopping …")

    def on_unmount(self) -> None:
        if self._job is not None:
            self._job.cancel()
