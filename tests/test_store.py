"""What is on this disk: locks, names, removal, verification, imports, finding a pair without the network."""

from __future__ import annotations

import json
import os
import socket
import time
from multiprocessing import get_context
from pathlib import Path
from threading import Event
from typing import Any, NoReturn

import pytest

from localspec.cli.import_ import register
from localspec.cli.main import main
from localspec.ground.errors import InvalidInput, UnknownName, UnreadableFile
from localspec.pairs.hub import hf_cache
from localspec.pairs.hub.hub import Hub
from localspec.pairs.names.catalog import load_catalog
from localspec.pairs.names.resolve import find_pair, models_on_disk
from localspec.pairs.store import cleanup
from localspec.pairs.store.imports import find_models, lock_of
from localspec.pairs.store.integrity import check_file, repair, with_hashes
from localspec.pairs.store.store import LockedFile, LockedModel, PairLock, Store, local_file, read_lock, toml_text
from tests.fakehub import FakeHub
from tests.gguf_samples import model_bytes, split_bytes
from tests.hub_fixtures import DRAFT, DRAFT_FILE, TARGET, TARGET_FILE, TARGET_REPO, cached, fake_hub, pull

__all__ = ["fake_hub"]


def a_lock(target: str = "t-1b", draft: str = "", pulled: str = "2026-01-01", **fields: Any) -> PairLock:
    model = LockedModel(target, (LockedFile("t.gguf", 5, "ab", "ab"),), "a/t", "c" * 40, "main", "/cache")
    small = LockedModel(draft, (LockedFile("d.gguf", 3, "cd", "cd"),), "a/d", "c" * 40, "main", "/cache")
    return PairLock(model, small if draft else None, pulled=pulled, **fields)


# --- locks


def test_a_lock_survives_the_disk() -> None:
    store = Store()
    lock = a_lock(
        draft="d",
        verdict="shared",
        masked_ids=3,
        reasons=('a "quoted" \\ reason', "\x1b[31m\x7f\u202e", "line\nbreak"),
        profile={"speedup": 1.5, "runs": [1, 2], "where": {"device": "cpu"}},
    )
    store.save(lock)
    assert store.locks() == [lock]
    text = store.path_of(lock).read_text()
    assert "\x1b" not in text and "mtime_ns" not in text


def test_a_lock_reads_well() -> None:
    """People look into these files, and files of earlier versions looked the same."""
    table = {
        "schema": 1, "reasons": ["one", "tw\ud800o\x7f"], "where": {"device": "cpu", "deep": {"x": 1}, "big": 1e22},
        "target": {"name": "t", "files": [{"name": "a", "size": 1}, {"name": "b"}]},
    }  # fmt: skip
    assert toml_text(table) == (
        'schema = 1\nreasons = ["one", "tw?o\\u007f"]\n\n'
        '[where]\ndevice = "cpu"\nbig = 1e+22\n\n[where.deep]\nx = 1\n\n'
        '[target]\nname = "t"\n\n[[target.files]]\nname = "a"\nsize = 1\n\n[[target.files]]\nname = "b"\n'
    )


def test_names_are_short_where_they_can_be() -> None:
    store = Store()
    for lock in (
        a_lock("a-7b", "1b", "2026-01-02"),
        a_lock("b-7b", "1b", "2026-01-03"),
        a_lock("b-7b", "3b", "2026-01-01"),
        a_lock("c-7b", "1b", alias="mine"),
    ):
        store.save(lock)
    assert sorted(name for name, _ in store.names()) == ["a-7b", "b-7b+1b", "b-7b+3b", "mine"]
    assert store.get("b-7b").draft.name == "1b"  # type: ignore[union-attr]
    assert store.get("B_7B+3b").draft.name == "3b"  # type: ignore[union-attr]
    assert store.get("mine").target.name == "c-7b"
    assert store.find_pair("b-7b", "3b") == store.get("b-7b+3b")
    with pytest.raises(UnknownName, match=r"no pair named 'b-8b' on this disk\. Close: "):
        store.get("b-8b")


