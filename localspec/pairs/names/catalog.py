"""models.toml -> the models known by name, with their repositories, quants and recommended drafts.

The file beside the package comes first; a file of the same form in the person's config folder adds entries
and overrides single keys. Errors name file, entry, key and the nearest valid name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from localspec.ground.errors import InvalidInput, UnknownName
from localspec.ground.locations import config_folder
from localspec.ground.parsing import parse_toml
from localspec.ground.terminal import one_line
from localspec.pairs.gguf.quants import canonical, is_quant


@dataclass(frozen=True, slots=True)
class CatalogModel:
    """One size of one family."""

    name: str
    """`family-size`, as one pulls it."""
    family: str
    size: str
    title: str
    repos: tuple[str, ...]
    """The first that has the wanted quant is used."""
    file: str
    """File name with `{quant}`, or "". A hint: what the repository lists decides."""
    licence: str
    gated: bool
    """Whether the owner must let one in."""
    tokenizer: str
    """Class of models that may draft for each other."""
    context: int
    """Trained, in tokens."""
    hybrid: bool
    """Keeps recurrent state, rewinds badly."""
    moe: bool
    """Few of its parameters work per token."""
    gb: Mapping[str, float]
    """Size by canonical quant in units of 1e9 bytes, for listings."""
    split: tuple[str, ...]
    """Canonical quants that come in several files."""
    drafts: tuple[str, ...]
    """Names of recommended drafts (`family-size`, perhaps with `-quant`), best first."""
    why: str
    """Reason for that choice, or for having none."""
    avoid: Mapping[str, str] = field(default_factory=dict)
    """Name of a draft that does not pay or fit -> the reason."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Named:
    """A catalog name taken apart."""

    model: CatalogModel
    quant: str | None
    """As written, None when the name has none."""


class Catalog:
    """The models known by name."""

    def __init__(self, models: Mapping[str, CatalogModel]) -> None:
        self.models = dict(models)
        self._by_key = {squeeze(name): model for name, model in models.items()}

    def find(self, text: str) -> Named | None:
        """The model that `text` (`family-size[-quant]`) names; hyphens and case do not matter in the name."""
        if exact := self._by_key.get(squeeze(text)):
            return Named(exact, None)
        for at in [i for i, char in enumerate(text) if char == "-"]:
            model, quant = self._by_key.get(squeeze(text[:at])), text[at + 1 :]
            if model is not None and is_quant(quant):
                return Named(model, quant)
        return None

    def find_draft(self, text: str, family: str) -> Named | None:
        """Like `find`, for a name that may leave out the target's family: `1.5b-q4`."""
        return (self.find(f"{family}-{text}") if family else None) or self.find(text)

    def unknown(self, text: str, family: str = "") -> UnknownName:
        """The error for a name that is in no list, with the nearest ones."""
        known = list(self.models)
        if family:
            known += [model.size for model in self.models.values() if model.family == family]
        for at in [i for i, char in enumerate(text) if char == "-"]:
            if model := self._by_key.get(squeeze(text[:at])):
                quants = ", ".join(model.gb) or "q4, q8"
                return UnknownName(f"{model.name} has no quant {text[at + 1 :]!r}", f"It has: {quants}")
        close = get_close_matches(text.lower(), known, n=3, cutoff=0.5)
        hint = f"Close: {', '.join(close)}. " if close else ""
        return UnknownName(f"no model named {text!r}", f"{hint}See them all: localspec catalog")

    def search(self, word: str = "") -> list[CatalogModel]:
        """Models whose name, title, repository or licence contains every part of `word`."""
        parts = word.lower().split()
        return [
            model
            for model in self.models.values()
            if all(p in f"{model.name} {model.title} {model.repos} {model.licence}".lower() for p in parts)
        ]

    def by_file_name(self, stem: str) -> CatalogModel | None:
        """The model whose files are named `stem` (quant and shard numbers taken off), on anybody's disk."""
        key = squeeze(stem)
        for model in self.models.values():
            names = [re.sub("-gguf$", "", repo.split("/")[1], flags=re.I) for repo in model.repos]
            names.append(model.file.replace("{quant}", "").removesuffix(".gguf"))
            if key and key in map(squeeze, names):
                return model
        return None


def squeeze(name: str) -> str:
    """A name without what people write differently: case, hyphens, underscores, blanks."""
    return re.sub(r"[-_\s]", "", name.lower())


def load_catalog() -> Catalog:
    """The built-in catalog with the person's own additions."""
    own = config_folder() / "models.toml"
    return _load(_built_in(), own if own.exists() else None)


@cache
def _load(built_in: Path, own: Path | None) -> Catalog:
    return read_catalog(built_in, *([own] if own else []))


def _built_in() -> Path:
    package = Path(__file__).resolve().parents[2]
    beside, above = package / "models.toml", package.parent / "models.toml"
    return beside if beside.exists() else above


def read_catalog(*paths: Path) -> Catalog:
    """Read catalog files; later ones add to and override earlier ones. InvalidInput for a faulty one."""
    reader = _Reader()
    for path in paths:
        reader.read(path)
    return Catalog(reader.models())


_TEXT, _TEXTS, _FLAG, _COUNT = "a text", "a list of texts", "true or false", "a whole number"
_SIZES, _REASONS = "a table of quant = GB", "a table of draft = reason"
_SHARED_KEYS = {
    "title": _TEXT, "repo": _TEXTS, "file": _TEXT, "licence": _TEXT, "gated": _FLAG, "tokenizer": _TEXT,
    "context": _COUNT, "hybrid": _FLAG, "moe": _FLAG, "note": _TEXT,
}  # fmt: skip
_SIZE_KEYS = _SHARED_KEYS | {
    "gb": _SIZES, "split": _TEXTS, "drafts": _TEXTS, "why": _TEXT, "avoid": _REASONS,
}  # fmt: skip
_REPO = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


