"""Machines to simulate: how long passes take there, relative to one plain step of the target.

The two-core machine was measured (Qwen2.5-Coder-1.5B target, 0.5B Q4_0 draft, llama.cpp on CPU, AVX-512).
The others are estimates: plain step = bytes of the weights / memory bandwidth / 0.7; draft step = the same
for the draft plus launch overhead; rows from kernel structure (CUDA matrix-vector kernels serve up to 8
rows, then matrix-matrix ones take over; Metal has small-batch kernels for 2..8 rows that cost a little
each; CPUs run out of arithmetic).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class MachineProfile:
    """One pair on one machine."""

    name: str
    plain_seconds: float
    """One plain step of the target in an empty context."""
    verify: tuple[float, ...]
    """Target passes of 1, 2, ... 65 rows, in plain steps."""
    draft_step: float
    """One draft step, in plain steps."""
    catch_up_row: float
    """Each further row of a draft pass, in draft steps."""
    host_row: float = 0.0
    """Host work per row, in plain steps."""
    rebuild: float = 0.0
    """Extra time of a pass whose width differs from the last one's, in plain steps."""
    context_growth: float = 0.0
    """How much slower passes get per 1000 tokens of context."""
    noise: float = 0.02
    """Standard deviation of a pass, as a share of it."""
    spike_chance: float = 0.0
    """Share of passes that are hit by a busy machine ..."""
    spike: float = 3.0
    """... and how many times longer they take."""
    pays: bool = True
    """Whether a draft model gains on ordinary text."""


def curve(points: Sequence[tuple[int, float]]) -> tuple[float, ...]:
    """Pass times for 1..65 rows through (rows, time) points; beyond the last one with its slope."""
    times = [points[0][1]] * 65
    for (left, low), (right, high) in pairwise(points):
        for rows in range(left, 66):
            times[rows - 1] = low + (high - low) * (rows - left) / (right - left)
    return tuple(times)


# 4.7 GB at 1008 GB/s: 6.7 ms. Flat up to 8 rows; at 9 the matrix-matrix kernel takes over.
_CUDA = curve([(1, 1.0), (8, 1.12), (9, 1.5), (32, 1.7), (65, 2.1)])
# 360 GB/s and a tenth of the arithmetic: the same kernels, a steeper slope.
_CUDA_SMALL = curve([(1, 1.0), (2, 1.04), (8, 1.30), (9, 1.75), (32, 2.6), (65, 4.4)])
# Measured elsewhere on base M-series chips: the first extra row a quarter of a step, then a fifth each.
_METAL = curve([(1, 1.0), (2, 1.25), (8, 2.45), (9, 2.7), (32, 4.2), (65, 7.0)])
_LAPTOP = curve([(1, 1.0), (2, 1.25), (4, 1.85), (8, 3.1), (16, 5.6), (65, 21.0)])
_TWO_CORES_BF16 = curve(
    [(1, 1.0), (2, 1.0), (3, 1.05), (4, 1.1), (5, 1.2), (6, 1.25), (8, 1.4), (12, 1.8), (16, 2.4), (65, 9.0)]
)
_TWO_CORES_Q4_K_M = curve([(1, 1.0), (2, 1.6), (3, 2.5), (4, 2.9), (5, 3.7), (6, 4.4), (8, 7.0), (65, 55.0)])
_TWO_CORES_Q4_0 = curve(
    [(1, 1.0), (2, 2.0), (3, 2.8), (4, 2.85), (5, 3.6), (6, 4.2), (8, 5.5), (12, 7.3), (16, 7.4), (65, 28.0)]
)

PROFILES = (
    MachineProfile(
        "rtx4090-7b-1.5b", 0.0067, _CUDA, 0.25, 0.05, host_row=0.01, rebuild=0.03, context_growth=0.01
    ),
    MachineProfile(
        "rtx4090-7b-0.5b", 0.0067, _CUDA, 0.12, 0.05, host_row=0.01, rebuild=0.03, context_growth=0.01
    ),
    MachineProfile("rtx3060-7b-0.5b", 0.0187, _CUDA_SMALL, 0.12, 0.06, host_row=0.004, rebuild=0.01),
    MachineProfile("m3-7b-1.5b", 0.067, _METAL, 0.28, 0.2, host_row=0.001, context_growth=0.02),
    MachineProfile(
        "laptop-cpu-7b-0.5b", 0.11, _LAPTOP, 0.11, 0.35, noise=0.06, spike_chance=0.01, context_growth=0.04
    ),
    MachineProfile(
        "two-cores-bf16",
        0.097,
        _TWO_CORES_BF16,
        0.12,
        0.5,
        noise=0.05,
        spike_chance=0.01,
        context_growth=0.05,
    ),
    MachineProfile(
        "two-cores-q4_k_m",
        0.036,
        _TWO_CORES_Q4_K_M,
        0.36,
        0.5,
        noise=0.05,
        spike_chance=0.01,
        context_growth=0.08,
        pays=False,
    ),
    MachineProfile(
        "two-cores-q4_0", 0.034, _TWO_CORES_Q4_0, 0.36, 0.5, noise=0.05, spike_chance=0.01, pays=False
    ),
)
