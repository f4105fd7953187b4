"""Nothing is installed yet: what this machine is, what would suit it, how to begin without a download."""

from __future__ import annotations

import threading

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from localspec.ground.errors import LocalspecError
from localspec.ground.terminal import one_line
from localspec.tui.screens.page import Ask, if_given, tell
from localspec.ui import checkup, pair_list

_INTRODUCTION = (
    "A big model answers, a small one guesses ahead, and the big one checks the guesses. "
    "The text is the big model's own; where guessing does not pay it is turned off.\n"
)
_LOW = 20
"""Rows below which the choices need the room."""


class FirstRunScreen(ModalScreen[str | None]):
    """Returns a pair to open, or None."""

    AUTO_FOCUS = "OptionList"
    BINDINGS = [("escape", "dismiss(None)", "Close")]  # noqa: RUF012 - textual's interface

    class Examined(Message):
        """What the doctor says is known."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog", can_focus=False):
            yield Static("Welcome to localspec", classes="heading", markup=False)
            yield Static(_INTRODUCTION, id="introduction", markup=False)
            yield OptionList(*self._options())
            yield Static(pair_list.machine_summary(), classes="note", markup=False)
            yield Static("looking at this machine …", id="doctor", classes="note", markup=False)
            yield Static(
                "Arrows and Enter choose, Esc closes. All about this machine: localspec doctor",
                classes="note",
                markup=False,
            )

    def on_resize(self) -> None:
        self.query_one("#introduction").display = self.size.height >= _LOW

    def on_mount(self) -> None:
        # Loads libllama in a process of its own, and asks the system some things: not in the event loop.
        threading.Thread(target=self._examine, daemon=True).start()

    def _examine(self) -> None:
        try:
            text = checkup.checkup_text()
        except Exception as error:  # whatever it is, the ways to begin are there all the same
            text = f"this machine could not be examined: {one_line(str(error))}"
        tell(self, self.Examined(text))

    def on_first_run_screen_examined(self, message: Examined) -> None:
        self.query_one("#doctor", Static).update(message.text)

    def _options(self) -> list[Option]:
        options = []
        try:
            installed = pair_list.installed_pairs()
            best = pair_list.recommended_pair()
        except LocalspecError:
            installed, best = [], None
        for pair in installed[:6]:
            options.append(_option(f"Open {pair.name}", f"open:{pair.name}"))
        if best is not None:
            text = f"Pull {best.name} with the draft {best.draft}: recommended for this machine ({best.quants})"
            options.append(_option(text, f"pull:{best.name}"))
        options.append(_option("Choose from the catalog", "catalog"))
        if (model := pair_list.demo_model()) is not None:
            options.append(_option("Try the small demo model, no download", f"open:{model}"))
        options.append(_option("Open a GGUF file", "file"))
        return options

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        what, _, name = (event.option.id or "").partition(":")
        match what:
            case "open":
                self.dismiss(name)
            case "pull":
                from localspec.tui.screens.pull import PullScreen

                self.app.push_screen(PullScreen(name), if_given(self.dismiss))
            case "catalog":
                from localspec.tui.screens.pairs import PairsScreen

                self.app.push_screen(PairsScreen(catalog=True), if_given(self.dismiss))
            case "file":
                self.app.push_screen(Ask("A GGUF file"), if_given(self.dismiss))


def _option(text: str, name: str) -> Option:
    return Option(Text(one_line(text, 160)), id=name)
