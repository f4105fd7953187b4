"""What the parent asks of the engine's process, and the answers that are no events of a generation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.engine.engine import EngineInfo
from localspec.engine.inspection import Question
from localspec.engine.settings import (
    Expectation,
    GenerationRequest,
    LoadSettings,
    SamplerSettings,
    SpeculationSettings,
)
from localspec.ground.errors import LocalspecError


@dataclass(frozen=True, slots=True)
class Load:
    """Load these models; answered by progress, then Loaded or Failed."""

    settings: LoadSettings
    threads: int


@dataclass(frozen=True, slots=True)
class Generate:
    """Make an answer; answered by events, then Finished or Failed."""

    request: GenerationRequest


@dataclass(frozen=True, slots=True)
class Inspect:
    """Answer a question about the loaded models; answered by Inspected or Failed."""

    question: Question


@dataclass(frozen=True, slots=True)
class Change:
    """Act from the next round of the running answer on; no answer."""

    speculation: SpeculationSettings | None
    sampler: SamplerSettings | None


@dataclass(frozen=True, slots=True)
class LoadDraft:
    """Swap the draft model (None = unload it); answered by progress, then Loaded or Failed."""

    path: Path | None
    masked_ids: tuple[int, ...] = ()
    shared_rows: int | None = None
    expectation: Expectation | None = None


@dataclass(frozen=True, slots=True)
class Close:
    """Free everything and end; no answer."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Models are ready."""

    info: EngineInfo


@dataclass(frozen=True, slots=True)
class Inspected:
    """The answer to Inspect."""

    answer: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """The command failed; the process goes on."""

    error: LocalspecError
