"""Runs a plan: starts engines, measures cells, saves after each one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from localspec.bench.plan import Speeds, cell_seconds
from localspec.bench.records import Arm, BenchRun, Cell, Measurement, Prompt, Sample
from localspec.ground.errors import LocalspecError

_PATIENCE = 1.05
"""A run is trimmed when it will take more than this many times its budget ..."""
_EARLY_PATIENCE = 0.5
"""... and so much more at its beginning, where a few answers say little about the rest."""
_LAST_CALL = 1.1
"""A run ends after this many times its budget, whatever is left to do."""


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
    todo = _missing(run, samples)
    prompts = {prompt.id: prompt for prompt in run.plan.prompts}
    arms = {arm.name: arm for arm in run.plan.arms}
    began = watch.now() - max((sample.at for sample in samples), default=0.0)
    pace = _Pace(prompts)
    engine, before = first, None
    try:
        while todo:
            if run.plan.budget and watch.now() - began > _LAST_CALL * run.plan.budget:
                run = _without(run, todo, f"the last {len(todo)} answers (the time was used up)")
                break
            if before is None or before.block != todo[0].block:
                run, todo = _trimmed(run, todo, watch.now() - began + pace.left(todo))
            cell = todo.pop(0)
            if engine is not None and before is not None and before.start != cell.start:
                engine.close()
                engine = None
            if engine is None:
                engine = start_engine()
                engine.warm_up()
            last = samples[-1] if samples else None
            watch.progress(Progress(len(samples), len(run.plan.cells), cell, last, pace.left([cell, *todo])))
            watch.sleep(run.plan.cooldown)
            at = watch.now()
            measured = _measure(engine, cell, prompts[cell.prompt], arms[cell.arm], _reuse(run, before, cell))
            if measured.error.startswith("EngineDied"):
                engine.close()
                engine = None
            samples.append(Sample(cell, measured, at - began))
            pace.saw(cell, watch.now() - at)
            before = cell
            run = replace(run, samples=tuple(samples))
            watch.saved(run)
    finally:
        if engine is not None:
            engine.close()
    run = replace(run, samples=tuple(samples), finished=True)
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


def _trimmed(run: BenchRun, todo: list[Cell], projected: float) -> tuple[BenchRun, list[Cell]]:
    """Without the last kind of text (in the prompts' order) when all of it would take too long; one is always kept.

    Fewer kinds over all starts say more than all kinds over fewer starts.
    """
    groups = list(dict.fromkeys((cell.stage, cell.kind) for cell in run.plan.cells if cell in todo))
    patience = _PATIENCE + _EARLY_PATIENCE * len(todo) / len(run.plan.cells)
    if not run.plan.budget or projected <= patience * run.plan.budget or len(groups) < 2:
        return run, todo
    order = [prompt.kind for prompt in run.plan.prompts]
    stage, kind = max(groups, key=lambda group: (group[0] == "sweep", order.index(group[1])))
    what = f"the rest of the sweep on {kind}" if stage == "sweep" else f"the rest of {kind}"
    dropped = [cell for cell in todo if (cell.stage, cell.kind) == (stage, kind)]
    run = _without(run, dropped, f"{what} (slower than it seemed at first)")
    return run, [cell for cell in todo if cell not in dropped]


def _without(run: BenchRun, dropped: Sequence[Cell], what: str) -> BenchRun:
    """The run with these cells left out, which is said."""
    gone = {cell.index for cell in dropped}
    cells = tuple(cell for cell in run.plan.cells if cell.index not in gone)
    return replace(run, plan=replace(run.plan, cells=cells, left_out=(*run.plan.left_out, what)))


def _reuse(run: BenchRun, before: Cell | None, cell: Cell) -> bool:
    """Whether the cell before asked the same prompt of the same engine, and caches may be shared."""
    if not run.plan.reuse_prompt or before is None:
        return False
    return (before.start, before.block, before.prompt) == (cell.start, cell.block, cell.prompt)


def _measure(engine: BenchEngine, cell: Cell, prompt: Prompt, arm: Arm, reuse: bool) -> Measurement:
    try:
        return engine.measure(cell, prompt, arm, reuse)
    except LocalspecError as error:
        return Measurement(error=f"{type(error).__name__}: {error.message}")


class _Pace:
    """How long the rest takes: the plan's estimate, corrected by how the cells so far went."""

    def __init__(self, prompts: dict[str, Prompt]) -> None:
        self._prompts = prompts
        self._seen = self._took = 0.0

    def saw(self, cell: Cell, seconds: float) -> None:
        self._seen += self._estimate(cell)
        self._took += seconds

    def left(self, cells: Sequence[Cell]) -> float:
        """Seconds; 0 before anything is known."""
        return sum(map(self._estimate, cells)) * (self._took / self._seen if self._seen else 0.0)

    def _estimate(self, cell: Cell) -> float:
        return cell_seconds(self._prompts[cell.prompt], cell, _USUAL)


_USUAL = Speeds(10.0, 100.0, 0.0)
