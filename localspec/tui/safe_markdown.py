"""rich's Markdown without what it would hide, follow or decorate.

Imported with the first block: markdown-it is not small.
"""

from __future__ import annotations

from typing import ClassVar

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, ImageItem, Markdown, MarkdownElement
from rich.text import Text

from localspec.ground.terminal import visible
from localspec.tui.markdown import make_visible

# HTML is shown as the text it is, and a link's address stands behind it.
_PARSER = MarkdownIt().enable("strikethrough").enable("table").disable(["html_block", "html_inline"])


class LeftHeading(Heading):
    """A heading at the left edge, without a box."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text.copy()
        text.justify = "left"
        level = int(self.tag[1:]) if self.tag[1:].isdigit() else 1
        text.stylize("bold underline" if level <= 1 else "bold")
        yield Text("#" * level + " ", style="dim", end="") + text


class ImageText(ImageItem):
    """An image is its source text."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(f"![{self.text.plain}]({visible(self.destination)})", end="")


class SafeMarkdown(Markdown):
    """Markdown of unknown origin."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": LeftHeading,
        "image": ImageText,
    }

    def __init__(self, text: str) -> None:
        super().__init__("", hyperlinks=False, code_theme="one-dark")
        self.markup = text
        self.parsed = _PARSER.parse(text)
        make_visible(self.parsed)
