"""Nothing is installed yet: what this machine is, what would suit it, how to begin without a download."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from localspec.chat import pair_list
from localspec.errors import LocalspecError
from localspec.terminal import one_line
from localspec.tui.screens.page import Ask, if_given


class FirstRunScreen(ModalScreen[str | None]):
    """Returns a pair to open, or None."""

    BINDINGS = [("escape", "dismiss(None)", "Close")]  # noqa: RUF012 - textual's interface

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static("Welcome to localspec", classes="heading", markup=False)
            yield Static(
                "A big model answers, a small one guesses ahead, and the big one checks the guesses.\n"
                "The text is the big model's own; where guessing does not pay it is turned off.\n",
                markup=False,
            )
            yield Static(pair_list.machine_summary(), classes="note", markup=False)
            yield OptionList(*self._options())
            yield Static(
                "Arrows and Enter choose, Esc closes. More about this machine: localspec doctor",
                classes="note",
                markup=False,
            )

    def _options(self) -> list[Option]:
        options = []
        try:
            installed = pair_list.installed_pairs()
            best = pair_list.recommended_pair()
        except LocalspecError:
            installed, best = [], None
        for pair in installed[:6]:
            options.append(Option(one_line(f"Open {pair.name}"), id=f"open:{pair.name}"))
        if best is not None:
            text = f"Pull {best.name} with the draft {best.draft}: recommended for this machine ({best.quants})"
            options.append(Option(one_line(text, 120), id=f"pull:{best.name}"))
        options.append(Option("Choose from the catalog", id="catalog"))
        if (model := pair_list.demo_model()) is not None:
            options.append(Option("Try the small demo model, no download", id=f"open:{model}"))
        options.append(Option("Open a GGUF file", id="file"))
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
