"""What a loaded pair takes of this machine's memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.ground.errors import LocalspecError

if TYPE_CHECKING:
    from localspec.session import Session


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes; None = could not be found out, which is never counted as nothing."""

    target: int | None
    """Weights."""
    target_cache: int | None
    draft: int | None
    draft_cache: int | None
    has_draft: bool
    places: tuple[tuple[str, int, int], ...] = ()
    """(RAM or a device, bytes the plan uses there, bytes that were free before)."""

    @property
    def total(self) -> int | None:
        """All of it; None when a part is unknown."""
        parts = [self.target, self.target_cache]
        if self.has_draft:
            parts += [self.draft, self.draft_cache]
        return None if None in parts else sum(part for part in parts if part is not None)


def memory_use(session: Session) -> MemoryUse:
    """From what libllama said about the weights and what the headers say about the caches."""
    info, settings = session.info, session.settings
    context = info.context
    draft_context = min(settings.draft_context or context, context)
    draft = info.draft
    places = session.placed.places if session.placed is not None else ()
    return MemoryUse(
        info.target.size_bytes or None,
        _cache_bytes(info.target.path, context, settings.cache_type),
        (draft.size_bytes or None) if draft is not None else None,
        _cache_bytes(draft.path, draft_context, settings.cache_type) if draft is not None else None,
        draft is not None,
        tuple((place.name, place.used, place.free) for place in places if place.used),
    )


def _cache_bytes(path: Path, context: int, cache_type: str) -> int | None:
    from localspec.pairs.gguf.split_files import local_set, read_model
    from localspec.pairs.memory import sizes

    try:
        return sum(sizes.cache_bytes(read_model(local_set(path)), context, cache_type))
    except (LocalspecError, OSError, ValueError):
        return None
