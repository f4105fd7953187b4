"""The last lines of the engine's log: what libllama said, which never reaches the terminal itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from localspec.ground.terminal import one_line, visible
from localspec.tui.screens.page import Page

if TYPE_CHECKING:
    from localspec.engine.process.handle import EngineHandle

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


def log_screen(client: EngineHandle | None, server: str = "") -> LogScreen:
    """Of a running engine, or of none. `server`: the address where it runs; "" = here."""
    if server:
        return LogScreen([], f"The engine and its log are where {server} runs.")
    if client is None:
        return LogScreen([], "no engine is running")
    return LogScreen(client.log_tail(_LINES), str(client.log_path))
