"""llama.cpp's own programs on the same files: what would this machine do with them?

Every knob of speculation is passed, none is left to a default that may change. A server lives for one engine start.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from localspec.bench.endpoint import Endpoint
from localspec.bench.plan import Speeds
from localspec.bench.prompts import filler
from localspec.bench.records import Arm, Cell, Measurement, Prompt
from localspec.engine.settings import LoadSettings
from localspec.engine.templates.chat_template import ChatTemplate, Message
from localspec.ground.errors import EngineError, InvalidInput, UnreadableFile
from localspec.ground.terminal import one_line
from localspec.pairs.gguf.model_info import ModelInfo

PEERS = ("llama-server", "llama-speculative-simple")
DRAFT_LENGTH = 3
"""llama.cpp's own default, given explicitly."""

_START_SECONDS = 300.0
_CELL_SECONDS = 900.0
_ENCODED = re.compile(r"encoded\s+(\d+) tokens in\s+([\d.]+) seconds")
_DECODED = re.compile(r"decoded\s+(\d+) tokens in\s+([\d.]+) seconds")
_COUNTS = re.compile(r"n_(drafted|accept)\s*=\s*(\d+)")


def parse_peer(text: str) -> tuple[str, Path]:
    """`NAME=PATH` of `--against`. Raises InvalidInput, UnreadableFile."""
    name, equals, path = text.partition("=")
    if not equals or name not in PEERS:
        raise InvalidInput(f"--against {one_line(text)!r} is not NAME=PATH", f"NAME is one of {', '.join(PEERS)}")
    if not Path(path).is_file():
        raise UnreadableFile(f"no program at {path}", "Give the path of the built program")
    return name, Path(path)


class LlamaServer:
    """llama-server on a loopback port, alive for one start."""

    def __init__(self, program: Path, settings: LoadSettings, threads: int, seed: int) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the server
        port = _free_port()
        command = [
            str(program), *_model_options(settings, threads), "--host", "127.0.0.1", "--port", str(port),
            "--parallel", "1", "--metrics", "--cache-ram", "0", "--no-warmup",
        ]  # fmt: skip
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT)
        self._endpoint = Endpoint(f"http://127.0.0.1:{port}", "default", extra={"cache_prompt": False}, seed=seed)
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def warm_up(self) -> Speeds:
        return self._endpoint.warm_up()

    def measure(self, cell: Cell, prompt: Prompt, arm: Arm, reuse: bool) -> Measurement:
        return self._endpoint.measure(cell, prompt, arm, reuse)

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _wait(self) -> None:
        end = time.monotonic() + _START_SECONDS
        while not self._endpoint.ready():
            if self._process.poll() is not None or time.monotonic() > end:
                self._log.seek(0)
                last = self._log.read()[-400:].decode("utf-8", "replace")
                raise EngineError(f"llama-server did not start: {one_line(last)}", "Try it alone first")
            time.sleep(0.2)


class SpeculativeSimple:
    """llama-speculative-simple: one process an answer, timed by its own report, loading left out."""

    def __init__(self, program: Path, settings: LoadSettings, threads: int, target: ModelInfo) -> None:
        self._command = [str(program), *_model_options(settings, threads)]
        self._template = _template(target)

    def warm_up(self) -> Speeds:
        """Nothing lives from answer to answer."""
        return Speeds(10.0, 100.0, 0.0)

    def measure(self, cell: Cell, prompt: Prompt, arm: Arm, reuse: bool) -> Measurement:
        text = f"{filler(cell.depth)}\n\n{prompt.text}" if cell.depth else prompt.text
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8", delete=False) as file:
            file.write(self._rendered(text))
        command = [
            *self._command, "--file", file.name, "-n", str(cell.max_tokens), "--temp", f"{cell.temperature:g}",
            "--seed", str(cell.start), "-b", "4096",
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, timeout=_CELL_SECONDS, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EngineError(f"llama-speculative-simple failed: {one_line(str(error))}") from error
        finally:
            Path(file.name).unlink(missing_ok=True)
        return read_report(
            done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"), cell.max_tokens
        )

    def close(self) -> None:
        """Nothing runs between answers."""

    def _rendered(self, text: str) -> str:
        if self._template is None:
            return text
        return "".join(segment.text for segment in self._template.render((Message("user", text),), True))


def read_report(output: str, log: str, limit: int) -> Measurement:
    """What llama-speculative-simple says at its end. EngineError when it says nothing."""
    encoded, decoded = _ENCODED.search(log), _DECODED.search(log)
    if encoded is None or decoded is None:
        last = one_line(log[-300:])
        raise EngineError(f"llama-speculative-simple gave no report: {last}")
    counts = {name: int(value) for name, value in _COUNTS.findall(log)}
    emitted, drafted, accepted = int(decoded[1]), counts.get("drafted", 0), counts.get("accept", 0)
    reading, decoding = float(encoded[2]), float(decoded[2])
    return Measurement(
        emitted=emitted,
        prompt_tokens=int(encoded[1]),
        ttft_seconds=reading,
        first_tokens=0,
        wall_seconds=reading + decoding,
        finish="length" if emitted >= limit else "stop",
        text_hash=hashlib.sha256(output.encode()).hexdigest()[:16],
        answer_empty=not emitted,
        drafted=drafted,
        verified=drafted,
        accepted=accepted,
        target_passes=emitted - accepted,
    )


def _model_options(settings: LoadSettings, threads: int) -> list[str]:
    count = str(settings.threads or threads)
    options = [
        "-m", str(settings.target), "-t", count, "-tb", count, "-c", str(settings.context or 8192),
        "-ctk", settings.cache_type, "-ctv", settings.cache_type, "-fa", settings.flash_attention,
        "-ngl", str(settings.gpu_layers if settings.gpu_layers >= 0 else 999),
    ]  # fmt: skip
    if settings.draft is not None:
        options += [
            "-md", str(settings.draft), "--spec-type", "draft-simple", "--spec-draft-n-max", str(DRAFT_LENGTH),
            "--spec-draft-n-min", "0", "--spec-draft-p-min", "0", "--spec-draft-threads", count,
            "--spec-draft-ngl", str(settings.draft_gpu_layers if settings.draft_gpu_layers >= 0 else 999),
        ]  # fmt: skip
    return options


def _template(info: ModelInfo) -> ChatTemplate | None:
    if not info.chat_template:
        return None
    texts = info.tokens.texts
    bos, eos = (
        texts[token].decode("utf-8", "replace") if token is not None else "" for token in (info.bos_id, info.eos_id)
    )
    return ChatTemplate(info.chat_template, bos, eos)


def _free_port() -> int:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
