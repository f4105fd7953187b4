"""A simulated engine: arms with known speeds, noise between starts and within them, and drift."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

from localspec.bench.options import BenchOptions
from localspec.bench.plan import Speeds, make_plan
from localspec.bench.records import Arm, BenchRun, Cell, Measurement, Plan, Prompt
from localspec.bench.runner import Clock, Progress, execute

PLAIN_ARM = Arm("plain", "none")
AUTO_ARM = Arm("auto")


ANSWER = Measurement(
    emitted=51, prompt_tokens=40, finish="stop", text_hash="same", target_passes=20, drafted=60, verified=60,
    accepted=30, reached=(20, 20, 20), kept=(15, 9, 6), rounds_by_drafter={"model": 20},
    verify_by_rows={"1": (5, 0.1), "4": (20, 0.15)}, draft_steps=60, draft_seconds=0.6,
)  # fmt: skip
UNDRAFTED = replace(ANSWER, drafted=0, verified=0, accepted=0, reached=(), kept=(), rounds_by_drafter={})


@dataclass(frozen=True)
class World:
    """The truth behind a simulated run."""

    speedups: dict[str, float]
    """Arm -> true speedup."""
    plain: float = 10.0
    """Tokens/s of plain decoding."""
    start_noise: float = 0.03
    """Standard deviation between starts, shared by all arms of a start."""
    ratio_noise: float = 0.0
    """Standard deviation between starts of an arm's own speedup."""
    cell_noise: float = 0.003
    drift: float = 0.0
    """Relative change from one answer to the next within a start."""
    answer: Measurement = ANSWER


class SimulatedClock(Clock):
    """Only measured answers move it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.slept = 0.0
        self.seen: list[Progress] = []
        self.states: list[BenchRun] = []

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.slept += seconds

    def progress(self, progress: Progress) -> None:
        self.seen.append(progress)

    def saved(self, run: BenchRun) -> None:
        self.states.append(run)


class SimulatedEngine:
    """One start."""

    def __init__(self, world: World, rng: random.Random, clock: SimulatedClock) -> None:
        self._world, self._rng, self._clock = world, rng, clock
        self._level = math.exp(rng.gauss(0, world.start_noise))
        self._own = {arm: math.exp(rng.gauss(0, world.ratio_noise)) for arm in world.speedups}
        self._answers = 0
        self.closed = False

    def warm_up(self) -> Speeds:
        return Speeds(self._world.plain, 100.0, 1.0)

    def measure(self, cell: Cell, prompt: Prompt, arm: Arm, reuse: bool) -> Measurement:
        rate = self._world.plain * self._level * math.exp(self._rng.gauss(0, self._world.cell_noise))
        rate *= (1 + self._world.drift) ** self._answers
        answer = self._world.answer
        if arm.name == "plain":
            answer = replace(
                answer, drafted=0, verified=0, accepted=0, reached=(), kept=(), rounds_by_drafter={}
            )
        else:
            rate *= self._world.speedups[arm.name] * self._own[arm.name]
        self._answers += 1
        ttft = 0.4
        wall = ttft + (answer.emitted - 1) / rate
        self._clock.seconds += wall
        return replace(answer, ttft_seconds=ttft, wall_seconds=wall)

    def close(self) -> None:
        self.closed = True


def prompts(kinds: tuple[str, ...] = ("code", "chat"), each: int = 4) -> tuple[Prompt, ...]:
    return tuple(
        Prompt(f"{kind}-{i}", kind, f"{kind} question {i}", quick=i < 2)
        for kind in kinds
        for i in range(each)
    )


def empty_run(plan: Plan, **settings: object) -> BenchRun:
    return BenchRun("simulated", "2026-01-01T00:00:00+00:00", {}, {"draft": "draft.gguf", **settings}, plan)


def simulate(
    world: World,
    seed: int,
    arms: tuple[Arm, ...] = (PLAIN_ARM, AUTO_ARM),
    sweep: tuple[Arm, ...] = (),
    **options: object,
) -> BenchRun:
    """One whole run in this world."""
    asked = BenchOptions(seed=seed, **options)  # type: ignore[arg-type]
    plan = make_plan(prompts(), arms, asked, Speeds(world.plain, 100.0, 1.0), sweep)
    clock, rng = SimulatedClock(), random.Random(f"world {seed}")
    return execute(empty_run(plan), lambda: SimulatedEngine(world, rng, clock), clock)
