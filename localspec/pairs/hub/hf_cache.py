"""The Hugging Face cache folder: where files are, and how a finished one gets its name.

The layout is publicly specified and shared with `hf`, transformers and llama.cpp:
`models--owner--name/{blobs,refs,snapshots}`. Nothing here needs the network or the hub client.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from localspec.pairs.store.listing import RepoFile

PART_SUFFIX = ".localspec.part"
"""Ours, and not the client's `.incomplete`, which `hf cache prune` would delete."""

COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def cache_folder(override: Path | str | None = None) -> Path:
    """Where the hub client keeps its files: `override`, else its environment variables, else its default."""
    if override is not None:
        return Path(override).expanduser().absolute()
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if value := os.environ.get(variable):
            return Path(os.path.expandvars(value)).expanduser()
    if home := os.environ.get("HF_HOME"):
        return Path(os.path.expandvars(home)).expanduser() / "hub"
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.expandvars(base)).expanduser() / "huggingface" / "hub"


def repo_folder(cache: Path, repo: str) -> Path:
    """`models--owner--name` in the cache."""
    return cache / f"models--{repo.replace('/', '--')}"


def blob_path(cache: Path, repo: str, etag: str) -> Path:
    """Where the content with this etag lies, once whole."""
    return repo_folder(cache, repo) / "blobs" / etag


def part_path(cache: Path, repo: str, etag: str) -> Path:
    """Where it grows."""
    return repo_folder(cache, repo) / "blobs" / f"{etag}{PART_SUFFIX}"


def lock_path(cache: Path, repo: str, etag: str) -> Path:
    """The file that the client and we lock while that content is being fetched."""
    return cache / ".locks" / f"models--{repo.replace('/', '--')}" / f"{etag}.lock"


def snapshot_path(cache: Path, repo: str, commit: str, path: str) -> Path:
    """The file under its own name."""
    return repo_folder(cache, repo).joinpath("snapshots", commit, *path.split("/"))


def publish(cache: Path, repo: str, commit: str, path: str, etag: str) -> Path:
    """Give a finished blob its name in the snapshot; returns that path.

    A relative link where links are possible; elsewhere the file itself moves there, as the client does it.
    """
    blob, name = blob_path(cache, repo, etag), snapshot_path(cache, repo, commit, path)
    if name.exists():
        return name
    name.parent.mkdir(parents=True, exist_ok=True)
    if name.is_symlink():  # left behind by a removed blob
        name.unlink()
    try:
        os.symlink(os.path.relpath(blob, name.parent), name)
    except FileExistsError:
        pass
    except OSError:
        os.replace(blob, name)
    return name


def remember_revision(cache: Path, repo: str, revision: str, commit: str) -> None:
    """`refs/main` and the like: which commit a branch or tag was at when we looked."""
    if COMMIT.fullmatch(revision) or ".." in revision:
        return
    ref = repo_folder(cache, repo).joinpath("refs", *revision.split("/"))
    ref.parent.mkdir(parents=True, exist_ok=True)
    temporary = ref.with_name(f"{ref.name}.{os.getpid()}")
    temporary.write_text(commit)
    os.replace(temporary, ref)


def cached_commit(cache: Path, repo: str, revision: str) -> str | None:
    """The commit that `revision` was at when it was last asked for; None when it never was."""
    if COMMIT.fullmatch(revision):
        return revision if (repo_folder(cache, repo) / "snapshots" / revision).is_dir() else None
    try:
        text = repo_folder(cache, repo).joinpath("refs", *revision.split("/")).read_text().strip()
    except OSError:
        return None
    return text if COMMIT.fullmatch(text) else None


def cached_files(cache: Path, repo: str, commit: str) -> list[RepoFile]:
    """The files of one commit that are whole on this disk, as a listing."""
    root = repo_folder(cache, repo) / "snapshots" / commit
    files = []
    for path in sorted(root.rglob("*")):
        if path.is_file():
            blob = Path(os.path.realpath(path)).name
            sha256 = blob if _SHA256.fullmatch(blob) else ""
            files.append(RepoFile(path.relative_to(root).as_posix(), path.stat().st_size, sha256))
    return files


def repos(cache: Path) -> Iterator[str]:
    """Every model repository that has a folder in the cache."""
    for folder in sorted(cache.glob("models--*--*")):
        owner, _, name = folder.name.removeprefix("models--").partition("--")
        yield f"{owner}/{name}"
