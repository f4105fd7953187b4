"""Pairs: what is here, what could be, and how to get it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import DataTable, Static

from localspec.ground.errors import LocalspecError
from localspec.ground.terminal import one_line, visible
from localspec.tui import numbers
from localspec.tui.screens.page import Ask, Confirm, Page, if_given, notify, tell
from localspec.ui import pair_list
from localspec.ui.pair_list import CatalogEntry, InstalledPair


class PairsScreen(Page["str | None"]):
    """Returns the pair to open, or None."""

    HEADING = "pairs"
    HINTS = "Esc · Enter · 1 here · 2 catalog · o open · p pull · v check · f fit · x rm"
    AUTO_FOCUS = "DataTable"
    BINDINGS = [  # noqa: RUF012 - textual's interface
        Binding("1", "installed", "Pairs on this disk"),
        Binding("2", "catalog", "What can be pulled"),
        Binding("o", "open", "Open by name or file"),
        Binding("p", "pull", "Pull by name"),
        Binding("v", "report('check')", "Check: do the two models go together?"),
        Binding("f", "report('fit')", "Fit: where would everything go?"),
        Binding("x,delete", "remove", "Remove"),
    ]

    class Reported(Message):
        """A report was made."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, catalog: bool = False) -> None:
        super().__init__()
        self._catalog = catalog
        self._rows: list[InstalledPair] | list[CatalogEntry] = []

    def body(self) -> ComposeResult:
        yield Static("", id="what", classes="note", markup=False)
        yield DataTable(cursor_type="row", zebra_stripes=True)
        with VerticalScroll(classes="details"):
            yield Static("", id="details", markup=False)

    def on_mount(self) -> None:
        self._fill()

    def action_installed(self) -> None:
        self._catalog = False
        self._tell("")
        self._fill()

    def action_catalog(self) -> None:
        self._catalog = True
        self._fill()

    def _fill(self) -> None:
        table = self.query_one(DataTable)
        table.clear(columns=True)
        try:
            lines = self._catalog_rows() if self._catalog else self._installed_rows()
        except LocalspecError as error:
            self._rows, lines = [], []
            self._tell(str(error))
        for cells in lines:
            table.add_row(*(Text(one_line(cell, 90)) for cell in cells))

    def _installed_rows(self) -> list[tuple[str, ...]]:
        self.query_one(DataTable).add_columns("pair", "draft", "state", "size", "verdict", "fits", "measured speedup")
        self._rows = rows = pair_list.installed_pairs()
        what = "No pairs yet. 2 shows the catalog, o opens a file."
        if rows:
            what = f"{len(rows)} pair{'s'[: len(rows) != 1]} on this disk"
        self.query_one("#what", Static).update(what)
        return [
            (row.name, row.draft, row.state, numbers.size(row.size), row.verdict, row.fits, row.speedups)
            for row in rows
        ]

    def _catalog_rows(self) -> list[tuple[str, ...]]:
        self.query_one(DataTable).add_columns("model", "fits here", "draft", "files")
        self._rows = rows = pair_list.catalog_entries()
        self.query_one("#what", Static).update(f"{len(rows)} models can be pulled · {pair_list.machine_summary()}")
        return [(row.name, "yes" if row.fits else "no", row.draft, row.quants) for row in rows]

    @property
    def _selected(self) -> str:
        row = self.query_one(DataTable).cursor_row
        return self._rows[row].name if 0 <= row < len(self._rows) else ""

    def on_data_table_row_highlighted(self) -> None:
        row = self.query_one(DataTable).cursor_row
        if not 0 <= row < len(self._rows):
            return
        entry = self._rows[row]
        if isinstance(entry, CatalogEntry):
            self._tell(f"{entry.name}: {entry.quants}\ndraft {entry.draft}: {entry.why or 'nothing is recommended'}")
        else:
            self._tell(
                f"{entry.name} + {entry.draft}: {numbers.size(entry.size)}, {entry.state}, verdict {entry.verdict}\n"
                f"fits: {entry.fits} · measured speedup: {entry.speedups}"
            )

    def on_data_table_row_selected(self) -> None:
        if not self._selected:
            return
        if self._catalog:
            self._pull(self._selected)
        else:
            self.dismiss(self._selected)

    def action_open(self) -> None:
        self.app.push_screen(Ask("Open a pair: a name or a GGUF file"), if_given(self.dismiss))

    def action_pull(self) -> None:
        self.app.push_screen(
            Ask("Pull: a catalog name, hf:owner/repo[:quant]", self._selected if self._catalog else ""),
            self._pull,
        )

    def _pull(self, name: str | None) -> None:
        from localspec.tui.screens.pull import PullScreen

        if name:
            self.app.push_screen(PullScreen(name), self._pulled)

    def _pulled(self, name: str | None) -> None:
        if name:
            notify(self.app, f"{name} is here. Enter opens it.")
            self.action_installed()

    def action_remove(self) -> None:
        if self._catalog or not self._selected:
            return
        try:
            details, removal = pair_list.removal_plan(self._selected)
        except LocalspecError as error:
            self._tell(str(error))
            return
        self.app.push_screen(
            Confirm(f"Remove {self._selected}?", visible(details)), if_given(lambda _: self._remove(removal))
        )

    def _remove(self, removal: Any) -> None:
        try:
            pair_list.remove_pair(removal)
        except (LocalspecError, OSError) as error:
            self._tell(str(error))
        self._fill()

    # --- reports -------------------------------------------------------------------------------------

    def action_report(self, which: str) -> None:
        name = self._selected
        if self._catalog or not name:
            return
        self._tell("working it out …")
        work = pair_list.check_report if which == "check" else pair_list.fit_report
        threading.Thread(target=self._report, args=(work, name), daemon=True).start()

    def _report(self, work: Callable[[str], str], name: str) -> None:
        try:
            text = work(name)
        except (LocalspecError, OSError, ImportError) as error:
            text = str(error)
        tell(self, self.Reported(text))

    def on_pairs_screen_reported(self, message: Reported) -> None:
        self._tell(message.text)

    def _tell(self, text: str) -> None:
        self.query_one("#details", Static).update(Text(visible(text)))