def test_the_list_marks_the_default_of_several_drafts(capsys: pytest.CaptureFixture[str]) -> None:
    for lock in (a_lock("a-7b", "1b"), a_lock("b-7b", "1b", "2026-01-03"), a_lock("b-7b", "3b", "2026-01-01")):
        Store().save(lock)
    assert main(["list"]) == 0
    names = [line.partition("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ["NAME", "a-7b", "b-7b+1b *", "b-7b+3b"]
    assert main(["list", "--json"]) == 0
    pairs = json.loads(capsys.readouterr().out)["pairs"]
    assert {pair["name"]: pair["default"] for pair in pairs} == {"a-7b": True, "b-7b+1b": True, "b-7b+3b": False}


@pytest.mark.parametrize("name", ["hf:a/b:q4", "../../escape", "x" * 300, "con\1trol", ".hidden", "é"])
def test_odd_names_stay_in_the_folder(name: str) -> None:
    store = Store()
    lock = store.save(a_lock(name))
    assert store.path_of(lock).parent == store.folder
    assert store.get(name) == lock
    assert len(list(store.folder.iterdir())) == 1


def test_measured_profile_survives_the_next_pull() -> None:
    store = Store()
    store.save(a_lock(profile={"speedup": 2.0}))
    assert store.save(a_lock(verdict="identical")).profile == {"speedup": 2.0}


FAULTY = [
    "", "schema = 2", "schema = 1", "[[[", "\xff", 'schema = 1\n[target]\nname = "x"\nfiles = []',
    'schema = 1\n[target]\nname = "x"\n[[target.files]]\npath = "p"\nsize = "many"',
]  # fmt: skip


@pytest.mark.parametrize("text", FAULTY)
def test_a_faulty_lock_hides_no_other(text: str) -> None:
    store = Store()
    store.save(a_lock())
    path = store.folder / "faulty.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UnreadableFile):
        read_lock(path)
    assert len(store.locks()) == 1
    assert [bad for bad, _ in store.faulty()] == [path]


def test_three_hundred_locks_are_listed_in_half_a_second() -> None:
    store = Store()
    for n in range(300):
        store.save(
            a_lock(f"model{n}-7b", "1b", reasons=("cost: a guess costs about 12 % of a target token",))
        )
    best = 9.0
    for _ in range(3):  # the machine may be busy with something else
        start = time.process_time()
        rows = [(name, lock.state_text(), lock.size) for name, lock in store.names()]
        best = min(best, time.process_time() - start)
    assert best < 0.5
    assert len(rows) == 300 and rows[0][1:] == ("incomplete 0/2", 8)


def save_many(folder: Path, worker: int) -> None:
    store = Store(folder)
    for n in range(20):
        store.save(a_lock("shared-7b", "1b", verdict=f"{worker}-{n}"))
        assert len(store.locks()) == 1 and not store.faulty()


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    context = get_context("spawn")
    workers = [context.Process(target=save_many, args=(tmp_path, n)) for n in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["shared-7b+1b.toml"]


# --- removing


def test_removal_frees_what_nobody_else_uses(fake_hub: FakeHub) -> None:
    store = Store()
    pull(fake_hub)
    pull(fake_hub, draft="none")
    lock = store.get("qwen2.5-coder-1.5b+0.5b-q4")
    planned = cleanup.plan_removal(lock, store)
    assert [path.name for path in planned.files] == [DRAFT_FILE] and planned.size == len(DRAFT)
    assert [path.name for path in planned.kept] == [TARGET_FILE]
    cleanup.remove(planned, store)
    assert [path.name for path in cached("snapshots")] == [TARGET_FILE]
    assert len(cached("blobs")) == 1
    cleanup.remove(cleanup.plan_removal(store.get("qwen2.5-coder-1.5b"), store), store)
    assert not cached("snapshots") and not cached("blobs") and not store.locks()


def test_files_used_in_place_are_never_deleted(tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(model_bytes())
    store = Store()
    lock = store.save(PairLock(LockedModel("mine", (local_file(path),)), None))
    planned = cleanup.plan_removal(lock, store)
    assert (planned.files, planned.kept) == ((), (path,))
    cleanup.remove(planned, store)
    assert path.exists() and not store.locks()


def test_orphans_and_parts_are_found_and_others_left_alone(fake_hub: FakeHub) -> None:
    pull(fake_hub, draft="none")
    cache = hf_cache.cache_folder()
    blobs = hf_cache.repo_folder(cache, TARGET_REPO) / "blobs"
    (blobs / ("e" * 64)).write_bytes(b"old")
    os.utime(blobs / ("e" * 64), (1, 1))
    (blobs / ("f" * 64)).write_bytes(b"young")
    (blobs / ("1" * 64 + ".localspec.part")).write_bytes(b"part")
    (blobs / ("2" * 64 + ".abcdef01.incomplete")).write_bytes(b"the client's own")
    found = cleanup.leftovers(cache)
    assert sorted(one.what for one in found) == ["content without a name", "unfinished download"]
    hub = Hub(endpoint=fake_hub.url)
    part = next(one for one in found if one.what.startswith("unfinished"))
    with hub.lock(cache, part.repo, part.etag, 1):
        _, busy = cleanup.prune(cache, found, lambda *content: hub.lock(*content, timeout=0.01))
        assert not busy or busy == [part]  # the lock may be one that a process may take twice
    cleanup.prune(cache, cleanup.leftovers(cache), lambda *content: hub.lock(*content, timeout=0.01))
    assert cleanup.leftovers(cache) == [] and [p.name for p in cached("snapshots")] == [TARGET_FILE]


# --- verifying


def findings(lock: PairLock) -> list[str]:
    return [check_file(model, file, lambda count: None).finding for model, file in lock.files()]


def test_verify_finds_and_repairs_only_what_is_wrong(fake_hub: FakeHub) -> None:
    lock = pull(fake_hub)
    assert findings(lock) == ["ok", "ok"]
    blob = lock.target.paths()[0].resolve()
    data = bytearray(TARGET)
    data[-1000] ^= 1
    blob.write_bytes(data)
    assert findings(lock) == ["damaged", "ok"]
    fake_hub.log.clear()
    bad = check_file(lock.target, lock.target.files[0], lambda count: None)
    repair(bad, Hub(endpoint=fake_hub.url), Event()).finish()
    assert findings(lock) == ["ok", "ok"]
    assert fake_hub.sent() == len(TARGET)
    blob.write_bytes(TARGET[:-1])
    assert findings(lock) == ["short", "ok"]
    blob.unlink()
    assert findings(lock) == ["missing", "ok"]


def test_hashes_of_files_in_place_are_learnt(tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(model_bytes())
    lock = PairLock(LockedModel("mine", (local_file(path),)), None)
    check = check_file(lock.target, lock.target.files[0], lambda count: None)
    assert check.finding == "recorded"
    learnt = with_hashes(lock, [check])
    path.write_bytes(model_bytes(seed=2))
    assert findings(learnt) == ["replaced"]


# --- finding


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any socket to the internet is an error."""

    def refuse(*args: Any, **_: Any) -> NoReturn:
        raise AssertionError(f"a socket was opened: {args}")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)


def test_a_pulled_pair_is_found_without_the_network(
    fake_hub: FakeHub, request: pytest.FixtureRequest
) -> None:
    pull(fake_hub)
    request.getfixturevalue("no_network")
    for name, draft in (
        ("qwen2.5-coder-1.5b", None),
        ("qwen2.5-coder-1.5b", "auto"),
        ("qwen2.5-coder-1.5b+0.5b-q4", None),
        ("qwen2.5-coder-1.5b", "0.5b-q4"),
        (f"hf:{TARGET_REPO}", "qwen2.5-coder-0.5b"),
    ):
        files = find_pair(name, draft)
        assert files.target.read_bytes() == TARGET
        assert files.draft is not None and files.draft.read_bytes() == DRAFT
    alone = find_pair("qwen2.5-coder-1.5b", "none")
    assert (alone.draft, alone.why_no_draft) == (None, "asked for none")


def test_what_others_put_into_the_cache_is_found(fake_hub: FakeHub) -> None:
    pull(fake_hub)
    for lock in Store().locks():
        Store().remove(lock)
    files = find_pair("qwen2.5-coder-1.5b")
    assert files.draft is not None and files.draft.name == DRAFT_FILE
    assert find_pair("qwen2.5-coder-1.5b", "0.5b").draft == files.draft


def test_what_is_not_here_says_how_to_get_it(fake_hub: FakeHub) -> None:
    with pytest.raises(
        InvalidInput, match=r"qwen2\.5-7b is not on this disk\. Get it: localspec pull qwen2\.5-7b"
    ):
        find_pair("qwen2.5-7b")
    pull(fake_hub, draft="none")
    with pytest.raises(
        InvalidInput, match=r"the draft 0\.5b-q4 is not .* pull qwen2\.5-coder-1\.5b --draft 0\.5b-q4"
    ):
        find_pair("qwen2.5-coder-1.5b", "0.5b-q4")
    with pytest.raises(UnknownName, match=r"Pulled: qwen2\.5-coder-1\.5b"):
        find_pair("qwen25-coder-15b")


def test_paths_need_no_lock(tmp_path: Path) -> None:
    target, draft = tmp_path / "a.gguf", tmp_path / "b.gguf"
    target.write_bytes(TARGET)
    draft.write_bytes(DRAFT)
    files = find_pair(str(target), str(draft))
    assert (files.target, files.draft, files.lock) == (target, draft, None)
    alone = find_pair(str(target))
    assert (alone.draft, alone.why_no_draft) == (None, "no draft is known for this model")
    with pytest.raises(UnreadableFile, match="no file at"):
        find_pair(str(tmp_path / "absent.gguf"))
    with pytest.raises(UnreadableFile, match="no file at"):
        find_pair(str(target), str(tmp_path / "absent.gguf"))


def test_the_recommended_draft_beside_a_path_is_used_if_it_goes(tmp_path: Path) -> None:
    target, draft = tmp_path / TARGET_FILE, tmp_path / DRAFT_FILE
    target.write_bytes(TARGET)
    assert "qwen2.5-coder-0.5b is not on this disk" in find_pair(str(target)).why_no_draft
    draft.write_bytes(DRAFT)
    assert find_pair(str(target)).draft == draft
    draft.write_bytes(model_bytes(2, words=90, pre="other"))
    assert find_pair(str(target)).draft is None


def test_shards_by_path(tmp_path: Path) -> None:
    names = [f"m-Q8_0-{n:05}-of-00003.gguf" for n in (1, 2, 3)]
    for name, data in zip(names, split_bytes(3, 3), strict=True):
        (tmp_path / name).write_bytes(data)
    files = find_pair(str(tmp_path / names[1]))
    assert files.target == tmp_path / names[0] and len(files.target_files) == 3
    (tmp_path / names[1]).unlink()
    with pytest.raises(InvalidInput, match=f"m-Q8_0 is incomplete 2/3: {names[1]} is missing"):
        find_pair(str(tmp_path / names[0]))


def test_models_on_disk_are_listed_once(fake_hub: FakeHub) -> None:
    pull(fake_hub)
    pull(fake_hub, draft="none")
    assert sorted(name for name, _ in models_on_disk()) == ["0.5b-q4", "qwen2.5-coder-1.5b"]


# --- importing


def test_lm_studio_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".lmstudio" / "models" / "acme" / "Qwen2.5-Coder-1.5B-Instruct-GGUF"
    folder.mkdir(parents=True)
    (folder / "Qwen2.5-Coder-1.5B-Instruct-Q8_0.gguf").write_bytes(model_bytes(1, layers=30))
    (folder / "mmproj-model-f16.gguf").write_bytes(model_bytes())
    (folder / "broken.gguf").write_bytes(b"GGUF")
    for n, data in enumerate(split_bytes(3, 2), 1):
        (folder / f"other-Q8_0-{n:05}-of-00002.gguf").write_bytes(data)
    found = find_models("lmstudio", load_catalog())
    names = {one.name: one.problem for one in found}
    assert names.pop("broken").endswith("the file has 4")
    assert names == {"qwen2.5-coder-1.5b-q8_0": "", "other-Q8_0-00001-of-00002": ""}
    store = Store()
    for one in found:
        if one.info:
            store.save(lock_of(one, "lmstudio"))
    before = sorted(folder.iterdir())
    files = find_pair("qwen2.5-coder-1.5b-q8_0")
    assert files.target == folder / "Qwen2.5-Coder-1.5B-Instruct-Q8_0.gguf"
    assert "0.5b is not on this disk" in files.why_no_draft
    assert len(find_pair("other-Q8_0-00001-of-00002").target_files) == 2
    assert sorted(folder.iterdir()) == before
    assert [name for name, _ in store.names()] == ["other-Q8_0-00001-of-00002", "qwen2.5-coder-1.5b-q8_0"]


def test_imported_models_draft_for_each_other_by_catalog_names(tmp_path: Path) -> None:
    for folder, name, data in (("a", TARGET_FILE, TARGET), ("b", DRAFT_FILE, DRAFT)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_bytes(data)
        for one in find_models(str(tmp_path / folder), load_catalog()):
            register(one, str(tmp_path / folder), Store())
    files = find_pair("qwen2.5-coder-1.5b-q8_0")
    assert files.draft == tmp_path / "b" / DRAFT_FILE
    assert find_pair("qwen2.5-coder-1.5b", "0.5b").draft == files.draft
    assert find_pair("qwen2.5-coder-1.5b-q8_0", "none").draft is None


def test_two_models_of_one_name_are_both_kept(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.gguf").write_bytes(model_bytes())
        for _ in range(2):
            for one in find_models(str(tmp_path / folder), load_catalog()):
                register(one, folder, Store())
    assert [name for name, _ in Store().names()] == ["mine-2", "mine"]


def test_ollama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path))
    manifests = tmp_path / "manifests" / "registry.ollama.ai" / "library" / "tiny"
    manifests.mkdir(parents=True)
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "sha256-aa").write_bytes(model_bytes(name="Tiny"))
    layers = [
        {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:bb"},
        {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:aa"},
    ]
    (manifests / "1b").write_text(json.dumps({"layers": layers}))
    (manifests / "broken").write_text("{")
    outside = [{"mediaType": "application/vnd.ollama.image.model", "digest": "../../etc/passwd"}]
    (manifests / "outside").write_text(json.dumps({"layers": outside}))
    found = find_models("ollama", load_catalog())
    assert [(one.name, one.paths, one.problem) for one in found] == [
        ("tiny-1b", (tmp_path / "blobs" / "sha256-aa",), "")
    ]
    Store().save(lock_of(found[0], "ollama"))
    assert find_pair("tiny-1b").target.name == "sha256-aa"


def test_nothing_to_import_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path / "none"))
    with pytest.raises(InvalidInput, match=r"no models of llama\.cpp at .*none"):
        find_models("llama.cpp", load_catalog())
    with pytest.raises(InvalidInput, match="neither a folder nor a file"):
        find_models("nowhere", load_catalog())


# --- the cache's place


@pytest.mark.parametrize(
    "settings",
    [
        {"HF_HUB_CACHE": "/x/hub"},
        {"HF_HOME": "/x"},
        {"XDG_CACHE_HOME": "/y"},
        {"HF_HOME": "$HOME/z", "HOME": "/h"},
    ],
)
def test_cache_folder_equals_the_clients(settings: dict[str, str]) -> None:
    import subprocess
    import sys

    env = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "XDG_"))} | settings
    script = (
        "from localspec.pairs.hub.hf_cache import cache_folder; from huggingface_hub import constants\n"
        "assert str(cache_folder()) == constants.HF_HUB_CACHE, (cache_folder(), constants.HF_HUB_CACHE)"
    )
    subprocess.run([sys.executable, "-c", script], env=env, check=True, timeout=60)
