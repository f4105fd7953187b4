"""Taking files away: those of a removed pair, unfinished downloads, contents that nothing names any more."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from localspec.pairs.hub import hf_cache
from localspec.pairs.store.store import PairLock, Store, shared_files

_QUIET_SECONDS = 3600
"""A content without a name that is younger may just be on its way to get one."""

TryLock = Callable[[Path, str, str], AbstractContextManager[object]]
"""(cache, repo, etag) -> the hub client's lock, at once; TimeoutError on entry when somebody holds it."""


@dataclass(frozen=True, slots=True)
class Removal:
    """What removing a pair would do to the disk."""

    lock: PairLock
    files: tuple[Path, ...]
    """Names in the hub cache that would go, each with its content."""
    kept: tuple[Path, ...]
    """Files that stay: used by another pair, or used in place."""

    @property
    def size(self) -> int:
        """Bytes that would be free."""
        return sum(path.stat().st_size for path in self.files if path.exists())


def plan_removal(lock: PairLock, store: Store) -> Removal:
    """Which files of `lock` nobody else needs."""
    others = [other for other in store.locks() if other != lock]
    shared = shared_files(lock, others)
    go: list[Path] = []
    stay: list[Path] = []
    for model, file in lock.files():
        path = model.path_of(file)
        (stay if path in shared or not model.repo else go).append(path)
    return Removal(lock, tuple(dict.fromkeys(go)), tuple(dict.fromkeys(stay)))


def remove(removal: Removal, store: Store) -> None:
    """Forget the pair and delete its files. Part files of it go too."""
    store.remove(removal.lock)
    gone = set(removal.files)
    for model, file in removal.lock.files():
        path = model.path_of(file)
        if path in gone:
            blob = Path(os.path.realpath(path))
            _unlink_names(path, blob)
            # The client may keep a content for several repositories elsewhere: only this repository's goes.
            hf_cache.blob_path(Path(model.cache), model.repo, file.blob or blob.name).unlink(missing_ok=True)
        if model.repo and file.blob and path not in removal.kept:
            hf_cache.part_path(Path(model.cache), model.repo, file.blob).unlink(missing_ok=True)
    for path in gone:
        _remove_empty(path.parent)


@dataclass(frozen=True, slots=True)
class Leftover:
    """A file that prune may delete."""

    path: Path
    size: int
    what: str
    """`unfinished download`, or `content without a name`."""
    repo: str
    etag: str


def leftovers(cache: Path) -> list[Leftover]:
    """Unfinished downloads of ours, and contents that no snapshot names."""
    found = []
    for repo in hf_cache.repos(cache):
        folder = hf_cache.repo_folder(cache, repo)
        named = {os.path.realpath(path) for path in folder.glob("snapshots/*/**/*") if path.is_symlink()}
        for path in sorted((folder / "blobs").glob("*")):
            what = _what(path, named)
            if what:
                etag = path.name.removesuffix(hf_cache.PART_SUFFIX)
                found.append(Leftover(path, path.lstat().st_size, what, repo, etag))
    return found


def prune(cache: Path, found: Iterable[Leftover], try_lock: TryLock) -> tuple[list[Leftover], list[Leftover]]:
    """Delete what is not in use right now; returns (deleted, in use)."""
    gone, busy = [], []
    for one in found:
        try:
            with try_lock(cache, one.repo, one.etag):
                one.path.unlink(missing_ok=True)
            gone.append(one)
        except TimeoutError:
            busy.append(one)
    return gone, busy


def _what(path: Path, named: set[str]) -> str:
    if path.name.endswith(hf_cache.PART_SUFFIX):
        return "unfinished download"
    if "." in path.name or os.path.realpath(path) in named or path.is_symlink():
        return ""  # the client's own unfinished files are its business: hf cache prune
    young = time.time() - path.stat().st_mtime < _QUIET_SECONDS
    return "" if young else "content without a name"


def _unlink_names(path: Path, blob: Path) -> None:
    """Remove every snapshot name of a content: other commits may name it too."""
    snapshots = next((parent for parent in path.parents if parent.name == "snapshots"), None)
    for name in snapshots.glob(f"*/**/{glob.escape(path.name)}") if snapshots else ():
        if name.is_symlink() and Path(os.path.realpath(name)) == blob:
            name.unlink()
    path.unlink(missing_ok=True)


def _remove_empty(folder: Path) -> None:
    """Remove a snapshot's folder and its parents while they are empty, up to the repository's own."""
    while "snapshots" in folder.parts and folder.name != "snapshots":
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent
