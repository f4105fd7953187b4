"""Saved conversations: open, rename, export, delete."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.widgets import DataTable, Static

from localspec.ground.errors import LocalspecError
from localspec.ground.terminal import one_line
from localspec.tui import numbers
from localspec.tui.screens.page import Ask, Confirm, Page, if_given, notify
from localspec.ui.chat import Chat
from localspec.ui.export import export
from localspec.ui.session_file import read_session
from localspec.ui.session_store import SessionSummary


class SessionsScreen(Page[None]):
    """The newest first."""

    HEADING = "saved conversations"
    HINTS = "Esc back · Enter open · r rename · m Markdown · j JSON · d delete"
    AUTO_FOCUS = "DataTable"
    BINDINGS = [  # noqa: RUF012 - textual's interface
        Binding("r", "rename", "Rename"),
        Binding("m", "export('.md')", "Export to Markdown"),
        Binding("j", "export('.json')", "Export to JSON, provenance included"),
        Binding("d,delete", "delete", "Delete"),
    ]

    def __init__(self, chat: Chat) -> None:
        super().__init__()
        self._chat = chat
        self._summaries: list[SessionSummary] = []

    def body(self) -> ComposeResult:
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Static("", classes="note", id="place", markup=False)

    def on_mount(self) -> None:
        self.query_one(DataTable).add_columns("when", "title", "pair", "size")
        self._fill()

    def _fill(self) -> None:
        self._summaries = self._chat.store.newest()
        table = self.query_one(DataTable)
        table.clear()
        for summary in self._summaries:
            when = datetime.fromtimestamp(summary.modified).strftime("%Y-%m-%d %H:%M")
            cells = (when, summary.title, Path(summary.pair).name, numbers.size(summary.size))
            table.add_row(*(Text(one_line(cell, 60)) for cell in cells))
        count = len(self._summaries)
        what = f"{count or 'no'} conversation{'s'[: count != 1]}"
        self.query_one("#place", Static).update(one_line(f"{what} in {self._chat.store.folder}", 300))

    @property
    def _selected(self) -> SessionSummary | None:
        row = self.query_one(DataTable).cursor_row
        return self._summaries[row] if 0 <= row < len(self._summaries) else None

    def on_data_table_row_selected(self) -> None:
        summary = self._selected
        if summary is None:
            return
        try:
            session = self._chat.reopen(summary.path)
        except LocalspecError as error:
            notify(self.app, str(error), "error")
            return
        if session.incomplete:
            notify(self.app, "Its last answer was cut: localspec ended in the middle of it.", "warning")
        self.dismiss(None)

    def action_rename(self) -> None:
        summary = self._selected
        if summary is not None:
            self.app.push_screen(Ask("New title", summary.title), lambda title: self._rename(summary, title))

    def _rename(self, summary: SessionSummary, title: str | None) -> None:
        if not title:
            return
        if summary.path == self._chat.path:
            self._chat.rename(title)
        else:
            try:
                self._chat.store.rename(summary.path, title)
            except OSError as error:
                notify(self.app, str(error), "error")
        self._fill()

    def action_delete(self) -> None:
        summary = self._selected
        if summary is None:
            return
        if summary.path == self._chat.path:
            notify(self.app, "It is open. Start a new chat first (Ctrl+N).", "warning")
            return
        self.app.push_screen(
            Confirm(f"Delete “{summary.title}”? It cannot be brought back."),
            if_given(lambda _: self._delete(summary)),
        )

    def _delete(self, summary: SessionSummary) -> None:
        self._chat.store.delete(summary.path)
        self._fill()

    def action_export(self, ending: str) -> None:
        summary = self._selected
        if summary is not None:
            name = str(Path.cwd() / (summary.path.stem + ending))
            self.app.push_screen(Ask("Export to", name), lambda place: self._export(summary, place))

    def _export(self, summary: SessionSummary, place: str | None) -> None:
        if not place:
            return
        try:
            export(read_session(summary.path), Path(place).expanduser())
        except LocalspecError as error:
            notify(self.app, str(error), "error")
        else:
            notify(self.app, f"Written: {place}")
