"""A loopback stand-in for the model hub, spoken to by the real huggingface_hub client.

Two listeners: the hub (API and resolve) and the content host, another origin as in production, where large
files are served from a signed address and the bearer token must not follow.

    with FakeHub() as hub:
        hub.add_repo("acme/Tiny-GGUF", {"tiny-Q4_K_M.gguf": b"GGUF...", "README.md": b"hi"})
        hub.fault("GET", "/cdn/", drop_after=100_000)
        subprocess.run([...], env=os.environ | hub.env(tmp_path))  # the client reads its settings at import
        assert hub.sent() < 200_000

`python fakehub.py FOLDER` serves FOLDER/owner/repo/file trees until it is interrupted.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

_PIECE = 1 << 16


class Blob:
    """The content of one file: bytes, or a file on disk whose hash may be given when it is known."""

    def __init__(self, content: bytes | Path, *, lfs: bool | None = None, sha256: str = "") -> None:
        self._content = content
        self.size = len(content) if isinstance(content, bytes) else content.stat().st_size
        self.lfs = self.size >= 1 << 12 if lfs is None else lfs
        self.sha256 = sha256 or self._hash(hashlib.sha256())
        self.git_oid = self.sha256[:40] if self.lfs else self._hash(hashlib.sha1(b"blob %d\0" % self.size))

    def read(self, start: int, count: int) -> bytes:
        if isinstance(self._content, bytes):
            return self._content[start : start + count]
        with open(self._content, "rb") as file:
            file.seek(start)
            return file.read(count)

    def _hash(self, hasher: Any) -> str:
        for start in range(0, self.size, 1 << 20):
            hasher.update(self.read(start, 1 << 20))
        return str(hasher.hexdigest())

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.git_oid


@dataclass
class Repo:
    """One repository at one commit."""

    id: str
    files: dict[str, Blob]
    gated: bool | str = False
    private: bool = False
    disabled: bool = False
    licence: str = "apache-2.0"
    states_sizes: bool = True
    """False: a mirror that gives neither sizes nor hashes."""

    @property
    def sha(self) -> str:
        names = "".join(f"{name}{blob.etag}" for name, blob in sorted(self.files.items()))
        return hashlib.sha1(f"{self.id}{names}".encode()).hexdigest()

    def resolve(self, revision: str) -> str | None:
        return self.sha if revision in ("main", "refs/heads/main", self.sha) else None


@dataclass
class Fault:
    """What goes wrong for requests of that method ("*": any) whose address matches, `times` times."""

    method: str
    pattern: str
    times: int = 1
    skip: int = 0
    """Matching requests that pass first."""
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    ctype: str = "text/plain"
    drop_after: int | None = None
    """Bytes of body after which the connection is closed."""
    reset: bool = False
    """Close it with RST."""
    stall_after: int | None = None
    stall_seconds: float = 10.0
    corrupt_at: int | None = None
    """Offset in the file of a byte that arrives flipped."""
    ignore_range: bool = False
    rate: float = 0.0
    """Bytes per second, 0 = as fast as it goes."""


@dataclass
class Seen:
    """One request."""

    where: str
    """`hub` or `cdn`."""
    method: str
    path: str
    headers: dict[str, str]
    status: int = 0
    sent: int = 0
    """Bytes of body."""

    @property
    def range(self) -> str | None:
        return self.headers.get("range")

    @property
    def token(self) -> str | None:
        return (self.headers.get("authorization") or "").removeprefix("Bearer ") or None


class FakeHub:
    """Hub and content host on loopback, from `with` to its end."""

    def __init__(
        self, tokens: set[str] | None = None, granted: set[str] | None = None, rate: float = 0.0
    ) -> None:
        self.repos: dict[str, Repo] = {}
        self.tokens = {"hf_good"} if tokens is None else tokens
        """Tokens that exist."""
        self.granted = set(self.tokens) if granted is None else granted
        """Tokens that may read gated repositories."""
        self.rate = rate
        """Bytes per second of every content answer, 0 = as fast as it goes."""
        self.log: list[Seen] = []
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._servers = {where: _Server(self, where) for where in ("hub", "cdn")}

    def __enter__(self) -> FakeHub:
        for server in self._servers.values():
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers.values():
            server.shutdown()
            server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._servers['hub'].server_address[1]}"

    @property
    def cdn_url(self) -> str:
        # Another host name, not only another port: client 1.x compares host names, 2.x whole origins.
        return f"http://localhost:{self._servers['cdn'].server_address[1]}"

    def env(self, home: Path, **extra: str) -> dict[str, str]:
        """Environment for a child: hub, cache and every folder of localspec below `home`."""
        return {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home / "hf"),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DOWNLOAD_TIMEOUT": "3",
            "HF_HUB_ETAG_TIMEOUT": "3",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
            "HOME": str(home),
            **{f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in ("DATA", "STATE", "CACHE", "CONFIG")},
            **extra,
        }

    def add_repo(self, repo_id: str, files: Mapping[str, bytes | Path | Blob], **settings: Any) -> Repo:
        blobs = {name: one if isinstance(one, Blob) else Blob(one) for name, one in files.items()}
        self.repos[repo_id] = Repo(repo_id, blobs, **settings)
        return self.repos[repo_id]

    def fault(self, method: str, pattern: str, **settings: Any) -> Fault:
        self._faults.append(Fault(method, pattern, **settings))
        return self._faults[-1]

    def take_fault(self, method: str, path: str) -> Fault | None:
        with self._lock:
            for fault in self._faults:
                if fault.times > 0 and fault.method in (method, "*") and re.search(fault.pattern, path):
                    if fault.skip:
                        fault.skip -= 1
                        return None
                    fault.times -= 1
                    return fault
        return None

    def sent(self) -> int:
        """Bytes of content served so far."""
        return sum(seen.sent for seen in self.log if seen.method == "GET" and "/api/" not in seen.path)

    def bodies(self) -> list[Seen]:
        """Requests for content."""
        return [seen for seen in self.log if seen.method == "GET" and "/api/" not in seen.path]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, hub: FakeHub, where: str) -> None:
        self.hub, self.where = hub, where
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is part of the game."""


