"""Going on with a run that was cut off: only where it still measures the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from localspec.bench.environment import describe
from localspec.bench.setup import arms_of, settings_of
from localspec.bench.storage import load
from localspec.ground.errors import InvalidInput

if TYPE_CHECKING:
    from localspec.bench.options import BenchOptions
    from localspec.bench.records import BenchRun
    from localspec.bench.setup import BenchPair

_OPTIONS = {
    "context": "--ctx", "threads": "--threads", "gpu_layers": "--gpu-layers",
    "draft_gpu_layers": "--draft-gpu-layers", "cache_type": "--cache-type",
}  # fmt: skip
"""What must be set as it was, and how it is given."""


def stored_run(path: Path, options: BenchOptions, pair: BenchPair | None) -> BenchRun:
    """The run in `path`, to go on with by its own plan: of `options` only what is loaded and asked counts.

    Raises UnreadableFile, and InvalidInput when files, machine or settings are others now.
    """
    run = load(path)
    _same_environment(run, path, pair)
    if pair is not None:
        now = settings_of(pair)
        for name, option in _OPTIONS.items():
            if run.settings.get(name) != now[name]:
                was = "default" if run.settings.get(name) is None else run.settings[name]
                raise InvalidInput(f"{path} was measured with another {option}: {was}", "Give the options of then")
    _same_arms(run, path, options, pair)
    return run


def _same_environment(run: BenchRun, path: Path, pair: BenchPair | None) -> None:
    now = describe(pair.files.target, pair.files.draft) if pair is not None else {}
    for part in ("target", "draft", "llama_cpp_python", "cpu"):
        if (pair is not None or part == "target") and run.environment.get(part) != now.get(part):
            raise InvalidInput(
                f"the {part.replace('_', ' ')} is not the one that {path} measured", "Start anew without --resume"
            )


def _same_arms(run: BenchRun, path: Path, options: BenchOptions, pair: BenchPair | None) -> None:
    peers = {arm.peer for arm in arms_of(options, pair)}
    drafts = set(pair.drafts) if pair is not None else set()
    for arm in run.plan.arms:
        if arm.peer and arm.peer not in peers:
            option = "--url" if "/" in arm.peer else "--against"
            raise InvalidInput(f"{path} measured {arm.peer} too", f"Give its {option} again")
        if not arm.peer and arm.draft and arm.draft not in drafts:
            raise InvalidInput(f"{path} measured the draft {arm.draft} too", "Give its --drafts again")
