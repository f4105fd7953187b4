"""Which draft models on this disk could be loaded beside a target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from localspec.ground.errors import LocalspecError

_FILES_LOOKED_AT = 60


@dataclass(frozen=True, slots=True)
class DraftChoice:
    """One candidate with the verdict on it."""

    name: str
    """What to say to load it."""
    shown: str
    works: bool
    remark: str
    """The verdict, or why it cannot be."""


def draft_choices(target: Path) -> list[DraftChoice]:
    """Models of pulled pairs and the files beside the target: those that work first, small ones first."""
    from localspec.pairs import compat
    from localspec.pairs.gguf.split_files import local_set, read_model

    info = read_model(local_set(target))
    choices: list[tuple[int, DraftChoice]] = []
    for name, path in _candidates(target):
        try:
            draft = read_model(local_set(path))
        except LocalspecError as error:
            choices.append((0, DraftChoice(str(path), name, False, error.message)))
            continue
        verdict = compat.check(info, draft)
        worst = verdict.worst()
        works = verdict.kind != "refused" and not verdict.stopped
        remark = verdict.kind if works or worst is None else worst.detail
        size = f"{draft.parameters / 1e9:.2f}B {draft.file_type}"
        choices.append((draft.weight_bytes, DraftChoice(str(path), f"{name} ({size})", works, remark)))
    choices.sort(key=lambda choice: (not choice[1].works, choice[0], choice[1].shown))
    return [choice for _, choice in choices]


def _candidates(target: Path) -> Iterator[tuple[str, Path]]:
    from localspec.pairs.names.resolve import models_on_disk

    seen = {target.absolute()}
    for name, paths in models_on_disk():
        if paths[0].absolute() not in seen:
            seen.add(paths[0].absolute())
            yield name, paths[0]
    for path in sorted(target.parent.glob("*.gguf"))[:_FILES_LOOKED_AT]:
        later_part = "-of-" in path.stem and "-00001-of-" not in path.stem
        if path.absolute() not in seen and not later_part:
            yield path.name, path
