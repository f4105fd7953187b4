"""A bug report holds what helps, and nothing that a person wrote; the logs below it."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from localspec.cli import main as cli_main
from localspec.cli import settings_file
from localspec.cli.main import main
from localspec.doctor.bug_report import Scrubber, engine_lines, newest_logs, own_lines
from localspec.engine.llama import binding
from localspec.ground import logs
from localspec.ground.config_file import path as config_path
from tests.bigram import BigramPair

PROMPT = "tell me about my secret plans"
TOKEN = "hf_AbCdEfGhIjKlMnOp"


@pytest.fixture(autouse=True)
def own_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This test's log, not the one that an earlier test opened; a home with a name."""
    monkeypatch.setattr(settings_file, "_read", {})
    monkeypatch.setattr(cli_main, "_invoked", [])
    for handler in [one for one in logs.log.handlers if isinstance(one, logging.FileHandler)]:
        logs.log.removeHandler(handler)
        handler.close()
    monkeypatch.setenv("HOME", str(tmp_path / "home" / "carla"))
    (tmp_path / "home" / "carla").mkdir(parents=True)


def test_nothing_private_is_in_it(
    bigram: BigramPair, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = Path.home()
    model = home / "target.gguf"
    model.symlink_to(bigram.target)
    config_path().parent.mkdir(parents=True)
    config_path().write_text(f"pair = '{model}'\nsystem = 'you know {PROMPT}'\ntemp = 0.25\n")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("LOCALSPEC_API_KEY", "my-own-api-key")
    monkeypatch.setenv("HTTPS_PROXY", "http://carla:pass-of-the-proxy@proxy:3128")
    small = ["--ctx", "300", "--threads", "1", "-n", "9"]
    assert main(["run", str(model), PROMPT, "--raw", *small]) == 0
    answer = capfd.readouterr().out.strip()
    assert main(["run", PROMPT, "hello"]) == 2  # a forgotten pair: the prompt stands in the error
    assert main(["run", str(model), PROMPT, "--stop", PROMPT, *small, "--cache-type", "q8_9"]) == 2
    with open(next(logs.folder().glob("engine-*.log")), "a") as log:
        log.write(
            f"{PROMPT}\nlocalspec.errors.InvalidInput: cannot use {PROMPT!r}\n"
            f"llama_grammar_init_impl: error parsing grammar: expecting ::= at {PROMPT}\n"
            f"llama_model_load: error loading model: {home}/models/x.gguf Bearer {TOKEN}\n"
        )
    capfd.readouterr()
    settings_file._read.clear()
    assert main(["bug-report", "-"]) == 0
    text = capfd.readouterr().out
    for private in (PROMPT, "secret plans", answer, TOKEN, "my-own-api-key", "pass-of-the-proxy", str(home), "carla"):
        assert private not in text, private
    assert "llama_model_load: error loading model: ~/models/x.gguf Bearer [removed]" in text
    assert re.search(r"^localspec \d", text, re.M) and "llama-cpp-python 0.3" in text
    assert "temp = 0.25 (file)" in text and "pair = ~/target.gguf (file)" in text and "system = (" in text
    assert "HF_TOKEN = (set)" in text and re.search(r"run ended with 0 after [\d.]+ s$", text, re.M)
    assert "run ended with 2 after" in text and "ok       memory" in text and "llama_context: n_ctx" in text
    assert main(["bug-report"]) == 0
    written = Path(capfd.readouterr().out.strip())
    assert written.suffix == ".md" and written.read_text().startswith("# Bug report of localspec")


def test_lines_are_kept_for_what_they_are() -> None:
    log = f'ggml_init: ok\n{PROMPT}\n  File "/x/localspec/engine/engine.py", line 3, in load\nKeyError: {PROMPT!r}\n'
    log += f"refused: ContextFull at generate.py:112\nrefused: {PROMPT}\n"
    kept = ["ggml_init: ok", "  localspec/engine/engine.py:3 load", "KeyError"]
    kept += ["refused: ContextFull at generate.py:112", "(2 lines left out)"]
    assert engine_lines(log) == kept
    own = f"2026-11-30 10:00:00,123 77 INFO localspec 0.1.0: run begins\n{PROMPT}\n"
    assert own_lines(own) == [own.splitlines()[0], "(1 lines left out)"]


def test_secrets_and_homes_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SECRET", "abc-def-ghi")
    text = Scrubber()("abc-def-ghi sk-0123456789 http://me:word@host /home/otto/x C:\\Users\\Otto\\y ghp_0123456789ab")
    assert text == "[removed] [removed] http://[removed]@host ~/x ~\\y [removed]"


def test_a_bug_leaves_its_places_and_not_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(text: str) -> None:
        raise ValueError(f"about {text}")

    monkeypatch.setattr("localspec.doctor.gather.gather", lambda *_: fails(PROMPT))
    assert main(["doctor"]) == 1
    (path,) = logs.own_logs()
    text = path.read_text()
    assert "doctor ended with 1" in text and "builtins.ValueError" in text
    assert "tests/test_bug_report.py" in text and PROMPT not in text


def test_each_process_has_its_log_and_old_ones_go(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = logs.folder()
    folder.mkdir(parents=True)
    for age in range(logs.KEPT + 3):
        old = folder / f"localspec-20200101-000000-{age}.log"
        old.write_text(f"2020-01-01 00:00:00,000 {age} INFO localspec 0.1.0: run begins\n")
        os.utime(old, (1e9 - age, 1e9 - age))
    command = [sys.executable, "-m", "localspec", "list"]
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(3)]
    assert [one.wait(60) for one in running] == [0, 0, 0]
    ours = {path.name.rpartition("-")[2]: path.read_text() for path in logs.own_logs()[-3:]}
    for one in running:
        text = ours[f"{one.pid}.log"]
        assert len(text.splitlines()) == 1 and f" {one.pid} INFO " in text and "list ended with 0" in text
    left = {path.stem.rpartition("-")[2] for path in folder.glob("localspec-2020*.log")}
    assert left <= {str(age) for age in range(logs.KEPT)} and len(left) >= logs.KEPT - 2
    own, _ = newest_logs()
    assert len(own_lines(own)) == 40 and "list ended with 0" in own.splitlines()[-1]


def test_an_engine_log_does_not_grow_forever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "LOG_BYTES_KEPT", 2000)
    monkeypatch.setattr(binding, "_mirror_fd", os.open(tmp_path / "log", os.O_CREAT | os.O_RDWR | os.O_APPEND))
    binding.log_lines.clear()
    for number in range(60):
        binding._on_log(2, f"llama: line {number:03d} {'x' * 50}\n".encode(), None)
        if number == 29:
            for _ in range(binding.LOG_LINES_KEPT - 10):
                binding.log_lines.append("short")  # the memory is bounded, and so is the new beginning
    os.close(binding._mirror_fd or 0)
    text = (tmp_path / "log").read_text()
    assert text.endswith(f"llama: line 059 {'x' * 50}\n") and "llama: line 058" in text
    assert len(text) < 2000 + 60 * (binding.LOG_LINES_KEPT + 1)


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    assert main(["completion", "bash"]) == 0 and main(["list"]) == 0
    assert "Traceback" not in capsys.readouterr().err
