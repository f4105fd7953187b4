"""Parts of the transcript that are rendered together, once for each width, when somebody looks at them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from localspec.ground.terminal import visible
from localspec.tui.blocks import Block
from localspec.tui.markdown import render_block, wrap
from localspec.ui.provenance import MARKS, Origin, Piece

BLANK = Strip([])

_RICH_STYLES: dict[Origin, Style] = {
    "accepted": Style.parse("#d7e8ff on #1c4a80"),
    "corrected": Style.parse("#ffe2bd on #7a4a06"),
    "bonus": Style.parse("#e3f8e3 on #1d5c33"),
    "plain": Style.null(),
    "ghost": Style.parse("#f28b82 strike"),
}

_ANSI_STYLES: dict[Origin, Style] = {
    "accepted": Style.parse("bright_white on blue"),
    "corrected": Style.parse("black on yellow"),
    "bonus": Style.parse("black on green"),
    "plain": Style.null(),
    "ghost": Style.parse("red strike"),
}


def origin_styles(ansi: bool) -> dict[Origin, Style]:
    """Colours by origin; `ansi`: in the terminal's own sixteen colours."""
    return _ANSI_STYLES if ansi else _RICH_STYLES


def legend_text(plain: bool, ansi: bool) -> Text:
    """What the colours, or without colour the marks, mean."""
    text = Text("words by origin: ", no_wrap=True, overflow="ellipsis")
    for origin, style in origin_styles(ansi).items():
        before, after = MARKS[origin] if plain else ("", "")
        name = "rejected guess" if origin == "ghost" else origin
        text.append(f"{before}{name}{after}", None if plain else style)
        text.append("  ")
    return text


@dataclass(frozen=True, slots=True)
class Look:
    """How everything is to be drawn."""

    width: int
    """Cells."""
    plain: bool = False
    """No colour: origins get marks."""
    ansi: bool = False
    """Only the terminal's own sixteen colours."""


class Unit:
    """Some lines of the transcript."""

    def __init__(self) -> None:
        self._lines: list[Strip] | None = None
        self._look: Look | None = None

    def lines(self, look: Look, console: Console) -> list[Strip]:
        """Rendered for `look`; kept until another one is asked for."""
        if self._lines is None or self._look != look:
            self._lines = self.render(look, console)
            self._look = look
        return self._lines

    def height(self, look: Look) -> int:
        """Lines; an estimate as long as nobody has looked."""
        if self._lines is not None and self._look == look:
            return len(self._lines)
        return self.estimate(look.width)

    def is_rendered(self, look: Look) -> bool:
        return self._lines is not None and self._look == look

    def render(self, look: Look, console: Console) -> list[Strip]:
        raise NotImplementedError

    def estimate(self, width: int) -> int:
        raise NotImplementedError


class BlockUnit(Unit):
    """A finished block of Markdown, with a blank line before it unless it is the first or goes on another."""

    def __init__(self, block: Block, first: bool) -> None:
        super().__init__()
        self._block = block
        self._gap = 0 if first or block.continues else 1

    def render(self, look: Look, console: Console) -> list[Strip]:
        return [BLANK] * self._gap + render_block(self._block, look.width, console, look.plain)

    def estimate(self, width: int) -> int:
        return self._gap + estimated_lines(self._block.text, width)


class TextUnit(Unit):
    """Words as they are, folded."""

    def __init__(self, text: str, style: str = "", gap: bool = False) -> None:
        super().__init__()
        self._text = text
        self._style = style
        self._gap = int(gap)

    def render(self, look: Look, console: Console) -> list[Strip]:
        text = Text(visible(self._text), style="" if look.plain and "on " in self._style else self._style)
        return [BLANK] * self._gap + wrap(text, look.width, console)

    def estimate(self, width: int) -> int:
        return self._gap + estimated_lines(self._text, width)


class PieceUnit(Unit):
    """Text by origin."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__()
        self._pieces = pieces

    def render(self, look: Look, console: Console) -> list[Strip]:
        text = Text()
        styles = origin_styles(look.ansi)
        for piece in self._pieces:
            text.append(_piece_text(piece, look.plain), None if look.plain else styles[piece.origin])
        return wrap(text, look.width, console)

    def estimate(self, width: int) -> int:
        return estimated_lines("".join(piece.text for piece in self._pieces), width)


class BlankUnit(Unit):
    """One empty line."""

    def render(self, look: Look, console: Console) -> list[Strip]:
        return [BLANK]

    def estimate(self, width: int) -> int:
        return 1


class PieceSplitter:
    """Pieces in any portions to units that will not change: one for each line of the answer."""

    _LONGEST = 2000
    """Characters of one unit; an endless line is cut."""

    def __init__(self) -> None:
        self._open: list[Piece] = []
        self._size = 0

    @property
    def tail(self) -> list[Piece]:
        return self._open

    def feed(self, pieces: Sequence[Piece]) -> list[PieceUnit]:
        units: list[PieceUnit] = []
        for piece in pieces:
            if piece.origin == "ghost":
                self._open.append(piece)
                continue
            *lines, rest = piece.text.split("\n")
            for line in lines:
                self._add(line, piece, units)
                units.append(PieceUnit(self._open or [Piece("", "plain", piece.step)]))
                self._open, self._size = [], 0
            self._add(rest, piece, units)
        return units

    def finish(self) -> list[PieceUnit]:
        rest, self._open, self._size = self._open, [], 0
        return [PieceUnit(rest)] if rest else []

    def _add(self, text: str, piece: Piece, units: list[PieceUnit]) -> None:
        if not text:
            return
        if self._size + len(text) > self._LONGEST and self._open:
            units.append(PieceUnit(self._open))
            self._open, self._size = [], 0
        self._open.append(Piece(text, piece.origin, piece.step))
        self._size += len(text)


def _piece_text(piece: Piece, plain: bool) -> str:
    text = visible(piece.text)
    if piece.origin == "ghost":
        text = text.replace("\n", "↵")
        if not plain and not text.strip():
            text = text.replace(" ", "␣")
    if not plain:
        return text
    before, after = MARKS[piece.origin]
    return f"{before}{text}{after}"


def estimated_lines(text: str, width: int) -> int:
    """About how many lines `text` takes."""
    width = max(1, width)
    return sum(max(1, -(-len(line) // width)) for line in text.split("\n"))


def cells(text: str) -> int:
    """Width on the screen."""
    return cell_len(text)
