"""verify: are the files of a pair still what they were? And the repair: fetch only what is not."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Literal

from localspec.ground.errors import UnreadableFile
from localspec.pairs.gguf.header import read_header
from localspec.pairs.hub import hf_cache
from localspec.pairs.hub.download import Download, Item
from localspec.pairs.hub.hub import Hub
from localspec.pairs.store.store import LockedFile, LockedModel, PairLock

Finding = Literal["ok", "recorded", "missing", "short", "damaged", "replaced"]
"""`recorded`: no hash was known before, now it is. `replaced`: a file used in place is another one now."""


@dataclass(frozen=True, slots=True)
class FileCheck:
    """What was found about one file."""

    model: LockedModel
    file: LockedFile
    path: Path
    finding: Finding
    detail: str = ""

    @property
    def good(self) -> bool:
        """Nothing to do."""
        return self.finding in ("ok", "recorded")


def check_file(model: LockedModel, file: LockedFile, watch: Callable[[int], None]) -> FileCheck:
    """Hash one file. `watch` hears how many more bytes were read, every MiB."""
    path = model.path_of(file)
    try:
        size = path.stat().st_size
    except OSError:
        return FileCheck(model, file, path, "missing")
    if file.size and size != file.size:
        finding: Finding = "short" if model.repo else "replaced"
        return FileCheck(model, file, path, finding, f"{size:,} bytes instead of {file.size:,}")
    sha256 = hash_file(path, watch)
    if file.sha256 and sha256 != file.sha256:
        return FileCheck(
            model, file, path, "damaged" if model.repo else "replaced", f"its sha256 is {sha256[:12]}…"
        )
    try:
        read_header(path)
    except UnreadableFile as error:
        return FileCheck(model, file, path, "damaged", error.message)
    return FileCheck(model, replace(file, sha256=sha256), path, "ok" if file.sha256 else "recorded")


def hash_file(path: Path, watch: Callable[[int], None] = lambda count: None) -> str:
    """sha256 of the file in hex."""
    hasher = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            hasher.update(chunk)
            watch(len(chunk))
    return hasher.hexdigest()


def with_hashes(lock: PairLock, checks: list[FileCheck]) -> PairLock:
    """The lock with the hashes that were learnt."""
    learnt = {check.path: check.file for check in checks if check.good}

    def updated(model: LockedModel) -> LockedModel:
        return replace(model, files=tuple(learnt.get(model.path_of(file), file) for file in model.files))

    return replace(lock, target=updated(lock.target), draft=updated(lock.draft) if lock.draft else None)


def repair(check: FileCheck, hub: Hub, cancel: Event) -> Download:
    """Set a faulty file of the hub aside; the returned download brings it back when it is finished.

    The lock's own commit is asked for, so the file that comes is the one that was checked for the pair.
    """
    model, file = check.model, check.file
    cache = Path(model.cache)
    if check.path.exists():
        blob = Path(os.path.realpath(check.path))
        check.path.unlink()
        blob.unlink(missing_ok=True)
    hf_cache.blob_path(cache, model.repo, file.blob).unlink(missing_ok=True)
    return Download(hub, cache, Item(model.repo, model.revision, file.path, file.size, file.sha256), cancel)
