"""Models that other programs keep on this disk, used where they are: LM Studio, Ollama, llama.cpp, folders.

Nothing is copied, and nothing is written into foreign folders.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from localspec.ground.errors import InvalidInput, LocalspecError
from localspec.ground.parsing import parse_json
from localspec.pairs.gguf.model_info import ModelInfo
from localspec.pairs.gguf.split_files import local_set, model_stem, read_model
from localspec.pairs.names.catalog import Catalog
from localspec.pairs.store.listing import shard_of
from localspec.pairs.store.store import LockedModel, PairLock, local_file

_NOT_MODELS = ("clip", "mmproj")
_MANIFEST_LIMIT = 1 << 20
_OLLAMA_MODEL = "application/vnd.ollama.image.model"


@dataclass(frozen=True, slots=True)
class Found:
    """One model, or why a file is none."""

    name: str
    """What it will be called here."""
    paths: tuple[Path, ...]
    info: ModelInfo | None
    problem: str = ""
    """Why it cannot be used, "" for a usable model."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    path: Path
    name: str


def find_models(where: str, catalog: Catalog) -> list[Found]:
    """Every model at `where`: `lmstudio`, `ollama`, `llama.cpp`, or a folder or file. Else InvalidInput."""
    candidates = list(_candidates(where))
    names: dict[str, int] = {}
    found = []
    for candidate in candidates:
        one = _look_at(candidate, catalog)
        count = names[one.name] = names.get(one.name, 0) + 1
        found.append(one if count == 1 else Found(f"{one.name}-{count}", one.paths, one.info, one.problem))
    return found


def lock_of(found: Found, source: str) -> PairLock:
    """The lock that registers a found model. Its draft is looked for when it is run."""
    assert found.info is not None
    info = found.info
    model = LockedModel(
        name=found.name,
        files=tuple(local_file(path) for path in found.paths),
        architecture=info.architecture,
        quant=info.file_type,
        parameters=info.parameters,
        licence=str(info.metadata.get("general.license", "")),
        tokenizer=info.tokenizer_digest,
    )
    return PairLock(model, None, why_no_draft="imported without one", source=source)


def folders_of(where: str) -> list[Path]:
    """Where that program keeps its models: every place it is known to use."""
    home = Path.home()
    if where == "lmstudio":
        return [home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models"]
    if where == "ollama":
        own = os.environ.get("OLLAMA_MODELS")
        service = [Path("/usr/share/ollama/.ollama/models"), Path("/var/lib/ollama")]
        return [Path(own).expanduser()] if own else [home / ".ollama" / "models", *service]
    own = os.environ.get("LLAMA_CACHE")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    mac = home / "Library" / "Caches" / "llama.cpp"
    return [Path(own).expanduser()] if own else [cache / "llama.cpp", mac]


def _candidates(where: str) -> Iterator[_Candidate]:
    known = where.lower().replace("_", "").replace("-", "").replace(" ", "")
    known = {"llamacpp": "llama.cpp"}.get(known, known)
    if known in ("lmstudio", "ollama", "llama.cpp"):
        folders = [folder for folder in folders_of(known) if _is_folder(folder)]
        if not folders:
            places = ", ".join(map(str, folders_of(known)))
            raise InvalidInput(f"no models of {known} at {places}", "Name the folder: localspec import PATH")
        for folder in folders:
            yield from _ollama(folder) if known == "ollama" else _folder(folder)
        return
    path = Path(where).expanduser()
    if path.is_file():
        yield _Candidate(path, model_stem(path))
    elif path.is_dir():
        yield from _ollama(path) if (path / "manifests").is_dir() else _folder(path)
    else:
        raise InvalidInput(
            f"{where} is neither a folder nor a file", "Write lmstudio, ollama, llama.cpp or a path"
        )


def _folder(folder: Path) -> Iterator[_Candidate]:
    """Every GGUF file below, a split model once."""
    for path in sorted(folder.rglob("*.gguf")):
        _, number, _ = shard_of(path.name.removesuffix(".gguf"))
        if number == 1 and path.is_file() and not path.name.lower().startswith("mmproj"):
            yield _Candidate(path, path.name.removesuffix(".gguf"))


def _ollama(folder: Path) -> Iterator[_Candidate]:
    """The model layer of every manifest."""
    for manifest in sorted((folder / "manifests").rglob("*")):
        try:
            if not manifest.is_file() or manifest.stat().st_size > _MANIFEST_LIMIT:
                continue
            layers = parse_json(manifest.read_text(encoding="utf-8")).get("layers", [])
            digests = [one["digest"] for one in layers if one["mediaType"] == _OLLAMA_MODEL]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        for digest in digests[:1]:
            blob = folder / "blobs" / str(digest).replace(":", "-")
            if blob.parent == folder / "blobs":
                yield _Candidate(blob, f"{manifest.parent.name}-{manifest.name}")


def _look_at(candidate: _Candidate, catalog: Catalog) -> Found:
    try:
        paths = tuple(path.absolute() for path in local_set(candidate.path))
        info = read_model(paths)
    except LocalspecError as error:
        return Found(candidate.name, (candidate.path,), None, error.message)
    if not all(map(_is_text, paths)):
        return Found(candidate.name, paths, None, "its path is not UTF-8 and cannot be kept in a lock; rename it")
    if info.architecture in _NOT_MODELS:
        return Found(candidate.name, paths, None, f"a {info.architecture} projector, not a language model")
    if not len(info.tokens):
        return Found(candidate.name, paths, None, "it carries no tokenizer")
    return Found(_name(candidate, info, catalog), paths, info)


def _name(candidate: _Candidate, info: ModelInfo, catalog: Catalog) -> str:
    """The catalog's name with the quant where the catalog knows the model, else the file's own."""
    model = catalog.by_file_name(model_stem(candidate.path)) or catalog.by_file_name(info.name)
    if model is not None:
        return f"{model.name}-{info.file_type.lower()}" if info.file_type else model.name
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in candidate.name).strip("-.") or "model"


def _is_text(path: Path) -> bool:
    """Whether the path can be written down: names on a disk are bytes of any kind."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # somebody else's home
        return False


