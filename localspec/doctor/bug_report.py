"""What a bug report should hold: versions, doctor's findings, settings, pairs, the last log lines.

It goes to strangers. So nothing that a person or a model wrote gets in: log lines are kept by what they are known to
be, not dropped by what they look like, and secrets, user name and home folder are taken out of what remains.
"""

from __future__ import annotations

import getpass
import importlib.metadata
import os
import platform
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from localspec import __version__
from localspec.ground import logs

_PACKAGES = (
    *("llama-cpp-python", "huggingface-hub", "textual", "gguf", "numpy", "click", "psutil"),
    *("starlette", "uvicorn", "prometheus-client"),
)
_SHOWN_VARIABLES = re.compile(
    r"HF_HUB_(OFFLINE|DISABLE_\w+)|(CUDA|HIP)_VISIBLE_DEVICES|GGML_\w+|NO_COLOR|FORCE_COLOR|TERM|LANG|LC_ALL"
)
_NAMED_VARIABLES = re.compile(r"(LOCALSPEC|HF|HUGGING|LLAMA|XDG)_\w+|https?_proxy", re.IGNORECASE)
_SECRET_NAME = re.compile(r"TOKEN|KEY|SECRET|PASSWORD", re.IGNORECASE)
_SECRETS = re.compile(r"\b(hf_\w{6,}|sk-[\w-]{6,}|gh[pousr]_\w{10,})|(?<=Bearer )\S+|(?<=//)[^/@\s]+(?=@)")
_HOMES = re.compile(r"(/home/|/Users/|[A-Za-z]:\\+Users\\+)[^/\\\s\"']+")
_NATIVE = re.compile(r"~?(llama|ggml|llm|gguf|load|print|create|init|sched|graph|build|common|set)\w*(::\w+)?: ")
_NOISE = ("llama_graph_n_input_tensors", "graph_reserve")
_FRAME = re.compile(r'  File "([^"]+)", line (\d+), in (\w+)')
_ERROR = re.compile(r"((?:\w+\.)*\w+(?:Error|Exception|Died|Input|Interrupt)): ")
_REFUSED = re.compile(r"refused: \w+ at \w+\.py:\d+$")
_OWN = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ \d+ (INFO|WARNING|ERROR) |[\w.]+$|    [\w./-]+:\d+ \S+$")


class Scrubber:
    """Takes what must not leave this machine out of a text."""

    def __init__(self) -> None:
        names = [name for name in os.environ if _SECRET_NAME.search(name)]
        self._secrets = [os.environ[name] for name in names if len(os.environ[name]) >= 6]
        with suppress(OSError, UnicodeDecodeError):
            self._secrets += _stored_token()
        self._home = str(Path.home())
        self._user = ""
        with suppress(OSError, KeyError):  # no name for this user id
            self._user = getpass.getuser()

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "[removed]")
        text = _SECRETS.sub("[removed]", text)
        if len(self._home) > 1:
            text = text.replace(self._home, "~")
        text = _HOMES.sub("~", text)
        if len(self._user) > 1:
            text = re.sub(rf"(?<=[/\\]){re.escape(self._user)}(?=[/\\\s]|$)", "user", text)
        return text


def _stored_token() -> list[str]:
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    token = Path(os.environ.get("HF_TOKEN_PATH") or home / "token").expanduser().read_text("utf-8").strip()
    return [token] if len(token) >= 6 else []


def versions() -> Iterator[tuple[str, str]]:
    """(name, version) of us, of the system and of what we run on."""
    yield "localspec", __version__
    yield "Python", platform.python_version()
    yield "system", f"{platform.system()} {platform.release()} {platform.machine()}"
    for name in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            yield name, importlib.metadata.version(name)


def environment() -> Iterator[tuple[str, str]]:
    """(variable, value) of what can change our behaviour; most values are not told."""
    for name in sorted(os.environ):
        if _SHOWN_VARIABLES.fullmatch(name):
            yield name, os.environ[name][:100]
        elif _NAMED_VARIABLES.fullmatch(name):
            yield name, "(set)"


def engine_lines(text: str, count: int = 60) -> list[str]:
    """The last lines of an engine's log that are libllama's own or places in the source; others are counted."""
    return _kept((_engine_line(line) for line in text.splitlines()), count)


def own_lines(text: str, count: int = 40) -> list[str]:
    """The last lines of our own log, as far as they have its form."""
    return _kept((line if _OWN.match(line) else None for line in text.splitlines()), count)


def _engine_line(line: str) -> str | None:
    if line.startswith(_NOISE):
        return None
    if _NATIVE.match(line):
        # A grammar is the person's own, and libllama quotes it.
        return line[:300] if "grammar" not in line else line.partition(": ")[0] + ": [about a grammar]"
    if frame := _FRAME.match(line):
        return f"  {'/'.join(Path(frame[1]).parts[-3:])}:{frame[2]} {frame[3]}"
    if error := _ERROR.match(line):
        return error[1]
    if _REFUSED.match(line):
        return line
    return None


def _kept(lines: Iterable[str | None], count: int) -> list[str]:
    every = list(lines)
    kept = [line for line in every if line is not None][-count:]
    left_out = sum(line is None for line in every)
    return [*kept, f"({left_out} lines left out)"] if left_out else kept


def newest_logs() -> tuple[str, str]:
    """(our own logs one after the other, the newest engine's log), as far as they can be read; their ends."""
    engines = sorted(logs.folder().glob("engine-*.log"), key=lambda path: path.stat().st_mtime)
    return "".join(map(_end_of, logs.own_logs())), _end_of(engines[-1]) if engines else ""


def _end_of(path: Path, size: int = 64 << 10) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - size))
            return file.read(size).decode("utf-8", "replace")
    except OSError:
        return ""
