"""An answer printed as it comes, with the origin of each token shown on request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from localspec.ground.terminal import is_terminal, visible, wants_colour

if TYPE_CHECKING:
    from localspec.engine.records import Token

_RESET = "\x1b[0m"
_COLOURS = {"accepted": "\x1b[32m", "corrected": "\x1b[33m", "bonus": "\x1b[36m", "plain": ""}
_MARKS = {"accepted": "[", "corrected": "~", "bonus": "+", "plain": ""}


class AnswerPrinter:
    """Writes tokens to `stream`: as they are into a file or pipe, with control characters shown on a
    terminal."""

    def __init__(self, stream: TextIO, *, show_draft: bool) -> None:
        self._stream = stream
        self._terminal = is_terminal(stream)
        self._colour = wants_colour(stream)
        self._show = show_draft
        self._at_line_start = True
        self._style = "plain"

    def write(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            if not token.text:
                continue
            if self._show:
                self._change_style(token.provenance)
            self._stream.write(visible(token.text) if self._terminal else token.text)
            self._at_line_start = token.text.endswith("\n")
        self._stream.flush()

    def end(self) -> None:
        """Close what is open and finish the line."""
        if self._show:
            self._change_style("plain")
        if not self._at_line_start:
            self._stream.write("\n")
        self._stream.flush()

    def _change_style(self, style: str) -> None:
        if self._colour:
            if style != self._style:
                self._stream.write((_RESET if _COLOURS[self._style] else "") + _COLOURS[style])
        else:
            if self._style == "accepted" and style != "accepted":
                self._stream.write("]")
            if style != "accepted" or self._style != "accepted":
                self._stream.write(_MARKS[style])
        self._style = style


def legend(stream: TextIO) -> str:
    """What the colours or marks mean."""
    if wants_colour(stream):
        words = {"accepted": "accepted guess", "corrected": "corrected by the target", "bonus": "bonus token"}
        return " · ".join(f"{_COLOURS[style]}{text}{_RESET}" for style, text in words.items()) + " · plain"
    return "[accepted guesses] · ~corrected by the target · +bonus token · plain"
