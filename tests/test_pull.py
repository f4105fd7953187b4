"""pull against a loopback hub, through the real hub client."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from localspec.ground.errors import (
    Cancelled,
    DownloadFailed,
    IncompatiblePair,
    InvalidInput,
    LocalspecError,
    UnknownName,
    UnreadableFile,
)
from localspec.pairs.hub import download, transfers
from localspec.pairs.hub.hf_cache import cache_folder
from localspec.pairs.hub.hub import Hub
from localspec.pairs.names.resolve import find_pair
from localspec.pairs.pull import Puller, PullPlan, PullRequest
from localspec.pairs.store import cleanup
from localspec.pairs.store.store import Store
from tests.fakehub import FakeHub
from tests.gguf_samples import model_bytes, split_bytes
from tests.hub_fixtures import (
    DRAFT,
    DRAFT_FILE,
    DRAFT_REPO,
    TARGET,
    TARGET_FILE,
    TARGET_REPO,
    cached,
    fake_hub,
    locks,
    plan,
    pull,
    puller,
)

__all__ = ["fake_hub"]

SIZE = len(TARGET) + len(DRAFT)


def contents() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in cached("snapshots")}


WHOLE = {TARGET_FILE: TARGET, DRAFT_FILE: DRAFT}


def test_pull_fetches_every_byte_once_and_locks_the_pair(fake_hub: FakeHub) -> None:
    lock = pull(fake_hub)
    assert contents() == WHOLE
    assert fake_hub.sent() == SIZE
    assert lock.state_text() == "complete" and lock.verdict == "identical"
    assert [(m.repo, m.revision) for m in lock.models] == [
        (repo, fake_hub.repos[repo].sha) for repo in (TARGET_REPO, DRAFT_REPO)
    ]
    assert locks() == [lock]
    assert not cached("parts")


def test_the_client_finds_what_was_pulled(fake_hub: FakeHub) -> None:
    from huggingface_hub import hf_hub_download, scan_cache_dir

    pull(fake_hub)
    found = hf_hub_download(TARGET_REPO, TARGET_FILE, local_files_only=True, cache_dir=cache_folder())
    assert Path(found).read_bytes() == TARGET
    assert {repo.repo_id for repo in scan_cache_dir(cache_folder()).repos} == {TARGET_REPO, DRAFT_REPO}
    before = fake_hub.sent()
    again = hf_hub_download(TARGET_REPO, TARGET_FILE, cache_dir=cache_folder(), endpoint=fake_hub.url, token=False)
    assert (again, fake_hub.sent()) == (found, before)


def test_what_the_client_pulled_is_not_fetched_again(fake_hub: FakeHub) -> None:
    from huggingface_hub import hf_hub_download

    hf_hub_download(TARGET_REPO, TARGET_FILE, cache_dir=cache_folder(), endpoint=fake_hub.url, token=False)
    before = fake_hub.sent()
    pull(fake_hub)
    assert fake_hub.sent() - before == len(DRAFT)


def test_second_pull_asks_for_listings_only(fake_hub: FakeHub) -> None:
    pull(fake_hub)
    fake_hub.log.clear()
    pull(fake_hub)
    assert [seen.method for seen in fake_hub.log] == ["GET", "GET"]
    assert all(seen.path.startswith("/api/models/") for seen in fake_hub.log)


def test_header_bytes_are_the_beginning_of_the_part(fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.pairs.hub.remote_header._FIRST_BYTES", 4096)
    pull(fake_hub)
    for repo, size in ((TARGET_REPO, len(TARGET)), (DRAFT_REPO, len(DRAFT))):
        at = 0
        for seen in [seen for seen in fake_hub.bodies() if repo in seen.path]:
            assert seen.range is not None and seen.range.startswith(f"bytes={at}-")
            at += seen.sent
        assert at == size


def test_dry_run_leaves_nothing(fake_hub: FakeHub) -> None:
    planned = plan(fake_hub, "qwen2.5-coder-1.5b", "0.5b-q4")
    assert [d.item.path for d in planned.downloads] == [TARGET_FILE, DRAFT_FILE]
    assert sum(side.size for side in planned.sides) == SIZE
    planned.discard()
    assert not cached("parts") and not cached("blobs") and not locks()


# --- what goes wrong on the way

FAULTS: dict[str, dict[str, Any]] = {
    "closed": {"drop_after": 300_000, "times": 3},
    "reset": {"drop_after": 200_000, "reset": True, "times": 2},
    "stalled": {"stall_after": 100_000, "stall_seconds": 1.5},
    "503": {"status": 503, "times": 2},
    "429": {"status": 429, "headers": {"Retry-After": "-1"}},
    "expired": {"status": 403},
    "range ignored": {"ignore_range": True},
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_transient_faults_are_survived(fake_hub: FakeHub, fault: dict[str, Any]) -> None:
    fake_hub.fault("GET", r"/cdn/.*1\.5b", skip=1, **fault)
    lock = pull(fake_hub)
    assert contents() == WHOLE and lock.state_text() == "complete"
    allowed = SIZE * 1.05 + (len(TARGET) if "ignore_range" in fault else 1 << 20)
    assert fake_hub.sent() <= allowed


def test_expired_address_is_asked_for_again(fake_hub: FakeHub) -> None:
    fake_hub.fault("GET", r"/cdn/.*1\.5b", status=403, skip=1)
    pull(fake_hub)
    assert sum(seen.method == "HEAD" and TARGET_REPO in seen.path for seen in fake_hub.log) == 2


def test_closed_at_nine_tenths_twice(fake_hub: FakeHub) -> None:
    header = 2 << 20  # the first request, for the check
    fake_hub.fault("GET", r"/cdn/.*1\.5b", drop_after=int(len(TARGET) * 0.9) - header, skip=1)
    fake_hub.fault("GET", r"/cdn/.*1\.5b", drop_after=1000)
    pull(fake_hub)
    assert contents() == WHOLE and fake_hub.sent() == SIZE


def test_flipped_byte_is_noticed_and_only_that_file_fetched_again(fake_hub: FakeHub) -> None:
    fake_hub.fault("GET", r"/cdn/.*1\.5b", corrupt_at=len(TARGET) - 1000, skip=1)
    pull(fake_hub)
    assert contents() == WHOLE
    assert fake_hub.sent() == SIZE + len(TARGET)


def test_a_file_that_stays_damaged_never_gets_its_name(fake_hub: FakeHub) -> None:
    fake_hub.fault("GET", r"/cdn/.*1\.5b", corrupt_at=len(TARGET) - 1000, times=9)
    with pytest.raises(DownloadFailed, match="arrived damaged twice"):
        pull(fake_hub)
    assert TARGET_FILE not in contents()
    assert locks()[0].state_text().startswith("incomplete")


def run_until_the_draft_is_there(fake_hub: FakeHub, one: Puller, planned: PullPlan) -> None:
    """Cancel when the draft is whole and the target has begun to grow."""

    def watch(transfers: list[download.Transfer]) -> None:
        if transfers[1].state == "done" and transfers[0].received > 2 << 20:
            one.cancel.set()

    fake_hub.rate = 1_000_000
    one.run(planned, watch)


def test_cancel_leaves_a_part_that_the_next_pull_completes(fake_hub: FakeHub) -> None:
    one = puller(fake_hub)
    planned = one.plan()
    with pytest.raises(Cancelled, match="Run the same command again"):
        run_until_the_draft_is_there(fake_hub, one, planned)
    assert cached("parts") and TARGET_FILE not in contents()
    assert locks()[0].state_text() == "incomplete 1/2"
    with pytest.raises(InvalidInput, match=r"incomplete 1/2.*localspec pull qwen2.5-coder-1.5b --draft 0.5b-q4"):
        find_pair("qwen2.5-coder-1.5b")
    fake_hub.rate = 0
    pull(fake_hub)
    assert contents() == WHOLE
    assert fake_hub.sent() <= SIZE * 1.05 + (1 << 20)


def test_an_interrupt_in_the_progress_display_stops_the_workers(fake_hub: FakeHub) -> None:
    def interrupt(transfers: object) -> None:
        raise KeyboardInterrupt

    one = puller(fake_hub)
    planned = one.plan()
    fake_hub.rate = 1_000_000
    with pytest.raises(KeyboardInterrupt):
        one.run(planned, interrupt)
    assert one.cancel.is_set()


def test_full_disk_leaves_a_resumable_part(fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    one = puller(fake_hub)
    planned = one.plan()
    write = download.Download._write

    def full(self: Any, stream: Any, file: Any, have: int, *rest: Any) -> None:
        if have > 100_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(self, stream, file, have, *rest)

    fake_hub.fault("GET", "/cdn/", drop_after=200_000)
    monkeypatch.setattr(download.Download, "_write", full)
    with pytest.raises(DownloadFailed, match=r"disk is full at .* it goes on there") as caught:
        one.run(planned, lambda _: None)
    assert caught.value.exit_code == 5
    monkeypatch.setattr(download.Download, "_write", write)
    pull(fake_hub)
    assert contents() == WHOLE and fake_hub.sent() <= SIZE + (1 << 21)


def test_too_little_space_is_refused_before_the_first_gigabyte(
    fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10**9, 9 * 10**8, 10**6))
    with pytest.raises(DownloadFailed, match=r"GB are needed and 0\.00 GB are free at .*--force"):
        pull(fake_hub)
    assert not cached("parts") and not locks()
    pull(fake_hub, force=True)
    assert contents() == WHOLE


def test_a_path_too_long_says_so(fake_hub: FakeHub, tmp_path: Path) -> None:
    name = "n" * 240 + ".gguf"
    fake_hub.add_repo("acme/Long-GGUF", {"sub" * 40 + "/" + name: TARGET})
    deep = tmp_path.joinpath(*["d" * 200] * 18)
    with pytest.raises(DownloadFailed, match="too long for this system"):
        pull(fake_hub, "hf:acme/Long-GGUF", "none", cache=deep)


# --- the hub's answers

Arrange = Callable[[FakeHub, pytest.MonkeyPatch], None]


def with_token(token: str, change: Arrange = lambda hub, patch: None) -> Arrange:
    def arrange(hub: FakeHub, patch: pytest.MonkeyPatch) -> None:
        patch.setenv("HF_TOKEN", token)
        change(hub, patch)

    return arrange


def repo_with(**settings: Any) -> Arrange:
    def arrange(hub: FakeHub, patch: pytest.MonkeyPatch) -> None:
        hub.add_repo(TARGET_REPO, {TARGET_FILE: TARGET}, **settings)

    return arrange


def fault(method: str, pattern: str, **settings: Any) -> Arrange:
    def arrange(hub: FakeHub, patch: pytest.MonkeyPatch) -> None:
        hub.fault(method, pattern, times=99, **settings)

    return arrange


def gated_for_others(hub: FakeHub, patch: pytest.MonkeyPatch) -> None:
    hub.tokens.add("hf_other")
    repo_with(gated="manual")(hub, patch)


def no_repos(hub: FakeHub, patch: pytest.MonkeyPatch) -> None:
    hub.repos.clear()


HTML = {"status": 200, "body": b"<!DOCTYPE html><html>Log in" + b" " * 9000, "ctype": "text/html"}
POINTER = {"status": 200, "body": b"version https://git-lfs.github.com/spec/v1\n", "ctype": "text/plain"}
ANSWERS: dict[str, tuple[Arrange, str]] = {
    "gated, not logged in": (repo_with(gated="manual"), "gated and you are not logged in.*hf auth login"),
    "gated, no access": (
        with_token("hf_other", gated_for_others),
        "gated and your account has no access yet.*Ask for it at http",
    ),
    "bad token": (
        with_token("hf_secret_bad"),
        r"does not accept your token \(from HF_TOKEN\).*unset HF_TOKEN",
    ),
    "missing, not logged in": (no_repos, "no public repository .*hf auth login"),
    "missing, logged in": (with_token("hf_good", no_repos), "that your account may see"),
    "private": (repo_with(private=True), "no public repository"),
    "disabled": (repo_with(disabled=True), "has disabled"),
    "503": (fault("GET", "/api/", status=503), r"the server has trouble \(HTTP 503\).*goes on where"),
    "429": (fault("GET", "/api/", status=429, headers={"Retry-After": "120"}), "HTTP 429.*Wait 121 seconds"),
    "429 by policy": (
        fault("GET", "/api/", status=429, headers={"ratelimit": '"api";r=0;t=300'}),
        "HTTP 429.*Wait 301 seconds",
    ),
    "page for a listing": (fault("GET", "/api/", **HTML), "is no listing of.*login page or proxy"),
    "page for a file": (fault("GET", "/cdn/", **HTML), "got a web page instead of"),
    "pointer for a file": (
        fault("GET", "/cdn/", **POINTER),
        "got a Git LFS pointer instead of",
    ),
    "content always refused": (fault("GET", "/cdn/", status=403), "download address does not work"),
    "content host down": (fault("GET", "/cdn/", status=502), r"has trouble \(HTTP 502\)"),
    "file gone": (
        fault("HEAD", "resolve", status=404, headers={"X-Error-Code": "EntryNotFound"}),
        "has no file",
    ),
    "odd status": (fault("GET", "/api/", status=418), "HTTP 418"),
}


@pytest.mark.parametrize(("arrange", "says"), ANSWERS.values(), ids=ANSWERS.keys())
def test_every_answer_has_its_own_message(
    fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch, arrange: Arrange, says: str
) -> None:
    arrange(fake_hub, monkeypatch)
    with pytest.raises(DownloadFailed, match=says) as caught:
        pull(fake_hub, draft="none")
    text = str(caught.value)
    assert caught.value.exit_code == 5 and caught.value.hint and "\n" not in text
    assert "hf_" not in text.replace("HF_", "") and "secret" not in text
    assert not cached("snapshots")


def test_no_such_revision(fake_hub: FakeHub) -> None:
    with pytest.raises(DownloadFailed, match=r"has no revision 'v9'.*--revision"):
        pull(fake_hub, revision="v9")


def test_no_connection(fake_hub: FakeHub) -> None:
    one = Puller(PullRequest("qwen2.5-coder-1.5b", "none"), hub=Hub(endpoint="http://127.0.0.1:9"))
    with pytest.raises(DownloadFailed, match=r"127\.0\.0\.1:9: no connection"):
        one.plan()


def test_the_token_never_reaches_the_content_host(fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    fake_hub.add_repo(TARGET_REPO, {TARGET_FILE: TARGET}, gated="auto")
    pull(fake_hub)
    assert contents() == WHOLE
    assert {seen.token for seen in fake_hub.log if seen.where == "hub"} == {"hf_good"}
    assert {seen.token for seen in fake_hub.log if seen.where == "cdn"} == {None}


def test_waits_as_long_as_the_hub_asks(fake_hub: FakeHub) -> None:
    waits: list[float] = []
    fake_hub.fault("GET", "/api/", status=429, headers={"Retry-After": "7"})
    Hub(sleep=waits.append, endpoint=fake_hub.url).listing(TARGET_REPO, "main")
    assert waits == [8.0]


# --- which files


def test_incompatible_pair_is_refused_before_the_download(fake_hub: FakeHub) -> None:
    fake_hub.add_repo(DRAFT_REPO, {DRAFT_FILE: model_bytes(2, words=90, pre="other")})
    with pytest.raises(IncompatiblePair, match=r"cannot draft for qwen2\.5-coder-1.5b") as caught:
        pull(fake_hub)
    assert caught.value.exit_code == 3
    assert not cached("parts") and not cached("blobs") and not locks()


def test_a_refusal_names_drafts_that_are_here(fake_hub: FakeHub) -> None:
    pull(fake_hub)
    fake_hub.add_repo("acme/Other-GGUF", {"o-Q8_0.gguf": model_bytes(2, words=90, pre="other")})
    with pytest.raises(IncompatiblePair, match=r"On this disk would work: 0\.5b-q4$"):
        pull(fake_hub, draft="hf:acme/Other-GGUF")


def test_swapped_pair_stops_unless_forced(fake_hub: FakeHub) -> None:
    fake_hub.add_repo("acme/Big-GGUF", {"big-Q4_0.gguf": model_bytes(9, width=1024, layers=40)})
    with pytest.raises(IncompatiblePair, match=r"larger than the target.*Swap them, or --force"):
        pull(fake_hub, draft="hf:acme/Big-GGUF")
    assert pull(fake_hub, draft="hf:acme/Big-GGUF", force=True).state_text() == "complete"


def test_recommended_draft_is_taken(fake_hub: FakeHub) -> None:
    planned = plan(fake_hub, "qwen2.5-coder-1.5b")
    assert planned.draft is not None and planned.draft.name == "qwen2.5-coder-0.5b"
    assert any("only smaller sibling" in note for note in planned.notes)
    assert plan(fake_hub, f"hf:{TARGET_REPO}").draft is not None


def test_recommended_draft_that_does_not_fit_is_left_out_with_the_reason(fake_hub: FakeHub) -> None:
    fake_hub.add_repo(DRAFT_REPO, {DRAFT_FILE: model_bytes(2, words=90, pre="other")})
    planned = plan(fake_hub, "qwen2.5-coder-1.5b")
    assert planned.draft is None
    assert any("qwen2.5-coder-0.5b will not do" in note for note in planned.notes)


def test_no_draft(fake_hub: FakeHub) -> None:
    lock = pull(fake_hub, draft="none")
    assert (lock.draft, lock.why_no_draft, fake_hub.sent()) == (None, "asked for none", len(TARGET))


def test_unknown_names_ask_no_hub(fake_hub: FakeHub) -> None:
    for target, draft in (("qwen2.5-99b", None), ("qwen2.5-coder-1.5b", "0.6b")):
        with pytest.raises(UnknownName, match="Close: "):
            pull(fake_hub, target, draft)
    assert fake_hub.log == []


def test_second_repository_is_asked_when_the_first_lacks_the_quant(fake_hub: FakeHub) -> None:
    fake_hub.add_repo("Qwen/Qwen3-8B-GGUF", {"Qwen3-8B-Q8_0.gguf": TARGET})
    fake_hub.add_repo("unsloth/Qwen3-8B-GGUF", {"Qwen3-8B-Q4_0.gguf": TARGET})
    listing = plan(fake_hub, "qwen3-8b-q4_0", "none").target.listing
    assert listing is not None and listing.repo == "unsloth/Qwen3-8B-GGUF"
    with pytest.raises(UnknownName, match=r"Qwen/Qwen3-8B-GGUF has no Q5_K_M file\. It has: Q8_0"):
        plan(fake_hub, "qwen3-8b-q5", "none")


def test_local_target_with_a_draft_from_the_hub(fake_hub: FakeHub, tmp_path: Path) -> None:
    path = tmp_path / "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
    path.write_bytes(TARGET)
    lock = pull(fake_hub, str(path), "0.5b-q4")
    assert fake_hub.sent() == len(DRAFT)
    assert lock.target.paths() == (path,) and lock.draft is not None
    files = find_pair(str(path), "0.5b-q4")
    assert (files.target, files.draft) == (path, lock.draft.paths()[0])


# --- shards

SHARDS = [f"qwen2.5-7b-instruct-q4_k_m-{n:05}-of-00003.gguf" for n in (1, 2, 3)]


@pytest.fixture
def split_hub(fake_hub: FakeHub) -> FakeHub:
    fake_hub.add_repo("Qwen/Qwen2.5-7B-Instruct-GGUF", dict(zip(SHARDS, split_bytes(5, 3), strict=True)))
    fake_hub.add_repo(
        "Qwen/Qwen2.5-1.5B-Instruct-GGUF",
        {"qwen2.5-1.5b-instruct-q4_k_m.gguf": model_bytes(6, width=64, layers=2)},
    )
    return fake_hub


def test_three_shards_and_a_draft(split_hub: FakeHub) -> None:
    lock = pull(split_hub, "qwen2.5-7b", "1.5b-q4")
    assert [path.name for path in lock.target.paths()] == SHARDS
    assert len({path.parent for path in lock.target.paths()}) == 1
    assert lock.target.parameters == 402 * 0 + 3 * 65536
    lock.target.paths()[1].resolve().unlink()
    assert Store().find("qwen2.5-7b").state_text() == "incomplete 3/4"  # type: ignore[union-attr]
    with pytest.raises(InvalidInput, match=r"incomplete 3/4.*localspec pull qwen2.5-7b --draft 1.5b-q4"):
        find_pair("qwen2.5-7b")
    before = split_hub.sent()
    split_hub.log.clear()
    pull(split_hub, "qwen2.5-7b", "1.5b-q4")
    assert [SHARDS[1] in seen.path for seen in split_hub.bodies()] == [True] * len(split_hub.bodies())
    assert split_hub.sent() == len(split_bytes(5, 3)[1]) < before
    assert find_pair("qwen2.5-7b").target.name == SHARDS[0]


def test_mixed_shards_are_refused_before_the_download(split_hub: FakeHub) -> None:
    parts = split_bytes(5, 3)
    split_hub.add_repo("Qwen/Qwen2.5-7B-Instruct-GGUF", dict(zip(SHARDS, [parts[0], parts[1], parts[1]], strict=True)))
    with pytest.raises(UnreadableFile, match="says it is file 2 of 3, found as file 3 of 3"):
        pull(split_hub, "qwen2.5-7b", "none")


def test_a_hub_that_lies_about_names_writes_nothing_outside(fake_hub: FakeHub, tmp_path: Path) -> None:
    fake_hub.add_repo("acme/Evil-GGUF", {"../../../../escape-Q8_0.gguf": TARGET})
    with pytest.raises(UnknownName):
        pull(fake_hub, "hf:acme/Evil-GGUF", "none")
    fake_hub.fault("GET", "/api/", status=200, body=b'{"id": "a/b", "sha": "../../x", "siblings": []}')
    with pytest.raises(DownloadFailed, match="states no commit"):
        pull(fake_hub, draft="none")
    assert not list(tmp_path.rglob("*escape*"))


# --- the cache


def test_a_file_cut_short_on_disk_is_fetched_again(fake_hub: FakeHub) -> None:
    lock = pull(fake_hub)
    blob = lock.target.paths()[0].resolve()
    blob.write_bytes(TARGET[:-100])
    assert lock.state_text() == "changed 1/2"
    with pytest.raises(InvalidInput, match=r"changed 1/2.*localspec pull"):
        find_pair("qwen2.5-coder-1.5b")
    fake_hub.log.clear()
    assert pull(fake_hub).state_text() == "complete"
    assert contents() == WHOLE and fake_hub.sent() == len(TARGET)


def test_one_lock_for_one_pair_however_its_draft_is_spelled(fake_hub: FakeHub) -> None:
    for draft in ("0.5b-q4", None, "qwen2.5-coder-0.5b-q4_k_m", "0.5b"):
        pull(fake_hub, draft=draft)
    assert [lock.draft.name for lock in locks() if lock.draft] == ["0.5b"]
    pull(fake_hub, draft="0.5b", alias="mine")
    assert len(locks()) == 2


def test_quant_and_revision_are_part_of_the_command_that_completes(fake_hub: FakeHub) -> None:
    lock = pull(fake_hub, draft="none", quant="Q4", revision=fake_hub.repos[TARGET_REPO].sha)
    command = lock.pull_command()
    assert command.startswith("localspec pull qwen2.5-coder-1.5b --draft none --quant Q4 --revision ")
    assert Puller(PullRequest("qwen2.5-coder-1.5b", "none", offline=True)).complete_lock() is None


def test_changed_on_the_hub_between_attempts(fake_hub: FakeHub) -> None:
    one = puller(fake_hub)
    planned = one.plan()
    with pytest.raises(Cancelled):
        run_until_the_draft_is_there(fake_hub, one, planned)
    fake_hub.rate = 0
    newer = model_bytes(77, width=512, layers=24)
    fake_hub.add_repo(TARGET_REPO, {TARGET_FILE: newer})
    pull(fake_hub)
    assert contents()[TARGET_FILE] == newer
    left = cleanup.leftovers(cache_folder())
    assert [one.what for one in left] == ["unfinished download"]
    hub = Hub(endpoint=fake_hub.url)
    gone, busy = cleanup.prune(cache_folder(), left, lambda *content: hub.lock(*content, timeout=0.01))
    assert (len(gone), busy, cached("parts")) == (1, [], [])


def test_mirror_without_sizes_and_hashes(fake_hub: FakeHub) -> None:
    fake_hub.add_repo(TARGET_REPO, {TARGET_FILE: TARGET}, states_sizes=False)
    fake_hub.fault("GET", r"/cdn/.*1\.5b", drop_after=400_000, skip=1)
    planned = plan(fake_hub, "qwen2.5-coder-1.5b", "none")
    assert any("hash" in note for note in planned.notes)
    planned.discard()
    lock = pull(fake_hub, draft="none")
    assert contents() == {TARGET_FILE: TARGET}
    assert lock.target.size == len(TARGET)


def test_mirror_without_sizes_and_a_file_shorter_than_the_first_request(fake_hub: FakeHub) -> None:
    fake_hub.add_repo(DRAFT_REPO, {DRAFT_FILE: DRAFT}, states_sizes=False)
    assert pull(fake_hub).state_text() == "complete"
    assert contents() == WHOLE and fake_hub.sent() == SIZE


def test_a_host_that_sends_nothing_is_given_up(fake_hub: FakeHub) -> None:
    fake_hub.fault("GET", "/cdn/", drop_after=0, times=999)
    with pytest.raises(DownloadFailed, match="the connection"):
        pull(fake_hub)


def test_small_files_outside_lfs_are_checked_too(fake_hub: FakeHub) -> None:
    small = model_bytes(4, width=32, layers=1, words=40)
    assert len(small) < 4096
    fake_hub.add_repo("acme/Small-GGUF", {"small-Q8_0.gguf": small})
    fake_hub.fault("GET", "/resolve/", corrupt_at=len(small) - 5)
    lock = pull(fake_hub, "hf:acme/Small-GGUF:q8", "none")
    assert lock.target.paths()[0].read_bytes() == small
    fake_hub.log.clear()
    one = Puller(PullRequest("hf:acme/Small-GGUF:q8_0", "none", offline=True))
    assert one.run(one.plan(), lambda _: None).target.files == lock.target.files
    assert fake_hub.log == []


def test_without_links_files_move(fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: Any, **__: Any) -> None:
        raise OSError(22, "A required privilege is not held by the client")

    monkeypatch.setattr(os, "symlink", no_links)
    pull(fake_hub)
    assert contents() == WHOLE
    assert not any(path.is_symlink() for path in cached("snapshots")) and not cached("blobs")
    fake_hub.log.clear()
    pull(fake_hub)
    assert not fake_hub.bodies()


def test_offline_pull(fake_hub: FakeHub) -> None:
    asked = PullRequest("qwen2.5-coder-1.5b", "0.5b-q4", offline=True)
    with pytest.raises(DownloadFailed, match=r"is not on this disk.*--offline"):
        Puller(asked).plan()
    pull(fake_hub)
    fake_hub.log.clear()
    complete = Puller(asked).complete_lock()
    assert complete is not None and complete.state_text() == "complete"
    Store().remove(complete)
    assert Puller(asked).complete_lock() is None
    one = Puller(asked)
    assert one.run(one.plan(), lambda _: None).state_text() == "complete"
    assert fake_hub.log == []


@pytest.mark.parametrize("started", [0, 1])
def test_an_interrupt_before_all_are_started_passes_on(started: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless:
        def __init__(self) -> None:
            self.size, self.transfer = 1, download.Transfer(download.Item("a/b", "c", "f", 1))

        def finish(self) -> None:
            assert cancel.wait(60), "nobody told this one to stop"
            raise Cancelled("stopped")

    class Struck(Thread):
        def start(self) -> None:
            if len(running) == started:
                raise KeyboardInterrupt
            running.append(self)
            super().start()

    running: list[Thread] = []
    cancel = Event()
    monkeypatch.setattr(transfers, "Thread", Struck)
    with pytest.raises(KeyboardInterrupt):
        transfers.finish_all([Endless(), Endless()], cancel, lambda _: None)  # type: ignore[list-item]
    for worker in running:
        worker.join(60)
        assert not worker.is_alive()
    assert len(running) == started and cancel.is_set()


def test_first_failure_stops_the_others() -> None:
    class Slow:
        def __init__(self, cancel: Event, fails: bool) -> None:
            self.cancel, self.fails, self.size = cancel, fails, 9 if fails else 1
            self.transfer = download.Transfer(download.Item("a/b", "c", "f", 1))

        def finish(self) -> None:
            if self.fails:
                raise DownloadFailed("first")
            assert self.cancel.wait(60), "nobody told this one to stop"
            raise Cancelled("second")

    cancel = Event()
    with pytest.raises(LocalspecError, match="first"):
        transfers.finish_all([Slow(cancel, False), Slow(cancel, True)], cancel, lambda _: None)  # type: ignore[list-item]
