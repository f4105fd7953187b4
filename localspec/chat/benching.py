"""`localspec bench` in a process of its own: it measures alone, and a screen shows what it writes."""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.engine import child


@dataclass(frozen=True, slots=True)
class BenchLine:
    """A line of progress."""

    text: str


@dataclass(frozen=True, slots=True)
class BenchEnded:
    """It is over; `result` is the JSON it wrote, None when it wrote none."""

    code: int
    result: dict[str, Any] | None


def bench_exists() -> bool:
    """Whether this localspec has the command."""
    from localspec.cli.main import COMMANDS

    return "bench" in COMMANDS


class BenchJob:
    """One quick benchmark. `tell` is called in another thread."""

    def __init__(self, arguments: list[str], tell: Callable[[BenchLine | BenchEnded], None]) -> None:
        self._tell = tell
        self._folder = tempfile.TemporaryDirectory(prefix="localspec-bench-")
        self._file = Path(self._folder.name) / "bench.json"
        self._process = subprocess.Popen(
            child.command("localspec", "bench", *arguments, "--quick", "--json", str(self._file)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=child.environment() | {"NO_COLOR": "1"},
        )
        threading.Thread(target=self._read, name="localspec-bench", daemon=True).start()

    def stop(self) -> None:
        """Interrupt it; what was measured so far is still reported."""
        with suppress(OSError):
            self._process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """End it now."""
        if self._process.poll() is None:
            self.stop()
            try:
                self._process.wait(1.5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            text = line.decode("utf-8", "replace").rstrip().rpartition("\r")[2]
            if text:
                self._tell(BenchLine(text))
        code = self._process.wait()
        result = None
        with suppress(OSError, ValueError):
            result = json.loads(self._file.read_text("utf-8"))
        self._folder.cleanup()
        self._tell(BenchEnded(code, result))


def speedup_rows(result: dict[str, Any]) -> list[tuple[str, float, float | None, float | None, str]]:
    """(kind of text, speedup, low, high, verdict) of the automatic arm, as far as the result has them."""
    rows = []
    for row in (result.get("report") or {}).get("rows") or []:
        speedup = row.get("speedup") or {}
        if row.get("stage", "main") == "main" and isinstance(speedup.get("value"), int | float):
            verdict = str(row.get("verdict") or "")
            name = f"{row.get('kind')} ({row.get('arm')})"
            rows.append((name, float(speedup["value"]), speedup.get("low"), speedup.get("high"), verdict))
    return rows


def verify_curve(result: dict[str, Any]) -> list[tuple[int, float]]:
    """(rows of a target pass, seconds)."""
    points = (result.get("report") or {}).get("curve") or []
    return [(int(point["rows"]), float(point["seconds"])) for point in points if point.get("seconds")]
