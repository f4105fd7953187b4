"""One turn of the conversation as the transcript holds it: a heading, units of text, a line of numbers."""

from __future__ import annotations

from bisect import bisect_right

from rich.console import Console
from textual.strip import Strip

from localspec.engine.records import GenerationStats
from localspec.tui.blocks import BlockSplitter
from localspec.tui.units import (
    BLANK,
    BlankUnit,
    BlockUnit,
    Look,
    PieceSplitter,
    PieceUnit,
    TextUnit,
    Unit,
    estimated_lines,
)
from localspec.ui.answer import Answer
from localspec.ui.conversation import Turn
from localspec.ui.provenance import PieceReader
from localspec.ui.thinking import CLOSE, split_thoughts


class Item:
    """A turn. Nothing is split or rendered before it comes into view."""

    def __init__(self, turn: Turn, by_origin: bool = False) -> None:
        self.turn = turn
        self.by_origin = by_origin
        self.show_thoughts = False
        self._units: list[Unit] | None = None
        self._starts: list[int] = []
        self._height = 0
        self._estimate = (0, 0)  # width, lines
        self._look: Look | None = None
        self._growth: _Growth | None = None

    def height(self, look: Look) -> int:
        """Lines; an estimate for what nobody has looked at."""
        if self._units is None:
            if self._estimate[0] != look.width:
                self._estimate = (look.width, 3 + estimated_lines(self.turn.said, look.width))
            return self._estimate[1]
        if self._look != look:
            self._measure(look)
        return self._height

    def is_growing(self) -> bool:
        return self.turn.answer is not None and (self._units is None or self._growth is not None)

    def show(self, first: int, last: int, look: Look, console: Console) -> bool:
        """Render what of lines `first` .. `last` - 1 is not yet; whether that changed any height."""
        before = self.height(look)
        units = self._split()
        if self._look != look:
            self._measure(look)
        index = max(0, bisect_right(self._starts, first) - 1)
        changed = False
        while index < len(units) and self._starts[index] < last:
            unit = units[index]
            if not unit.is_rendered(look):
                expected = unit.height(look)
                if len(unit.lines(look, console)) != expected:
                    self._measure(look, index)
                    changed = True
            index += 1
        return changed or before != self._height

    def line(self, number: int, look: Look, console: Console) -> Strip:
        """One line, which `show` has rendered."""
        units = self._split()
        if self._look != look:
            self._measure(look)
        index = bisect_right(self._starts, number) - 1
        if not 0 <= index < len(units):
            return BLANK
        lines = units[index].lines(look, console)
        offset = number - self._starts[index]
        return lines[offset] if offset < len(lines) else BLANK

    def grow(self) -> int | None:
        """Take up what is new in a growing answer: the first line that changed, None when nothing did."""
        if self._units is None or self._growth is None:
            return None
        before = len(self._units)
        changed = self._growth.update(self._units)
        if self._growth.ended:
            self._growth = None
        if not changed:
            return None
        first = max(0, min(before, len(self._units)) - 2)  # a tail is at most two units
        if self._look is not None:
            self._measure(self._look, first)
        return self._starts[first] if first < len(self._starts) else 0

    def reset(self) -> None:
        """Split and render again: another view, or other content."""
        self._units = None
        self._growth = None
        self._look = None

    # --- parts ---------------------------------------------------------------------------------------

    def _split(self) -> list[Unit]:
        if self._units is None:
            self._units = self._first_units()
            self._look = None
        return self._units

    def _first_units(self) -> list[Unit]:
        answer = self.turn.answer
        if answer is None:
            units: list[Unit] = [TextUnit("You", "bold #7aa2f7"), *_paragraphs(self.turn.text)]
            return [*units, BlankUnit()]
        self._growth = _Growth(self)
        units = [TextUnit("Answer", "bold #9ece6a")]
        self._growth.update(units)
        if self._growth.ended:
            self._growth = None
        return units

    def _measure(self, look: Look, start: int = 0) -> None:
        units = self._split()
        start = max(0, min(start, len(units), len(self._starts))) if self._look == look else 0
        place = self._starts[start - 1] + units[start - 1].height(look) if start else 0
        del self._starts[start:]
        for unit in units[start:]:
            self._starts.append(place)
            place += unit.height(look)
        self._height = place
        self._look = look


class _Growth:
    """Reads an answer and keeps an item's units up to date: stable ones, and a tail that is replaced."""

    def __init__(self, item: Item) -> None:
        assert item.turn.answer is not None
        self._answer = item.turn.answer
        self._reader: _PieceReaderUnits | _MarkdownUnits = (
            _PieceReaderUnits(self._answer) if item.by_origin else _MarkdownUnits(self._answer, item.show_thoughts)
        )
        self._tail = 0
        self.ended = False

    def update(self, units: list[Unit]) -> bool:
        """Bring `units` up to date; whether anything changed."""
        ended = not self._answer.growing
        fresh = self._reader.read(ended)
        if fresh is None and not ended:
            return False
        if self._tail:
            del units[-self._tail :]
        stable, tail = fresh if fresh is not None else ([], [])
        if self._reader.restarted:
            del units[1:]
            self._reader.restarted = False
        units += stable
        if ended:
            tail = [*tail, *_ending(self._answer)]
            self.ended = True
        units += tail
        self._tail = len(tail)
        return True


