"""`localspec bench` in a process of its own: it measures alone, and a screen shows what it writes."""

from __future__ import annotations

import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localspec.engine.process import subprocesses
from localspec.ground.parsing import parse_json

if TYPE_CHECKING:
    from localspec.session import LoadOptions


@dataclass(frozen=True, slots=True)
class BenchLine:
    """A line of progress."""

    text: str


@dataclass(frozen=True, slots=True)
class BenchEnded:
    """It is over; `result` is the JSON it wrote, None when it wrote none."""

    code: int
    result: dict[str, Any] | None


_PASSED_ON = {
    "draft": "--draft", "context": "--ctx", "threads": "--threads", "gpu_layers": "--gpu-layers",
    "draft_gpu_layers": "--draft-gpu-layers", "cache_type": "--cache-type", "cache_folder": "--cache-dir",
}  # fmt: skip


def bench_arguments(pair: str, options: LoadOptions | None) -> list[str]:
    """The command line that measures a pair as it is loaded here."""
    words = [pair]
    for name, option in _PASSED_ON.items():
        value = getattr(options, name, None)
        if value is not None and value != "":
            words += [option, str(value)]
    return [*words, "--force"] if options is not None and options.force else words


class BenchJob:
    """One quick benchmark. `tell` is called in another thread."""

    def __init__(self, arguments: list[str], tell: Callable[[BenchLine | BenchEnded], None]) -> None:
        self._tell = tell
        self._folder = tempfile.TemporaryDirectory(prefix="localspec-bench-")
        self._file = Path(self._folder.name) / "bench.json"
        self._process = subprocess.Popen(
            subprocesses.command("localspec", "bench", *arguments, "--quick", "--json", str(self._file)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=subprocesses.environment() | {"NO_COLOR": "1"},
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
            result = parse_json(self._file.read_text("utf-8"))
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
