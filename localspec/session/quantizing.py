"""A name in, a smaller file out: `pairs.quantize` with the engine's quantizer and this machine's disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from localspec.engine.process import quantizer
from localspec.ground.errors import InvalidInput
from localspec.ground.locations import data_folder
from localspec.ground.machine import free_disk, is_alive, physical_cores
from localspec.pairs import quantize
from localspec.pairs.gguf.split_files import read_model
from localspec.pairs.names import resolve
from localspec.pairs.quantize import QuantizePlan


def prepare(
    source: str, to: str, out: Path | None = None, force: bool = False, cache_folder: Path | None = None
) -> QuantizePlan:
    """Find the source and check what can be checked before the work. Raises InvalidInput and others."""
    if to not in quantize.TYPES:
        raise InvalidInput(f"no type named {to!r}", f"Use one of {', '.join(quantize.TYPES)}")
    files = resolve.find_pair(source, "none", cache_folder=cache_folder)
    info = read_model(files.target_files)
    place = (out or data_folder() / "models" / quantize.default_name(files.target, to)).absolute()
    if place.is_dir():
        place = place / quantize.default_name(files.target, to)
    for leftover in quantize.leftovers(place, is_alive):
        leftover.unlink(missing_ok=True)
    weights = quantizer.predicted_bytes(files.target, to)
    return quantize.check(files.target, info, to, place, weights, free_disk(place.parent), force)


def run(plan: QuantizePlan, on_progress: Callable[[float], None], threads: int | None = None) -> str:
    """Do it; returns the name that the new file can be used by."""
    count = threads or physical_cores()
    info = quantize.run(
        plan, lambda part: quantizer.quantize(plan.source, part, plan.to, count, on_progress)
    )
    return quantize.register(plan, info)