_API = re.compile(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?")
_RESOLVE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_CDN = re.compile(r"/cdn/([^/]+/[^/]+)/([0-9a-f]{64})/(.+)")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    seen: Seen
    fault: Fault | None

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.route()

    def do_GET(self) -> None:
        self.route()

    @property
    def hub(self) -> FakeHub:
        return self.server.hub

    def route(self) -> None:
        headers = {key.lower(): value for key, value in self.headers.items()}
        self.seen = Seen(self.server.where, self.command, self.path, headers)
        self.hub.log.append(self.seen)
        self.fault = fault = self.hub.take_fault(self.command, self.path)
        if fault and fault.status:
            self.reply(fault.status, fault.body, dict(fault.headers), fault.ctype)
            return
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        if self.server.where == "cdn":
            self.content(_CDN.fullmatch(path))
        elif found := _API.fullmatch(path):
            self.api(found[1], found[2] or "main", parse_qs(parts.query))
        elif found := _RESOLVE.fullmatch(path):
            self.resolve(found[1], found[2], found[3])
        else:
            self.error(404)

    def reply(
        self,
        status: int,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        ctype: str = "application/json",
    ) -> None:
        self.seen.status = status
        self.send_response(status)
        all_headers = {"Content-Type": ctype, "Content-Length": str(len(body)), **(headers or {})}
        for key, value in all_headers.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
            self.seen.sent = len(body)

    def error(self, status: int, code: str = "", message: str = "", commit: str = "") -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": message, "X-Repo-Commit": commit}
        self.reply(status, b'{"error": "no"}', {key: value for key, value in headers.items() if value})

    def allowed(self, repo_id: str, *, files: bool) -> Repo | None:
        """The repository; None when an error was answered instead."""
        repo, token = self.hub.repos.get(repo_id), self.seen.token
        if token is not None and token not in self.hub.tokens:
            self.error(401, message="Invalid credentials in Authorization header")
        elif repo is None or (repo.private and token is None):
            # The real hub says 401 for an unknown repository when nobody is logged in, 404 otherwise.
            self.error(401 if token is None else 404, "RepoNotFound", "Repository not found")
        elif repo.disabled:
            self.error(403, message="Access to this resource is disabled.")
        elif files and repo.gated and token not in self.hub.granted:
            self.error(401 if token is None else 403, "GatedRepo", "Access is restricted")
        else:
            return repo
        return None

    def api(self, repo_id: str, revision: str, query: Mapping[str, list[str]]) -> None:
        repo = self.allowed(repo_id, files=False)
        if repo is None:
            return
        if repo.resolve(revision) is None:
            self.error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return
        siblings = [_sibling(name, blob, repo.states_sizes) for name, blob in repo.files.items()]
        info = {
            "_id": repo.sha[:24], "id": repo.id, "modelId": repo.id, "sha": repo.sha, "private": repo.private,
            "gated": repo.gated, "disabled": repo.disabled, "downloads": 1, "likes": 0, "tags": ["gguf"],
            "cardData": {"license": repo.licence}, "siblings": siblings,
        }  # fmt: skip
        self.reply(200, json.dumps(info).encode())

    def resolve(self, repo_id: str, revision: str, name: str) -> None:
        repo = self.allowed(repo_id, files=True)
        if repo is None:
            return
        commit, blob = repo.resolve(revision), repo.files.get(name)
        if commit is None:
            self.error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        elif blob is None:
            self.error(404, "EntryNotFound", "Entry not found", commit)
        elif not blob.lfs:
            self.body(blob, {"X-Repo-Commit": commit, "ETag": f'"{blob.etag}"'})
        else:
            address = f"{self.hub.cdn_url}/cdn/{repo.id}/{blob.sha256}/{quote(name)}?sig=secret-signature"
            headers = {"X-Repo-Commit": commit, "Location": address}
            if repo.states_sizes:
                headers |= {"X-Linked-Size": str(blob.size), "X-Linked-Etag": f'"{blob.sha256}"'}
            self.reply(302, b"", headers, "text/plain")

    def content(self, found: re.Match[str] | None) -> None:
        repo = self.hub.repos.get(found[1]) if found else None
        blob = repo.files.get(found[3]) if repo and found else None
        if found is None or blob is None or blob.sha256 != found[2]:
            self.reply(403, b"<Error>AccessDenied</Error>", ctype="application/xml")
        else:
            self.body(blob, {"Accept-Ranges": "bytes"})

    def body(self, blob: Blob, headers: Mapping[str, str]) -> None:
        fault, start, end = self.fault, 0, blob.size
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked and not (fault and fault.ignore_range):
            if int(asked[1]) >= blob.size:
                self.reply(416, b"", {"Content-Range": f"bytes */{blob.size}"})
                return
            start, end = int(asked[1]), min(int(asked[2]) + 1 if asked[2] else blob.size, blob.size)
            headers = {**headers, "Content-Range": f"bytes {start}-{end - 1}/{blob.size}"}
        self.seen.status = 206 if "Content-Range" in headers else 200
        self.send_response(self.seen.status)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(end - start))
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            try:
                self.send_body(blob, start, end)
            except OSError:  # the client went away
                self.close_connection = True

    def send_body(self, blob: Blob, start: int, end: int) -> None:
        fault, at = self.fault or Fault("", ""), start
        stop = end if fault.drop_after is None else min(end, start + fault.drop_after)
        rate = fault.rate or self.hub.rate
        while at < stop:
            if fault.stall_after is not None and at - start >= fault.stall_after:
                time.sleep(fault.stall_seconds)
                self.cut(reset=False)
                return
            piece = bytearray(blob.read(at, min(_PIECE, stop - at)))
            if fault.corrupt_at is not None and at <= fault.corrupt_at < at + len(piece):
                piece[fault.corrupt_at - at] ^= 0xFF
            self.wfile.write(piece)
            at += len(piece)
            self.seen.sent = at - start
            if rate:
                time.sleep(len(piece) / rate)
        if stop < end:
            self.cut(fault.reset)

    def cut(self, reset: bool) -> None:
        """End the connection in the middle of the body."""
        self.close_connection = True
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()


def _sibling(name: str, blob: Blob, sizes: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"rfilename": name}
    if sizes:
        row |= {"size": blob.size, "blobId": blob.git_oid}
        if blob.lfs:
            row["lfs"] = {"size": blob.size, "sha256": blob.sha256, "pointerSize": 130}
    return row


def _serve(root: Path) -> None:
    with FakeHub() as hub:
        for folder in sorted(root.glob("*/*")):
            files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
            hub.add_repo(f"{folder.parent.name}/{folder.name}", files)
        print(hub.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    import sys

    _serve(Path(sys.argv[1]))
