"""What the keys for speculation do to its settings."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.engine.drafters.table import AUTO, NONE
from localspec.engine.settings import MAX_DRAFT_LENGTH, SpeculationSettings


def pressed(how: str, now: SpeculationSettings, drafters: Sequence[str], seen: int | None) -> SpeculationSettings:
    """`on_off`, `drafter`, `shorter` or `longer`. `drafters`: those that can be used; `seen`: K of the last round."""
    match how:
        case "on_off":
            return toggled(now)
        case "drafter":
            return next_drafter(now, drafters)
        case _:
            return with_length(now, seen, 1 if how == "longer" else -1)


def toggled(now: SpeculationSettings) -> SpeculationSettings:
    """Off, or back to what is chosen by time."""
    return SpeculationSettings(AUTO if now.drafter == NONE or now.length == 0 else NONE)


def next_drafter(now: SpeculationSettings, drafters: Sequence[str]) -> SpeculationSettings:
    """The drafter after this one, of those that can be used here."""
    offered = [AUTO, *drafters]
    place = offered.index(now.drafter) if now.drafter in offered else -1
    return SpeculationSettings(offered[(place + 1) % len(offered)], now.length)


def with_length(now: SpeculationSettings, seen: int | None, step: int) -> SpeculationSettings:
    """K one longer or shorter than the fixed one or the last round's; below 1 lies what is automatic."""
    drafter = AUTO if now.drafter == NONE else now.drafter
    length = (now.length if now.length is not None else seen or 3) + step
    return SpeculationSettings(drafter, min(length, MAX_DRAFT_LENGTH) if length >= 1 else None)


def described(settings: SpeculationSettings) -> str:
    """In a few words."""
    if settings.drafter == NONE or settings.length == 0:
        return "off"
    return f"{settings.drafter}, K {'auto' if settings.length is None else settings.length}"
