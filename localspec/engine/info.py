"""What the engine says of what it has loaded. Travels to front ends as it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One loaded model."""

    path: Path
    description: str
    """Architecture, size and format in libllama's words."""
    parameters: int
    size_bytes: int
    """Of the weights."""
    vocabulary: int
    """Rows, padding included."""
    trained_context: int


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What is loaded, and how."""

    target: ModelFacts
    draft: ModelFacts | None
    context: int
    """Tokens."""
    threads: int
    build: str
    """Version of llama-cpp-python."""
    has_template: bool
    load_seconds: float
    speculation_off: str
    """Why no drafter can be used with this target; "" when some can."""
    drafters: tuple[str, ...] = ()
    """Those that can be used with what is loaded, by their names in `drafters.table`."""
