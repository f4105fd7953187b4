"""The only door to huggingface_hub: listings, metadata, byte streams and locks; its errors become ours.

A token travels in the client's own headers and nowhere else: no message here quotes an exception's text
or an address with its query, either of which may carry a secret.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from localspec import __version__
from localspec.ground.errors import DownloadFailed, InvalidInput, LocalspecError
from localspec.pairs.hub.hf_cache import COMMIT, lock_path
from localspec.pairs.store.listing import Listing, RepoFile

if TYPE_CHECKING:
    from huggingface_hub.errors import HfHubHTTPError

T = TypeVar("T")

_TRIES = 5
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 60.0
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Remote:
    """Where one file's bytes are served from, for some minutes."""

    etag: str
    """sha256 of the content for large files, git hash for small ones, "" when the server gives none."""
    size: int
    """Bytes, 0 when the server does not say."""
    url: str = field(repr=False)
    headers: dict[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer's body."""

    partial: bool
    """Whether the server honoured the range; otherwise the body begins at byte 0."""
    total: int
    """Bytes of the whole file, 0 when not stated."""
    web_page: bool
    """Whether the server says that this is HTML."""
    chunks: Iterator[bytes]


class Transient(Exception):
    """Worth another try after `wait` seconds (None: as you like). `reason` is fit for people.

    `no_line`: there was no connection at all, as on a train; one more try tells.
    """

    def __init__(self, reason: str, wait: float | None = None, *, no_line: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.wait = wait
        self.no_line = no_line


class HubUnreachable(DownloadFailed):
    """The hub could not be asked; what is on this disk may still do."""


class Expired(Exception):
    """The content host no longer accepts the signed address: ask the hub for a new one."""


class Hub:
    """The hub as this process sees it: endpoint, token and timeouts are the client's own settings."""

    def __init__(self, sleep: Callable[[float], Any] = time.sleep, endpoint: str | None = None) -> None:
        """`sleep` waits between tries; it may raise to give up. `endpoint` overrides the client's."""
        _import_client()
        self._sleep = sleep
        self._endpoint = endpoint

    @property
    def endpoint(self) -> str:
        """The address in use, without credentials."""
        from huggingface_hub import constants

        parts = urlsplit(self._endpoint or constants.ENDPOINT)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}"

    def listing(self, repo: str, revision: str) -> Listing:
        """The files of `repo` at `revision`, with the commit that pins them. One request."""
        from huggingface_hub import HfApi

        api = HfApi(self._endpoint, library_name="localspec", library_version=__version__)
        info = self._asked(
            lambda: api.model_info(repo, revision=revision, files_metadata=True), repo, revision
        )
        files = tuple(
            RepoFile(
                one.rfilename,
                int(one.lfs.size if one.lfs else one.size or 0),
                one.lfs.sha256 if one.lfs else "",
            )
            for one in info.siblings or ()
        )
        if not COMMIT.fullmatch(info.sha or ""):  # it becomes part of a path here
            raise DownloadFailed(f"{self.endpoint} states no commit for {repo}", "Check HF_ENDPOINT")
        licence = info.card_data.get("license") if info.card_data else None
        return Listing(repo, info.sha or "", files, bool(info.gated), str(licence or ""))

    def remote(self, repo: str, commit: str, path: str) -> Remote:
        """Where to fetch that file now. One request."""
        from huggingface_hub import get_hf_file_metadata, hf_hub_url
        from huggingface_hub.utils import build_hf_headers

        url = hf_hub_url(repo, path, revision=commit, endpoint=self._endpoint)
        found = self._asked(lambda: get_hf_file_metadata(url, timeout=_timeout()), repo, commit, path)
        headers = build_hf_headers(library_name="localspec", library_version=__version__)
        headers["Accept-Encoding"] = "identity"
        location = found.location or url
        if _origin(location) != _origin(url):
            headers = {key: value for key, value in headers.items() if key.lower() != "authorization"}
        return Remote(found.etag or "", found.size or 0, location, headers)

    @contextmanager
    def open(self, remote: Remote, start: int, stop: int | None = None) -> Iterator[Stream]:
        """The bytes from `start` up to `stop` (excluded; None = the end).

        Raises Transient, Expired or DownloadFailed; while the body is read only Transient.
        """
        from huggingface_hub import get_session
        from huggingface_hub.utils import httpx

        headers = dict(remote.headers)
        if start or stop is not None:
            headers["Range"] = f"bytes={start}-{'' if stop is None else stop - 1}"
        try:
            with get_session().stream(
                "GET", remote.url, headers=headers, timeout=_timeout(), follow_redirects=True
            ) as response:
                _check_status(response.status_code, response.headers)
                yield Stream(
                    partial=response.status_code == 206,
                    total=_total(response.headers),
                    web_page="text/html" in response.headers.get("content-type", ""),
                    # As they arrive: gathered into larger ones, what a broken line had brought is lost.
                    chunks=response.iter_raw(),
                )
        except httpx.TransportError as error:
            raise Transient(_reason(error)) from None
        except httpx.HTTPError as error:  # too many redirects and the like
            raise DownloadFailed(
                f"the download server answered nonsense ({type(error).__name__})", "try again later"
            ) from None

    def lock(self, cache: Path, repo: str, etag: str, timeout: float) -> AbstractContextManager[object]:
        """The client's own lock for that content; TimeoutError (on entry) when another process keeps it."""
        return _lock(lock_path(cache, repo, etag), timeout)

    def _asked(self, call: Callable[[], T], repo: str, revision: str, path: str = "") -> T:
        """`call`, again after transient failures, with the client's errors turned into ours."""
        wait = _FIRST_WAIT
        for left in reversed(range(_TRIES)):
            try:
                return self._once(call, repo, revision, path)
            except Transient as error:
                pause = min(wait if error.wait is None else error.wait, _LONGEST_WAIT)
                hopeless = error.no_line and left < _TRIES - 1
                if not left or hopeless or (error.wait or 0) > _LONGEST_WAIT:
                    raise self.unreachable(error) from None
                self._sleep(pause)
                wait *= 2
        raise AssertionError("unreachable")

    def unreachable(self, error: Transient) -> DownloadFailed:
        """The error for a transient failure that stayed."""
        hint = "Run the same command again: it goes on where it stopped. Pulled pairs work without the hub"
        if error.wait is not None:
            hint = f"Wait {error.wait:.0f} seconds, then run the same command again"
        return HubUnreachable(f"{self.endpoint}: {error.reason}", hint)

    def _once(self, call: Callable[[], T], repo: str, revision: str, path: str) -> T:
        from huggingface_hub import errors
        from huggingface_hub.utils import httpx

        try:
            return call()
        except errors.HfHubHTTPError as error:
            raise self._explained(error, repo, revision, path) from None
        except errors.OfflineModeIsEnabled:
            raise DownloadFailed(
                f"{repo} is not on this disk and the hub is switched off (HF_HUB_OFFLINE)",
                "Unset HF_HUB_OFFLINE, or leave out --offline",
            ) from None
        except errors.HFValidationError:
            raise InvalidInput(f"{repo!r} is no repository name", "Write hf:owner/repo") from None
        except httpx.TransportError as error:
            raise Transient(_reason(error), no_line=isinstance(error, httpx.ConnectError)) from None
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise DownloadFailed(
                f"cannot ask {self.endpoint} ({type(error).__name__})", "Check HF_ENDPOINT and HF_TOKEN"
            ) from None
        except (ValueError, KeyError, TypeError):  # no JSON, or not the hub's
            raise DownloadFailed(
                f"{self.endpoint} answered with something that is no listing of {repo}",
                "A login page or proxy may stand in between: open that address in a browser",
            ) from None

    def _explained(self, error: HfHubHTTPError, repo: str, revision: str, path: str) -> Exception:
        """Each answer of the hub in a sentence of its own, with the next step."""
        from huggingface_hub import errors

        status, headers = error.response.status_code, error.response.headers
        if isinstance(error, errors.GatedRepoError):  # a kind of RepositoryNotFoundError: it must come first
            return self._gated(repo, status)
        if isinstance(error, errors.RevisionNotFoundError):
            return DownloadFailed(f"{repo} has no revision {revision!r}", "Check --revision; try main")
        if isinstance(error, errors.EntryNotFoundError):
            return DownloadFailed(f"{repo} has no file {path}", "It may have been renamed: try again")
        if isinstance(error, errors.DisabledRepoError):
            return DownloadFailed(f"the hub has disabled {repo}", "Try another repository of the same model")
        if isinstance(error, errors.RepositoryNotFoundError):
            return self._missing(repo, status)
        if status == 401:
            return _bad_token()
        if status in _TRANSIENT:
            return Transient(_trouble(status), _retry_after(headers))
        return DownloadFailed(f"{self.endpoint} refused {repo} (HTTP {status})", "Check name and access")

    def _gated(self, repo: str, status: int) -> LocalspecError:
        page = f"{self.endpoint}/{repo}"
        if status == 401:
            return DownloadFailed(
                f"{repo} is gated and you are not logged in",
                f"Accept its terms at {page}, then run: hf auth login",
            )
        return DownloadFailed(
            f"{repo} is gated and your account has no access yet", f"Ask for it at {page}, then try again"
        )

    def _missing(self, repo: str, status: int) -> LocalspecError:
        if status == 401:
            return DownloadFailed(
                f"no public repository {repo} at {self.endpoint}",
                "Check the spelling; if it is private, run: hf auth login",
            )
        return DownloadFailed(
            f"no repository {repo} at {self.endpoint} that your account may see",
            "Check the spelling; if it is private, ask its owner",
        )


def _import_client() -> None:
    """Settings that the client reads when it is imported; what the person set stands."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # else the day's first request lists harnesses
    os.environ.setdefault("HF_HUB_DISABLE_UPDATE_CHECK", "1")
    import huggingface_hub  # noqa: F401


def _timeout() -> float:
    from huggingface_hub import constants

    return float(constants.HF_HUB_DOWNLOAD_TIMEOUT)


@contextmanager
def _lock(path: Path, timeout: float) -> Iterator[object]:
    from filelock import Timeout
    from huggingface_hub.utils import WeakFileLock

    path.parent.mkdir(parents=True, exist_ok=True)
    held = WeakFileLock(str(path), timeout=timeout)
    try:
        held.__enter__()
    except Timeout:
        raise TimeoutError(str(path)) from None
    try:
        yield held
    finally:
        held.__exit__(None, None, None)


def _check_status(status: int, headers: Any) -> None:
    """Nothing for a body that may be read; what is wrong otherwise."""
    if status in (200, 206):
        return
    if status in (401, 403, 404, 410):
        raise Expired
    if status in _TRANSIENT:
        raise Transient(_trouble(status), _retry_after(headers))
    if status == 416:
        raise DownloadFailed("the server has less of the file than this disk", "Run: localspec prune")
    raise DownloadFailed(f"the download server answered HTTP {status}", "Try again later")


def _trouble(status: int) -> str:
    if status == 429:
        return "too many requests (HTTP 429)"
    return f"the server has trouble (HTTP {status})"


def _retry_after(headers: Any) -> float | None:
    """Seconds that the server asks us to wait, by either of its two headers."""
    try:
        return float(headers["retry-after"]) + 1
    except (KeyError, ValueError):
        pass
    for part in headers.get("ratelimit", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == "t" and value.isdigit():
            return float(value) + 1
    return None


def _total(headers: Any) -> int:
    """Size of the whole file by Content-Range or Content-Length; 0 when neither says."""
    _, _, total = headers.get("content-range", "").rpartition("/")
    text = total or headers.get("content-length", "")
    return int(text) if text.isdigit() else 0


def _reason(error: Exception) -> str:
    """A transport error in words; never its own text, which may quote a header."""
    from huggingface_hub.utils import httpx

    if isinstance(error, httpx.ConnectError):
        if "CERTIFICATE" in str(error).upper():
            return "its certificate is not trusted here (behind a company proxy, set SSL_CERT_FILE)"
        return "no connection (is this machine online? is HF_ENDPOINT right?)"
    if isinstance(error, httpx.TimeoutException):
        return "no answer in time"
    if isinstance(error, httpx.ProxyError):
        return "the proxy refused (check HTTPS_PROXY)"
    return f"the connection broke ({type(error).__name__})"


def _bad_token() -> DownloadFailed:
    if os.environ.get("HF_TOKEN"):
        return DownloadFailed(
            "the hub does not accept your token (from HF_TOKEN)",
            "Correct or unset HF_TOKEN, which wins over: hf auth login",
        )
    return DownloadFailed("the hub does not accept your token (from the stored login)", "Run: hf auth login")


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port
