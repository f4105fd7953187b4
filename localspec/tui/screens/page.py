"""What the full-page screens share: a title, a hint of keys at the bottom, Esc to go back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.widgets import Input, Static

from localspec.ground.terminal import one_line

if TYPE_CHECKING:
    from textual.app import App

Result = TypeVar("Result")


class Page(Screen[Result], Generic[Result]):
    """A screen over the chat."""

    BINDINGS = [Binding("escape", "back", "Back to the chat")]  # noqa: RUF012 - textual's interface
    HEADING = ""
    HINTS = ""

    def compose(self) -> ComposeResult:
        yield Static(f"localspec · {self.HEADING}", id="title", markup=False)
        yield from self.body()
        yield Static(self.HINTS, id="keys", markup=False)

    def body(self) -> ComposeResult:
        """What stands between title and hints."""
        raise NotImplementedError

    def action_back(self) -> None:
        self.dismiss(None)


class Ask(ModalScreen[str | None]):
    """One line of text is wanted; None when the person changed their mind."""

    BINDINGS = [Binding("escape", "dismiss(None)", "Cancel")]  # noqa: RUF012 - textual's interface

    def __init__(self, question: str, value: str = "") -> None:
        super().__init__()
        self._question = question
        self._value = value

    def compose(self) -> ComposeResult:
        from textual.containers import Vertical

        with Vertical(classes="dialog"):
            yield Static(one_line(self._question), classes="heading", markup=False)
            yield Input(one_line(self._value, 2000))
            yield Static("Enter takes it, Esc goes back", classes="note", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)


class Confirm(ModalScreen[bool]):
    """Yes or no; no is what Esc means."""

    BINDINGS = [  # noqa: RUF012 - textual's interface
        Binding("y,enter", "dismiss(True)", "Yes"),
        Binding("n,escape", "dismiss(False)", "No"),
    ]

    def __init__(self, question: str, details: str = "") -> None:
        super().__init__()
        self._question = question
        self._details = details

    def compose(self) -> ComposeResult:
        from textual.containers import Vertical

        with Vertical(classes="dialog"):
            yield Static(one_line(self._question, 1000), classes="heading", markup=False)
            if self._details:
                yield Static(self._details, classes="note", markup=False)
            yield Static("y or Enter: yes    n or Esc: no", classes="note", markup=False)


class Choose(ModalScreen[str | None]):
    """One of some choices: (what is returned, what is shown)."""

    BINDINGS = [Binding("escape", "dismiss(None)", "Cancel")]  # noqa: RUF012 - textual's interface

    def __init__(self, heading: str, choices: list[tuple[str, str]], details: str = "") -> None:
        super().__init__()
        self._heading = heading
        self._choices = choices
        self._details = details

    def compose(self) -> ComposeResult:
        from rich.text import Text
        from textual.containers import Vertical
        from textual.widgets import OptionList
        from textual.widgets.option_list import Option

        with Vertical(classes="dialog"):
            yield Static(one_line(self._heading, 1000), classes="heading", markup=False)
            if self._details:
                yield Static(self._details, classes="note", markup=False)
            yield OptionList(*[Option(Text(one_line(text)), id=name) for name, text in self._choices])
            yield Static("Enter takes it, Esc goes back", classes="note", markup=False)

    def on_option_list_option_selected(self, event: object) -> None:
        from textual.widgets import OptionList

        assert isinstance(event, OptionList.OptionSelected)
        self.dismiss(event.option.id)


def if_given(action: Callable[[Result], object]) -> Callable[[Result | None], None]:
    """For the answer of a screen: `action` with it, nothing when there is none (or it is no)."""

    def take(answer: Result | None) -> None:
        if answer:
            action(answer)

    return take


def tell(screen: Screen[Any], message: Message) -> None:
    """From any thread: a message for a screen, unless the application has been left meanwhile."""
    with suppress(RuntimeError):  # its event loop is closed
        screen.post_message(message)


def copy(app: App[Any], text: str, what: str) -> None:
    """To the clipboard, through the terminal: all of `text`, as it is."""
    app.copy_to_clipboard(text)
    notify(app, f"Copied the {what}: {len(text):,} characters", seconds=3.0)


def copy_code(app: App[Any], text: str) -> None:
    """The last code block of `text`, whole."""
    from localspec.tui.blocks import code_blocks

    if codes := code_blocks(text):
        copy(app, codes[-1], "last code block" if len(codes) > 1 else "code block")
    else:
        notify(app, "There is no code block in it.", "warning", 6.0)


def notify(app: App[Any], text: str, severity: str = "information", seconds: float = 8.0) -> None:
    """A notification; text from anywhere."""
    app.notify(one_line(text, 600), severity=severity, markup=False, timeout=seconds)  # type: ignore[arg-type]
