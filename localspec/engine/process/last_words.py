"""What a log says about an end: the lines that speak of a failure, and no others."""

from __future__ import annotations

import re
from collections.abc import Sequence

_FAILURE = re.compile(
    r"error|fail|abort|assert|exception|fatal|what\(\)|terminate called|out of memory|out_of_memory|not enough"
    r"|unable to|cannot|could not|invalid|unsupported|unknown|corrupt|segmentation|illegal",
    re.IGNORECASE,
)
_HARMLESS = re.compile(
    r"compute status: 1\b|\bret = 2\b|\b(disabled|enabled|fall(ing)? back|warning)\b|^\s+File \"|^refused: ",
    re.IGNORECASE,
)
"""Remarks, the inner lines of a traceback, refused requests, and what libllama says of a pass that was cancelled."""


def last_words(lines: Sequence[str], count: int = 2, look_back: int = 20) -> list[str]:
    """The last `count` lines that speak of a failure among the last `look_back`; [] when none does.

    Lines that say how many layers went where come last in most logs, and are nobody's last words.
    """
    said = [line.strip() for line in lines[-look_back:] if _FAILURE.search(line) and not _HARMLESS.search(line)]
    return list(dict.fromkeys(said))[-count:]


def unknown_architecture(lines: Sequence[str]) -> str | None:
    """The architecture that libllama has just said it does not know; None when it said no such thing."""
    for line in reversed(lines):
        if found := re.search(r"unknown model architecture: '([^']*)'", line):
            return found[1]
    return None
