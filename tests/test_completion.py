"""Completion scripts in the shells that are here, and what they offer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from localspec.cli.completion import SHELLS, script
from localspec.cli.main import COMMANDS
from localspec.pairs.store.store import LockedFile, LockedModel, PairLock, Store
from tests.test_imports import HEAVY


def program(tmp_path: Path) -> dict[str, str]:
    """An environment in which `localspec` is a command, as after an installation."""
    command = tmp_path / "bin" / "localspec"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m localspec "$@"\n')
    command.chmod(0o755)
    package = Path(__file__).resolve().parents[1]
    return os.environ | {"PATH": f"{command.parent}:{os.environ['PATH']}", "PYTHONPATH": str(package)}


def save_pair(name: str) -> None:
    model = LockedModel(name, (LockedFile("/models/x.gguf", 1),))
    Store().save(PairLock(model, None))


def bash(tmp_path: Path, env: dict[str, str], *words: str) -> list[str]:
    """COMPREPLY after Tab behind these words."""
    shell = shutil.which("bash")
    if shell is None:
        pytest.skip("no bash here")
    (tmp_path / "localspec.bash").write_text(script("bash"))
    inside = (
        "shopt -s extglob; compopt() { :; }; source localspec.bash; "
        f"COMP_WORDS=(localspec {' '.join(map(repr, words))}); COMP_CWORD={len(words)}; "
        '_localspec_completion localspec; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run([shell, "--norc", "-c", inside], capture_output=True, text=True, env=env, cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout.split("\n")[:-1]


def test_bash_completes_commands_options_choices_and_pairs(tmp_path: Path) -> None:
    env = program(tmp_path)
    save_pair("my-pair")
    assert bash(tmp_path, env, "") == list(COMMANDS)
    assert bash(tmp_path, env, "be") == ["bench"]
    assert bash(tmp_path, env, "run", "my") == ["my-pair"]
    assert bash(tmp_path, env, "rm", "") == ["my-pair"]
    assert "--draft-length" in bash(tmp_path, env, "run", "my-pair", "--draft")
    assert bash(tmp_path, env, "run", "--drafter", "l") == ["lookup"]
    assert bash(tmp_path, env, "config", "s") == ["set", "show"]
    assert bash(tmp_path, env, "config", "set", "serve.p") == ["serve.port"]
    assert bash(tmp_path, env, "completion", "") == list(SHELLS)
    assert "qwen2.5-7b" in bash(tmp_path, env, "pull", "qwen2.5-")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_itself_accepts_the_script(shell: str, tmp_path: Path) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"no {shell} here")
    path = tmp_path / "script"
    path.write_text(script(shell))
    done = subprocess.run([found, "-n", path], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_fish_and_zsh_get_help_with_each_command(tmp_path: Path) -> None:
    env = program(tmp_path)
    for shell, line in (("fish", "plain,bench"), ("zsh", "plain\nbench\nPlain against speculative, by kind of text")):
        asked = {"_LOCALSPEC_COMPLETE": f"{shell}_complete", "COMP_WORDS": "localspec be", "COMP_CWORD": "1"}
        asked["COMP_CWORD"] = "be" if shell == "fish" else "1"
        done = subprocess.run(["localspec"], capture_output=True, text=True, env=env | asked)
        assert done.stdout.startswith(line), (shell, done)


def test_fish_completes(tmp_path: Path) -> None:
    shell = shutil.which("fish")
    if shell is None:
        pytest.skip("no fish here")
    (tmp_path / "localspec.fish").write_text(script("fish"))
    save_pair("my-pair")
    inside = f'source {tmp_path}/localspec.fish; complete -C "localspec run my"; complete -C "localspec be"'
    done = subprocess.run([shell, "--no-config", "-c", inside], capture_output=True, text=True, env=program(tmp_path))
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["my-pair", "bench"], done


def test_powershell_gets_the_completer_of_the_command(tmp_path: Path) -> None:
    text = script("powershell")
    assert "Register-ArgumentCompleter -Native -CommandName localspec" in text
    assert "'powershell_complete'" in text and text.count("{") == text.count("}")
    asked = {"_LOCALSPEC_COMPLETE": "powershell_complete", "COMP_WORDS": "localspec be", "COMP_CWORD": "1"}
    done = subprocess.run(["localspec"], capture_output=True, text=True, env=program(tmp_path) | asked)
    assert done.stdout.splitlines()[:2] == ["plain", "bench"]


@pytest.mark.parametrize("words", ["localspec ", "localspec run ", "localspec run --drafter ", "localspec pull q"])
def test_a_press_of_tab_loads_nothing_heavy(words: str) -> None:
    save_pair("my-pair")
    asked = {"_LOCALSPEC_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()))}
    code = (
        "import sys, atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
        "from localspec.cli.main import main; main([])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | asked)
    assert done.stdout and set(done.stderr.split()).isdisjoint({*HEAVY, "tomlkit", "logging.handlers"})


def test_a_damaged_lock_and_a_hostile_name_spoil_nothing(tmp_path: Path) -> None:
    env = program(tmp_path)
    save_pair("good")
    save_pair("a;b\n$(touch pwned)")
    (Store().folder / "broken.toml").write_text("= nonsense")
    assert bash(tmp_path, env, "rm", "") == ["good"]
    assert not (tmp_path / "pwned").exists()
