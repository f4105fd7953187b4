"""Where people type: Enter sends, Ctrl+J or Shift+Enter makes a line, arrows reach earlier prompts."""

from __future__ import annotations

from rich.cells import split_graphemes
from textual import events
from textual.binding import Binding
from textual.message import Message
from textual.widgets import TextArea

from localspec.ground.terminal import visible
from localspec.ui.preferences import PromptHistory


class Prompt(TextArea):
    """A multi-line prompt with history."""

    BINDINGS = [  # noqa: RUF012 - textual's interface
        Binding("ctrl+up", "older", "Prompt before", show=False),
        Binding("ctrl+down", "newer", "Prompt after", show=False),
    ]

    class Sent(Message):
        """Something is to be said."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Scrolled(Message):
        """The conversation is to be scrolled: the prompt has only one page."""

        def __init__(self, action: str) -> None:
            super().__init__()
            self.action = action

    def __init__(self, history: PromptHistory, id: str | None = None) -> None:
        super().__init__(
            id=id,
            soft_wrap=True,
            show_line_numbers=False,
            tab_behavior="focus",
            compact=True,
            highlight_cursor_line=False,
            placeholder="Ask something. Enter sends, Ctrl+J makes a new line, F1 shows all keys.",
        )
        self._history = history
        self._place: int | None = None
        self._kept = ""

    async def _on_key(self, event: events.Key) -> None:
        # Here and not as bindings: keys that arrive in one burst must act in their order.
        if event.key in ("enter", "ctrl+j", "shift+enter"):
            event.stop()
            event.prevent_default()
            if event.key != "enter":
                self._replace_via_keyboard("\n", *self.selection)
            else:
                self.send()
            return
        await super()._on_key(event)

    def send(self) -> None:
        """As Enter does."""
        if self.text.strip():
            self.post_message(self.Sent(self.text))

    def sent(self) -> None:
        """What stands here was taken: remember and clear it."""
        self._history.add(self.text)
        self._place = None
        self.text = ""

    def offer(self, text: str) -> None:
        """Put `text` here to be edited, unless something else is being written."""
        if not self.text.strip():
            self.text = visible(text)
            self.move_cursor(self.document.end)

    # --- history -------------------------------------------------------------------------------------

    def action_older(self) -> None:
        entries = self._history.entries
        if not entries:
            return
        if self._place is None:
            self._kept, self._place = self.text, len(entries)
        self._recall(max(0, self._place - 1))

    def action_newer(self) -> None:
        if self._place is not None:
            self._recall(self._place + 1)

    def _recall(self, place: int) -> None:
        entries = self._history.entries
        if place >= len(entries):
            self._place = None
            self.text = self._kept
        else:
            self._place = place
            self.text = entries[place]
        self.move_cursor(self.document.end)

    def action_cursor_up(self, select: bool = False) -> None:
        if not select and self.cursor_at_first_line and (not self.text or self._place is not None):
            self.action_older()
        else:
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        if not select and self.cursor_at_last_line and self._place is not None:
            self.action_newer()
        else:
            super().action_cursor_down(select)

    # --- scrolling the conversation ------------------------------------------------------------------

    def action_cursor_page_up(self) -> None:
        self.post_message(self.Scrolled("page_up"))

    def action_cursor_page_down(self) -> None:
        self.post_message(self.Scrolled("page_down"))

    # --- whole characters ------------------------------------------------------------------------------

    def get_cursor_left_location(self) -> tuple[int, int]:
        row, column = self.cursor_location
        if column == 0:
            return super().get_cursor_left_location()
        return row, max(start for start in self._boundaries(row) if start < column)

    def get_cursor_right_location(self) -> tuple[int, int]:
        row, column = self.cursor_location
        line = self.document[row]
        if column >= len(line):
            return super().get_cursor_right_location()
        return row, min(end for end in (*self._boundaries(row), len(line)) if end > column)

    def _boundaries(self, row: int) -> list[int]:
        """Where the characters that a person sees begin in a line."""
        line = self.document[row]
        starts: list[int] = []
        half_flag = False  # flags are two regional letters, which rich counts one by one
        for start, end, _ in split_graphemes(line)[0]:
            letter = "\U0001f1e6" <= line[start] <= "\U0001f1ff"
            if not (letter and half_flag):
                starts.append(start)
            half_flag = letter and not half_flag and end == start + 1
        return starts or [0]

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        if result := self._replace_via_keyboard(visible(text), *self.selection):
            self.move_cursor(result.end_location)
