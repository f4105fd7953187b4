"""Runs a plan: starts engines, measures cells, saves after each one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from localspec.bench.plan import Speeds, cell_seconds
from localspec.bench.records import Arm, BenchRun, Cell, Measurement, Prompt, Sample
from localspec.errors import LocalspecError

_PATIENCE = 1.5
"""A run is cut when it takes so many times its budget."""


class BenchEngine(Protocol):
    """One start of everything that is measured."""

    def warm_up(self) -> Speeds:
        """A little of everything, not measured; says how fast this machine is, about."""

    def measure(self, cell: Cell, prompt: Prompt, arm: Arm, reuse: bool) -> Measurement:
        """One answer; raises LocalspecError. `reuse`: the cache may still hold this prompt."""

    def close(self) -> None:
        """End it; safe after its death."""


@dataclass(frozen=True, slots=True)
class Progress:
    """For the line that a person watches."""

    done: int
    total: int
    cell: Cell
    last: Sample | None
    eta_seconds: float


class Watch(Protocol):
    """The outside world of a run."""

    def now(self) -> float:
        """Seconds on a clock that only goes forward."""

    def sleep(self, seconds: float) -> None:
        """Rest."""

    def progress(self, progress: Progress) -> None:
        """A cell begins."""

    def saved(self, run: BenchRun) -> None:
        """A cell is done: keep the run."""


class Clock:
    """The real time; subclasses add what to show and where to save."""

    def now(self) -> float:
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def progress(self, progress: Progress) -> None:
        """Nothing is shown."""

    def saved(self, run: BenchRun) -> None:
        """Nothing is kept."""


def execute(
    run: BenchRun, start_engine: Callable[[], BenchEngine], watch: Watch, first: BenchEngine | None = None
) -> BenchRun:
    """Measure every cell that `run` lacks; `first` is an engine that is warm already.

    Whatever ends it early (Ctrl-C, an engine that will not start again) is raised; the caller has every state
    of the run from `watch.saved`.
    """
    samples = list(whole_blocks(run))
    missing = _missing(run, samples)
    prompts = {prompt.id: prompt for prompt in run.plan.prompts}
    arms = {arm.name: arm for arm in run.plan.arms}
    began = watch.now() - max((sample.at for sample in samples), default=0.0)
    pace = _Pace(prompts, missing)
    engine, start = first, missing[0].start if missing else 0
    try:
        for place, cell in enumerate(missing):
            if _out_of_time(run, watch.now() - began, missing, place):
                break
            if engine is not None and cell.start != start:
                engine.close()
                engine = None
            if engine is None:
                engine = start_engine()
                engine.warm_up()
            start = cell.start
            last = samples[-1] if samples else None
            watch.progress(Progress(len(samples), len(run.plan.cells), cell, last, pace.left(place)))
            watch.sleep(run.plan.cooldown)
            at = watch.now()
            reuse = _reuse(run, missing, place)
            measured = _measure(engine, cell, prompts[cell.prompt], arms[cell.arm], reuse)
            if measured.error.startswith("EngineDied"):
                engine.close()
                engine = None
            samples.append(Sample(cell, measured, at - began))
            pace.saw(cell, watch.now() - at)
            run = replace(run, samples=tuple(samples))
            watch.saved(run)
    finally:
        if engine is not None:
            engine.close()
    run = replace(run, samples=tuple(samples), finished=len(samples) == len(run.plan.cells))
    watch.saved(run)
    return run


def whole_blocks(run: BenchRun) -> Sequence[Sample]:
    """The samples of blocks that were measured whole: half a block has lost its pairing."""
    wanted: dict[int, int] = {}
    for cell in run.plan.cells:
        wanted[cell.block] = wanted.get(cell.block, 0) + 1
    for sample in run.samples:
        wanted[sample.cell.block] -= 1
    return [sample for sample in run.samples if wanted[sample.cell.block] == 0]


def _missing(run: BenchRun, samples: Sequence[Sample]) -> list[Cell]:
    done = {sample.cell.index for sample in samples}
    return [cell for cell in run.plan.cells if cell.index not in done]


def _out_of_time(run: BenchRun, elapsed: float, cells: Sequence[Cell], place: int) -> bool:
    """Whether to end here: far slower than it seemed at first, and between two blocks."""
    late = run.plan.budget > 0 and elapsed > _PATIENCE * run.plan.budget
    return late and place > 0 and cells[place - 1].block != cells[place].block


def _reuse(run: BenchRun, cells: Sequence[Cell], place: int) -> bool:
    """Whether the cell before this one asked the same prompt of the same engine, and caches may be shared."""
    if not run.plan.reuse_prompt or place == 0:
        return False
    before, cell = cells[place - 1], cells[place]
    return (before.start, before.block, before.prompt) == (cell.start, cell.block, cell.prompt)


def _measure(engine: BenchEngine, cell: Cell, prompt: Prompt, arm: Arm, reuse: bool) -> Measurement:
    try:
        return engine.measure(cell, prompt, arm, reuse)
    except LocalspecError as error:
        return Measurement(error=f"{type(error).__name__}: {error.message}")


class _Pace:
    """How long the rest takes: the plan's estimate, corrected by how the cells so far went."""

    def __init__(self, prompts: dict[str, Prompt], cells: Sequence[Cell]) -> None:
        usual = Speeds(10.0, 100.0, 0.0)
        self._estimates = [cell_seconds(prompts[cell.prompt], cell, usual) for cell in cells]
        self._of = {cell.index: estimate for cell, estimate in zip(cells, self._estimates, strict=True)}
        self._seen = self._took = 0.0

    def saw(self, cell: Cell, seconds: float) -> None:
        self._seen += self._of[cell.index]
        self._took += seconds

    def left(self, place: int) -> float:
        """Seconds; 0 before anything is known."""
        return sum(self._estimates[place:]) * (self._took / self._seen if self._seen else 0.0)
