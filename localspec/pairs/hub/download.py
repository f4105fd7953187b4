"""One file from the hub to this disk: resumable after anything, hashed while it is written, fetched once.

The bytes grow in `blobs/{etag}.localspec.part` under the hub client's own lock; the file appears under its
final name only when it is whole and its hash is right.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import IO, Literal, NoReturn, Protocol

from localspec.ground.errors import DISK_FULL, Cancelled, DownloadFailed
from localspec.pairs.hub import hf_cache
from localspec.pairs.hub.hub import Expired, Hub, Remote, Stream, Transient

_TRIES = 6
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 60.0
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_AGAIN = "Run the same command again: it goes on where it stopped"
_WORTH_A_NEW_COUNT = 1 << 20  # bytes of progress after which failures are counted from zero again


State = Literal["waiting", "elsewhere", "checking", "downloading", "retrying", "done", "failed"]
"""`elsewhere`: another process is fetching the file; `checking`: hashing what is on this disk."""


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Item:
    """One file to have."""

    repo: str
    commit: str
    path: str
    size: int
    """Bytes by the listing, 0 when it does not say."""
    sha256: str = ""
    """By the listing, "" when it does not say. It is also the name under which the hub keeps the content."""


@dataclass
class Transfer:
    """How far one file is; written by its worker, read by whoever shows progress."""

    item: Item
    done: int = 0
    """Bytes of it on this disk."""
    total: int = 0
    """Bytes of the whole file, 0 while not known."""
    state: State = "waiting"
    note: str = ""
    """Why it is being retried."""
    received: int = 0
    """Bytes that crossed the network for it in this run."""


class Download:
    """Brings one file into the cache."""

    def __init__(self, hub: Hub, cache: Path, item: Item, cancel: Event) -> None:
        self.hub, self.cache, self.item, self.cancel = hub, cache, item, cancel
        self.transfer = Transfer(item, total=item.size)
        self.created_part = False
        """Whether the part file was begun by this object (and may be thrown away with it)."""
        self._remote: Remote | None = None
        self._seen_size = 0
        """By an answer with content, when nobody had said it before."""

    # --- where things are

    @property
    def remote(self) -> Remote:
        """Where the bytes come from; asked for once and again when the address has expired."""
        if self._remote is None:
            item = self.item
            self._remote = self.hub.remote(item.repo, item.commit, item.path)
            self.transfer.total = item.size or self._remote.size
        return self._remote

    @property
    def size(self) -> int:
        """Bytes of the whole file, 0 when nobody says."""
        return self.item.size or self.remote.size or self._seen_size

    @property
    def final_size(self) -> int:
        """Bytes of the file under its name, or what they will be, 0 when nobody can say yet."""
        return self.size or _size(self.name)

    @property
    def etag(self) -> str:
        """Name of the content; made up from the address when the server gives none."""
        stated = self.item.sha256 or self.remote.etag
        if re.fullmatch(r"[\w.-]{8,128}", stated):
            return stated
        return "unhashed-" + hashlib.sha1(repr(self.item).encode()).hexdigest()

    @property
    def part(self) -> Path:
        """The growing file."""
        return hf_cache.part_path(self.cache, self.item.repo, self.etag)

    @property
    def name(self) -> Path:
        """The file under its final name."""
        return hf_cache.snapshot_path(self.cache, self.item.repo, self.item.commit, self.item.path)

    @property
    def blob(self) -> Path:
        """The whole content."""
        return hf_cache.blob_path(self.cache, self.item.repo, self.etag)

    @property
    def verifiable(self) -> bool:
        """Whether the hub states a hash for the content."""
        return _hasher(self.etag, self.size) is not None

    @property
    def missing_bytes(self) -> int:
        """What still has to cross the network, by what is known now."""
        if self.here or self._whole(self.blob):
            return 0
        return max(self.size - _size(self.part), 0)

    @property
    def here(self) -> bool:
        """Whether the file is on this disk under its name, with its size."""
        return self._whole(self.name)

    @property
    def content_name(self) -> str:
        """Under which name the content of a file that is here, or will be, is kept."""
        stored = Path(os.path.realpath(self.name)).name
        return stored if self.here and not self.item.sha256 and _HASH.fullmatch(stored) else self.etag

    # --- the two things one can ask for

    def prefix(self, need: int) -> bytes:
        """The file's first `need` bytes (all of a shorter one), fetched into the part file if need be."""
        with _plain_errors(self.cache):
            self.name.exists()  # a name that the file system cannot hold is noticed now, not at the end
        while not (data := self._read(wanted := min(need, self.size or need))):
            with self._lock(until=wanted) as held:
                # While this process waited, another may have fetched all there is.
                if held and not self._whole(self.blob) and _size(self.part) < wanted:
                    self._grow(need, None)
        return data

    def finish(self) -> Path:
        """The whole file under its final name. DownloadFailed when it cannot be had, Cancelled on request."""
        if not self.here:
            with self._lock():
                self._remove_wrong_sizes()
                damaged = False
                while not self.blob.exists():
                    damaged = self._complete(damaged)
                hf_cache.publish(self.cache, self.item.repo, self.item.commit, self.item.path, self.etag)
        self.transfer.total = self.transfer.done = self.name.stat().st_size
        self.transfer.state = "done"
        return self.name

    def discard(self) -> None:
        """Remove the part file if this object began it."""
        if self.created_part:
            self.part.unlink(missing_ok=True)

    # --- how

    def _read(self, need: int) -> bytes:
        """The first `need` bytes as far as they are here; b"" when the part file does not have them all."""
        if self.here:
            path = self.name
        elif self._whole(self.blob):
            path = self.blob
        elif _size(self.part) >= need:
            path = self.part
        else:
            return b""
        with open(path, "rb") as file:
            return file.read(need)

    def _whole(self, path: Path) -> bool:
        """Whether the file at `path` has the announced size (any, when none was announced)."""
        size = _size(path)
        return bool(size) and (size == self.item.size or not self.item.size)

    def _remove_wrong_sizes(self) -> None:
        """Out of the way with a name or content that something has cut short."""
        for path in (self.name, self.blob):
            if path.exists() and not self._whole(path):
                path.unlink()

    @contextmanager
    def _lock(self, until: int | None = None) -> Iterator[bool]:
        """Hold the content's lock; False when `until` bytes turned up while another process had it."""
        with _plain_errors(self.cache):
            while True:
                self._stop_if_cancelled()
                held = self.hub.lock(self.cache, self.item.repo, self.etag, timeout=0.5)
                try:
                    held.__enter__()
                except TimeoutError:
                    self.transfer.state = "elsewhere"
                    self.transfer.done = _size(self.part)
                    if until is not None and _size(self.part) >= until:
                        yield False
                        return
                    continue
                try:
                    yield True
                finally:
                    held.__exit__(None, None, None)
                return

    def _complete(self, damaged: bool) -> bool:
        """Fetch what is missing, check it, and make it the blob. True when it has to be fetched anew."""
        hasher = _hasher(self.etag, self.size)
        self._hash_part(hasher)
        if not self.size or _size(self.part) < self.size:
            self._grow(None, hasher)
        if hasher is not None and hasher.hexdigest() != self.etag:
            self.part.unlink()
            if damaged:
                raise DownloadFailed(
                    f"{self.item.path} arrived damaged twice (its hash is not {self.etag[:12]}…)",
                    "Something on the way alters files: try another network, then the same command",
                )
            self.transfer.note = "it arrived damaged: fetching it again"
            return True
        self.blob.parent.mkdir(parents=True, exist_ok=True)
        with open(self.part, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(self.part, self.blob)
        return damaged

    def _hash_part(self, hasher: _Hash | None) -> None:
        """Feed what earlier attempts left to the hash; a part longer than the file is thrown away."""
        have = _size(self.part)
        if self.size and have > self.size:
            self.part.unlink()
        elif hasher is not None and have:
            self.transfer.state, self.transfer.done = "checking", have
            with open(self.part, "rb") as file:
                while chunk := file.read(1 << 20):
                    self._stop_if_cancelled()
                    hasher.update(chunk)

    def _grow(self, until: int | None, hasher: _Hash | None) -> None:
        """Append to the part file until it has `until` bytes (None: all), through every transient failure."""
        left, wait, last = _TRIES, _FIRST_WAIT, _size(self.part)
        while True:
            try:
                self._append(until, hasher)
                return
            except (Transient, Expired) as error:
                have = _size(self.part)
                if have - last >= _WORTH_A_NEW_COUNT:
                    left, wait, last = _TRIES, _FIRST_WAIT, have
                left -= 1
                if isinstance(error, Expired):
                    error = self._renew(left)
                if left < 0 or (error.wait or 0) > _LONGEST_WAIT:
                    raise self.hub.unreachable(error) from None
                self.transfer.state, self.transfer.note = "retrying", error.reason
                self.cancel.wait(error.wait if error.wait is not None else wait)
                wait = min(wait * 2, _LONGEST_WAIT)

    def _renew(self, left: int) -> Transient:
        """Ask for a new address; the hub's own refusal (gated, gone) ends it with its own message."""
        before, self._remote = self._remote, None
        if before is not None and before.etag != self.remote.etag:
            raise DownloadFailed(f"{self.item.path} changed on the hub meanwhile", _AGAIN)
        return Transient("the download address does not work", 0.0 if left == _TRIES - 1 else None)

    def _append(self, until: int | None, hasher: _Hash | None) -> None:
        """One request: from the end of the part file on."""
        have = _size(self.part)
        with self.hub.open(self.remote, have, until) as stream:
            self._check_stream(stream, have)
            self._seen_size = self.transfer.total = stream.total or self.size
            self.part.parent.mkdir(parents=True, exist_ok=True)
            self.created_part = self.created_part or not self.part.exists()
            with open(self.part, "ab") as file:
                self._write(stream, file, have, until, hasher)
        wanted = min(until, self.size) if until is not None and self.size else until or self.size
        if _size(self.part) < wanted:
            raise Transient("the connection closed early")

    def _write(
        self, stream: Stream, file: IO[bytes], have: int, until: int | None, hasher: _Hash | None
    ) -> None:
        skip = 0 if stream.partial else have  # the server started over: its first bytes are here already
        for chunk in stream.chunks:
            self._stop_if_cancelled()
            self.transfer.received += len(chunk)
            data, skip = chunk[skip:], max(skip - len(chunk), 0)
            if have == 0 and data:
                self._check_magic(data)
            file.write(data)
            if hasher is not None:
                hasher.update(data)
            have += len(data)
            self.transfer.state, self.transfer.done = "downloading", have
            if until is not None and have >= until:
                break
        file.flush()

    def _check_stream(self, stream: Stream, have: int) -> None:
        other_size = bool(stream.total and self.size and stream.total != self.size)
        if stream.web_page and (other_size or not have):
            self._refuse_page()
        if other_size:
            if not stream.partial:
                self._check_magic(next(stream.chunks, b""))  # what it is says more than how long it is
            raise DownloadFailed(
                f"{self.item.path} has {stream.total:,} bytes on the server, {self.size:,} were announced",
                "It may just have changed: run the same command again",
            )

    def _check_magic(self, data: bytes) -> None:
        if not self.item.path.lower().endswith(".gguf") or data.startswith(b"GGUF"):
            return
        start = data[:256].lstrip().lower()
        if start.startswith((b"<!doctype", b"<html", b"<?xml")):
            self._refuse_page()
        if start.startswith(b"version https://git-lfs"):
            raise DownloadFailed(
                f"got a Git LFS pointer instead of {self.item.path}",
                "The mirror is incomplete: check HF_ENDPOINT",
            )
        raise DownloadFailed(
            f"{self.item.path} is not a GGUF file (it begins {data[:4].hex(' ')})", "Try another repository"
        )

    def _refuse_page(self) -> NoReturn:
        raise DownloadFailed(
            f"got a web page instead of {self.item.path}",
            "A login page or proxy stands in between: open the hub in a browser, or check HF_ENDPOINT",
        )

    def _stop_if_cancelled(self) -> None:
        if self.cancel.is_set():
            raise Cancelled("the download was stopped", _AGAIN)


@contextmanager
def _plain_errors(cache: Path) -> Iterator[None]:
    """What the disk says, in words."""
    try:
        yield
    except OSError as error:
        if isinstance(error, TimeoutError):
            raise
        path = error.filename or cache
        if error.errno in DISK_FULL:
            raise DownloadFailed(
                f"the disk is full at {cache}", "Free some space, then run the same command: it goes on there"
            ) from None
        if error.errno == errno.ENAMETOOLONG:
            raise DownloadFailed(
                f"the path is too long for this system ({len(str(path))} characters)",
                "Choose a shorter folder: --cache-dir, or HF_HUB_CACHE",
            ) from None
        raise DownloadFailed(
            f"cannot write {path}: {error.strerror or type(error).__name__}",
            "Check the folder's permissions, or choose another: --cache-dir",
        ) from None


def _hasher(etag: str, size: int) -> _Hash | None:
    """The hash that `etag` is one of; None when it cannot be checked."""
    if re.fullmatch(r"[0-9a-f]{64}", etag):
        return hashlib.sha256()
    if re.fullmatch(r"[0-9a-f]{40}", etag) and size:
        return hashlib.sha1(b"blob %d\0" % size)  # git's name for a small file
    return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


