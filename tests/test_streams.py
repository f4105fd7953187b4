"""Standard streams that are closed, full, or left by their reader."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bigram import BigramPair

LOCALSPEC = f"{sys.executable} -m localspec"


def shell(command: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of sh; its exit code is that of the last `localspec` in it."""
    return subprocess.run(
        ["bash", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, env=os.environ | env
    )


@pytest.fixture
def answer(bigram: BigramPair) -> str:
    return f"{LOCALSPEC} run {bigram.target} 'The ' --seed 3 --threads 1 --ctx 512 -n 30"


FAST = ["catalog", "list --json", "list", "--help", "run --help", "--version"]


@pytest.mark.parametrize("command", FAST)
def test_a_closed_stdout_is_as_good_as_none(command: str) -> None:
    done = shell(f"{LOCALSPEC} {command} >&-")
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"bug" not in done.stderr and b"Traceback" not in done.stderr


def test_closed_streams_do_not_mix_up_an_answer(answer: str, tmp_path: Path) -> None:
    whole = shell(f"{answer} --json").stdout
    assert shell(f"{answer} --json 2>&-").stdout.count(b"\n") == 1
    assert json.loads(shell(f"{answer} --json 2>&- <&-").stdout)["text"] == json.loads(whole)["text"]
    assert shell(f"{answer} >&- 2>&-").returncode == 0
    closed = shell(f"{LOCALSPEC} run {tmp_path}/none.gguf <&-")
    assert closed.returncode == 2 and b"bug" not in closed.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("command", [command for command in FAST if command != "list"])
def test_a_full_disk_behind_stdout_is_one_line(command: str) -> None:
    done = shell(f"{LOCALSPEC} {command} >/dev/full")
    assert done.returncode == 5
    assert done.stderr.decode().splitlines()[-1] == "error: cannot write: No space left on device. Make room"
    assert done.stderr.count(b"error") == 1 and b"Exception ignored" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_behind_an_answer(answer: str) -> None:
    for extra in ("", "--json", "--show-draft"):
        done = shell(f"{answer} {extra} --quiet >/dev/full")
        assert done.returncode == 5, done.stderr
        assert done.stderr.decode() == "error: cannot write: No space left on device. Make room\n"
    assert shell(f"{answer} 2>/dev/full").returncode == 0


@pytest.mark.parametrize("command", [*FAST, "no-such-command"])
def test_a_reader_that_goes_away_is_told_nothing(command: str) -> None:
    done = shell(f"set -o pipefail; {LOCALSPEC} {command} 2>&1 | true; exit ${{PIPESTATUS[0]}}")
    assert done.returncode in (0, 2) and (done.stdout, done.stderr) == (b"", b"")


def test_a_reader_of_one_line(answer: str) -> None:
    done = shell(f"{LOCALSPEC} catalog | head -1; exit ${{PIPESTATUS[0]}}")
    assert done.returncode == 0 and done.stdout.count(b"\n") == 1
    assert b"error" not in done.stderr
    done = shell(f"{answer} -n 400 --quiet | head -c 5; exit ${{PIPESTATUS[0]}}")
    assert done.returncode == 0 and len(done.stdout) == 5 and done.stderr == b""
