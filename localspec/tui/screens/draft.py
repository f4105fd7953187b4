"""Choose another draft model for the loaded target."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.message import Message
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from localspec.ground.errors import LocalspecError
from localspec.ground.terminal import one_line
from localspec.tui.screens.page import Ask, Page, if_given, tell
from localspec.ui.drafts import DraftChoice, draft_choices

if TYPE_CHECKING:
    from localspec.session import Session


class DraftScreen(Page["str | None"]):
    """Returns a file or name, `none`, or None when nothing is to change."""

    HEADING = "swap the draft model"
    HINTS = "Esc back · Enter loads it (the target keeps its cache) · o another file"
    AUTO_FOCUS = "OptionList"
    BINDINGS = [Binding("o", "other", "Name another file or model")]  # noqa: RUF012 - textual's interface

    class Looked(Message):
        """The candidates are known."""

        def __init__(self, choices: list[DraftChoice], problem: str) -> None:
            super().__init__()
            self.choices = choices
            self.problem = problem

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def body(self) -> ComposeResult:
        draft = self._session.files.draft
        yield Static(f"Now: {one_line(draft.name) if draft else 'no draft model'}", classes="note", markup=False)
        yield OptionList(Option("no draft model (prompt lookup can still guess)", id="none"))
        yield Static("looking at the models on this disk …", classes="note", id="looking", markup=False)

    def on_mount(self) -> None:
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        try:
            tell(self, self.Looked(draft_choices(self._session.files.target), ""))
        except (LocalspecError, OSError) as error:
            tell(self, self.Looked([], str(error)))

    def on_draft_screen_looked(self, message: Looked) -> None:
        options = self.query_one(OptionList)
        for choice in message.choices:
            mark = "✓" if choice.works else "✗"
            text = Text(one_line(f"{mark} {choice.shown}: {choice.remark}", 200))
            options.add_option(Option(text, id=choice.name, disabled=not choice.works))
        count = sum(choice.works for choice in message.choices)
        note = one_line(message.problem) or f"{count} of {len(message.choices)} models here can guess for this target"
        self.query_one("#looking", Static).update(note)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id)

    def action_other(self) -> None:
        self.app.push_screen(Ask("Draft: a GGUF file or a name"), if_given(self.dismiss))
