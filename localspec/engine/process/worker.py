"""The engine's own process: `python -m localspec.engine.process.worker CANCEL_FILE`.

Messages come on standard input and leave on what was standard output. Everything else that anyone writes to
file descriptors 1 and 2, libllama included, goes to the log the parent opened. When the parent goes, the
pipe ends, and so does this process.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import BinaryIO

from localspec.engine.engine import Engine
from localspec.engine.llama.binding import mirror_log_to
from localspec.engine.process import commands
from localspec.engine.process.cancel import CancelFlag
from localspec.engine.process.watch import Pulse
from localspec.engine.process.wire import Sender, receive
from localspec.ground.errors import EngineError, LocalspecError


def main() -> None:
    """The engine's process: commands on stdin, events on stdout, until one of them closes."""
    inbound, outbound = _take_over_pipes()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle: it cancels
    mirror_log_to(2)
    flag_file = Path(sys.argv[1])
    worker = Worker(CancelFlag(flag_file), Sender(outbound))
    with contextlib.suppress(OSError):
        flag_file.unlink()  # both sides have mapped it: now a crash of either leaves nothing behind
    threading.Thread(target=worker.read, args=(inbound,), daemon=True).start()
    worker.serve()
    os._exit(0)  # the reader thread may still be inside a read


class Worker:
    """Does one command after the other; `Change` alone acts while another runs."""

    def __init__(self, cancel: CancelFlag, sender: Sender) -> None:
        self._cancel = cancel
        self._sender = sender
        self._commands: queue.SimpleQueue[commands.Numbered] = queue.SimpleQueue()
        self._engine: Engine | None = None
        self._lock = threading.Lock()
        self._request = 0
        """Number of the command that runs, or ran last."""
        self._begun = False
        """Whether its answer has begun, so that it can be changed."""
        self._early: list[commands.Change] = []

    def read(self, inbound: BinaryIO) -> None:
        """Take messages until the parent is gone; then leave at once, whatever is being computed."""
        while True:
            try:
                message = receive(inbound)
            except (EOFError, OSError):
                os._exit(0)
            if isinstance(message.body, commands.Change):
                self._take_change(message.body)
            else:
                self._commands.put(message)

    def serve(self) -> None:
        """Until `Close`."""
        pulse = Pulse(self._cancel, self._beat)
        while not isinstance((taken := self._commands.get()).body, commands.Close):
            with self._lock:
                self._request, self._begun = taken.request, False
                self._early = [change for change in self._early if change.request >= taken.request]
            with pulse.working():
                self._serve_one(taken.body)
        if self._engine is not None:
            self._engine.close()

    def _serve_one(self, command: object) -> None:
        try:
            self._do(command)
        except LocalspecError as error:
            if isinstance(error, EngineError):
                traceback.print_exc()
            else:
                _note(error)
            self._reply(commands.Failed(error))
        except Exception as error:
            traceback.print_exc()
            self._reply(commands.Failed(EngineError(f"{type(error).__name__}: {error}")))

    def _do(self, command: object) -> None:
        match command:
            case commands.Load(settings, threads):
                self._engine = Engine(settings, threads, self._reply, self._cancel)
                self._reply(commands.Loaded(self._engine.info))
            case commands.LoadDraft(path, masked_ids, shared_rows, expectation):
                engine = self._loaded()
                if path is None:
                    engine.unload_draft()
                else:
                    engine.load_draft(path, masked_ids, shared_rows, expectation)
                self._reply(commands.Loaded(engine.info))
            case commands.Generate(request):
                for event in self._loaded().generate(request):
                    self._begin_answer()
                    self._reply(event)
            case commands.Inspect(question):
                self._reply(commands.Inspected(self._loaded().inspect(question)))
            case commands.Settle():
                self._reply(commands.Settled(self._engine.info if self._engine is not None else None))
            case _:
                raise EngineError(f"unknown command {type(command).__name__}")

    def _reply(self, body: object) -> None:
        self._sender.send(commands.Numbered(self._request, body))

    def _beat(self, alive: commands.Alive) -> None:
        with contextlib.suppress(OSError):  # the parent is gone: whoever reads from it ends this process
            self._sender.send(commands.Numbered(0, alive))

    def _take_change(self, change: commands.Change) -> None:
        """Act at once, keep it for an answer that has not begun, or drop it."""
        with self._lock:
            if change.request > self._request or (change.request == self._request and not self._begun):
                self._early.append(change)
            elif change.request == self._request:
                self._change(change)

    def _begin_answer(self) -> None:
        """What came before the answer had begun reaches it now."""
        if self._begun:
            return
        with self._lock:
            self._begun = True
            for change in self._early:
                if change.request == self._request:
                    self._change(change)

    def _change(self, change: commands.Change) -> None:
        if self._engine is None:
            return
        try:
            self._engine.change(change.speculation, change.sampler)
        except LocalspecError as error:  # an impossible order: the answer goes on as it was
            _note(error)

    def _loaded(self) -> Engine:
        if self._engine is None:
            raise EngineError("no model is loaded")
        return self._engine


def _note(error: LocalspecError) -> None:
    """One line for what was foreseen. Not its message, which may quote what a person wrote: whoever asked has that."""
    *_, frame = traceback.extract_tb(error.__traceback__)
    print(f"refused: {type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}", file=sys.stderr, flush=True)


def _take_over_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Move the message pipes to private descriptors, so that nothing else can write into them."""
    inbound, outbound = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return inbound, outbound


if __name__ == "__main__":
    main()
