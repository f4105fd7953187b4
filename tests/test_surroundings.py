"""Odd machines: full and read-only disks, no home, a clock that goes back, locales without UTF-8, odd paths."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bigram import BigramPair

CJK = "模型 日本語 한국어"
ODD_FOLDERS = {
    "quotes and spaces": "  it's \"quoted\" `x` $HOME ; & | * ? [a] {b} \\ %s ",
    "wide and joined": f"{CJK} 👩‍👩‍👧 é e\u0301",
    "long": "x" * 240,
    "newline": "two\nlines",
    "not UTF-8": "caf\udce9",
}


def localspec(*arguments: object, drop: tuple[str, ...] = (), **env: str) -> subprocess.CompletedProcess[bytes]:
    kept = {key: value for key, value in os.environ.items() if key not in drop}
    return subprocess.run(
        [sys.executable, "-m", "localspec", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        env=kept | env,
        cwd=Path(__file__).parents[1],
    )


def answer(*arguments: object, **options: object) -> subprocess.CompletedProcess[bytes]:
    done = localspec("run", *arguments, "--seed", 3, "--threads", 1, "--ctx", 512, "-n", 20, **options)  # type: ignore[arg-type]
    assert b"Traceback" not in done.stderr and b"bug" not in done.stderr, done.stderr
    return done


@pytest.fixture(scope="module")
def expected(bigram: BigramPair) -> bytes:
    return answer(bigram.target, "The ", "--draft", bigram.draft).stdout


def same(done: subprocess.CompletedProcess[bytes], expected: bytes) -> None:
    assert (done.returncode, done.stdout) == (0, expected), done.stderr


# --- paths -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ODD_FOLDERS.values(), ids=ODD_FOLDERS.keys())
def test_paths_of_any_kind(bigram: BigramPair, expected: bytes, tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    target, draft = folder / f"{name[:100]}.gguf", folder / "draft.gguf"
    shutil.copy(bigram.target, target)
    shutil.copy(bigram.draft, draft)
    homes = {f"XDG_{kind}_HOME": str(folder / kind) for kind in ("STATE", "DATA", "CACHE", "CONFIG")}
    same(answer(target, "The ", "--draft", draft, **homes), expected)
    imported = localspec("import", folder, **homes)
    assert b"Traceback" not in imported.stderr and b"\x1b" not in imported.stdout
    listed = json.loads(localspec("list", "--json", **homes).stdout)["pairs"]
    if name != ODD_FOLDERS["not UTF-8"]:
        assert imported.returncode == 0, imported.stderr
        assert len(listed) == 2 and all(pair["state"] == "complete" for pair in listed)
    else:
        assert imported.returncode == 2 and b"not UTF-8" in imported.stderr and listed == []


# --- languages -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "locale",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "latin-1", "LC_ALL": "C"},
    ],
    ids=["C", "latin-1"],
)
def test_locales_without_utf8(bigram: BigramPair, expected: bytes, tmp_path: Path, locale: dict[str, str]) -> None:
    target = tmp_path / f"{CJK}.gguf"
    shutil.copy(bigram.target, target)
    same(answer(target, "The ", "--draft", bigram.draft, "--quiet", **locale), expected)
    for words in (["catalog"], ["check", target, bigram.draft, "--json"], ["run", f"{CJK}.gguf", CJK]):
        done = localspec(*words, **locale)
        assert done.returncode in (0, 2) and b"Traceback" not in done.stderr, (words, done.stderr)
        assert b"bug" not in done.stderr, done.stderr
    prompted = json.loads(answer(bigram.target, CJK, "--raw", "--json", **locale).stdout.decode("ascii"))
    assert prompted["prompt_tokens"] == len(CJK.encode())


# --- homes -----------------------------------------------------------------------------------------------

HOMES = (*(f"XDG_{kind}_HOME" for kind in ("STATE", "DATA", "CACHE", "CONFIG")), "HF_HOME", "HOME")


def test_homes_that_cannot_be_used(bigram: BigramPair, expected: bytes, tmp_path: Path) -> None:
    """Below a file, below a device, and where only reading is allowed (root may write anywhere, but not in /proc)."""
    (tmp_path / "file").touch()
    places = [f"{tmp_path}/file/home", "/dev/null/home"]
    places.append("/proc/nowhere" if os.geteuid() == 0 else str(read_only(tmp_path)))
    for place in places:
        homes = {"drop": HOMES, "HOME": place} if place.startswith("/dev") else dict.fromkeys(HOMES, place)
        same(answer(bigram.target, "The ", "--draft", bigram.draft, **homes), expected)
        assert localspec("list", **homes).returncode == 0  # type: ignore[arg-type]
        done = localspec("import", bigram.target, **homes)  # type: ignore[arg-type]
        assert done.returncode == 2 and b"bug" not in done.stderr, done.stderr
        line = done.stderr.decode().splitlines()[-1]
        assert line.startswith("error: ") and place in line


def read_only(folder: Path) -> Path:
    place = folder / "read-only"
    place.mkdir(mode=0o500)
    return place


# --- disks -----------------------------------------------------------------------------------------------


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)], capture_output=True
    )
    if not mounted or mounted.returncode:
        pytest.skip("only root can mount a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path) -> None:
    with pytest.raises(OSError), open(disk / "filler", "wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def test_a_full_disk(bigram: BigramPair, expected: bytes, tiny_disk: Path, tmp_path: Path) -> None:
    kept = tiny_disk / "DATA"
    homes = {f"XDG_{kind}_HOME": str(tiny_disk / kind) for kind in ("STATE", "DATA", "CACHE", "CONFIG")}
    assert localspec("import", bigram.target, **homes).returncode == 0
    before = {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()}
    fill(tiny_disk)
    same(answer(bigram.target, "The ", "--draft", bigram.draft, **homes), expected)
    full = localspec("import", bigram.draft, **homes)
    assert full.returncode == 5 and b"No space left on device" in full.stderr and b"bug" not in full.stderr
    made = localspec("quantize", bigram.target, "--to", "q8_0", "--out", tiny_disk / "q.gguf", **homes)
    assert made.returncode == 5 and b"are needed" in made.stderr
    out = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m localspec catalog --json > {tiny_disk}/out.json"],
        capture_output=True,
        env=os.environ | homes,
        cwd=Path(__file__).parents[1],
    )
    assert out.returncode == 5 and b"cannot write: No space left on device" in out.stderr
    assert {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()} == before


# --- clocks ----------------------------------------------------------------------------------------------

CLOCK = """
import time
_true, _start = time.time, time.time()
time.time = lambda: _start - 50 * (_true() - _start) - 1e9
"""


def test_a_clock_that_goes_backwards(bigram: BigramPair, expected: bytes, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(CLOCK)
    root = Path(__file__).parents[1]
    odd = {"PYTHONPATH": f"{tmp_path}:{root}"}
    done = answer(bigram.target, "The ", "--draft", bigram.draft, "--json", **odd)
    stats = json.loads(done.stdout)["stats"]
    assert json.loads(done.stdout)["text"] + "\n" == expected.decode()
    assert all(value >= 0 for name, value in stats.items() if name.endswith("_seconds"))
    assert localspec("import", bigram.target, **odd).returncode == 0
    assert json.loads(localspec("list", "--json", **odd).stdout)["pairs"][0]["state"] == "complete"


# --- two at once -----------------------------------------------------------------------------------------


def test_two_processes_on_one_store(bigram: BigramPair, expected: bytes, tmp_path: Path) -> None:
    """Both import, answer and list in the same folders at the same time."""
    names = []
    for number in range(4):
        path = tmp_path / f"model{number}.gguf"
        shutil.copy(bigram.target, path)
        names.append(path)
    root = Path(__file__).parents[1]
    base = [sys.executable, "-m", "localspec"]
    run = [
        "run",
        str(bigram.target),
        "The ",
        "--draft",
        str(bigram.draft),
        "--seed",
        "3",
        "--threads",
        "1",
        "--ctx",
        "512",
    ]
    commands: list[list[str]] = [[*base, "import", str(name)] for name in names] + [[*base, *run, "-n", "20"]] * 2
    pipe = subprocess.PIPE
    started = [subprocess.Popen(c, cwd=root, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe) for c in commands]
    ended = [(process.communicate(timeout=60), process.returncode) for process in started]
    assert [code for _, code in ended] == [0] * 6, ended
    assert [out for (out, _), _ in ended[4:]] == [expected] * 2
    listed = json.loads(localspec("list", "--json").stdout)["pairs"]
    assert len({pair["name"] for pair in listed}) == 4
    assert {pair["target"]["files"][0] for pair in listed} == set(map(str, names))
