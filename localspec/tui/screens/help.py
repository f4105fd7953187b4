"""Every key of the screen below, and what the colours mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Static

from localspec.tui.screens.page import Page
from localspec.tui.units import origin_styles
from localspec.tui.widgets.transcript import Transcript
from localspec.ui.provenance import MARKS

PROMPT = [
    ("Enter", "Send"),
    ("Ctrl+J, Shift+Enter", "New line"),
    ("Up, Down", "What was typed before (in an empty prompt)"),
    ("Page Up, Page Down", "Scroll the conversation"),
    ("Tab", "From the prompt to the conversation and back"),
]
EVERYWHERE = [
    ("Ctrl+P", "Command palette: everything by name, themes too"),
    ("F1", "This page"),
    ("Ctrl+C", "Copy what is selected, or stop the answer"),
    ("Ctrl+Q", "Quit"),
]
MEANINGS = {
    "accepted": "guessed by the drafter, kept by the target",
    "corrected": "the target's own word in place of a wrong guess",
    "bonus": "the target's own word after a draft that was all right",
    "plain": "the target's own word, nothing was guessed",
    "ghost": "guessed, and thrown away",
}


class HelpScreen(Page[None]):
    """Keys by place."""

    HEADING = "keys"
    HINTS = "Esc back"

    def __init__(self, below: Screen[Any]) -> None:
        super().__init__()
        self._below = below

    def body(self) -> ComposeResult:
        with VerticalScroll(classes="page"):
            yield Static(self._text(), markup=False)

    def _text(self) -> Text:
        text = Text()
        is_chat = bool(self._below.query(Transcript))
        if is_chat:
            _section(text, "In the prompt", PROMPT)
        _section(text, "On this screen", keys_of(self._below.BINDINGS))
        if is_chat:
            _section(text, "In the conversation (Tab)", keys_of(Transcript.BINDINGS))
        _section(text, "Everywhere", EVERYWHERE)
        text.append("Words by origin (Ctrl+T)\n", "bold")
        for origin, style in origin_styles(bool(self.app.native_ansi_color)).items():
            before, after = MARKS[origin]
            text.append(f"  {before}{origin}{after}".ljust(22), style)
            text.append(f" {MEANINGS[origin]}\n")
        return text


def keys_of(bindings: Iterable[BindingType]) -> list[tuple[str, str]]:
    """(keys as people spell them, what they do)."""
    found = []
    for binding in bindings:
        assert isinstance(binding, Binding)
        names = ", ".join(_spelled(key) for key in binding.key.split(","))
        found.append((names, binding.description))
    return found


def _spelled(key: str) -> str:
    return "+".join(part.upper() if len(part) == 1 and "+" in key else part.capitalize() for part in key.split("+"))


def _section(text: Text, heading: str, keys: list[tuple[str, str]]) -> None:
    text.append(heading + "\n", "bold")
    for names, meaning in keys:
        text.append(f"  {names:<22} {meaning}\n")
    text.append("\n")
