"""What is on this disk: one lock (a TOML file) a pair, in the data folder.

A lock says which files make the pair and what was found when they were checked. Each is written whole and
replaced atomically, so two processes may pull, list and remove at once. Nothing here needs the network.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from localspec.ground.atomic_write import write_atomically
from localspec.ground.errors import UnknownName, UnreadableFile
from localspec.ground.locations import data_folder
from localspec.ground.parsing import parse_toml
from localspec.pairs.hub import hf_cache
from localspec.pairs.names.catalog import squeeze

State = Literal["complete", "incomplete", "changed"]


@dataclass(frozen=True, slots=True)
class LockedFile:
    """One file of a model."""

    path: str
    """In the repository, with `/`; absolute for a file that is used in place."""
    size: int
    """Bytes."""
    sha256: str = ""
    """"" when nobody knows it yet."""
    blob: str = ""
    """Name of the content in the hub cache; "" for a file that is used in place."""
    mtime_ns: int = 0
    """When a file used in place was last changed, as it was registered; 0 for files of the hub cache."""


@dataclass(frozen=True, slots=True)
class LockedModel:
    """One model of a pair."""

    name: str
    """As it was typed; for a recommended draft the catalog's name."""
    files: tuple[LockedFile, ...]
    """In shard order."""
    repo: str = ""
    """"" for files that are used in place."""
    revision: str = ""
    """The commit."""
    asked_revision: str = ""
    """What was asked for: `main`, a tag, a commit."""
    asked_quant: str = ""
    """What `--quant` asked for, "" without."""
    cache: str = ""
    """Hub cache folder it was pulled into."""
    architecture: str = ""
    quant: str = ""
    parameters: int = 0
    licence: str = ""
    tokenizer: str = ""
    """Digest of the tokenizer."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def paths(self) -> tuple[Path, ...]:
        """Where the files are, or would be."""
        return tuple(self.path_of(file) for file in self.files)

    def path_of(self, file: LockedFile) -> Path:
        """Where one file is, or would be: in the cache of the pull, else in today's."""
        if not self.repo:
            return Path(file.path)
        pulled = hf_cache.snapshot_path(Path(self.cache), self.repo, self.revision, file.path)
        today = hf_cache.snapshot_path(hf_cache.cache_folder(), self.repo, self.revision, file.path)
        return today if not pulled.exists() and today.exists() else pulled

    def file_state(self, file: LockedFile) -> State:
        """Whether the file is there with the size (in place: also the time) that it had."""
        try:
            found = self.path_of(file).stat()
        except OSError:
            return "incomplete"
        same = found.st_size == file.size or not file.size
        return "complete" if same and file.mtime_ns in (0, found.st_mtime_ns) else "changed"


