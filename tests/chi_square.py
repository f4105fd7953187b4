"""Tests of fit without scipy."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

THREE_SIGMA_P = 0.001
"""Significance of every chi-square test here."""


def chi_square_p(observed: NDArray[np.float64], expected: NDArray[np.float64], least: float = 5.0) -> float:
    """Upper-tail probability of Pearson's statistic, summed over rows of a table of counts.

    In each row, cells with an expectation under `least` are pooled. The tail is Wilson and Hilferty's
    approximation.
    """
    statistic = 0.0
    freedom = 0
    for seen, wanted in zip(observed, expected, strict=True):
        small = wanted < least
        seen_cells = np.append(seen[~small], seen[small].sum())
        wanted_cells = np.append(wanted[~small], wanted[small].sum())
        if wanted_cells[-1] < least:  # the pool itself is too small: join the smallest cell to it
            if len(wanted_cells) < 3:
                continue
            smallest = int(np.argmin(wanted_cells[:-1]))
            wanted_cells[-1] += wanted_cells[smallest]
            seen_cells[-1] += seen_cells[smallest]
            wanted_cells, seen_cells = np.delete(wanted_cells, smallest), np.delete(seen_cells, smallest)
        statistic += float(((seen_cells - wanted_cells) ** 2 / wanted_cells).sum())
        freedom += len(wanted_cells) - 1
    return chi_square_tail(statistic, freedom)


def chi_square_tail(statistic: float, freedom: int) -> float:
    """P(chi-square with `freedom` degrees > statistic)."""
    if freedom == 0:
        return 1.0
    spread = 2.0 / (9.0 * freedom)
    z = ((statistic / freedom) ** (1.0 / 3.0) - (1.0 - spread)) / math.sqrt(spread)
    return 0.5 * math.erfc(z / math.sqrt(2.0))
