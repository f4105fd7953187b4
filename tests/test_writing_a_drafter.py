"""docs/writing-a-drafter.md is followed to the letter: one file, one line, and the new drafter runs everywhere."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pexpect
import pytest

from tests.bigram import BigramPair

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "writing-a-drafter.md").read_text("utf-8")
FILE, LINE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
LIST = "".join(f"the price is {n}\n" for n in range(6)) + "the pr"
"""Lines that begin alike: what the example looks for."""

PROMPTS = f'[[prompt]]\nid = "a"\nkind = "code"\ntext = """{LIST}"""\nmax_tokens = 24\n'


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the page's file and line."""
    home = tmp_path_factory.mktemp("extended")
    shutil.copytree(ROOT / "localspec", home / "localspec", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "models.toml", home)
    drafters = home / "localspec" / "engine" / "drafters"
    (drafters / "lines.py").write_text(FILE)
    table = (drafters / "table.py").read_text()
    begin = table.index("DRAFTERS: dict")
    end = table.index("\n}\n", begin) + 1
    (drafters / "table.py").write_text(table[:end] + LINE + table[end:])
    return home


def variables(extended: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(extended), "TERM": "xterm-256color"}


def localspec(extended: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "localspec", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, env=variables(extended), timeout=120, stdin=subprocess.DEVNULL
    )


def test_it_is_short() -> None:
    assert len(FILE.splitlines()) <= 60 and len(LINE.splitlines()) == 1


def test_it_is_listed_in_the_help(extended: Path) -> None:
    shown = localspec(extended, "run", "--help")
    assert shown.returncode == 0, shown.stderr
    assert "lines" in shown.stdout and "Lines: how a line that began" in " ".join(shown.stdout.split())


def test_run_answers_the_same_with_it(extended: Path, bigram: BigramPair) -> None:
    options = ["--raw", "--temp", "0", "--json"]
    habit = localspec(extended, "run", bigram.target, *options, "-n", "12", "--no-draft", "t")
    line = f"t{json.loads(habit.stdout)['text']}"  # what this model says after such a beginning
    options += ["-n", "20", f"{line}\n{line}\n{line[:2]}"]
    guessed = localspec(extended, "run", bigram.target, *options, "--drafter", "lines", "-k", "4")
    assert guessed.returncode == 0, guessed.stderr
    plain = localspec(extended, "run", bigram.target, *options, "--no-draft")
    answer, reference = json.loads(guessed.stdout), json.loads(plain.stdout)
    assert answer["text"] == reference["text"]
    assert answer["stats"]["rounds_by_drafter"].get("lines", 0) > 0
    assert answer["stats"]["accepted"] > 0


def test_auto_has_it_among_the_others(extended: Path, bigram: BigramPair) -> None:
    code = (
        "from tests.engine_tools import open_engine, ask; from pathlib import Path; import sys\n"
        f"engine = open_engine(Path({str(bigram.target)!r}), Path({str(bigram.draft)!r}), context=512)\n"
        f"answer = ask(engine, {LIST!r}, max_tokens=120)\n"
        "print(engine.info.drafters, len(answer.ids))"
    )
    shown = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=120,
        env=variables(extended) | {"PYTHONPATH": f"{extended}{os.pathsep}{ROOT}"},
    )  # fmt: skip
    assert shown.stdout.strip() == "('model', 'lookup', 'lines') 120", shown.stderr


def test_bench_measures_it(extended: Path, bigram: BigramPair, tmp_path: Path) -> None:
    (tmp_path / "prompts.toml").write_text(PROMPTS)
    done = localspec(
        extended, "bench", bigram.target, "--draft", bigram.draft, "--drafters", "lines", "--prompts",
        tmp_path / "prompts.toml", "--starts", "1", "--budget", "20s", "--json",
        tmp_path / "bench.json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    measured = json.loads((tmp_path / "bench.json").read_text())
    assert any(arm["drafter"] == "lines" for arm in measured["plan"]["arms"])


def wait_until_loaded(address: str) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(f"{address}/health", timeout=10).close()
            return
        except urllib.error.HTTPError:
            assert time.monotonic() < until
            time.sleep(0.1)


def test_the_server_takes_it(extended: Path, bigram: BigramPair) -> None:
    command = [sys.executable, "-P", "-m", "localspec", "serve", str(bigram.target), "--port", "0", "--ctx", "512"]
    server = subprocess.Popen(
        command, env=variables(extended), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert server.stdout is not None
        address = next(
            found.group(0) for line in server.stdout if (found := re.search(r"http://127\.0\.0\.1:\d+", line))
        )
        wait_until_loaded(address)
        body = {
            "prompt": LIST, "max_tokens": 40, "temperature": 0,
            "speculative": {"drafter": "lines", "k": 3, "rounds": True},
        }  # fmt: skip
        request = urllib.request.Request(
            f"{address}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            answer = json.load(response)
        assert "lines" in json.dumps(answer)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(30)


def test_the_terminal_ui_takes_it(extended: Path, bigram: BigramPair) -> None:
    program = pexpect.spawn(
        sys.executable, ["-P", "-m", "localspec", "chat", str(bigram.target), "--drafter", "lines"],
        env=variables(extended), dimensions=(30, 110), timeout=60,
    )  # fmt: skip
    try:
        program.expect("lines, K auto")
    finally:
        program.close(force=True)
