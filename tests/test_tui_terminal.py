"""The terminal UI in a real terminal: keys in, bytes out, signals, and what is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pexpect
import psutil
import pytest

from localspec.ui.session_file import read_session
from tests.chat_tools import FakeChat
from tests.fake_engine import Script

PROGRAM = Path(__file__).parent / "tui_program.py"
LOCALSPEC = [sys.executable, "-m", "localspec"]
STREAM: dict[str, Any] = {"text": "word " * 20_000, "tokens_per_second": 100, "child": True}
"""Four minutes of text."""


def start(*command: object, size: tuple[int, int] = (24, 80), **env: str) -> pexpect.spawn:
    first, *rest = map(str, command)
    return pexpect.spawn(first, rest, env=os.environ | {"TERM": "xterm-256color"} | env, dimensions=size, timeout=60)


def fake(folder: Path, script: dict[str, Any], **env: str) -> pexpect.spawn:
    program = start(sys.executable, PROGRAM, folder, repr(script), **env)
    program.expect("makes a new line")
    return program


def end(program: pexpect.spawn) -> bytes:
    """Everything it wrote till its end."""
    program.expect(pexpect.EOF)
    program.close()
    return bytes(program.before)


def gone(pid: int) -> bool:
    """Dead, or dead and waiting for somebody to ask how."""
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def wait_for(condition: Any, program: pexpect.spawn | None = None, seconds: float = 60.0) -> None:
    """What `program` shows is read meanwhile: one whose terminal nobody reads stands still after some kilobytes."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        if program is None:
            time.sleep(0.01)
        else:
            program.expect(pexpect.TIMEOUT, timeout=0.01)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGKILL, None)]
)
def test_signals_leave_nothing_behind(tmp_path: Path, number: signal.Signals, code: int | None) -> None:
    """SRV-04 from the UI's side: the engine's process ends with it, and the session is whole."""
    program = fake(tmp_path, STREAM)
    program.send("hello\r")
    program.expect(rb"acceptance \d")
    wait_for(lambda: any(b'"rounds"' in path.read_bytes() for path in (tmp_path / "chats").glob("*")), program)
    (path,) = (tmp_path / "chats").glob("*.jsonl")
    program.kill(number)
    output = end(program)
    assert program.exitstatus == code and (code is not None or program.signalstatus == signal.SIGKILL)
    if number in (signal.SIGTERM, signal.SIGINT):
        assert b"\x1b[?1049l" in output and b"\x1b[?25h" in output
    wait_for(lambda: gone(int((tmp_path / "child").read_text())))
    turns = read_session(path).conversation.turns
    assert turns[0].text == "hello" and turns[1].said.startswith("word")


def test_a_closed_terminal_leaves_nothing_behind(tmp_path: Path) -> None:
    program = fake(tmp_path, STREAM)
    program.send("hello\r")
    program.expect(rb"acceptance \d")
    os.close(program.child_fd)
    wait_for(lambda: gone(program.pid))
    wait_for(lambda: gone(int((tmp_path / "child").read_text())))


@pytest.mark.parametrize("script", [{"load_seconds": 600.0}, STREAM], ids=["loading", "answering"])
def test_quit_restores_the_terminal(tmp_path: Path, script: dict[str, Any]) -> None:
    """TUI-06."""
    program = fake(tmp_path, script)
    program.send("hello\r")
    program.expect("hello")
    began = time.monotonic()
    program.send("\x11")
    output = end(program)
    assert program.exitstatus == 0 and time.monotonic() - began < 60, "it waited for the load or the answer"
    for sequence in (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1000l"):
        assert sequence in output


def test_no_control_sequence_of_a_model_reaches_the_terminal(tmp_path: Path) -> None:
    """TUI-08: the bytes on the wire."""
    hostile = "\x1b]52;c;aGVsbG8=\x07 \x1b]8;;http://evil\x1b\\x \x1b[6n \x1bc \x9b31m \x9d0;t\x9c \x1b"
    program = fake(tmp_path, {"text": hostile + "\n\n```\n" + hostile + "\n```\n\nthe end of it", "reason": hostile})
    program.send("hello\r")
    program.expect("end of it")
    output = bytes(program.before)
    program.send("\x14")  # ^T: by origin
    program.expect("wrong")  # a ghost
    program.send("\x11")
    output += bytes(program.before) + end(program)
    for sequence in (b"\x1b]52", b"\x1b]8;", b"\x1b[6n", b"\x1bc", "\x9b".encode(), "\x9d".encode()):
        assert sequence not in output
    assert b"x1b" in output


def test_native_lines_do_not_reach_the_screen(tmp_path: Path) -> None:
    """TUI-07: the real engine's process has its own file descriptors; whatever libraries write goes to its log."""
    from localspec.engine.process.client import EngineClient

    client = EngineClient(tmp_path)
    try:
        wait_for(lambda: gone(client.pid) or len(psutil.Process(client.pid).open_files()) > 0)
        targets = {os.readlink(f"/proc/{client.pid}/fd/{number}") for number in (2,)}
        assert targets == {str(client.log_path)}
    finally:
        client.close(1.0)


def test_the_bare_command_opens_the_ui_on_a_terminal_only() -> None:
    program = start(*LOCALSPEC)
    program.expect("Welcome to localspec")
    program.expect("no problems found|problem: |warning: |note: ")  # what the doctor says of this machine
    program.send("\x11")
    end(program)
    assert program.exitstatus == 0
    piped = subprocess.run(LOCALSPEC, stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    assert piped.returncode == 2 and not piped.stdout and b"Usage:" in piped.stderr
    chat = subprocess.run([*LOCALSPEC, "chat", "x"], stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    assert chat.returncode == 2 and b"needs a terminal" in chat.stderr


def test_a_name_that_means_nothing_does_not_open_the_ui(tmp_path: Path) -> None:
    program = start(*LOCALSPEC, "chat", tmp_path / "no\x1b[2Jsuch.gguf")
    output = end(program)
    assert program.exitstatus == 2 and b"error: " in output and b"\x1b[2J" not in output and b"?1049h" not in output


def test_replay_needs_no_model_and_no_terminal(tmp_path: Path) -> None:
    chat = FakeChat(tmp_path, Script(pieces=["The", " cat", " sat \x1b[2J", " on"], pattern=((0, 0), (3, 1)))).open()
    chat.ask("question")
    chat.chat.close()
    shown = subprocess.run([*LOCALSPEC, "replay", str(chat.chat.path)], capture_output=True, timeout=30, text=True)
    assert shown.returncode == 0 and "The[ cat]‹wrongwrong›~ sat \\x1b[2J on" in shown.stdout
    program = start(*LOCALSPEC, "replay", chat.chat.path)
    program.expect("sat ")
    program.send("\x11")
    end(program)
    assert program.exitstatus == 0
    missing = subprocess.run([*LOCALSPEC, "replay", "nothing"], capture_output=True, timeout=30)
    assert missing.returncode == 2 and b"no session" in missing.stderr


def test_the_first_paint_needs_little() -> None:
    code = "import sys, localspec.tui.app; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    heavy = {"llama_cpp", "numpy", "huggingface_hub", "gguf", "jinja2", "pygments", "markdown_it", "rich.syntax"}
    assert loaded.isdisjoint(heavy)


@pytest.mark.long
def test_the_first_paint_comes_soon(tmp_path: Path) -> None:
    times = []
    for _ in range(3):
        began = time.monotonic()
        program = fake(tmp_path, {})
        times.append(time.monotonic() - began)
        program.send("\x11")
        end(program)
    assert min(times) < 0.7
