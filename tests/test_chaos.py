"""Kills at random moments: nothing that was written is lost, nothing goes on running, no half file gets a final name.

A few run always; `pytest -m long tests/test_chaos.py -s` makes 200 kills and reports what they met.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from localspec.pairs.gguf.header import read_header
from localspec.pairs.store.store import Store
from localspec.ui.session_file import read_session
from tests.bigram import english_table, write
from tests.fakehub import FakeHub
from tests.hub_fixtures import DRAFT, DRAFT_FILE, TARGET, TARGET_FILE, stocked_hub
from tests.test_quantize import large

__all__ = ["large", "stocked_hub"]

PATIENCE = 30.0
"""Seconds in which everything must be gone: a few, unless the machine is busy with other tests."""

SAVES_A_CHAT = """
import sys
from pathlib import Path
from localspec.ui.session_file import SessionMeta, SessionWriter
writer = SessionWriter(Path(sys.argv[1]), SessionMeta("2026-01-01", "pair"))
number = int(sys.argv[2])
while not writer.fault:
    writer.message(f"message {number}")
    print(number, flush=True)
    number += 1
print(writer.fault, file=sys.stderr)
"""
SAVES_LOCKS = """
import sys
from pathlib import Path
from localspec.pairs.store.store import Store
from tests.test_store import a_lock
while True:
    for number in range(3):
        Store(Path(sys.argv[1])).save(a_lock(f"model{number}-7b", "1b", verdict="identical"))