class _Reader:
    """Merges files into plain tables, remembering which file said what."""

    def __init__(self) -> None:
        self.families: dict[str, dict[str, Any]] = {}
        self.sizes: dict[tuple[str, str], dict[str, Any]] = {}
        self.origin: dict[str, Path] = {}

    def fail(self, entry: str, key: str, what: str, hint: str = "") -> NoReturn:
        path = self.origin.get(entry, Path("models.toml"))
        where = f"entry {entry!r}" + (f", key {key!r}" if key else "")
        raise InvalidInput(f"{path}: {where}: {what}", hint or "Edit that file")

    def read(self, path: Path) -> None:
        try:
            document = parse_toml(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidInput(f"{path}: {one_line(str(error))}", "Mend or remove that file") from None
        schema = document.pop("schema", 1)
        if schema != 1:
            raise InvalidInput(f"{path}: schema {schema!r}, this version reads schema 1", "Update localspec")
        for family, table in document.items():
            self.origin[family] = path
            if not isinstance(table, dict):
                self.fail(family, "", f"must be a table, is {table!r}", 'Write ["family"] on its own line')
            self.family(family, table, path)

    def family(self, family: str, table: dict[str, Any], path: Path) -> None:
        if not _NAME.fullmatch(family):
            self.fail(family, "", "a family's name is made of a-z, 0-9, '.', '-' and '_'")
        shared = self.families.setdefault(family, {})
        for key, value in table.items():
            if isinstance(value, dict) and key not in _SIZE_KEYS:
                name = f"{family}-{key}"
                self.origin[name] = path
                size = self.sizes.setdefault((family, key), {})
                for inner, inner_value in value.items():
                    size[inner] = self.checked(name, inner, inner_value, _SIZE_KEYS)
            else:
                shared[key] = self.checked(family, key, value, _SHARED_KEYS)

    def checked(self, entry: str, key: str, value: Any, keys: Mapping[str, str]) -> Any:
        if key not in keys:
            near = get_close_matches(key, keys, n=1, cutoff=0.5)
            hint = f"Nearest: {near[0]}" if near else f"Keys: {', '.join(keys)}"
            self.fail(entry, key, "no such key", hint)
        kind = keys[key]
        if kind is _TEXTS and isinstance(value, str):
            value = [value]
        good = {
            _TEXT: lambda: isinstance(value, str),
            _TEXTS: lambda: isinstance(value, list) and all(isinstance(one, str) for one in value),
            _FLAG: lambda: isinstance(value, bool),
            _COUNT: lambda: type(value) is int and value >= 0,
            _SIZES: lambda: isinstance(value, dict) and all(_is_size(one) for one in value.values()),
            _REASONS: lambda: isinstance(value, dict) and all(isinstance(one, str) for one in value.values()),
        }[kind]()
        if not good:
            self.fail(entry, key, f"must be {kind}, is {value!r}")
        return value

    def models(self) -> dict[str, CatalogModel]:
        models = {f"{family}-{size}": self.model(family, size) for family, size in self.sizes}
        catalog = Catalog(models)
        for model in models.values():
            self.check_drafts(model, catalog)
        return models

    def model(self, family: str, size: str) -> CatalogModel:
        name = f"{family}-{size}"
        merged = self.families[family] | self.sizes[family, size]
        if not merged.get("repo"):
            self.fail(name, "repo", "is missing", 'Add repo = "owner/name"')
        repos = tuple(self.repo(name, pattern, size) for pattern in merged["repo"])
        gb = {self.quant(name, "gb", quant): float(value) for quant, value in merged.get("gb", {}).items()}
        return CatalogModel(
            name=name,
            family=family,
            size=size,
            title=f"{merged.get('title', family)} {size.upper()}",
            repos=repos,
            file=_fill(merged.get("file", ""), size),
            licence=merged.get("licence", ""),
            gated=merged.get("gated", False),
            tokenizer=merged.get("tokenizer", ""),
            context=merged.get("context", 0),
            hybrid=merged.get("hybrid", False),
            moe=merged.get("moe", False),
            gb=gb,
            split=tuple(self.quant(name, "split", quant) for quant in merged.get("split", [])),
            drafts=tuple(merged.get("drafts", [])),
            why=merged.get("why", ""),
            avoid=merged.get("avoid", {}),
            note=merged.get("note", ""),
        )

    def repo(self, name: str, pattern: str, size: str) -> str:
        repo = _fill(pattern, size)
        if not _REPO.fullmatch(repo):
            self.fail(name, "repo", f"{repo!r} is no repository", "Write owner/name")
        return repo

    def quant(self, name: str, key: str, text: str) -> str:
        if not is_quant(text):
            self.fail(name, key, f"{text!r} is no quantization", "Write for example Q4_K_M, Q8_0 or BF16")
        return canonical(text)

    def check_drafts(self, model: CatalogModel, catalog: Catalog) -> None:
        for key, names in (("drafts", model.drafts), ("avoid", model.avoid)):
            for name in names:
                if catalog.find_draft(name, model.family) is None:
                    known = [m.size for m in catalog.models.values() if m.family == model.family]
                    near = get_close_matches(name, known + list(catalog.models), n=1, cutoff=0.3)
                    self.fail(model.name, key, f"no model {name!r}", f"Nearest: {near[0]}" if near else "")


def _is_size(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _fill(pattern: str, size: str) -> str:
    return pattern.replace("{size}", size).replace("{SIZE}", size.upper())
