"""Asks libllama questions without loading it here: which build, which devices, how much memory."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.engine.process import subprocesses
from localspec.ground.errors import EngineDied, EngineError

HINT = "Type: localspec doctor"
TIMEOUT = 60.0
"""Seconds; a GPU's first start may compile kernels."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """A device as ggml lists it."""

    name: str
    """For example `CUDA0`, `Metal`, `CPU`."""
    description: str
    kind: str
    """`cpu`, `gpu`, `igpu` or `accelerator`."""
    free: int
    """Bytes; a CPU says its total."""
    total: int


@dataclass(frozen=True, slots=True)
class BuildFacts:
    """The llama.cpp build that is installed."""

    system_info: str
    """CPU features it was built to use, `AVX2 = 1 | ...`."""
    gpu_offload: bool
    """Whether it can use a GPU at all."""
    mmap: bool
    folder: Path
    """Where the package is."""
    devices: tuple[DeviceFacts, ...]


@dataclass(frozen=True, slots=True)
class ContextQuestion:
    """One context of a model whose memory is asked for."""

    context: int
    """Tokens."""
    rows: int
    """Most rows of logits in one pass."""
    cache_type: str = "f16"


@dataclass(frozen=True, slots=True)
class ContextSizes:
    """libllama's own numbers for it; bytes."""

    compute: int
    """On all devices together."""
    cache: int
    """KV caches and states."""


def build() -> BuildFacts:
    """The installed build. EngineError when it cannot be loaded, EngineDied when that kills its process."""
    answer = _ask({"ask": "build"})
    return BuildFacts(
        answer["system_info"],
        answer["gpu_offload"],
        answer["mmap"],
        Path(answer["folder"]),
        _devices(answer["devices"]),
    )


def devices() -> tuple[DeviceFacts, ...]:
    """Every device that this build can use, the CPU among them."""
    return _devices(_ask({"ask": "devices"})["devices"])


def sizes(models: Sequence[tuple[Path, Sequence[ContextQuestion]]]) -> list[list[ContextSizes | None]]:
    """Memory of each context of each model, in the same order; None where libllama cannot say."""
    request = [
        {
            "path": str(path),
            "contexts": [
                {"context": q.context, "rows": q.rows, "cache_type": q.cache_type} for q in questions
            ],
        }
        for path, questions in models
    ]
    answer = _ask({"ask": "sizes", "models": request})
    return [[_sizes(context) for context in model] for model in answer["sizes"]]


def gpu_backends() -> tuple[str, ...]:
    """GPU parts that the installed build contains (`cuda`, `metal`, ...), found without loading it."""
    spec = importlib.util.find_spec("llama_cpp")
    folders = [Path(place) / "lib" for place in (spec.submodule_search_locations or ())] if spec else []
    names = {path.name for folder in folders if folder.is_dir() for path in folder.iterdir()}
    return tuple(name for name in _BACKENDS if any(f"ggml-{name}" in file for file in names))


_BACKENDS = ("cuda", "metal", "vulkan", "hip", "sycl", "opencl", "musa", "cann")


def _sizes(answer: dict[str, Any]) -> ContextSizes | None:
    if "error" in answer:
        return None
    return ContextSizes(sum(answer["compute"].values()), answer["cache"])


def _devices(answer: list[dict[str, Any]]) -> tuple[DeviceFacts, ...]:
    return tuple(DeviceFacts(**device) for device in answer)


def _ask(request: dict[str, Any]) -> dict[str, Any]:
    command = subprocesses.command("localspec.engine.llama.questions", json.dumps(request))
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=TIMEOUT, stdin=subprocess.DEVNULL, env=subprocesses.environment()
        )
    except subprocess.TimeoutExpired:
        raise EngineDied(f"libllama did not answer within {TIMEOUT:.0f} s", HINT) from None
    if done.returncode != 0:
        raise EngineDied(f"libllama ended its process: {ending(done.returncode)}", HINT)
    answer: dict[str, Any] = json.loads(done.stdout)
    if "error" in answer:
        raise EngineError(answer["error"], HINT)
    return answer


def ending(code: int) -> str:
    """A process's return code in words."""
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"exit code {code}"
