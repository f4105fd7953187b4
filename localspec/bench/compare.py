"""Two runs side by side: which rows got faster or slower, beyond what engine starts differ by anyhow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from localspec.bench.analysis import Group, by_start, group_of, start_rates, start_ratios
from localspec.bench.records import PLAIN, POOLED, BenchRun, Interval, Sample
from localspec.bench.statistics import difference_interval

Word = Literal["regression", "better", "same", "not known"]
_MINOR = ("free_memory", "load_at_start", "python")


@dataclass(frozen=True, slots=True)
class Change:
    """One row in both runs."""

    stage: str
    kind: str
    arm: str
    temperature: float
    depth: int
    rate: Interval | None
    """Tokens/s of B / A; None without two starts in each."""
    speedup: Interval | None
    """Speedup of B / speedup of A; None for the plain arm."""
    word: Word
    """By tokens/s."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """B against A."""

    changes: tuple[Change, ...]
    differences: tuple[tuple[str, str, str], ...]
    """(what, in A, in B) of machine, build, files and settings."""


def compare(a: BenchRun, b: BenchRun) -> Comparison:
    """Every row that both have."""
    changes = []
    for group in sorted({group_of(s) for s in a.samples} & {group_of(s) for s in b.samples}):
        ours = [[s for s in run.samples if group_of(s) == group] for run in (a, b)]
        arms = [arm.name for arm in a.plan.arms if all(any(s.cell.arm == arm.name for s in side) for side in ours)]
        for arm in arms:
            changes += _changes(group, arm, ours)
    return Comparison(tuple(changes), tuple(_differences(a, b)))


def _changes(group: Group, arm: str, sides: list[list[Sample]]) -> list[Change]:
    rates = [start_rates(side, arm) for side in sides]
    ratios = [start_ratios(side, arm) for side in sides]
    kinds = [kind for kind in rates[0] if kind in rates[1]]
    changes = []
    for kind in (*kinds, *((POOLED,) if len(kinds) > 1 else ())):
        rate = difference_interval(*(by_start(side, kind) for side in rates))
        speedup = None if arm == PLAIN else difference_interval(*(by_start(side, kind) for side in ratios))
        stage, temperature, depth = group
        changes.append(Change(stage, kind, arm, temperature, depth, rate, speedup, _word(rate)))
    return changes


def _word(rate: Interval | None) -> Word:
    if rate is None or rate.low is None or rate.high is None:
        return "not known"
    if rate.high < 1.0:
        return "regression"
    return "better" if rate.low > 1.0 else "same"


def _differences(a: BenchRun, b: BenchRun) -> list[tuple[str, str, str]]:
    found = []
    for left, right in ((a.environment, b.environment), (a.settings, b.settings)):
        for key in dict.fromkeys((*left, *right)):
            if key not in _MINOR and left.get(key) != right.get(key):
                found.append((key.replace("_", " "), _short(left, key), _short(right, key)))
    return found


def _short(table: Mapping[str, object], key: str) -> str:
    value = table.get(key)
    return "-" if value in (None, "") else str(value)