class _PieceReaderUnits:
    """An answer by origin."""

    def __init__(self, answer: Answer) -> None:
        self._pieces = PieceReader(answer)
        self._splitter = PieceSplitter()
        self.restarted = False

    def read(self, ended: bool) -> tuple[list[Unit], list[Unit]] | None:
        pieces = self._pieces.read()
        if not pieces and not ended:
            return None
        stable: list[Unit] = [*self._splitter.feed(pieces)]
        if ended:
            stable += self._splitter.finish()
        return stable, [PieceUnit(list(self._splitter.tail))] if self._splitter.tail else []


class _MarkdownUnits:
    """An answer as it is meant to be read, thoughts folded."""

    def __init__(self, answer: Answer, show_thoughts: bool) -> None:
        self._answer = answer
        self._show_thoughts = show_thoughts
        self._read = 0
        self._phase = "start"
        self._waiting = ""
        self._first = True
        self._end = ""
        self._splitter = BlockSplitter()
        self.restarted = False
        """The units given so far are void: what looked like an answer were thoughts."""

    def read(self, ended: bool) -> tuple[list[Unit], list[Unit]] | None:
        text = self._new_text(ended)
        if not text and not ended:
            return None
        stable: list[Unit] = []
        if self._phase == "answer":
            self._see_closing_tag(text)
        if self._phase != "answer":
            self._waiting += text
            text = self._leave_thoughts(stable, ended)
        if self._phase != "answer":
            return stable, thought_units(split_thoughts(self._waiting).thoughts, True, self._show_thoughts)
        blocks = self._splitter.feed(text)
        if ended:
            blocks += self._splitter.finish()
        for block in blocks:
            stable.append(BlockUnit(block, self._first))
            self._first = False
        tail = self._splitter.tail.lstrip("\n")
        return stable, [TextUnit(tail, gap=not self._first)] if tail.strip() else []

    def _start(self) -> None:
        self._splitter = BlockSplitter()
        self._first = True
        self._phase = "start"
        self._waiting = ""
        self._end = ""

    def _new_text(self, ended: bool) -> str:
        if ended and not self._read:
            return self._answer.text  # a saved answer: its tokens need not be loaded
        fresh = self._answer.tokens[self._read :]
        self._read += len(fresh)
        return "".join([token.text for token in fresh])

    def _leave_thoughts(self, stable: list[Unit], ended: bool) -> str:
        """Once the thoughts are over (or there are none): the text behind them."""
        split = split_thoughts(self._waiting)
        if split.open and not ended:
            return ""
        self._phase = "answer"
        self._waiting = ""
        if split.thoughts:
            self._end = CLOSE
            stable += thought_units(split.thoughts, False, self._show_thoughts)
            self._first = False
        return split.answer

    def _see_closing_tag(self, text: str) -> None:
        """Some templates open the thoughts themselves: then only their end is in the answer."""
        if self._end == CLOSE:
            return
        end = self._end + text
        if CLOSE in end:
            self._start()
            self.restarted = True
            said = "".join([token.text for token in self._answer.tokens[: self._read]])
            self._waiting = said[: len(said) - len(text)]
        else:
            self._end = end[-len(CLOSE) :]


def thought_units(thoughts: str, growing: bool, shown: bool) -> list[Unit]:
    """The folded (or unfolded) thoughts of a reasoning model."""
    words = len(thoughts.split())
    mark = "▾" if shown else "▸"
    line = f"{mark} thinking … {words} words" if growing else f"{mark} thoughts, {words} words"
    units: list[Unit] = [TextUnit(line, "dim italic")]
    if shown:
        units.append(TextUnit(thoughts[-4000:] if growing else thoughts, "dim"))
    return units


def _ending(answer: Answer) -> list[Unit]:
    """What stands under a finished answer."""
    units: list[Unit] = []
    if answer.note:
        units.append(TextUnit(answer.note, "bold red", gap=True))
    if answer.stats is not None:
        units.append(TextUnit(numbers_line(answer.stats, answer.reason or ""), "dim"))
    return [*units, BlankUnit()]


def numbers_line(stats: GenerationStats, reason: str) -> str:
    """The answer in one line of numbers."""
    parts = [f"{stats.emitted} tokens"]
    if stats.tokens_per_second:
        parts.append(f"{stats.tokens_per_second:.1f} tokens/s")
    if stats.speedup and stats.verified:
        parts.append(f"{stats.speedup:.2f}x plain")
    if stats.acceptance_rate is not None:
        parts.append(f"acceptance {stats.acceptance_rate:.0%}")
    if reason == "cancelled":
        parts.append("stopped")
    if reason == "length":
        parts.append("cut at the limit")
    return " · ".join(parts)


def _paragraphs(text: str) -> list[Unit]:
    """A person's message, some lines to a unit: a pasted file must not be one."""
    lines = text.split("\n")
    return [TextUnit("\n".join(lines[start : start + 40])) for start in range(0, len(lines), 40)]
