"""Markdown to lines of a terminal.

Whatever the text contains, it is shown: no links, no HTML, no control characters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.text import Text
from textual.strip import Strip

from localspec.ground.terminal import visible
from localspec.tui.blocks import Block

if TYPE_CHECKING:
    from markdown_it.token import Token
    from rich.console import RenderableType

_SYNTAX_CHARACTERS = 20_000
"""Code longer than this is not coloured."""


def render_block(block: Block, width: int, console: Console, plain: bool = False) -> list[Strip]:
    """Lines at most `width` cells wide. `plain`: for terminals without colour, no coloured code."""
    width = max(width, 1)
    if block.is_code:
        return render(_code(block, width, plain), width, console)
    try:
        return render(_markdown(block.text), width, console)
    except Exception:
        # A parser that stumbles over a strange text must not take the chat with it.
        return wrap(Text(visible(block.text)), width, console)


def render(renderable: RenderableType, width: int, console: Console) -> list[Strip]:
    """Any rich renderable as strips, without lines that are empty at the end."""
    options = console.options.update(width=width, height=None, highlight=False, markup=False)
    strips = [_fitted(line, width) for line in console.render_lines(renderable, options, pad=False)]
    while strips and _is_blank(strips[-1]):
        strips.pop()
    while strips and _is_blank(strips[0]):
        del strips[0]
    return strips


def wrap(text: Text, width: int, console: Console) -> list[Strip]:
    """Plain or styled text, folded at words; tabs become spaces."""
    text.expand_tabs(4)
    if text.style:
        text.stylize(text.style)  # lines without a span would lose it
    lines = text.wrap(console, max(width, 1), overflow="fold", no_wrap=False)
    return [_fitted(line.render(console), width) for line in lines]


def _is_blank(strip: Strip) -> bool:
    return not strip.text.strip() and not any(part.style and part.style.bgcolor for part in strip)


def _fitted(segments: Iterable[Segment], width: int) -> Strip:
    strip = Strip([segment for segment in segments if segment.text and segment.text != "\n"])
    return strip.crop(0, width) if strip.cell_length > width else strip


def _code(block: Block, width: int, plain: bool) -> RenderableType:
    text = visible(block.text).expandtabs(4)
    if plain or not block.language or len(text) > _SYNTAX_CHARACTERS:
        lines = [line + " " * max(0, width - 2 - cell_len(line)) for line in text.split("\n")]
        from rich.padding import Padding

        return Padding(Text("\n".join(lines), overflow="fold"), (0, 1), style="" if plain else "on #1e2127")
    from rich.syntax import Syntax

    return Syntax(
        text,
        _lexer(block.language),
        theme="one-dark",
        word_wrap=True,
        padding=(0, 1),
        background_color="#1e2127",
    )


def _lexer(language: str) -> str:
    return language.lower().strip("{}.") if language.isascii() else "text"


def _markdown(text: str) -> RenderableType:
    from localspec.tui.safe_markdown import SafeMarkdown

    return SafeMarkdown(visible(text))


def make_visible(tokens: Iterable[Token]) -> None:
    """Escape control characters in parsed Markdown: entities such as `&#x202e;` are decoded by the parser."""
    for token in tokens:
        if token.content:
            token.content = visible(token.content)
        if token.info:
            token.info = visible(token.info)
        if token.children:
            make_visible(token.children)