@dataclass(frozen=True, slots=True)
class PairLock:
    """A pulled or imported pair."""

    target: LockedModel
    draft: LockedModel | None
    alias: str = ""
    """The name given with `--as`, "" without."""
    verdict: str = ""
    """`identical` or `shared`; "" without a draft."""
    masked_ids: int = 0
    """Token ids that the draft may not propose."""
    reasons: tuple[str, ...] = ()
    """What the check remarked, one sentence each."""
    why_no_draft: str = ""
    """Why there is no draft model, "" when there is one."""
    pulled: str = ""
    """When, ISO 8601 in UTC."""
    source: str = "pull"
    """`pull`, or where it was imported from."""
    profile: Mapping[str, Any] = field(default_factory=dict)
    """What was measured: `speedup` and its conditions."""

    @property
    def models(self) -> tuple[LockedModel, ...]:
        """Target and, if there is one, draft."""
        return (self.target, self.draft) if self.draft else (self.target,)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(model.size for model in self.models)

    @property
    def short_name(self) -> str:
        """The alias, else `TARGET`: means this pair as long as it is the last one pulled for that target."""
        return self.alias or self.target.name

    @property
    def full_name(self) -> str:
        """The alias, else `TARGET+DRAFT`, else `TARGET`."""
        if self.alias:
            return self.alias
        return f"{self.target.name}+{self.draft.name}" if self.draft else self.target.name

    def files(self) -> Iterator[tuple[LockedModel, LockedFile]]:
        """Every file with the model it belongs to."""
        for model in self.models:
            for file in model.files:
                yield model, file

    def state(self) -> tuple[State, int, int]:
        """(state, files in order, files in all)."""
        states = [model.file_state(file) for model, file in self.files()]
        good = states.count("complete")
        if good == len(states):
            return "complete", good, len(states)
        return ("changed" if "changed" in states else "incomplete"), good, len(states)

    def state_text(self) -> str:
        """`complete`, `incomplete 2/3`, `changed 2/3`."""
        state, good, count = self.state()
        return state if state == "complete" else f"{state} {good}/{count}"

    def pull_command(self) -> str:
        """What to type to complete it."""
        words = ["localspec", "pull", self.target.name, "--draft", self.draft.name if self.draft else "none"]
        if self.target.asked_quant:
            words += ["--quant", self.target.asked_quant]
        if self.target.asked_revision not in ("", "main"):
            words += ["--revision", self.target.asked_revision]
        if self.alias:
            words += ["--as", self.alias]
        return shlex.join(words)


class Store:
    """The locks of this user."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or data_folder() / "pairs"

    def locks(self) -> list[PairLock]:
        """Every readable lock, by name. Unreadable ones are in `faulty`."""
        return [lock for _, lock in self._read()]

    def faulty(self) -> list[tuple[Path, str]]:
        """Lock files that cannot be read, with the reason."""
        bad = []
        for path in sorted(self.folder.glob("*.toml")):
            try:
                read_lock(path)
            except UnreadableFile as error:
                bad.append((path, str(error)))
        return bad

    def names(self) -> list[tuple[str, PairLock]]:
        """Each lock under the shortest name that means it: the target's alone where it has one draft only."""
        locks = self.locks()
        targets = Counter(squeeze(lock.target.name) for lock in locks if not lock.alias)
        named = []
        for lock in locks:
            alone = not lock.alias and targets[squeeze(lock.target.name)] == 1
            named.append((lock.target.name if alone else lock.full_name, lock))
        return named

    def find(self, name: str) -> PairLock | None:
        """The pair of that name: an alias, `TARGET+DRAFT`, or `TARGET` (then the one pulled last)."""
        locks, key = self.locks(), squeeze(name)
        for lock in locks:
            if squeeze(lock.full_name) == key:
                return lock
        same_target = [lock for lock in locks if squeeze(lock.target.name) == key]
        return max(same_target, key=lambda lock: lock.pulled, default=None)

    def find_pair(self, target: str, draft: str) -> PairLock | None:
        """The pair of that target and that draft, both as they were typed."""
        for lock in self.locks():
            names = [squeeze(model.name) for model in lock.models]
            if names == [squeeze(target), squeeze(draft)]:
                return lock
        return None

    def get(self, name: str) -> PairLock:
        """`find`, or UnknownName with the nearest names."""
        if lock := self.find(name):
            return lock
        names = [known for known, _ in self.names()]
        close = get_close_matches(name, names, n=3, cutoff=0.4)
        hint = f"Close: {', '.join(close)}" if close else "See what is here: localspec list"
        raise UnknownName(f"no pair named {name!r} on this disk", hint)

    def save(self, lock: PairLock) -> PairLock:
        """Write `lock`, keeping what was measured for the same pair; returns what was written."""
        path = self.path_of(lock)
        if path.exists() and not lock.profile:
            lock = replace(lock, profile=_profile(path))
        lock = lock if lock.pulled else replace(lock, pulled=datetime.now(UTC).isoformat())
        write_atomically(path, toml_text({"schema": 1} | _table(lock)))
        return lock

    def remove(self, lock: PairLock) -> None:
        """Forget the pair; its files stay."""
        self.path_of(lock).unlink(missing_ok=True)

    def path_of(self, lock: PairLock) -> Path:
        """The lock's file."""
        name = lock.full_name
        plain = re.sub(r"[^A-Za-z0-9._+-]", "_", name)[:80].lstrip(".") or "_"
        if plain != name:
            plain += "-" + hashlib.sha1(name.encode("utf-8", "replace")).hexdigest()[:8]
        return self.folder / f"{plain}.toml"

    def _read(self) -> Iterator[tuple[Path, PairLock]]:
        for path in sorted(self.folder.glob("*.toml")):
            try:
                yield path, read_lock(path)
            except UnreadableFile:
                continue


