"""Running the application: a socket, signals, and an orderly end."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from typing import Any

import uvicorn

from localspec.ground.errors import InvalidInput
from localspec.serve.app import Application, Options
from localspec.serve.host import CLOSING, Host
from localspec.session import Session

GRACE_SECONDS = 4.0
"""After a signal, the running answer may go on for so long. With the engine's end it all stays below 10 s."""


class Server(uvicorn.Server):
    """uvicorn, told what to do with the queue when it is asked to stop."""

    def __init__(self, config: uvicorn.Config, host: Host) -> None:
        super().__init__(config)
        self._host = host

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._host.desk.close(CLOSING)
        asyncio.get_running_loop().call_later(GRACE_SECONDS, self._host.desk.stop_running)
        await super().shutdown(sockets)


def serve(
    open_pair: Callable[[bool], Session],
    options: Options,
    address: tuple[str, int],
    queue_limit: int,
    on_listening: Callable[[str], Any],
) -> None:
    """Serve until a signal comes; it is raised again at the end, for whoever handles it.

    Raises the error that kept the pair from being loaded.
    """
    listener = listen(*address)
    with listener:
        host = Host(open_pair, queue_limit, lambda: setattr(server, "should_exit", True))
        server = Server(configuration(Application(host, options)), host)
        host.load()
        on_listening(url(*listener.getsockname()[:2]))
        try:
            server.run(sockets=[listener])
        finally:
            host.close()
        if host.error is not None:
            raise host.error


def configuration(application: Application) -> uvicorn.Config:
    """How uvicorn runs it: quiet, without extras, ending in time."""
    return uvicorn.Config(
        application,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(GRACE_SECONDS) + 2,
    )


def listen(address: str, port: int) -> socket.socket:
    """A listening socket. Raises InvalidInput when the address cannot be had."""
    try:
        family, _, _, _, found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        if sys.platform != "win32":  # there it would let two servers share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(found)
        listener.listen(128)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidInput(
            f"cannot listen on {address} port {port}: {reason}", "Choose another --port or --host"
        ) from None
    return listener


def url(address: str, port: int) -> str:
    """How a person reaches the server from this machine."""
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(address, f"[{address}]" if ":" in address else address)
    return f"http://{name}:{port}"
