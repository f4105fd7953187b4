"""Markdown that grows, cut into blocks that will not change any more.

What is cut depends on the text alone, never on the pieces it came in: so a streamed answer ends up exactly
as one that is shown at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})([^\n]*)$")
_FENCE_LINES = 60
"""Code blocks are cut at this many lines, so that no block is expensive."""
_BLOCK_LINES = 60
_LONGEST_LINE = 4000
"""Characters; a longer line is cut at its last space."""


@dataclass(frozen=True, slots=True)
class Block:
    """Some lines that are rendered together."""

    text: str
    """Without the fence lines in a code block; ends without a newline."""
    is_code: bool = False
    language: str = ""
    """Of a code block: what stood behind the opening fence."""
    continues: bool = False
    """A code block that goes on the one before."""


class BlockSplitter:
    """Takes text in any pieces, gives blocks."""

    def __init__(self) -> None:
        self._rest = ""  # the unfinished line
        self._lines: list[str] = []
        self._gap = False
        self._fence: tuple[str, str] | None = None  # what closes it, its language
        self._inner_fence = ""  # of a fence inside a list: only keeps the block together
        self._part = 0

    @property
    def tail(self) -> str:
        """What is not in a block yet, with the fence line that opens it."""
        head = [f"```{self._fence[1]}"] if self._fence is not None and not self._part else []
        return "\n".join([*head, *self._lines, self._rest])

    def feed(self, text: str) -> list[Block]:
        """Add text; the blocks that it completes."""
        blocks: list[Block] = []
        *lines, rest = (self._rest + text).split("\n")
        for line in lines:
            self._line(self._cut(line, blocks), blocks)
        self._rest = self._cut(rest, blocks)
        return blocks

    def finish(self) -> list[Block]:
        """The rest, as far as it has come."""
        blocks: list[Block] = []
        if self._rest:
            self._line(self._rest, blocks)
            self._rest = ""
        if self._fence is not None:
            self._emit_code(blocks, last=True)
        else:
            self._emit(blocks)
        return blocks

    def _cut(self, line: str, blocks: list[Block]) -> str:
        """Give the head of an endless line as lines of its own."""
        while len(line) > _LONGEST_LINE:
            place = line.rfind(" ", _LONGEST_LINE // 2, _LONGEST_LINE) + 1 or _LONGEST_LINE
            self._line(line[:place], blocks)
            line = line[place:]
        return line

    def _line(self, line: str, blocks: list[Block]) -> None:
        if self._fence is not None:
            self._code_line(line, blocks)
            return
        fence = _FENCE.match(line)
        if self._inner_fence:
            if fence and fence[2].startswith(self._inner_fence) and not fence[3].strip():
                self._inner_fence = ""
            self._lines.append(line)
        elif fence and not (fence[2][0] == "`" and "`" in fence[3]):
            self._open_fence(line, fence, blocks)
        elif not line.strip():
            self._gap = bool(self._lines)
            if self._lines:
                self._lines.append("")
        else:
            if self._gap and not line[0].isspace():
                self._emit(blocks)
            self._gap = False
            self._lines.append(line)
        if len(self._lines) >= _BLOCK_LINES and self._fence is None and not self._inner_fence:
            self._emit(blocks)

    def _open_fence(self, line: str, fence: re.Match[str], blocks: list[Block]) -> None:
        if fence[1] and self._lines:
            self._inner_fence = fence[2]
            self._gap = False
            self._lines.append(line)
            return
        self._emit(blocks)
        words = fence[3].split()
        self._fence = (fence[2], words[0] if words else "")
        self._part = 0

    def _code_line(self, line: str, blocks: list[Block]) -> None:
        assert self._fence is not None
        stripped = line.strip()
        if stripped.startswith(self._fence[0]) and not stripped.strip(self._fence[0][0]):
            self._emit_code(blocks, last=True)
            return
        self._lines.append(line)
        if len(self._lines) >= _FENCE_LINES:
            self._emit_code(blocks, last=False)

    def _emit(self, blocks: list[Block]) -> None:
        text = "\n".join(self._lines).rstrip()
        if text:
            blocks.append(Block(text))
        self._lines = []
        self._gap = False
        self._inner_fence = ""

    def _emit_code(self, blocks: list[Block], last: bool) -> None:
        assert self._fence is not None
        if self._lines or not self._part:
            blocks.append(Block("\n".join(self._lines), True, self._fence[1], self._part > 0))
        self._lines = []
        self._part += 1
        if last:
            self._fence = None


def split_blocks(text: str) -> list[Block]:
    """All blocks of a finished text."""
    splitter = BlockSplitter()
    return [*splitter.feed(text), *splitter.finish()]


def code_blocks(text: str) -> list[str]:
    """The code in a text, block by block, whole again."""
    codes: list[str] = []
    for block in split_blocks(text):
        if block.is_code and block.continues and codes:
            codes[-1] += "\n" + block.text
        elif block.is_code:
            codes.append(block.text)
    return codes
