"""A loopback hub with a small pair under catalog names, for other processes and for this one's client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.pairs.hub import download, hub
from localspec.pairs.hub.hf_cache import cache_folder
from localspec.pairs.hub.hub import Hub
from localspec.pairs.pull import Puller, PullPlan, PullRequest
from localspec.pairs.store.store import PairLock, Store
from tests.fakehub import FakeHub
from tests.gguf_samples import model_bytes

TARGET_REPO, DRAFT_REPO = "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF"
TARGET_FILE = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
DRAFT_FILE = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
TARGET = model_bytes(1, width=512, layers=24)
DRAFT = model_bytes(2, width=256, layers=8)


@pytest.fixture(name="hub")
def stocked_hub() -> Iterator[FakeHub]:
    """The pair, for clients in processes of their own."""
    with FakeHub() as fake:
        fake.add_repo(TARGET_REPO, {TARGET_FILE: TARGET})
        fake.add_repo(DRAFT_REPO, {DRAFT_FILE: DRAFT})
        yield fake


@pytest.fixture
def fake_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """The pair, and short waits between tries."""
    from huggingface_hub import constants

    for variable in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(variable, "127.0.0.1,localhost")
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 1)
    monkeypatch.setattr(download, "_FIRST_WAIT", 0.01)
    monkeypatch.setattr(hub, "_FIRST_WAIT", 0.01)
    with FakeHub() as fake:
        fake.add_repo(TARGET_REPO, {TARGET_FILE: TARGET, "README.md": b"# hello"})
        fake.add_repo(DRAFT_REPO, {DRAFT_FILE: DRAFT})
        yield fake


def puller(
    fake: FakeHub, target: str = "qwen2.5-coder-1.5b", draft: str | None = "0.5b-q4", **asked: object
) -> Puller:
    """A pull of this process."""
    return Puller(PullRequest(target, draft, **asked), hub=Hub(endpoint=fake.url))  # type: ignore[arg-type]


def pull(
    fake: FakeHub, target: str = "qwen2.5-coder-1.5b", draft: str | None = "0.5b-q4", **asked: object
) -> PairLock:
    """Plan and run."""
    one = puller(fake, target, draft, **asked)
    return one.run(one.plan(), lambda transfers: None)


def plan(fake: FakeHub, target: str, draft: str | None = None, **asked: object) -> PullPlan:
    """Plan only."""
    return puller(fake, target, draft, **asked).plan()


def cached(kind: str) -> list[Path]:
    """Files of the hub cache: `blobs`, `snapshots`, `parts`."""
    if kind == "parts":
        return sorted(cache_folder().glob("models--*/blobs/*.part"))
    pattern = "models--*/blobs/*" if kind == "blobs" else "models--*/snapshots/**/*.gguf"
    return sorted(path for path in cache_folder().glob(pattern) if path.suffix != ".part")


def locks() -> list[PairLock]:
    """The locks of this test."""
    return Store().locks()
