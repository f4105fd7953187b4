"""What the keys for speculation do to its settings."""

from __future__ import annotations

from localspec.engine.settings import DRAFTERS, MAX_DRAFT_LENGTH, SpeculationSettings


def toggled(now: SpeculationSettings) -> SpeculationSettings:
    """Off, or back to what is chosen by time."""
    return SpeculationSettings("auto" if now.drafter == "none" or now.length == 0 else "none")


def next_drafter(now: SpeculationSettings, has_draft: bool) -> SpeculationSettings:
    """The drafter after this one; the draft model is left out where there is none."""
    offered = [name for name in DRAFTERS if name != "none" and (has_draft or name != "model")]
    place = offered.index(now.drafter) if now.drafter in offered else -1
    return SpeculationSettings(offered[(place + 1) % len(offered)], now.length)


def with_length(now: SpeculationSettings, seen: int | None, step: int) -> SpeculationSettings:
    """K one longer or shorter than the fixed one or the last round's; below 1 lies what is automatic."""
    drafter = "auto" if now.drafter == "none" else now.drafter
    length = (now.length if now.length is not None else seen or 3) + step
    return SpeculationSettings(drafter, min(length, MAX_DRAFT_LENGTH) if length >= 1 else None)


def described(settings: SpeculationSettings) -> str:
    """In a few words."""
    if settings.drafter == "none" or settings.length == 0:
        return "off"
    return f"{settings.drafter}, K {'auto' if settings.length is None else settings.length}"
