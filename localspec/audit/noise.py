"""How far the shape of a batch moves the logits here: the yardstick for every near-tie."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from localspec.audit.records import Fault, Noise
from localspec.audit.subject import Subject

_TOP = 5
_CONTEXT = 32
"""Tokens that are enough to see a stale cache."""
ROWS = 12
"""Tokens at the end of a text whose rows are compared; divisible by several widths."""


def measure(subject: Subject, texts: list[list[int]], widths: tuple[int, ...]) -> Noise:
    """Decode the end of each text one by one and in batches of each width."""
    by_width: dict[int, float] = dict.fromkeys(widths, 0.0)
    rows = 0
    for text in texts:
        if len(text) < 2:
            continue
        count = min(ROWS, len(text) - 1)
        head, tail = text[:-count], text[-count:]
        single = subject.rows("target", [head, *([token] for token in tail)], count)
        for width in widths:
            chunks = [tail[first : first + width] for first in range(0, count, width)]
            batched = subject.rows("target", [head, *chunks], count)
            by_width[width] = max(by_width[width], *(moved(a, b) for a, b in zip(single, batched, strict=True)))
            rows += count
    return Noise(max(by_width.values(), default=0.0), rows, {str(w): v for w, v in by_width.items()})


def moved(left: NDArray[np.float32], right: NDArray[np.float32]) -> float:
    """Largest difference among the likeliest tokens of either row."""
    top = np.unique(np.concatenate([_largest(left), _largest(right)]))
    return float(np.abs(left[top].astype(np.float64) - right[top]).max())


def rewind_faults(subject: Subject, text: list[int], noise: Noise, has_draft: bool) -> list[Fault]:
    """Take guesses back, go on, and compare with never having made them."""
    faults = []
    text = text[-_CONTEXT:]
    head, last = text[:-3], text[-3:]
    wrong = tuple(text[:4][::-1])
    for part in ("target", *(("draft",) if has_draft else ())):
        for index in range(2):
            here = [*head, *last[:index]]
            straight = subject.rows(part, [here, [last[index]]], 1)[0]
            around = subject.rows(part, [here, [last[index]]], 1, wrong)[0]
            difference = moved(straight, around)
            if difference > noise.tolerance:
                what = f"after {len(wrong)} guesses were taken back, the {part}'s logits differ by {difference:.3g}"
                usual = f"(batches move them by {noise.largest:.3g})"
                faults.append(Fault("rewind", f"{what} {usual}: the cache was not rewound to what was kept"))
                break
    return faults


def _largest(row: NDArray[np.float32]) -> NDArray[np.int64]:
    return np.argpartition(row, -_TOP)[-_TOP:].astype(np.int64)
