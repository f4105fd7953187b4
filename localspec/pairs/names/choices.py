"""What a name means in a repository's listing, and which catalog entry a path or repository is."""

from __future__ import annotations

from pathlib import Path

from localspec.ground.errors import UnknownName
from localspec.pairs.gguf.model_info import ModelInfo
from localspec.pairs.gguf.quants import Role, search_order
from localspec.pairs.gguf.split_files import model_stem
from localspec.pairs.hub import hf_cache
from localspec.pairs.names.catalog import Catalog, CatalogModel
from localspec.pairs.names.names import CatalogRef, HubRef, ModelRef
from localspec.pairs.store.listing import Choice, Listing, choose, choose_file, first_model


def cached_listing(cache: Path, repo: str, revision: str) -> Listing | None:
    """What the cache holds of a repository, as if it were the listing; None when it holds nothing."""
    commit = hf_cache.cached_commit(cache, repo, revision)
    if commit is None:
        return None
    files = hf_cache.cached_files(cache, repo, commit)
    return Listing(repo, commit, tuple(files), gated=False, licence="")


def known_model(catalog: Catalog, ref: ModelRef, info: ModelInfo | None) -> CatalogModel | None:
    """The catalog's entry for a model that was named by path or repository."""
    if isinstance(ref, CatalogRef):
        return ref.model
    if isinstance(ref, HubRef):
        for model in catalog.models.values():
            if ref.repo in model.repos:
                return model
        return catalog.by_file_name(ref.repo.split("/")[1].removesuffix("-GGUF"))
    return catalog.by_file_name(model_stem(ref.path)) or (catalog.by_file_name(info.name) if info else None)


def choose_from(listing: Listing, ref: HubRef | CatalogRef, role: Role) -> Choice:
    """The files that `ref` means in that listing. UnknownName with what is there otherwise."""
    if isinstance(ref, CatalogRef):
        order = search_order(ref.quant, role)
        return choose(listing.files, order, repo=listing.repo, pattern=ref.model.file)
    if ref.file:
        return choose_file(listing.files, ref.file, repo=ref.repo)
    try:
        return choose(listing.files, search_order(ref.quant, role), repo=ref.repo)
    except UnknownName:
        if ref.quant:
            raise
        return first_model(listing.files, repo=ref.repo)
