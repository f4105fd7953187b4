"""The quick benchmark, watched: speedup by kind of text, and what a wider verify pass costs."""

from __future__ import annotations

from typing import Any

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import Static

from localspec.ground.terminal import one_line
from localspec.tui import numbers
from localspec.tui.screens.page import Confirm, Page, if_given, tell
from localspec.ui.benching import BenchEnded, BenchJob, BenchLine, bench_arguments, speedup_rows, verify_curve
from localspec.ui.chat import Chat

_LINES = 12


class BenchScreen(Page[None]):
    """Runs `localspec bench --quick` on the open pair. The chat's own models are unloaded meanwhile."""

    HEADING = "benchmark"
    HINTS = "Esc back · r run the quick benchmark · s stop"
    BINDINGS = [  # noqa: RUF012 - textual's interface
        Binding("r", "run", "Run the quick benchmark"),
        Binding("s", "stop", "Stop"),
    ]

    class Told(Message):
        """The benchmark said something."""

        def __init__(self, news: BenchLine | BenchEnded) -> None:
            super().__init__()
            self.news = news

    def __init__(self, chat: Chat) -> None:
        super().__init__()
        self._chat = chat
        self._job: BenchJob | None = None
        self._lines: list[str] = []
        self._result: dict[str, Any] | None = None

    def body(self) -> ComposeResult:
        with VerticalScroll(classes="page"):
            yield Static(self._introduction(), id="intro", markup=False)
            yield Static("", id="plots", markup=False)
            yield Static("", id="lines", markup=False)

    def _introduction(self) -> str:
        return self._obstacle() or (
            f"{one_line(self._chat.pair)}: plain decoding against speculation, by kind of text. "
            "It takes some minutes and measures best when nothing else runs: the chat's models are unloaded "
            "meanwhile and loaded again afterwards. r starts it.\n"
        )

    def _obstacle(self) -> str:
        """Why there is nothing to run, "" when there is."""
        if not self._chat.pair:
            return "Open a pair first (Esc, then F2)."
        if self._chat.is_remote:
            return "This pair runs in a server. Measure it there: localspec bench PAIR"
        return ""

    def action_run(self) -> None:
        if self._job is None and not self._obstacle():
            if self._chat.runner.busy:
                self.app.push_screen(
                    Confirm("An answer is being made. Stop it and run the benchmark?"),
                    if_given(lambda _: self._run()),
                )
            else:
                self._run()

    def _run(self) -> None:
        self._chat.unload()
        self._lines = []
        self._job = BenchJob(bench_arguments(self._chat.pair, self._chat.options), self._pass_on)
        self.query_one("#lines", Static).update("starting …")

    def _pass_on(self, news: BenchLine | BenchEnded) -> None:
        tell(self, self.Told(news))

    def on_bench_screen_told(self, message: Told) -> None:
        if isinstance(message.news, BenchLine):
            self._lines = [*self._lines, one_line(message.news.text, 300)][-_LINES:]
            self.query_one("#lines", Static).update("\n".join(self._lines))
            return
        self._job = None
        self._chat.reload()
        ended = message.news
        if ended.result is not None:
            self._result = ended.result
            self._draw()
        elif ended.code:
            self.query_one("#plots", Static).update(
                f"It ended with exit code {ended.code}; its last words are below.\n"
            )

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        if self._result is not None:
            self.query_one("#plots", Static).update(plots(self._result, max(40, self.size.width - 6)))

    def action_stop(self) -> None:
        if self._job is not None:
            self._job.stop()

    def action_back(self) -> None:
        if self._job is None:
            self.dismiss(None)
        else:
            self.app.push_screen(Confirm("Stop the benchmark?"), if_given(lambda _: self.dismiss(None)))

    def on_unmount(self) -> None:
        if self._job is not None:
            self._job.close()
            self._chat.reload()


def plots(result: dict[str, Any], width: int) -> Text:
    """Two plots as text."""
    text = Text()
    headline = (result.get("report") or {}).get("headline")
    if headline:
        text.append(one_line(str(headline)) + "\n\n", "bold")
    _speedups(text, result, width)
    _curve(text, result, width)
    return text


def _speedups(text: Text, result: dict[str, Any], width: int) -> None:
    rows = speedup_rows(result)
    if not rows:
        return
    text.append("speedup by kind of text (plain = 1.00)\n", "bold")
    top = max(max(value for _, value, *_ in rows), 1.0)
    room = max(6, width - 64)
    for name, value, low, high, verdict in rows:
        interval = f"{low:.2f} … {high:.2f}" if low is not None and high is not None else ""
        style = "green" if verdict == "pays" else "red" if verdict == "does not pay" else "yellow"
        text.append(f"{one_line(name, 22):<23}{numbers.times(value):>6} ")
        text.append(numbers.bar(value / top, room), style)
        text.append(f" {interval:<14} {verdict}\n")
    text.append("\n")


def _curve(text: Text, result: dict[str, Any], width: int) -> None:
    points = verify_curve(result)
    if not points:
        return
    text.append("time of a target pass by its rows\n", "bold")
    top = max(seconds for _, seconds in points)
    for rows, seconds in points:
        text.append(f"{rows:>4} rows {numbers.seconds(seconds):>8} ")
        text.append(numbers.bar(seconds / top, max(10, width - 24)) + "\n", "magenta")
