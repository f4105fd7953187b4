"""Ctrl-C and SIGTERM at any moment: the right exit code, no traceback, no child left, and JSON with what is known."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.bigram import BigramPair, english_table, write

# Sends itself signals while the module named first is being imported, or at the very end.
STRUCK = """
import atexit, os, signal, sys
moment, times = sys.argv[1], int(sys.argv[2])
del sys.argv[1:3]

def strike():
    for _ in range(times):
        os.kill(os.getpid(), signal.SIGINT)

class Hook:
    def find_spec(self, name, path=None, target=None):
        if name == moment:
            strike()

if moment == "exit":
    atexit.register(strike)
sys.meta_path.insert(0, Hook())
from localspec.cli.start import main
raise SystemExit(main())
"""


def struck(moment: str, times: int, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", STRUCK, moment, str(times), *arguments]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    "moment",
    [
        "click", "localspec.cli.main", "localspec.cli.run", "localspec.session", "localspec.engine.process.client",
        "exit",
    ],
)
def test_an_interrupt_at_any_import_ends_quietly(moment: str, times: int, bigram: BigramPair) -> None:
    arguments = ["run", str(bigram.target), "hi", "-n", "1"] if moment != "exit" else ["--version"]
    ended = struck(moment, times, *arguments)
    assert ended.returncode == 130, ended.stderr
    assert ended.stderr.strip() in (b"", b"interrupted") and b"Traceback" not in ended.stdout


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that is slow enough to be interrupted anywhere: its vocabulary is padded to 3000 rows."""
    path = tmp_path_factory.mktemp("slow") / "slow.gguf"
    write(path, english_table(), rows=3000)
    return path


def start(model: Path, *arguments: str, draft: bool = False) -> tuple[subprocess.Popen[bytes], psutil.Process]:
    """A long answer to a long prompt, and the engine's process as soon as there is one."""
    command = [
        sys.executable,
        "-m",
        "localspec",
        "run",
        str(model),
        "word " * 500,
        "--raw",
        "--ctx",
        "4000",
        "--threads",
        "1",
    ]
    process = subprocess.Popen(
        [*command, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for child in psutil.Process(process.pid).children():
            return process, child
        time.sleep(0.01)
    raise AssertionError("no engine came")


def wait_until_loaded(engine: psutil.Process, model: Path) -> None:
    """Its own program by then, no longer a fork that its parent waits for, and busy with the model."""
    deadline = time.monotonic() + 60
    while not any(mapped.path == str(model) for mapped in engine.memory_maps()):
        assert time.monotonic() < deadline, "the engine never mapped the model"
        time.sleep(0.01)


def assert_gone(engine: psutil.Process) -> None:
    """It may need a moment when it had only just been started."""
    psutil.wait_procs([engine], timeout=60)
    assert not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("delay", [0.0, 0.4, 1.2])
def test_json_says_what_is_known_whenever_it_is_stopped(
    slow: Path, how: signal.Signals, code: int, delay: float
) -> None:
    process, engine = start(slow, "--json")
    time.sleep(delay)
    process.send_signal(how)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    answer = json.loads(out)
    assert answer["schema"] == 1 and answer["finish_reason"] == "cancelled"
    assert isinstance(answer["text"], str) and len(answer["tokens"]) >= (len(answer["text"]) > 0)
    assert b"Traceback" not in err
    assert_gone(engine)


def test_a_second_interrupt_does_not_wait_for_an_engine_that_hangs(slow: Path) -> None:
    process, engine = start(slow, "--json")
    wait_until_loaded(engine, slow)
    engine.suspend()
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None, "it waits for the engine for a while"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and b"Traceback" not in err
    assert json.loads(out)["text"] == ""
    assert_gone(engine)


def test_colours_are_closed_when_an_answer_is_cut(slow: Path) -> None:
    process, _ = start(slow, "--show-draft", "--drafter", "lookup", "-k", "4", "--temp", "0")
    assert process.stdout is not None
    first = os.read(process.stdout.fileno(), 30)
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    shown = (first + out).decode()
    assert process.returncode == 143
    assert shown.count("[") == shown.count("]") and shown.endswith("\n")


def test_an_ignored_interrupt_stays_ignored() -> None:
    """Below nohup, or behind `&` in a script, Ctrl-C is for somebody else."""
    program = (
        "import signal, sys, os\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nos.execv(sys.executable, sys.argv[1:])"
    )
    strikes = [sys.executable, "-c", STRUCK, "click", "1", "--version"]
    done = subprocess.run([sys.executable, "-c", program, *strikes], capture_output=True, timeout=60, env=os.environ)
    assert done.returncode == 0 and done.stdout.startswith(b"localspec"), done.stderr
