"""One line of progress on a terminal; nothing anywhere else."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from localspec.ground.terminal import is_terminal

WIDTH = 30
INTERVAL = 0.1
"""Seconds between two redraws."""


class ProgressLine:
    """`label ███████░░░ 70 %`, redrawn in place on stderr and removed at the end."""

    def __init__(self, label: str, quiet: bool = False, stream: TextIO | None = None) -> None:
        self.label = label
        self.stream = stream or sys.stderr
        self.shown = not quiet and is_terminal(self.stream)
        self._drawn = 0.0

    def __call__(self, fraction: float) -> None:
        now = time.monotonic()
        if not self.shown or (now - self._drawn < INTERVAL and fraction < 1):
            return
        self._drawn = now
        full = round(WIDTH * min(max(fraction, 0.0), 1.0))
        bar = "█" * full + "░" * (WIDTH - full)
        self.stream.write(f"\r{self.label} {bar} {fraction:4.0%} ")
        self.stream.flush()

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self.shown and self._drawn:
            self.stream.write("\r\x1b[K")
            self.stream.flush()
