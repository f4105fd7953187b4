"""The name of a pair -> the files to run: what was pulled or imported, what the cache holds, plain paths.

Never asks the network.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from localspec.ground.errors import InvalidInput, LocalspecError, UnknownName, UnreadableFile
from localspec.pairs import compat
from localspec.pairs.gguf.quants import Role, search_order
from localspec.pairs.gguf.split_files import local_set, model_stem, read_model
from localspec.pairs.hub import hf_cache
from localspec.pairs.names.catalog import Catalog, CatalogModel, load_catalog, squeeze
from localspec.pairs.names.choices import cached_listing, choose_from, known_model
from localspec.pairs.names.names import (
    CatalogRef,
    HubRef,
    ModelRef,
    PathRef,
    is_path,
    parse_draft,
    parse_target,
    split_pair,
)
from localspec.pairs.store.store import LockedModel, PairLock, Store


@dataclass(frozen=True, slots=True)
class PairFiles:
    """The files of one pair, all of them on this disk."""

    name: str
    """As listed; the target's path for plain paths."""
    target: Path
    """The file to load (the first of several)."""
    draft: Path | None
    """None: no draft model; prompt lookup may still guess."""
    target_files: tuple[Path, ...]
    """All files, in shard order."""
    draft_files: tuple[Path, ...] = ()
    why_no_draft: str = ""
    """Why there is no draft model, "" when there is one."""
    lock: PairLock | None = None
    """The pulled or imported pair that this is, if it is one."""


def find_pair(
    name: str,
    draft: str | None = None,
    *,
    cache_folder: Path | None = None,
    store: Store | None = None,
    catalog: Catalog | None = None,
) -> PairFiles:
    """The files that `name` means, with the draft that was asked for.

    `name`: a pulled pair, `TARGET+DRAFT`, a catalog or `hf:` name whose files are in the cache, or a path.
    `draft`: the same for a draft; None and `auto`: the pair's own, else the recommended one if it is on this
    disk, else none; `none`: no draft model. UnknownName for what is no name, InvalidInput with the command
    that helps for what is not (wholly) on this disk.
    """
    finder = _Finder(cache_folder or hf_cache.cache_folder(), store or Store(), catalog or load_catalog())
    target, plus = split_pair(name)
    if plus is not None and draft in (None, "auto"):
        if lock := finder.store.find(name):
            return finder.pulled(name, lock)
        return finder.pair(target, plus)
    if draft is None or draft == "auto":
        return finder.automatic(name)
    return finder.pair(target if plus else name, draft)


def models_on_disk(store: Store | None = None) -> Iterator[tuple[str, tuple[Path, ...]]]:
    """Every whole model of every lock, once: (name, files in shard order)."""
    seen = set()
    for lock in (store or Store()).locks():
        for model in lock.models:
            paths = model.paths()
            if paths not in seen and all(path.exists() for path in paths):
                seen.add(paths)
                yield model.name, paths


