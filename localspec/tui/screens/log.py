"""The last lines of the engine's log: what libllama said, which never reaches the terminal itself."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from localspec.ground.terminal import one_line, visible
from localspec.tui.screens.page import Page

_LINES = 400


class LogScreen(Page[None]):
    """Newest at the bottom."""

    HEADING = "engine log"
    HINTS = "Esc back · arrows scroll"
    AUTO_FOCUS = "VerticalScroll"

    def __init__(self, lines: list[str], place: str) -> None:
        super().__init__()
        self._lines = lines
        self._place = place

    def body(self) -> ComposeResult:
        yield Static(one_line(self._place), classes="note", markup=False)
        with VerticalScroll(classes="page"):
            yield Static(Text(visible("\n".join(self._lines)) or "nothing yet"), markup=False)

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).scroll_end(animate=False)


def log_screen(client: object) -> LogScreen:
    """Of a running engine (`EngineClient`), or of none."""
    tail = getattr(client, "log_tail", None)
    return LogScreen(tail(_LINES) if tail is not None else [], str(getattr(client, "log_path", "no engine is running")))