"""


class Chaos:
    """One machine on which things are killed."""

    def __init__(self, home: Path, hub: FakeHub, slow: Path, large: Path, seed: int) -> None:
        self.home, self.hub, self.slow, self.large = home, hub, slow, large
        self.noise = random.Random(seed)
        self.met: Counter[str] = Counter()
        self._messages = 0
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "XDG_", "LOCALSPEC_"))}
        self.env = kept | hub.env(home)

    def kill_something(self) -> None:
        """One kill of something that was started for it, and all that must hold afterwards."""
        scene: Callable[[], str] = self.noise.choice(
            (self.answer, self.answer, self.download, self.download, self.quantizing, self.chat, self.locks)
        )
        self.met[f"{scene.__name__}: {scene()}"] += 1
        self.nothing_runs()

    # --- scenes: each returns a word for what was met ----------------------------------------------------

    def answer(self) -> str:
        process = self.start("run", str(self.slow), "word " * 300, "--raw", "--threads", "1", "-n", "60", "--json")
        time.sleep(self.noise.uniform(0.25, 2.5))
        engine = self.children(process)
        if engine and self.noise.random() < 0.5:
            engine[0].send_signal(self.noise.choice((signal.SIGKILL, signal.SIGABRT, signal.SIGTERM)))
            out, err = process.communicate(timeout=60)
            assert process.returncode in (0, 6), err
            assert json.loads(out)["schema"] == 1
            return "engine killed" if process.returncode else "done before"
        how = self.strike(process)
        out, err = process.communicate(timeout=60)
        assert "Traceback" not in err and process.returncode in (0, -how, 128 + how), (process.returncode, err)
        assert not out or json.loads(out)["schema"] == 1
        return f"parent {how.name}" if process.returncode else "done before"

    def download(self) -> str:
        self.hub.rate = self.noise.choice((2e6, 6e6, 2e7))
        process = self.start("pull", "qwen2.5-coder-1.5b", "--draft", "0.5b-q4")
        time.sleep(self.noise.uniform(0.25, 2.5))
        how = self.strike(process)
        _, err = process.communicate(timeout=60)
        assert "Traceback" not in err and process.returncode in (0, -how, 128 + how), (process.returncode, err)
        hub = self.home / "hf" / "hub"
        for path in hub.glob("models--*/snapshots/*/*.gguf"):
            assert path.read_bytes() == {TARGET_FILE: TARGET, DRAFT_FILE: DRAFT}[path.name]
        assert not Store(self.home / "data" / "localspec" / "pairs").faulty()
        if process.returncode == 0:
            assert len(list(hub.glob("models--*/snapshots/*/*.gguf"))) == 2
            assert not list(hub.glob("models--*/blobs/*.part"))
            shutil.rmtree(hub)
            return "whole"
        return how.name

    def quantizing(self) -> str:
        folder = self.home / "quantized"
        folder.mkdir(exist_ok=True)
        out = folder / "q.gguf"
        process = self.start("quantize", str(self.large), "--to", "q4_0", "--out", str(out), "--threads", "1")
        time.sleep(self.noise.uniform(0.3, 2.5))
        victims = self.children(process)
        who = self.noise.choice(("parent", "quantizer", "both"))
        if who != "parent":
            for child in victims:
                child.kill()
        if who != "quantizer" or not victims:
            self.strike(process)
        process.communicate(timeout=60)
        if process.returncode == 0 or out.exists():
            read_header(out)
            out.unlink()
            return "whole"
        # When both were killed nobody could clean up: the next quantization does.
        self.until(lambda: who == "both" or not list(folder.iterdir()))
        return f"{who} killed"

    def chat(self) -> str:
        path = self.home / "chat.jsonl"
        process = self.program(SAVES_A_CHAT, str(path), str(self._messages))
        time.sleep(self.noise.uniform(0.1, 0.6))
        process.kill()
        out, err = process.communicate()
        assert not err
        acknowledged = [int(line) for line in out.splitlines()]
        self._messages = (acknowledged or [self._messages - 1])[-1] + 1
        saved = [turn.said for turn in read_session(path).conversation.turns] if path.exists() else []
        for number in range(self._messages):
            assert saved[number] == f"message {number}"
        self._messages = len(saved)  # one more may have been written, and not yet acknowledged
        return "killed"

    def locks(self) -> str:
        folder = self.home / "locks"
        processes = [self.program(SAVES_LOCKS, str(folder)) for _ in range(2)]
        time.sleep(self.noise.uniform(0.3, 1.0))
        for process in processes:
            process.kill()
            assert process.communicate()[1] == ""
        store = Store(folder)
        assert not store.faulty() and len(store.locks()) <= 3
        assert all(lock.verdict == "identical" for lock in store.locks())
        return "killed"

    # --- parts ---------------------------------------------------------------------------------------------

    def start(self, *words: str) -> subprocess.Popen[str]:
        return self._popen([sys.executable, "-m", "localspec", *words])

    def program(self, text: str, *arguments: str) -> subprocess.Popen[str]:
        return self._popen([sys.executable, "-c", text, *arguments])

    def _popen(self, command: list[str]) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
            cwd=Path(__file__).parents[1],
        )

    def strike(self, process: subprocess.Popen[str]) -> signal.Signals:
        how = self.noise.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
        process.send_signal(how)
        return how

    def children(self, process: subprocess.Popen[str]) -> list[psutil.Process]:
        try:
            return psutil.Process(process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def nothing_runs(self) -> None:
        self.until(lambda: not self.running())

    def running(self) -> list[str]:
        """Processes that were started here, by the folder in their environment or on their command line."""
        found = []
        for process in psutil.process_iter(["cmdline", "status"]):
            words = " ".join(process.info["cmdline"] or ())
            if process.info["status"] != psutil.STATUS_ZOMBIE and process.pid != os.getpid():
                marks = (str(self.home), str(self.slow), str(self.large))
                if any(mark in words for mark in marks) or self._is_engine(process):
                    found.append(words)
        return found

    def _is_engine(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get("HF_HOME") == self.env["HF_HOME"]
        except psutil.Error:
            return False

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, (self.running(), self.met)
            time.sleep(0.02)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("slow") / "slow.gguf"
    write(path, english_table(), rows=2000)
    return path


LONG = [pytest.mark.long, pytest.mark.timeout(3600)]


@pytest.mark.parametrize(
    ("kills", "seed"), [(6, 1), *(pytest.param(50, seed, marks=LONG, id=f"fifty-{seed}") for seed in range(2, 6))]
)
def test_kills_at_random_moments(kills: int, seed: int, hub: FakeHub, slow: Path, large: Path, tmp_path: Path) -> None:
    chaos = Chaos(tmp_path, hub, slow, large, seed)
    for _ in range(kills):
        chaos.kill_something()
    print(f"{kills} kills: {dict(sorted(chaos.met.items()))}")
    hub.rate = 0
    last = chaos.start("pull", "qwen2.5-coder-1.5b", "--draft", "0.5b-q4")
    assert last.communicate(timeout=60) and last.returncode == 0
    whole = {path.name: path.read_bytes() for path in (tmp_path / "hf" / "hub").glob("models--*/snapshots/*/*.gguf")}
    assert whole == {TARGET_FILE: TARGET, DRAFT_FILE: DRAFT}
