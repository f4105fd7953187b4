"""Every way to guess. A new drafter is a file beside this one and a line here.

Settings, command line, terminal UI, bench, server and documents read this table; none of them names a drafter.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from localspec.engine.drafters.protocol import Drafter, Parts, Wants


@dataclass(frozen=True, slots=True)
class Entry:
    """One way to guess."""

    module: str
    """Imported when it is used. Has `open_drafter(parts) -> Drafter | None` (None: these parts do not allow it) and,
    where it needs anything of the target, `wants(draft_path) -> Wants`."""
    summary: str
    """For help pages, after the name and a colon."""
    needs_draft: bool = False
    """Whether it needs a draft file."""


DRAFTERS: dict[str, Entry] = {
    "model": Entry(__package__ + ".model", "a small model of the family guesses", needs_draft=True),
    "lookup": Entry(__package__ + ".lookup", "what followed the same words earlier in the text"),
}

AUTO, NONE = "auto", "none"

NAMES = (AUTO, *DRAFTERS, NONE)
"""What may be asked for: `auto` chooses among all by time, `none` is plain decoding."""


def uses_draft(name: str) -> bool:
    """Whether a draft file may guess when this was asked for."""
    return name == AUTO or (name in DRAFTERS and DRAFTERS[name].needs_draft)


def open_drafters(parts: Parts) -> dict[str, Drafter]:
    """Every drafter that can be built from these parts, by name, in the table's order."""
    opened = {name: import_module(entry.module).open_drafter(parts) for name, entry in DRAFTERS.items()}
    return {name: drafter for name, drafter in opened.items() if drafter is not None}


def wants(draft: Path | None) -> Wants:
    """What all drafters together need of the target, with this draft file."""
    from localspec.engine.drafters.protocol import Wants

    modules = (import_module(entry.module) for entry in DRAFTERS.values())
    asked = [module.wants(draft) for module in modules if hasattr(module, "wants")]
    hidden = sorted({layer for each in asked for layer in each.hidden})
    return Wants(tuple(hidden), max((each.leaves for each in asked), default=1))
