"""What front ends hold of an engine, wherever it runs: in a process of ours, or in another machine's server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from localspec.engine.info import EngineInfo
    from localspec.engine.inspection import Question
    from localspec.engine.records import Event, LoadProgress
    from localspec.engine.settings import Expectation, GenerationRequest, SamplerSettings, SpeculationSettings
    from localspec.ground.errors import EngineDied


class EngineHandle(Protocol):
    """One loaded engine. One command at a time; `cancel`, `change` and `close` may come from any thread."""

    info: EngineInfo | None
    """What is loaded; None before anything is."""

    @property
    def pid(self) -> int | None:
        """Of the engine's process; None when it is none of this machine's."""

    @property
    def log_path(self) -> Path | None:
        """Where the engine writes its log; None when that is not here."""

    def generate(self, request: GenerationRequest) -> Iterator[Event]:
        """Events of one answer, the last is `Finished`. A caller that stops early cancels it."""

    def inspect(self, question: Question) -> Any:
        """Answer one question of `engine.inspection`. Raises InvalidInput where nobody can be asked."""

    def load_draft(
        self,
        path: Path | None,
        masked_ids: tuple[int, ...] = (),
        shared_rows: int | None = None,
        on_progress: Callable[[LoadProgress], None] | None = None,
        expectation: Expectation | None = None,
    ) -> EngineInfo:
        """Swap the draft model, None = none. Raises InvalidInput where that is not ours to do."""

    def cancel(self) -> None:
        """Stop what is running."""

    def change(self, speculation: SpeculationSettings | None = None, sampler: SamplerSettings | None = None) -> None:
        """Use these from the next round of the running answer on, where that is possible."""

    def death(self) -> EngineDied | None:
        """How the engine's process ended; None while it runs, and where it cannot be known."""

    def log_tail(self, count: int = 4) -> list[str]:
        """The last lines of the engine's log, oldest first; none where it is not here."""

    def close(self, patience: float = 3.0) -> None:
        """Let go of it, by force after `patience` seconds; safe to call twice."""
