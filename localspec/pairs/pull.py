"""pull: names -> files -> headers -> verdict -> disk space -> download -> verified files -> lock.

Everything that can say no says it before the first gigabyte.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

from localspec.ground.errors import (
    Cancelled,
    DownloadFailed,
    IncompatiblePair,
    LocalspecError,
    UnknownName,
)
from localspec.pairs import compat
from localspec.pairs.gguf.model_info import ModelInfo
from localspec.pairs.gguf.quants import Role
from localspec.pairs.gguf.split_files import local_set, read_model
from localspec.pairs.hub import hf_cache
from localspec.pairs.hub.download import Download, Item, Transfer
from localspec.pairs.hub.hub import Hub, HubUnreachable
from localspec.pairs.hub.remote_header import remote_model
from localspec.pairs.hub.transfers import finish_all
from localspec.pairs.names.catalog import Catalog, load_catalog, squeeze
from localspec.pairs.names.choices import cached_listing, choose_from, known_model
from localspec.pairs.names.names import CatalogRef, HubRef, ModelRef, PathRef, parse_draft, parse_target
from localspec.pairs.names.refusals import refusal
from localspec.pairs.store.listing import Choice, Listing
from localspec.pairs.store.store import LockedFile, LockedModel, PairLock, Store, local_file

_HEADROOM = 64 << 20


@dataclass(frozen=True, slots=True)
class PullRequest:
    """What a person asked for."""

    target: str
    draft: str | None = None
    """None or `auto`: the recommended one; `none`: no draft model."""
    quant: str | None = None
    revision: str = "main"
    """Of the target's repository."""
    alias: str = ""
    force: bool = False
    """Go on when the disk looks too small, or when the draft is the larger model."""
    offline: bool = False
    cache: Path = field(default_factory=hf_cache.cache_folder)


