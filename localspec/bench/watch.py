"""The line that a person watches, and the file that grows with the run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from localspec.bench import storage
from localspec.bench.records import BenchRun
from localspec.bench.render.figures import duration
from localspec.bench.runner import Clock, Progress
from localspec.ground.terminal import is_terminal, one_line


class TerminalWatch(Clock):
    """Saves after every cell; on a terminal one line that is rewritten, in a pipe one line a block."""

    def __init__(self, path: Path, quiet: bool) -> None:
        self._path = path
        self._quiet = quiet
        self._live = is_terminal(sys.stderr)
        self._block = -1
        self.run: BenchRun | None = None
        """The latest state."""

    def saved(self, run: BenchRun) -> None:
        self.run = run
        storage.save(self._path, run)

    def progress(self, progress: Progress) -> None:
        if self._quiet or (not self._live and progress.cell.block == self._block):
            return
        self._block = progress.cell.block
        arms = self.run.plan.arms if self.run is not None else ()
        text = progress_text(progress, {arm.name: arm.label or arm.name for arm in arms})
        print(
            f"\r\x1b[K{text}" if self._live else text,
            end="" if self._live else "\n",
            file=sys.stderr,
            flush=True,
        )

    def end(self) -> None:
        """The line is no longer needed."""
        if self._live and not self._quiet:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def progress_text(progress: Progress, names: Mapping[str, str]) -> str:
    """`[12/96] start 2 · code · auto · last 6.1 tokens/s · 12 min left`"""
    cell = progress.cell
    words = [f"[{progress.done + 1}/{progress.total}] start {cell.start + 1}", cell.kind, names.get(cell.arm, cell.arm)]
    if progress.last is not None and progress.last.measured.rate is not None:
        arm = progress.last.cell.arm
        words.append(f"last: {names.get(arm, arm)} {progress.last.measured.rate:.1f} tokens/s")
    if progress.eta_seconds:
        words.append(f"{duration(progress.eta_seconds)} left")
    return one_line(" · ".join(words), 120)
