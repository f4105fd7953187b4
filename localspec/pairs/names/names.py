"""What a person typed for a model -> a path, a repository, a catalog entry, `auto` or `none`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from localspec.ground.errors import InvalidInput
from localspec.pairs.gguf.quants import is_quant
from localspec.pairs.names.catalog import Catalog, CatalogModel

_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_HUB_PREFIXES = ("hf:", "https://huggingface.co/", "http://huggingface.co/", "huggingface.co/")


@dataclass(frozen=True, slots=True)
class PathRef:
    """A file on this disk."""

    path: Path


@dataclass(frozen=True, slots=True)
class HubRef:
    """`hf:owner/repo[:quant|file]`."""

    repo: str
    quant: str | None
    """As written; None when none was."""
    file: str | None
    """Path in the repository; None when none was named."""


@dataclass(frozen=True, slots=True)
class CatalogRef:
    """`family-size[-quant]`."""

    model: CatalogModel
    quant: str | None
    """As written; None when none was."""


ModelRef = PathRef | HubRef | CatalogRef


def is_path(text: str) -> bool:
    """Whether `text` means a file on this disk rather than a name."""
    if text.startswith(_HUB_PREFIXES):
        return False
    separators = [os.sep, "/"] + ([os.altsep] if os.altsep else [])
    return (
        any(separator in text for separator in separators)
        or text.startswith(("~", "."))
        or text.lower().endswith(".gguf")
        or os.path.isfile(text)
    )


def parse_target(text: str, catalog: Catalog, quant: str | None = None) -> ModelRef:
    """The model that `text` names; `quant` (from `--quant`) wins over one in the name. Else UnknownName."""
    ref = _path_or_hub(text)
    if ref is not None:
        return _with_quant(ref, quant)
    named = catalog.find(text)
    if named is None:
        raise catalog.unknown(text)
    return CatalogRef(named.model, quant or named.quant)


def parse_draft(text: str, family: str, catalog: Catalog) -> ModelRef:
    """Like `parse_target`, for a draft whose name may leave out the target's `family` ("" = none known)."""
    ref = _path_or_hub(text)
    if ref is not None:
        return ref
    named = catalog.find_draft(text, family)
    if named is None:
        raise catalog.unknown(text, family)
    return CatalogRef(named.model, named.quant)


def split_pair(text: str) -> tuple[str, str | None]:
    """`TARGET+DRAFT` -> its halves; anything else -> (text, None). Paths may hold a `+` of their own."""
    if "+" in text and not os.path.exists(text):
        target, _, draft = text.partition("+")
        if target and draft:
            return target, draft
    return text, None


def _path_or_hub(text: str) -> PathRef | HubRef | None:
    if not text.strip() or "\0" in text:
        raise InvalidInput("an empty model name", "See what can be pulled: localspec catalog")
    if text.startswith(_HUB_PREFIXES):
        return _hub_ref(text)
    return PathRef(Path(text).expanduser()) if is_path(text) else None


def _hub_ref(text: str) -> HubRef:
    rest = text
    for prefix in _HUB_PREFIXES:
        rest = rest.removeprefix(prefix)
    rest = re.sub(r"/(?:blob|resolve)/[^/]+/", "/", rest.split("?")[0])
    place, _, tag = rest.partition(":")
    owner, _, tail = place.partition("/")
    name, _, file = tail.partition("/")
    repo = f"{owner}/{name}"
    if not _REPO.fullmatch(repo) or ".." in repo:
        hint = "Write hf:owner/repo, hf:owner/repo:q4 or hf:owner/repo:file.gguf"
        raise InvalidInput(f"{text!r} names no repository", hint)
    if tag and not is_quant(tag):
        file, tag = tag, ""
        if not file.lower().endswith(".gguf"):
            raise InvalidInput(f"{file!r} is neither a quant nor a .gguf file", "Write for example :Q4_K_M")
    return HubRef(repo, tag or None, file or None)


def _with_quant(ref: PathRef | HubRef, quant: str | None) -> PathRef | HubRef:
    if quant is None:
        return ref
    if isinstance(ref, HubRef) and ref.file is None:
        return HubRef(ref.repo, quant, None)
    raise InvalidInput("--quant makes no sense with a file", "Leave it out, or name a repository instead")
