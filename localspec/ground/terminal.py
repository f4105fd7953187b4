"""Text for people's terminals: nothing hostile gets through, colour only where it is wanted."""

from __future__ import annotations

import os
import re
from typing import TextIO

# C0 without tab and newline, DEL, C1, and the bidirectional and zero-width controls that can disguise text.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def visible(text: str) -> str:
    """`text` with every control character written as an escape (`\\x1b`, `\\u202e`) instead of sent.

    Tab and newline stay. Safe for text that arrives in pieces: each character is judged alone.
    """
    return _UNSAFE.sub(_escape, text)


def one_line(text: str, limit: int = 400) -> str:
    """`visible` text on one line, cut to `limit` characters: for messages, names and table cells."""
    flat = visible(" ".join(text.split()))
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def row(text: str) -> str:
    """`visible` text on one line, its spacing kept: for rows of tables."""
    return visible(re.sub(r"[\n\t]", " ", text))


def wants_colour(stream: TextIO) -> bool:
    """Colour on `stream`? FORCE_COLOR and NO_COLOR decide when set and not empty, else a terminal does."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return is_terminal(stream) and os.environ.get("TERM") != "dumb"


def is_terminal(stream: TextIO) -> bool:
    """Whether `stream` is a terminal; a closed or replaced stream is none."""
    try:
        return stream.isatty()
    except (ValueError, AttributeError):
        return False


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
