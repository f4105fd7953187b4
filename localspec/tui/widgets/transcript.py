"""The conversation on the screen.

Draws only the lines in view, so its cost does not depend on how long the chat is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from localspec.tui.items import Item
from localspec.tui.units import Look
from localspec.ui.conversation import Turn

_GUTTER = 2
_SETTLING = 8
"""Rounds of rendering what is in view and measuring again, at most."""


class Transcript(ScrollView, can_focus=True):
    """Turns from top to bottom. Follows the end until somebody scrolls up."""

    DEFAULT_CSS = """
    Transcript { overflow-x: hidden; overflow-y: scroll; scrollbar-size-vertical: 1; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll_up", "Scroll up", show=False),
        Binding("down", "scroll_down", "Scroll down", show=False),
        Binding("k,shift+up", "select(-1)", "Message before", show=False),
        Binding("j,shift+down", "select(1)", "Message after", show=False),
        Binding("e", "ask('edit')", "Edit this message", show=False),
        Binding("r", "ask('regenerate')", "Answer again", show=False),
        Binding("c,y", "ask('copy')", "Copy this message", show=False),
        Binding("b", "ask('copy_code')", "Copy its code", show=False),
        Binding("g,enter", "ask('rounds')", "Step through its rounds", show=False),
        Binding("t", "toggle_thoughts", "Show or fold thoughts", show=False),
    ]

    class Asked(Message):
        """Something is to be done with one message."""

        def __init__(self, what: str, index: int) -> None:
            super().__init__()
            self.what = what
            self.index = index

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._items: list[Item] = []
        self._starts: list[int] = []
        self._total = 0
        self._by_origin = False
        self._plain = False
        self._follows = True
        self._anchor: tuple[int, int] = (0, 0)  # the item at the top, and how many of its lines are above
        self._moving = False
        self._selected: int | None = None
        self._found: tuple[int, str] | None = None

    # --- content -------------------------------------------------------------------------------------

    @property
    def turns(self) -> list[Turn]:
        return [item.turn for item in self._items]

    @property
    def follows(self) -> bool:
        """Whether the end stays in view."""
        return self._follows

    @property
    def selected(self) -> int | None:
        """Index of the selected turn."""
        return self._selected

    def show(self, turns: Iterable[Turn]) -> None:
        """Replace everything; turns that were shown already keep what was rendered."""
        known = {id(item.turn): item for item in self._items}
        self._items = [known.get(id(turn)) or Item(turn, self._by_origin) for turn in turns]
        self._selected = None
        self._follows = True
        self._settle()

    def grow(self) -> None:
        """Take up what is new in the last answer."""
        if not self._items or not self._items[-1].is_growing():
            return
        first = self._items[-1].grow()
        if first is not None and self._starts:
            self._settle(self._starts[-1] + first)
        elif not self._starts:
            self._settle()

    def set_by_origin(self, by_origin: bool) -> None:
        """Answers by origin, or as they are meant to be read."""
        self._by_origin = by_origin
        for item in self._items:
            if item.turn.answer is not None:
                item.by_origin = by_origin
                item.reset()
        self._settle()

    def set_plain(self, plain: bool) -> None:
        """Without colour, marks say what colours would."""
        if plain != self._plain:
            self._plain = plain
            self._settle()

    def all_lines(self) -> list[str]:
        """Every line as text: renders the whole conversation."""
        look = self._look()
        lines: list[str] = []
        for item in self._items:
            while item.show(0, 1 << 30, look, self.app.console):
                pass
            lines += [item.line(number, look, self.app.console).text for number in range(item.height(look))]
        return lines

    # --- searching -----------------------------------------------------------------------------------

    def find(self, needle: str) -> bool:
        """Select the nearest turn above the selected one that contains `needle`, and show the place."""
        count = len(self._items)
        if not needle or not count:
            return False
        start = self._selected if self._selected is not None else 0  # above the first one is the last
        low = needle.lower()
        for distance in range(1, count + 1):
            index = (start - distance) % count
            if low in self._items[index].turn.said.lower():
                self._found = (index, low)
                self._select(index)
                self._show_found(index, low)
                return True
        return False

    def end_find(self) -> None:
        self._found = None
        self.refresh()

    def _show_found(self, index: int, needle: str) -> None:
        look = self._look()
        item = self._items[index]
        while item.show(0, 1 << 30, look, self.app.console):
            pass
        self._settle()
        for number in range(item.height(look)):
            if needle in item.line(number, look, self.app.console).text.lower():
                self._go_to(self._starts[index] + number - self.size.height // 3)
                return

    # --- keys ----------------------------------------------------------------------------------------

    def action_select(self, step: int) -> None:
        count = len(self._items)
        if count:
            at = self._selected if self._selected is not None else (count if step < 0 else -1)
            self._select(min(max(at + step, 0), count - 1))

    def action_ask(self, what: str) -> None:
        index = self._selected if self._selected is not None else len(self._items) - 1
        if index >= 0:
            self.post_message(self.Asked(what, index))

    def action_toggle_thoughts(self) -> None:
        index = self._selected if self._selected is not None else len(self._items) - 1
        if index >= 0:
            item = self._items[index]
            item.show_thoughts = not item.show_thoughts
            item.reset()
            self._settle()

    def action_scroll_home(self) -> None:
        self._go_to(0)

    def action_scroll_end(self) -> None:
        self._follows = True
        self._settle()

    def action_scroll_up(self) -> None:
        self._go_to(self.scroll_offset.y - 1)

    def action_scroll_down(self) -> None:
        self._go_to(self.scroll_offset.y + 1)

    def action_page_up(self) -> None:
        self._go_to(self.scroll_offset.y - max(1, self.size.height - 2))

    def action_page_down(self) -> None:
        self._go_to(self.scroll_offset.y + max(1, self.size.height - 2))

    def on_focus(self) -> None:
        if self._selected is None and self._items:
            self._selected = len(self._items) - 1
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        row = self.scroll_offset.y + event.y
        if self._items and row < self._total:
            self._selected = bisect_right(self._starts, row) - 1
            self.refresh()

    def _select(self, index: int) -> None:
        self._selected = index
        self._settle()
        top, height = self._starts[index], self._items[index].height(self._look())
        y, rows = self.scroll_offset.y, self.size.height
        if top < y or height >= rows:
            self._go_to(top)
        elif top + height > y + rows:
            self._go_to(top + height - rows)
        self.refresh()

    # --- layout --------------------------------------------------------------------------------------

    def _look(self) -> Look:
        return Look(max(1, self.size.width - _GUTTER - 1), self._plain, bool(self.app.native_ansi_color))

    def on_resize(self) -> None:
        self._settle()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if not self._moving:  # a wheel, a scrollbar
            self._note_position(round(new_value))
            self._settle()

    def _go_to(self, line: int) -> None:
        last = max(0, self._total - self.size.height)
        self._note_position(min(max(line, 0), last))
        self._settle()

    def _note_position(self, y: int) -> None:
        self._follows = y >= self._total - self.size.height
        if self._starts:
            index = max(0, bisect_right(self._starts, y) - 1)
            self._anchor = (index, y - self._starts[index])

    def _settle(self, changed_from: int = 0) -> None:
        """Render what is in view until heights settle; keep the place: the end, or the item at the top."""
        rows, look, console = self.size.height, self._look(), self.app.console
        if not rows:
            return
        y = 0
        for _ in range(_SETTLING):
            self._measure(look)
            y = self._wanted_y(rows)
            index = max(0, bisect_right(self._starts, y) - 1)
            changed = False
            while index < len(self._items) and self._starts[index] < y + rows:
                start = self._starts[index]
                changed |= self._items[index].show(y - start, y + rows - start, look, console)
                index += 1
            if not changed:
                break
        self._move_to(y, changed_from)

    def _measure(self, look: Look) -> None:
        starts, place = [], 0
        for item in self._items:
            starts.append(place)
            place += item.height(look)
        self._starts, self._total = starts, place

    def _wanted_y(self, rows: int) -> int:
        last = max(0, self._total - rows)
        if self._follows or not self._items:
            return last
        index, offset = self._anchor
        index = min(index, len(self._items) - 1)
        return min(self._starts[index] + offset, last)

    def _move_to(self, y: int, changed_from: int) -> None:
        before = self.scroll_offset.y
        self._moving = True
        try:
            self.virtual_size = Size(self.size.width - 1, self._total)
            self.scroll_to(y=y, animate=False, force=True)
        finally:
            self._moving = False
        top = changed_from - y
        if y != before or top <= 0:
            self.refresh()
        elif top < self.size.height:
            self.refresh(Region(0, top, self.size.width, self.size.height - top))

    # --- drawing -------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        row = self.scroll_offset.y + y
        width = self.size.width
        base = self.rich_style
        index = bisect_right(self._starts, row) - 1
        if row >= self._total or not 0 <= index < len(self._items):
            return Strip.blank(width, base)
        look = self._look()
        strip = self._items[index].line(row - self._starts[index], look, self.app.console)
        if self._found is not None and self._found[0] == index:
            strip = _highlighted(strip, self._found[1])
        strip = self._with_selection(strip, row)
        marked = self.has_focus and index == self._selected
        gutter = Segment("▌ " if marked else "  ", Style(bold=True))
        return Strip([gutter, *strip.apply_style(base)]).extend_cell_length(width, base).apply_style(base)

    def _with_selection(self, strip: Strip, row: int) -> Strip:
        selection = self.text_selection
        strip = strip.apply_offsets(0, row)
        span = selection.get_span(row) if selection is not None else None
        if span is None:
            return strip
        start, end = span
        end = strip.cell_length if end == -1 else end
        style = self.screen.get_component_rich_style("screen--selection")
        return Strip.join([strip.crop(0, start), _over(strip.crop(start, end), style), strip.crop(end)])

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selection.extract("\n".join(line.rstrip() for line in self.all_lines())), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()


def _over(strip: Strip, style: Style) -> Strip:
    """`strip` with `style` on top of its own."""
    return Strip(Segment.apply_style(strip, None, style), strip.cell_length)


def _highlighted(strip: Strip, needle: str) -> Strip:
    """`strip` with each occurrence of `needle` (in lower case) reversed."""
    text = strip.text.lower()
    if needle not in text or len(text) != len(strip.text):
        return strip
    parts, place = [], 0
    while (found := text.find(needle, place)) >= 0:
        cut = strip.index_to_cell_position
        parts.append(strip.crop(cut(place), cut(found)))
        parts.append(_over(strip.crop(cut(found), cut(found + len(needle))), Style(reverse=True)))
        place = found + len(needle)
    parts.append(strip.crop(strip.index_to_cell_position(place)))
    return Strip.join(parts)