@dataclass(frozen=True, slots=True)
class Side:
    """One model of a pair, resolved to files."""

    role: Role
    name: str
    """As typed; the catalog's name for a recommended draft."""
    downloads: tuple[Download, ...]
    """In shard order; empty for a file that is used in place."""
    paths: tuple[Path, ...]
    """Files that are used in place."""
    info: ModelInfo
    """The header (of the first file)."""
    listing: Listing | None
    asked_revision: str
    note: str
    """A remark on the choice ("no Q4_0 there: took Q8_0")."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(download.size for download in self.downloads) + sum(p.stat().st_size for p in self.paths)


@dataclass(frozen=True, slots=True)
class PullPlan:
    """What a pull would do; nothing but header bytes has crossed the network yet."""

    target: Side
    draft: Side | None
    verdict: compat.Verdict | None
    why_no_draft: str
    notes: tuple[str, ...]
    """Sentences for the person."""

    @property
    def sides(self) -> tuple[Side, ...]:
        """Target and, if there is one, draft."""
        return (self.target, self.draft) if self.draft else (self.target,)

    @property
    def downloads(self) -> list[Download]:
        """Every file from the hub, once."""
        unique = {(d.item.repo, d.item.commit, d.item.path): d for side in self.sides for d in side.downloads}
        return list(unique.values())

    @property
    def missing_bytes(self) -> int:
        """What still has to cross the network."""
        return sum(download.missing_bytes for download in self.downloads)

    def discard(self) -> None:
        """Throw away the header bytes that were fetched for this plan alone."""
        _discard(self.downloads)


class Puller:
    """Carries out one request; `hub` is made when it is first needed."""

    def __init__(
        self,
        request: PullRequest,
        *,
        store: Store | None = None,
        catalog: Catalog | None = None,
        hub: Hub | None = None,
        cancel: Event | None = None,
    ) -> None:
        self.request = request
        self.store = store or Store()
        self.catalog = catalog or load_catalog()
        self.cancel = cancel or Event()
        self._hub = hub

    # --- the plan

    def plan(self) -> PullPlan:
        """Resolve, read headers, check the pair and the disk. Raises what stands in the way."""
        asked = self.request
        target_ref = parse_target(asked.target, self.catalog, asked.quant)
        explicit = asked.draft not in (None, "auto", "none")
        family = self._family(target_ref)
        draft_ref = parse_draft(asked.draft or "", family, self.catalog) if explicit else None
        target = self._side("target", asked.target, target_ref, asked.revision)
        try:
            if draft_ref is not None:
                draft = self._side("draft", asked.draft or "", draft_ref, "main")
                plan = self._paired(target, draft)
            else:
                plan = self._recommended(target, target_ref)
            self._check_disk(plan)
        except LocalspecError:
            _discard(target.downloads)
            raise
        return plan

    def _paired(self, target: Side, draft: Side) -> PullPlan:
        verdict = compat.check(target.info, draft.info)
        plan = PullPlan(target, draft, verdict, "", tuple(n for n in (target.note, draft.note) if n))
        if verdict.kind == "refused" or (verdict.stopped and not self.request.force):
            _discard(draft.downloads)
            raise refusal((target.name, target.info), draft.name, verdict, self.store)
        return plan

    def _recommended(self, target: Side, ref: ModelRef) -> PullPlan:
        """The first recommended draft that goes with the target, or none with the reason."""
        notes = [target.note] if target.note else []
        if self.request.draft == "none":
            return PullPlan(target, None, None, "asked for none", tuple(notes))
        model = known_model(self.catalog, ref, target.info)
        if model is None:
            return PullPlan(target, None, None, "no draft is known for this model", tuple(notes))
        for name in model.drafts:
            named = self.catalog.find_draft(name, model.family)
            assert named is not None, "the catalog's reader checks its drafts"
            try:
                draft = self._side("draft", named.model.name, CatalogRef(named.model, named.quant), "main")
                plan = self._paired(target, draft)
            except (IncompatiblePair, UnknownName) as error:
                notes.append(f"{named.model.name} will not do: {error.message}")
                continue
            return replace(plan, notes=(*notes, *plan.notes, f"draft {named.model.name}: {model.why}"))
        return PullPlan(target, None, None, model.why or "the catalog recommends no draft", tuple(notes))

    def _family(self, ref: ModelRef) -> str:
        """The family that short draft names complete; "" when the catalog does not know the target."""
        known = known_model(self.catalog, ref, None)
        return known.family if known else ""

    # --- one model

    def _side(self, role: Role, name: str, ref: ModelRef, revision: str) -> Side:
        if isinstance(ref, PathRef):
            paths = tuple(path.absolute() for path in local_set(ref.path))
            return Side(role, str(paths[0]), (), paths, read_model(paths), None, "", "")
        listing, choice = self._resolve(ref, role, revision)
        downloads = tuple(
            Download(
                self.hub,
                self.request.cache,
                Item(listing.repo, listing.commit, file.path, file.size, file.sha256),
                self.cancel,
            )
            for file in choice.files.files
        )
        info, note = remote_model(downloads), choice.note
        if not all(download.here or download.verifiable for download in downloads):
            unhashed = f"{listing.repo} states no hashes: only sizes can be checked"
            note = ". ".join(filter(None, (note, unhashed)))
        return Side(role, name, downloads, (), info, listing, revision, note)

    def _resolve(self, ref: HubRef | CatalogRef, role: Role, revision: str) -> tuple[Listing, Choice]:
        """The live listing and what to take from it; of several repositories the first that has it."""
        first_error = None
        for repo in (ref.repo,) if isinstance(ref, HubRef) else ref.model.repos:
            try:
                listing = self._listing(repo, revision)
                return listing, choose_from(listing, ref, role)
            except HubUnreachable:
                raise
            except (UnknownName, DownloadFailed) as error:
                first_error = first_error or error
        assert first_error is not None, "the catalog's reader wants a repository"
        raise first_error

    def _listing(self, repo: str, revision: str) -> Listing:
        if not self.request.offline:
            return self.hub.listing(repo, revision)
        listing = cached_listing(self.request.cache, repo, revision)
        if listing is None:
            raise DownloadFailed(f"{repo} is not on this disk", "Leave out --offline to download it")
        return listing

    @property
    def hub(self) -> Hub:
        """The hub client, imported when first needed. Waiting for it ends when the pull is cancelled."""
        if self._hub is None:
            self._hub = Hub(sleep=self._sleep)
        return self._hub

    def _sleep(self, seconds: float) -> None:
        if self.cancel.wait(seconds):
            raise Cancelled("the download was stopped")

    def _check_disk(self, plan: PullPlan) -> None:
        need = plan.missing_bytes
        free = free_bytes(self.request.cache)
        if need and need + _HEADROOM > free and not self.request.force:
            plan.discard()
            raise DownloadFailed(
                f"{need / 1e9:.2f} GB are needed and {free / 1e9:.2f} GB are free at {self.request.cache}",
                "Free some space, choose another folder with --cache-dir, or --force",
            )

    # --- the download

    def complete_lock(self) -> PairLock | None:
        """The lock of exactly this request, if all its files are on this disk."""
        asked = self.request
        if asked.draft in (None, "auto", "none"):
            lock = self.store.find(asked.alias or asked.target)
        else:
            lock = self.store.find_pair(asked.target, asked.draft or "")
        if lock is None or lock.state()[0] != "complete":
            return None
        same = (lock.target.asked_quant, lock.target.asked_revision) == (asked.quant or "", asked.revision)
        return lock if same or not lock.target.repo else None

    def run(self, plan: PullPlan, watch: Callable[[list[Transfer]], None]) -> PairLock:
        """Download what is missing, verify it, write the lock. `watch` is called some times a second.

        The lock is written before the first byte, so that an interrupted pull is listed as incomplete.
        """
        lock = self.store.save(self._without_other_spellings(self._lock(plan)))
        downloads = plan.downloads
        if not self.request.offline:
            finish_all(downloads, self.cancel, watch)
        for side in plan.sides:
            for download in side.downloads[:1]:
                item = download.item
                hf_cache.remember_revision(self.request.cache, item.repo, side.asked_revision, item.commit)
            read_model(tuple(download.name for download in side.downloads) or side.paths)
        return self.store.save(replace(self._lock(plan), pulled=lock.pulled))

    def _without_other_spellings(self, lock: PairLock) -> PairLock:
        """Remove locks of the same files whose draft was only named differently (`0.5b`, `qwen2.5-0.5b`).

        What was measured with them passes on.
        """
        for other in self.store.locks():
            same_target = squeeze(other.target.name) == squeeze(lock.target.name)
            same_files = [one.files for one in other.models] == [one.files for one in lock.models]
            renamed = not (other.alias or lock.alias) and other.full_name != lock.full_name
            if same_target and same_files and renamed:
                lock = replace(lock, profile=lock.profile or other.profile)
                self.store.remove(other)
        return lock

    def _lock(self, plan: PullPlan) -> PairLock:
        verdict = plan.verdict
        return PairLock(
            target=self._locked(plan.target),
            draft=self._locked(plan.draft) if plan.draft else None,
            alias=self.request.alias,
            verdict=verdict.kind if verdict else "",
            masked_ids=verdict.masked if verdict else 0,
            reasons=tuple(f"{one.rule}: {one.detail}" for one in verdict.reasons) if verdict else (),
            why_no_draft=plan.why_no_draft,
            pulled=datetime.now(UTC).isoformat(),
        )

    def _locked(self, side: Side) -> LockedModel:
        listing, info = side.listing, side.info
        files = tuple(map(local_file, side.paths)) or tuple(
            LockedFile(d.item.path, d.final_size, d.item.sha256, d.content_name) for d in side.downloads
        )
        return LockedModel(
            name=side.name,
            files=files,
            repo=listing.repo if listing else "",
            revision=listing.commit if listing else "",
            asked_revision=side.asked_revision,
            asked_quant=(self.request.quant or "") if side.role == "target" else "",
            cache=str(self.request.cache.absolute()) if listing else "",
            architecture=info.architecture,
            quant=info.file_type,
            parameters=info.parameters,
            licence=listing.licence if listing else "",
            tokenizer=info.tokenizer_digest,
        )


def _discard(downloads: Iterable[Download]) -> None:
    for download in downloads:
        download.discard()


def free_bytes(folder: Path) -> int:
    """Free space where `folder` is or will be."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free
