"""Runs libllama's quantizer in a child process: size beforehand, progress, and an end to it at any time."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from localspec.engine.process import subprocesses
from localspec.engine.process.ask_libllama import ending
from localspec.ground.errors import EngineError


def predicted_bytes(source: Path, to: str) -> int:
    """Bytes of weights that quantizing `source` to type `to` would write. EngineError if libllama refuses."""
    answer = _run(source, source.with_name("never-written"), to, 1, True, lambda fraction: None)
    return int(answer["weight_bytes"] or 0)


def quantize(source: Path, out: Path, to: str, threads: int, on_progress: Callable[[float], None]) -> None:
    """Write `source` as type `to` into `out`, which is removed again when this is interrupted or fails.

    `on_progress` gets the fraction done. Raises EngineError with libllama's last words.
    """
    try:
        _run(source, out, to, threads, False, on_progress)
    except BaseException:
        out.unlink(missing_ok=True)
        raise


def _run(
    source: Path, out: Path, to: str, threads: int, dry_run: bool, on_progress: Callable[[float], None]
) -> dict[str, Any]:
    request = {"source": str(source), "out": str(out), "type": to, "threads": threads, "dry_run": dry_run}
    command = subprocesses.command("localspec.engine.llama.quantize", json.dumps(request))
    answer: dict[str, Any] = {}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=subprocesses.environment()
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                answer = json.loads(line)
                if "done" in answer:
                    on_progress(answer["done"] / answer["of"])
        except BaseException:
            process.kill()  # nothing else stops it
            raise
    if not answer.get("finished"):
        words = "; ".join(answer.get("last_lines", [])) or ending(process.returncode)
        raise EngineError(f"libllama could not quantize {source.name} to {to}: {words}", "Try another type")
    return answer
