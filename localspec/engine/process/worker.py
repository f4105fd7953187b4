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
from typing import Any, BinaryIO

from localspec.engine.engine import Engine
from localspec.engine.llama.binding import mirror_log_to
from localspec.engine.process import commands
from localspec.engine.process.cancel import CancelFlag
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
        self._commands: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._engine: Engine | None = None

    def read(self, inbound: BinaryIO) -> None:
        """Take messages until the parent is gone; then leave at once, whatever is being computed."""
        while True:
            try:
                command = receive(inbound)
            except (EOFError, OSError):
                os._exit(0)
            if isinstance(command, commands.Change) and self._engine is not None:
                try:
                    self._engine.change(command.speculation, command.sampler)
                except LocalspecError:
                    traceback.print_exc()  # an impossible order: the answer goes on as it was
            else:
                self._commands.put(command)

    def serve(self) -> None:
        """Until `Close`."""
        while not isinstance(command := self._commands.get(), commands.Close):
            try:
                self._do(command)
            except LocalspecError as error:
                traceback.print_exc()
                self._sender.send(commands.Failed(error))
            except Exception as error:
                traceback.print_exc()
                self._sender.send(commands.Failed(EngineError(f"{type(error).__name__}: {error}")))
        if self._engine is not None:
            self._engine.close()

    def _do(self, command: object) -> None:
        match command:
            case commands.Load(settings, threads):
                self._engine = Engine(settings, threads, self._sender.send, self._cancel)
                self._sender.send(commands.Loaded(self._engine.info))
            case commands.LoadDraft(path, masked_ids, shared_rows, expectation):
                engine = self._loaded()
                if path is None:
                    engine.unload_draft()
                else:
                    engine.load_draft(path, masked_ids, shared_rows, expectation)
                self._sender.send(commands.Loaded(engine.info))
            case commands.Generate(request):
                for event in self._loaded().generate(request):
                    self._sender.send(event)
            case commands.Inspect(question):
                self._sender.send(commands.Inspected(self._loaded().inspect(question)))
            case _:
                raise EngineError(f"unknown command {type(command).__name__}")

    def _loaded(self) -> Engine:
        if self._engine is None:
            raise EngineError("no model is loaded")
        return self._engine


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