class _Finder:
    def __init__(self, cache: Path, store: Store, catalog: Catalog) -> None:
        self.cache, self.store, self.catalog = cache, store, catalog

    def automatic(self, name: str) -> PairFiles:
        """The pair of that name with its own draft, or with the recommended one if it is here."""
        if not is_path(name) and (lock := self.store.find(name)):
            if lock.draft or lock.source == "pull":
                return self.pulled(name, lock)
            return self.with_recommended(name, *self.target(name), lock)
        ref, target = self.target(name)
        return self.with_recommended(name, ref, target, None)

    def pulled(self, name: str, lock: PairLock) -> PairFiles:
        """A pair with the draft it was pulled with."""
        target = self.whole(lock, lock.target)
        draft = self.whole(lock, lock.draft) if lock.draft else ()
        return PairFiles(name, target[0], draft[0] if draft else None, target, draft, lock.why_no_draft, lock)

    def pair(self, name: str, draft: str) -> PairFiles:
        """A target and a draft that were each named."""
        if draft != "none" and (lock := self.store.find_pair(name, draft)):
            return self.pulled(name, lock)
        ref, target = self.target(name)
        if draft == "none":
            return PairFiles(name, target[0], None, target, why_no_draft="asked for none")
        known = known_model(self.catalog, ref, None)
        files = self.draft(draft, known.family if known else "", name)
        return PairFiles(f"{name}+{draft}" if not is_path(name) else name, target[0], files[0], target, files)

    def with_recommended(
        self, name: str, ref: ModelRef, target: tuple[Path, ...], lock: PairLock | None
    ) -> PairFiles:
        """Add the catalog's draft if it is on this disk and goes with the target; none is no error."""
        model = known_model(self.catalog, ref, None)
        if model is None and isinstance(ref, PathRef):
            model = known_model(self.catalog, ref, read_model(target))
        why = "no draft is known for this model" if model is None else model.why
        for wish in model.drafts if model else ():
            assert model is not None
            named = self.catalog.find_draft(wish, model.family)
            assert named is not None, "the catalog's reader checks its drafts"
            wished = CatalogRef(named.model, named.quant)
            files = self.on_disk(wished, "draft") or self.beside(target[0], named.model)
            if files and self.goes(target, files):
                return PairFiles(name, target[0], files[0], target, files, lock=lock)
            what = "does not go with this file" if files else "is not on this disk"
            why = f"the recommended draft {named.model.name} {what}"
        return PairFiles(name, target[0], None, target, why_no_draft=why, lock=lock)

    # --- one model

    def target(self, name: str) -> tuple[ModelRef, tuple[Path, ...]]:
        """A target's files. UnknownName or InvalidInput when they are not here."""
        if not is_path(name) and (lock := self.store.find(name)):
            return self.ref_of(lock.target), self.whole(lock, lock.target)
        try:
            ref = parse_target(name, self.catalog)
        except InvalidInput as error:
            if files := self.registered(name):
                return PathRef(files[0]), files
            raise (self.unknown(name, error) if isinstance(error, UnknownName) else error) from None
        files = self.here(name, ref, "target")
        if not files:
            raise InvalidInput(f"{name} is not on this disk", f"Get it: localspec pull {name}")
        return ref, files

    def ref_of(self, model: LockedModel) -> ModelRef:
        """What a locked model was named by; its path when that name means nothing any more."""
        try:
            return parse_target(model.name, self.catalog)
        except UnknownName:
            return PathRef(model.paths()[0])

    def draft(self, name: str, family: str, target: str) -> tuple[Path, ...]:
        """A draft's files, its name perhaps short for one of `family`."""
        try:
            ref = parse_draft(name, family, self.catalog)
        except InvalidInput:
            if files := self.registered(name):  # imported or quantized here: its name is nobody else's
                return files
            raise
        files = self.here(name, ref, "draft")
        if not files:
            raise InvalidInput(
                f"the draft {name} is not on this disk", f"Get it: localspec pull {target} --draft {name}"
            )
        return files

    def here(self, name: str, ref: ModelRef, role: Role) -> tuple[Path, ...]:
        """The files of a model by path, by the name it was pulled under, or from the cache; () without."""
        if isinstance(ref, PathRef):
            if not ref.path.exists() and not ref.path.is_symlink():
                raise UnreadableFile(f"no file at {ref.path}", "check the path")
            return local_set(ref.path)
        return self.registered(name) or self.on_disk(ref, role)

    def registered(self, name: str) -> tuple[Path, ...]:
        """The files of a model under the name in its lock; () without."""
        for lock in sorted(self.store.locks(), key=lambda lock: lock.pulled, reverse=True):
            for model in lock.models:
                if squeeze(model.name) == squeeze(name):
                    return self.whole(lock, model)
        return ()

    def on_disk(self, ref: HubRef | CatalogRef, role: Role) -> tuple[Path, ...]:
        """The files of a model in the hub cache, whoever put them there, or imported; () without."""
        for repo in (ref.repo,) if isinstance(ref, HubRef) else ref.model.repos:
            listing = cached_listing(self.cache, repo, "main")
            if listing is None:
                continue
            try:
                choice = choose_from(listing, ref, role)
            except LocalspecError:  # not that quant, or not all of its files
                continue
            return tuple(
                hf_cache.snapshot_path(self.cache, repo, listing.commit, file.path)
                for file in choice.files.files
            )
        return self.imported(ref, role) if isinstance(ref, CatalogRef) else ()

    def imported(self, ref: CatalogRef, role: Role) -> tuple[Path, ...]:
        """An imported model that the catalog knows as `ref`, in the best quantization; () without."""
        order = search_order(ref.quant, role)
        found: dict[str, tuple[Path, ...]] = {}
        for lock in self.store.locks():
            named = self.catalog.find(lock.target.name)
            if lock.source != "pull" and named and named.model is ref.model and lock.state()[0] == "complete":
                found[lock.target.quant] = lock.target.paths()
        wanted = [quant for quant in order if quant in found] or ([] if ref.quant else list(found))
        return found[wanted[0]] if wanted else ()

    def beside(self, target: Path, model: CatalogModel) -> tuple[Path, ...]:
        """A file of that model in the target's own folder; () without."""
        for path in sorted(target.parent.glob("*.gguf")):
            if path != target and self.catalog.by_file_name(model_stem(path)) is model:
                try:
                    return local_set(path)
                except InvalidInput:
                    continue
        return ()

    def goes(self, target: tuple[Path, ...], draft: tuple[Path, ...]) -> bool:
        """Whether a recommended draft may really serve."""
        try:
            verdict = compat.check(read_model(target), read_model(draft))
        except UnreadableFile:
            return False
        return verdict.kind != "refused" and not verdict.stopped

    def whole(self, lock: PairLock, model: LockedModel) -> tuple[Path, ...]:
        """The model's files; InvalidInput with the completing command unless all are here as they were."""
        states = {model.file_state(file) for file in model.files}
        if "incomplete" in states or ("changed" in states and model.repo):
            name = lock.full_name
            if not model.repo:
                raise InvalidInput(f"{model.name} is no longer there", f"Forget it: localspec rm {name}")
            raise InvalidInput(f"{name} is {lock.state_text()}", f"Complete it: {lock.pull_command()}")
        return model.paths()

    def unknown(self, name: str, error: UnknownName) -> UnknownName:
        """The error for a name that nobody knows, with the nearest pulled ones first."""
        pulled = [known for known, _ in self.store.names()]
        close = get_close_matches(name, pulled, n=2, cutoff=0.6)
        hint = f"Pulled: {', '.join(close)}. {error.hint}" if close else error.hint
        return UnknownName(error.message, hint)
