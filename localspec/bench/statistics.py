"""Intervals over engine starts.

Variance lives between process starts, not within them, so a start gives one number: the mean log ratio of its
paired answers. The interval is Student's t over those few numbers. Pairing (same prompt, same start, minutes
apart at most) takes out what a start does to every arm; the mirrored order takes out a steady drift.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from statistics import fmean, stdev

from localspec.bench.records import Interval

_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


_SWEEPS = 30
"""Alternating over two groupings converges quickly when most groups meet."""


def t95(freedom: int) -> float:
    """Two-sided 95 % quantile of Student's t."""
    if freedom <= len(_T95):
        return _T95[freedom - 1]
    return 1.960 + 2.5 / freedom


def log_interval(by_start: Sequence[float]) -> Interval:
    """exp of the mean of per-start logs, with its interval; bounds are None for one start."""
    centre = fmean(by_start)
    if len(by_start) < 2:
        return Interval(math.exp(centre))
    half = t95(len(by_start) - 1) * stdev(by_start) / math.sqrt(len(by_start))
    return Interval(math.exp(centre), math.exp(centre - half), math.exp(centre + half))


def difference_interval(left: Sequence[float], right: Sequence[float]) -> Interval | None:
    """exp(mean(right) - mean(left)) of independent per-start logs (Welch); None below two starts each."""
    if len(left) < 2 or len(right) < 2:
        return None
    errors = [stdev(side) ** 2 / len(side) for side in (left, right)]
    centre, total = fmean(right) - fmean(left), sum(errors)
    if total == 0:
        return Interval(math.exp(centre), math.exp(centre), math.exp(centre))
    freedom = total**2 / sum(error**2 / (len(side) - 1) for error, side in zip(errors, (left, right), strict=True))
    half = t95(max(1, int(freedom))) * math.sqrt(total)
    return Interval(math.exp(centre), math.exp(centre - half), math.exp(centre + half))


def mean_of_groups(values: Mapping[str, Sequence[float]]) -> float:
    """Mean over groups of each group's mean: every group counts the same."""
    return fmean(fmean(group) for group in values.values())


def without_levels(values: Sequence[float], *groupings: Sequence[Hashable]) -> list[float]:
    """`values` less the level of each group, for one or more ways to group them at once."""
    left = list(values)
    for _ in range(1 if len(groupings) == 1 else _SWEEPS):
        for grouping in groupings:
            members: dict[Hashable, list[int]] = {}
            for index, group in enumerate(grouping):
                members.setdefault(group, []).append(index)
            for indices in members.values():
                level = fmean(left[index] for index in indices)
                for index in indices:
                    left[index] -= level
    return left


def slope(x: Sequence[float], y: Sequence[float], parameters: int) -> tuple[float, float]:
    """Least squares slope of centred data and its standard error; `parameters` were estimated in all."""
    spread = sum(value * value for value in x)
    if spread <= 0 or len(x) <= parameters:
        return 0.0, math.inf
    rise = sum(a * b for a, b in zip(x, y, strict=True)) / spread
    left = sum((b - rise * a) ** 2 for a, b in zip(x, y, strict=True))
    return rise, math.sqrt(left / (len(x) - parameters) / spread)