def read_lock(path: Path) -> PairLock:
    """The lock in that file; UnreadableFile when it is none."""
    try:
        table = parse_toml(path.read_text("utf-8"))
        if table.pop("schema") != 1:
            raise ValueError("written by a newer version")
        return _lock(table)
    except (OSError, ValueError, TypeError, KeyError) as error:
        what = error.args[0] if error.args else type(error).__name__
        hint = "Delete that file, or pull the pair again"
        raise UnreadableFile(f"{path} is no lock of this version: {what}", hint) from None


def local_file(path: Path) -> LockedFile:
    """A file that is used in place."""
    found = path.stat()
    return LockedFile(str(path), found.st_size, "", mtime_ns=found.st_mtime_ns)


def shared_files(lock: PairLock, others: Sequence[PairLock]) -> set[Path]:
    """Files of `lock` that another pair uses too."""
    used = {os.path.realpath(model.path_of(file)) for other in others for model, file in other.files()}
    own = [model.path_of(file) for model, file in lock.files()]
    return {path for path in own if os.path.realpath(path) in used}


def toml_text(table: Mapping[str, Any]) -> str:
    """As TOML. What TOML cannot hold is written as it can be: half surrogates as `?`, which file names may have."""
    import tomlkit

    return tomlkit.dumps(table).encode("utf-8", "replace").decode("utf-8")


def _table(lock: PairLock) -> dict[str, Any]:
    table: dict[str, Any] = _stated(asdict(lock))
    return table


def _stated(value: Any) -> Any:
    """Without the fields that say nothing."""
    if isinstance(value, dict):
        return {key: _stated(one) for key, one in value.items() if one not in ("", None, 0, (), {})}
    return [_stated(one) for one in value] if isinstance(value, list | tuple) else value


def _lock(table: dict[str, Any]) -> PairLock:
    draft = table.pop("draft", None)
    target = _model(table.pop("target"))
    reasons = tuple(map(str, table.pop("reasons", ())))
    lock = PairLock(target, _model(draft) if draft else None, reasons=reasons, **table)
    _check_types(lock, {"masked_ids": int, "profile": dict})
    return lock


def _model(table: dict[str, Any]) -> LockedModel:
    files = tuple(LockedFile(**{"size": 0} | file) for file in table.pop("files"))
    model = LockedModel(files=files, **table)
    for one in (*files, model):
        _check_types(one, {"size": int, "mtime_ns": int, "parameters": int})
    if not files:
        raise ValueError("a model without files")
    return model


_IN_PATHS = ("path", "repo", "revision", "cache")
"""Fields that become part of a path, which cannot hold a zero byte."""


def _check_types(record: Any, other_than_text: Mapping[str, type]) -> None:
    for name in record.__dataclass_fields__:
        value = getattr(record, name)
        if name in ("target", "draft", "files", "reasons"):
            continue
        if not isinstance(value, other_than_text.get(name, str)) or (name in _IN_PATHS and "\0" in str(value)):
            raise ValueError(f"{name} = {value!r}")


def _profile(path: Path) -> Mapping[str, Any]:
    try:
        return read_lock(path).profile
    except UnreadableFile:
        return {}
