"""From a repository's list of files to the files of one model: its quant, its shards, and no side files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from localspec.ground.errors import DownloadFailed, UnknownName
from localspec.pairs.gguf.quants import REMOVED_QUANTS, split_quant

_SHARD = re.compile(r"^(.+?)(?:[-.]split)?-(\d{5})-of-(\d{5})$")
_UNSAFE = re.compile(r"[\\:\x00-\x1f\x7f]")
_BYTE_SPLIT = re.compile(r"\.gguf[-.]?(?:part|split)|gguf-split-[a-z]{2}$", re.IGNORECASE)
# Files that are no whole language model: projectors, calibration data, heads that need a target, adapters.
_SIDECAR = re.compile(
    r"mmproj|imatrix|eagle-?3|d-?flash|dspark|(?:^|/)mtp[-_/]|(?:^|/)ggml-vocab|(?:^|[-._])lora(?:[-._]|$)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class RepoFile:
    """One file of a repository, as the hub lists it."""

    path: str
    """With `/`, from the repository's root."""
    size: int
    """Bytes; 0 when the hub does not say."""
    sha256: str
    """Of the content; "" when the hub does not say (small files, some mirrors)."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What a repository holds at one commit."""

    repo: str
    commit: str
    """40 hex digits."""
    files: tuple[RepoFile, ...]
    gated: bool
    licence: str
    """As the repository states it, "" when it does not."""


@dataclass(frozen=True, slots=True)
class FileSet:
    """The files of one model in one quantization."""

    stem: str
    """File name without quant, shard number and ending."""
    quant: str
    """Canonical quantization, "" when the name does not tell."""
    files: tuple[RepoFile, ...]
    """In shard order."""
    shards: int
    """How many files the names announce; more than `files` has when the repository lacks some."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen from a listing."""

    files: FileSet
    note: str
    """A sentence when it is not the first wish ("no Q4_0 there: took Q8_0"), else ""."""


def shard_of(stem: str) -> tuple[str, int, int]:
    """(name without shard numbers, number from 1, count); count 1 for an unsplit file."""
    found = _SHARD.match(stem)
    return (found[1], int(found[2]), int(found[3])) if found else (stem, 1, 1)


def is_model_name(path: str) -> bool:
    """Whether a repository's file may be a model, and its name may be used on this disk.

    The name becomes part of a path here: none that would lead out of its folder.
    """
    parts = path.split("/")
    return path.lower().endswith(".gguf") and not (
        _UNSAFE.search(path) or any(part in ("", ".", "..") for part in parts)
    )


def file_sets(files: Iterable[RepoFile], *, sidecars: bool = False) -> list[FileSet]:
    """Group a listing into models by quantization; everything that is no model is left out."""
    groups: dict[tuple[str, str, str, int], dict[int, RepoFile]] = {}
    for file in files:
        if not is_model_name(file.path) or (_SIDECAR.search(file.path) and not sidecars):
            continue
        folder, _, base = file.path.rpartition("/")
        name, number, count = shard_of(base[: -len(".gguf")])
        stem, quant = split_quant(name)
        if not quant:  # BF16/model.gguf
            quant = split_quant("-" + folder.rpartition("/")[2])[1]
        if quant not in REMOVED_QUANTS and 1 <= number <= count:
            groups.setdefault((folder, stem, quant, count), {})[number] = file
    return [
        FileSet(stem, quant, tuple(found[n] for n in sorted(found)), count)
        for (_, stem, quant, count), found in groups.items()
    ]


def choose(files: Sequence[RepoFile], order: Sequence[str], *, repo: str, pattern: str = "") -> Choice:
    """The files to pull: the first quantization of `order` that is there.

    `pattern` (a catalog's file name with `{quant}`) breaks ties between several models in one repository.
    UnknownName names what is there when nothing matches.
    """
    sets = file_sets(files)
    wanted = _squeeze(pattern.replace("{quant}", "").removesuffix(".gguf"))
    for quant in order:
        matching = [one for one in sets if one.quant == quant]
        if matching:
            best = min(matching, key=lambda one: (_squeeze(one.stem) != wanted, len(one.stem), one.shards))
            note = "" if quant == order[0] else f"no {order[0]} in {repo}: took {quant}"
            return Choice(_whole(best, repo), note)
    if len(sets) == 1 and not sets[0].quant:
        return Choice(_whole(sets[0], repo), "")
    raise UnknownName(f"{repo} has no {' or '.join(order)} file", _what_there_is(files, sets))


def choose_file(files: Sequence[RepoFile], path: str, *, repo: str) -> Choice:
    """The model that the file at `path` belongs to (any of its shards); its name is compared without case."""
    for one in file_sets(files, sidecars=True):
        if any(path.lower() in (f.path.lower(), f.path.rpartition("/")[2].lower()) for f in one.files):
            return Choice(_whole(one, repo), "")
    raise UnknownName(f"{repo} has no file {path}", _what_there_is(files, file_sets(files)))


def first_model(files: Sequence[RepoFile], *, repo: str) -> Choice:
    """The repository's first model in order of size: for repositories whose names follow no custom."""
    sets = file_sets(files)
    if not sets:
        raise UnknownName(f"{repo} has no GGUF model", _what_there_is(files, sets))
    return Choice(_whole(min(sets, key=lambda one: one.size), repo), "")


def _whole(one: FileSet, repo: str) -> FileSet:
    if len(one.files) != one.shards:
        raise DownloadFailed(
            f"{repo} lists {len(one.files)} of the {one.shards} files of {one.stem} {one.quant}",
            "Its owner has not finished the upload; try another quant or repository",
        )
    return one


def _what_there_is(files: Iterable[RepoFile], sets: Sequence[FileSet]) -> str:
    quants = sorted({one.quant for one in sets if one.quant})
    if quants:
        return f"It has: {', '.join(quants)}"
    if any(_BYTE_SPLIT.search(file.path) for file in files):
        return "Its files are cut into byte parts that must be joined by hand; try another repository"
    return "It holds no GGUF model; repositories that do are often named …-GGUF"


def _squeeze(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())

