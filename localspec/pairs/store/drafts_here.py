"""Which models on this disk may guess for a target."""

from __future__ import annotations

from pathlib import Path

from localspec.ground.errors import LocalspecError
from localspec.pairs import compat
from localspec.pairs.gguf.model_info import ModelInfo
from localspec.pairs.gguf.split_files import local_set, read_model
from localspec.pairs.names import resolve
from localspec.pairs.names.resolve import PairFiles


def would_work(target: ModelInfo, files: PairFiles) -> list[str]:
    """Names of drafts that may serve `target`, the smallest first."""
    models = on_disk(files)
    names = {info.source: name for name, info in models}
    working = compat.drafts_that_work(target, [info for _, info in models])
    return [names[info.source] for info, _ in working]


def on_disk(files: PairFiles) -> list[tuple[str, ModelInfo]]:
    """Models that were pulled or imported, and files beside the pair, each once: (name, header)."""
    found: dict[str, tuple[Path, ...]] = {name: paths for name, paths in resolve.models_on_disk()}
    for folder in {path.parent for path in (*files.target_files, *files.draft_files)}:
        for path in sorted(folder.glob("*.gguf"))[:50]:
            found.setdefault(str(path), (path,))
    candidates: dict[str, tuple[str, ModelInfo]] = {}
    for name, paths in found.items():
        try:
            info = read_model(local_set(paths[0]))
        except LocalspecError:
            continue  # another report will say what is wrong with that file
        candidates.setdefault(info.source, (name, info))
    return list(candidates.values())
