"""The handle on the engine's process: load, generate, cancel, change, swap the draft, close.

libllama ends its process on several mistakes and on some GPU errors. So it has one of its own: when that
dies, or stands still (`watch`), the caller gets `EngineDied`, keeps the text so far, and may start another.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from localspec.engine.info import EngineInfo
from localspec.engine.inspection import Question
from localspec.engine.process import commands, subprocesses
from localspec.engine.process.cancel import CancelFlag, new_shared_flag_file
from localspec.engine.process.last_words import last_words
from localspec.engine.process.watch import BEAT_SECONDS, Patience, Watch
from localspec.engine.process.wire import Outbox, receive
from localspec.engine.records import Event, Finished, LoadProgress
from localspec.engine.settings import (
    Expectation,
    GenerationRequest,
    LoadSettings,
    SamplerSettings,
    SpeculationSettings,
)
from localspec.ground.errors import EngineDied, EngineError
from localspec.ground.logs import log

_LOGS_KEPT = 5
_CLOSE_SECONDS = 3.0


class EngineClient:
    """One engine process. One command at a time; `cancel` and `change` may come from any thread."""

    def __init__(self, log_folder: Path, patience: Patience | None = None) -> None:
        """Starts the process. `patience`: how long it may give no sign of life while it is waited for."""
        self.log_path = _new_log(log_folder)
        self._flag_file = new_shared_flag_file()
        self._cancel = CancelFlag(self._flag_file)
        self._busy = threading.Lock()
        self._messages: queue.SimpleQueue[commands.Numbered | None] = queue.SimpleQueue()
        self._numbers = itertools.count(1)
        self._request = 0
        """Number of the last command."""
        self._unanswered = False
        """Whether it may still be at work."""
        self._watch = Watch(patience or Patience())
        self._hang = ""
        """Why we ended the process ourselves; "" = we did not."""
        self.info: EngineInfo | None = None
        self.on_close: Callable[[], None] = lambda: None
        """Called when the process has ended on `close`."""
        self._has_draft = False
        self._process = self._spawn()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._outbox = Outbox(self._process.stdin)  # type: ignore[arg-type]
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Of the engine's process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether that process runs."""
        return self._process.poll() is None

    def death(self) -> EngineDied | None:
        """How that process ended, None while it runs."""
        return None if self.alive else self._death()

    def load(
        self,
        settings: LoadSettings,
        threads: int,
        on_progress: Callable[[LoadProgress], None] | None = None,
    ) -> EngineInfo:
        """Load models; blocks. `threads` is the default when the settings name none."""
        self._has_draft = settings.draft is not None
        return self._await_loaded(commands.Load(settings, threads), on_progress)

    def load_draft(
        self,
        path: Path | None,
        masked_ids: tuple[int, ...] = (),
        shared_rows: int | None = None,
        on_progress: Callable[[LoadProgress], None] | None = None,
        expectation: Expectation | None = None,
    ) -> EngineInfo:
        """Swap the draft model, None = none; the target and its cache stay."""
        self._has_draft = path is not None
        return self._await_loaded(commands.LoadDraft(path, masked_ids, shared_rows, expectation), on_progress)

    def generate(self, request: GenerationRequest) -> Iterator[Event]:
        """Events of one answer, the last is `Finished`. A caller that stops early cancels it."""
        with self._command(commands.Generate(request)):
            while not isinstance(event := self._next(), Finished):
                yield event
            yield event

    def inspect(self, question: Question) -> Any:
        """Answer one question of `engine.inspection`; blocks."""
        with self._command(commands.Inspect(question)):
            return self._next().answer

    def cancel(self) -> None:
        """Stop what is running, also a load or the middle of a prefill."""
        self._cancel.set()

    def change(
        self, speculation: SpeculationSettings | None = None, sampler: SamplerSettings | None = None
    ) -> None:
        """Use these from the next round of the running answer on; no other answer is touched."""
        self._outbox.put(commands.Numbered(0, commands.Change(self._request, speculation, sampler)))

    def log_tail(self, count: int = 4) -> list[str]:
        """The last lines of the engine's log, oldest first."""
        try:
            with open(self.log_path, "rb") as file:
                file.seek(max(0, os.path.getsize(self.log_path) - 8192))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return []
        return [line for line in text.splitlines() if line.strip()][-count:]

    def close(self, patience: float = _CLOSE_SECONDS) -> None:
        """End the process, by force after `patience` seconds. Safe to call twice and after its death."""
        self._cancel.set()
        self._outbox.put(commands.Numbered(0, commands.Close()))
        try:
            self._process.wait(patience)
        except BaseException as error:  # out of patience, or whoever waits has been interrupted once more
            self._kill()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
        finally:
            # Not before: a closed pipe tells the child that this process is gone, and it leaves what it was saving.
            with contextlib.suppress(OSError):
                if self._process.stdin is not None and not self.alive:  # else the outbox may be stuck in it
                    self._process.stdin.close()
            self._flag_file.unlink(missing_ok=True)
            self.on_close()

    def __enter__(self) -> EngineClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- parts ---------------------------------------------------------------------------------------

    def _spawn(self) -> subprocess.Popen[bytes]:
        with open(self.log_path, "ab") as log:
            return subprocess.Popen(
                subprocesses.command("localspec.engine.process.worker", str(self._flag_file)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=subprocesses.environment(),
            )

    def _read(self, stream: Any) -> None:
        """Runs in a thread: an interrupted read in the caller's thread could lose half a message."""
        try:
            while True:
                message = receive(stream)
                beat = message.body if isinstance(message.body, commands.Alive) else None
                self._watch.heard(beat)
                if beat is None:
                    self._messages.put(message)
        except (EOFError, OSError, ValueError):
            self._messages.put(None)

    def _await_loaded(
        self, command: object, on_progress: Callable[[LoadProgress], None] | None
    ) -> EngineInfo:
        with self._command(command):
            while True:
                message = self._next()
                if isinstance(message, commands.Loaded):
                    self.info = message.info
                    return message.info
                if on_progress is not None and isinstance(message, LoadProgress):
                    on_progress(message)

    @contextlib.contextmanager
    def _command(self, command: object) -> Iterator[None]:
        if not self._busy.acquire(blocking=False):
            raise EngineError("the engine is busy", "Wait for the answer, or cancel it")
        try:
            self._settle()
            self._cancel.clear()
            self._submit(command)
            yield
        finally:
            if self._unanswered:  # the caller leaves in the middle; the next command waits for the end of it
                self._cancel.set()
            self._busy.release()

    def _settle(self) -> None:
        """Wait for the end of a command that was abandoned: clearing the flag would let it go on."""
        if self._unanswered:
            self._cancel.set()
            self._submit(commands.Settle())
            self.info = self._next().info

    def _submit(self, command: object) -> None:
        self._request = next(self._numbers)
        self._unanswered = True
        self._outbox.put(commands.Numbered(self._request, command))

    def _next(self) -> Any:
        """The next answer to the last command; what belongs to others is left out."""
        while (message := self._take()) is not None and message.request != self._request:
            pass
        if message is None:
            self._messages.put(None)
            raise self._death()
        if isinstance(message.body, commands.LAST):
            self._unanswered = False
        if isinstance(message.body, commands.Failed):
            raise message.body.error
        return message.body

    def _take(self) -> commands.Numbered | None:
        """The next message, None at the end: also when a signal struck between taking that mark and using it."""
        self._watch.begin()
        while True:
            try:
                return self._messages.get(timeout=BEAT_SECONDS)
            except queue.Empty:
                if not self._reader.is_alive() and self._messages.empty():
                    return None
            if self.alive and (trouble := self._watch.trouble()):
                self._hang = trouble
                self._kill()
                return None

    def _kill(self) -> None:
        """End the process by force. One that waits for a device in the kernel cannot even be killed at once."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_CLOSE_SECONDS)

    def _death(self) -> EngineDied:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        if self._hang:
            log.warning("engine process %d was ended: %s; log: %s", self.pid, self._hang, self.log_path.name)
            return EngineDied(f"{self._hang}; its process was ended", self._advice())
        code = self._process.returncode
        log.warning("engine process %d ended: %s; log: %s", self.pid, _how(code), self.log_path.name)
        words = " | ".join(last_words(self.log_tail(20)))
        said = f"; its last words: {words}" if words else ""
        memory = ["it may have run out of memory: try a smaller --ctx"] if code == -9 else []
        return EngineDied(f"the engine's process ended ({_how(code)}){said}", self._advice(*memory))

    def _advice(self, *first: str) -> str:
        advice = [*first, "try again with --no-draft" if self._has_draft else "try again", f"log: {self.log_path}"]
        hint = "; ".join(advice)
        return hint[0].upper() + hint[1:]


def _how(code: int | None) -> str:
    if code is None:
        return "no answer"
    if code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"


def _new_log(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:  # a home that cannot be written to is no reason to give no answer
        folder = Path(tempfile.mkdtemp(prefix="localspec-log-"))
    for old in sorted(folder.glob("engine-*.log"))[:-_LOGS_KEPT]:
        old.unlink(missing_ok=True)
    return folder / f"engine-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
