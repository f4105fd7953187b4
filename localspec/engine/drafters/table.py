"""Every way to guess. A new drafter is a file beside this one and a line here.

Settings, command line, terminal UI, bench, server and documents read this table; none of them names a drafter.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localspec.engine.drafters.protocol import Drafter, Parts


@dataclass(frozen=True, slots=True)
class Entry:
    """One way to guess."""

    module: str
    """Has `open_drafter(parts) -> Drafter | None`; imported when it is used. None: these parts do not allow it."""
    summary: str
    """For help pages, after the name and a colon."""
    needs_draft: bool = False
    """Whether it needs a draft file."""
    is_cheap: bool = True
    """Whether its guesses cost no time of the machine that the target could use."""


DRAFTERS: dict[str, Entry] = {
    "model": Entry(__package__ + ".model", "a small model of the family guesses", needs_draft=True, is_cheap=False),
    "lookup": Entry(__package__ + ".lookup", "what followed the same words earlier in the text"),
}

AUTO, NONE = "auto", "none"

NAMES = (AUTO, *DRAFTERS, NONE)
"""What may be asked for: `auto` chooses among all by time, `none` is plain decoding."""


def open_drafters(parts: Parts) -> list[Drafter]:
    """Every drafter that can be built from these parts, in the table's order."""
    opened = (import_module(entry.module).open_drafter(parts) for entry in DRAFTERS.values())
    return [drafter for drafter in opened if drafter is not None]
