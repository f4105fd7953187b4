"""Saying no to a pair: the reasons, and what would do instead."""

from __future__ import annotations

from contextlib import suppress

from localspec.ground.errors import IncompatiblePair, UnreadableFile
from localspec.pairs import compat
from localspec.pairs.gguf.model_info import ModelInfo
from localspec.pairs.gguf.split_files import read_model
from localspec.pairs.names.resolve import models_on_disk
from localspec.pairs.store.store import Store


def refusal(
    target: tuple[str, ModelInfo], draft: str, verdict: compat.Verdict, store: Store
) -> IncompatiblePair:
    """Why the pair will not do, and which drafts that are here already would. `target`: (name, header)."""
    name, info = target
    detail = "; ".join(f"{one.rule}: {one.detail}" for one in verdict.reasons if one.severity == "refused")
    if verdict.kind != "refused":
        return IncompatiblePair(
            f"the draft {draft} is larger than the target {name}", "Swap them, or --force"
        )
    working = drafts_here(info, store)
    hint = "Leave out --draft for one that does"
    if working:
        hint = f"On this disk would work: {', '.join(working[:3])}"
    return IncompatiblePair(f"{draft} cannot draft for {name}: {detail}", hint)


def drafts_here(target: ModelInfo, store: Store) -> list[str]:
    """Names of models on this disk that could draft for `target`, the smallest first."""
    names = {}
    for name, paths in models_on_disk(store):
        with suppress(UnreadableFile):
            info = read_model(paths)
            names[info.source] = (name, info)
    working = compat.drafts_that_work(target, [info for _, info in names.values()])
    return [names[info.source][0] for info, _ in working]
