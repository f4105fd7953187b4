"""What the parent asks of the engine's process, and the answers that are no events of a generation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.engine.info import EngineInfo
from localspec.engine.inspection import Question
from localspec.engine.records import Finished
from localspec.engine.settings import (
    Expectation,
    GenerationRequest,
    LoadSettings,
    SamplerSettings,
    SpeculationSettings,
)
from localspec.ground.errors import LocalspecError


@dataclass(frozen=True, slots=True)
class Numbered:
    """What travels, both ways: a command with a number of its own, or an answer with the number of its command."""

    request: int
    body: Any


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
    """Act from the next round of command `request` on; no answer. When that one is over, nothing happens."""

    request: int
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
class Settle:
    """Answered by Settled when every command before it is over."""


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


@dataclass(frozen=True, slots=True)
class Settled:
    """The answer to Settle."""

    info: EngineInfo | None
    """What is loaded now."""


@dataclass(frozen=True, slots=True)
class Alive:
    """Comes every second while a command runs, and answers none."""

    still: float
    """Seconds since the work last looked at its cancel flag: how long the running step has taken."""
    longest: float
    """Of the steps that have ended; seconds."""


LAST = (Loaded, Inspected, Settled, Failed, Finished)
"""Each command but Change and Close has exactly one of these, as the last of its answers."""
