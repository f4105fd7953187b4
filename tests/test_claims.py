"""The same target open twice is noticed, and only while it is open."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pexpect
import pytest

from localspec.ground.errors import DoesNotFit
from localspec.ground.file_locks import try_lock
from localspec.ground.locations import state_folder
from localspec.session import LoadOptions, open_models
from localspec.session.open import prepare
from tests.bigram import BigramPair

LOCALSPEC = [sys.executable, "-m", "localspec"]


def marks() -> list[Path]:
    return list((state_folder() / "open").glob("*"))


def test_a_second_process_says_who_has_it_open_until_the_first_is_gone(bigram: BigramPair) -> None:
    """CON-05: serve, run and chat on one pair; the first one is then killed."""
    pair = [str(bigram.target), "--ctx", "512", "--threads", "1", "--draft", str(bigram.draft)]
    run = [*LOCALSPEC, "run", pair[0], "The ", *pair[1:], "-n", "2"]
    first = subprocess.Popen([*LOCALSPEC, "serve", *pair, "--port", "0"], stderr=subprocess.PIPE)
    try:
        until = time.monotonic() + 60
        while not any(path.read_text() for path in marks()):
            assert first.poll() is None and time.monotonic() < until
            time.sleep(0.02)
        second = subprocess.run(run, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        assert second.returncode == 0
        (note,) = [line for line in second.stderr.splitlines() if "same target" in line]
        assert note.startswith(f"note: the same target is open in process {first.pid} (localspec serve), with up to ")
        assert "MiB" in note or "GiB" in note
        assert len(marks()) == 1, "that of the run is gone"
        chat = pexpect.spawn(LOCALSPEC[0], [*LOCALSPEC[1:], "chat", *pair], dimensions=(24, 100), timeout=60)
        chat.expect(str(first.pid))  # its line may be folded before it
        chat.send("\x11")
        chat.expect(pexpect.EOF)
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    alone = subprocess.run(run, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert alone.returncode == 0 and "same target" not in alone.stderr
    assert marks() == []


def test_what_does_not_fit_says_who_takes_the_memory(bigram: BigramPair, monkeypatch: pytest.MonkeyPatch) -> None:
    other = open_models.Claim(4711, "localspec chat", 5 << 30, 0.0)
    monkeypatch.setattr(open_models, "others", lambda target: [other])
    monkeypatch.setattr("localspec.session.memory_plan.available_memory", lambda: 1 << 20)
    with pytest.raises(DoesNotFit, match=r"needs .* free; .*process 4711 \(localspec chat\), with up to 5.0 GiB"):
        prepare(str(bigram.target), LoadOptions(draft="none"))


@pytest.mark.parametrize("text", ["{", "[]", '{"pid": "x"}', json.dumps({"pid": 1, "program": 2})])
def test_marks_that_nobody_holds_or_can_read_do_no_harm(tmp_path: Path, text: str) -> None:
    target = tmp_path / "big.gguf"
    mine = open_models.HeldClaim(target, 100)
    (path,) = marks()
    assert open_models.others(target) == [], "one's own does not count"
    stale = path.with_name(path.name.replace(str(os.getpid()), "1"))
    stale.write_text(text)
    assert open_models.others(target) == [] and marks() == [path]
    held = path.with_name(path.name.replace(str(os.getpid()), "2"))
    with open(held, "w") as file:
        assert try_lock(file)
        file.write(text)
        file.flush()
        assert open_models.others(target) == []
    mine.close()
    mine.close()
    assert marks() == [held]
    assert open_models.others(target) == [] == marks()


def test_a_home_that_cannot_be_written_to_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(open_models, "state_folder", lambda: tmp_path / "file")
    held = open_models.HeldClaim(tmp_path / "big.gguf", 1)
    assert open_models.others(tmp_path / "big.gguf") == []
    held.close()
