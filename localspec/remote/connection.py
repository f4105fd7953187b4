"""HTTP to one server: JSON asked for, events streamed, every failure one line."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from localspec.ground.errors import ContextFull, EngineDied, EngineError, InvalidInput, LocalspecError
from localspec.ground.parsing import parse_json
from localspec.ground.terminal import one_line

_ANSWER_SECONDS = 600.0
_FACTS_SECONDS = 10.0
_MOST_LINE = 4 << 20


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is. `http://host:port/v1#model`; `/v1` and the model may be left out."""

    url: str
    """As given, without the model."""
    https: bool
    host: str
    port: int | None
    root: str
    """Path before `/v1`."""
    model: str
    """"" = the first that the server lists."""


def parse_address(text: str) -> Address:
    """Raises InvalidInput for what is no address."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
        raise InvalidInput(f"{one_line(text, 100)!r} is no server's address", "Give one like http://127.0.0.1:8713")
    root = re.sub(r"/v1$", "", parts.path.rstrip("/"))
    if not re.fullmatch(r"[\w./~%-]*", root, re.ASCII):
        raise InvalidInput(f"{one_line(text, 100)!r} is no server's address", "Give one like http://127.0.0.1:8713")
    url = f"{parts.scheme}://{parts.netloc}{root}"
    return Address(url, parts.scheme == "https", parts.hostname, port, root, unquote(parts.fragment))


class Connection:
    """Requests to one server. `stop` may come from any thread."""

    def __init__(self, address: Address, key: str) -> None:
        self._address = address
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._streaming: http.client.HTTPConnection | None = None
        self._stopped = False

    def facts(self, path: str) -> Any:
        """The JSON at `path`. Raises EngineError, InvalidInput."""
        try:
            return parse_json(self.text(path))
        except ValueError:
            raise EngineError(f"{self._address.url}{path} is no JSON", "Is it an OpenAI-compatible server?") from None

    def text(self, path: str) -> str:
        """The page at `path`."""
        with self._open(_FACTS_SECONDS) as connection:
            connection.request("GET", self._address.root + path, headers=self._headers)
            response = connection.getresponse()
            text = response.read(_MOST_LINE).decode("utf-8", "replace")
            if response.status != 200:
                raise self._refusal(response.status, text)
            return text

    def stream(self, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any] | str]:
        """Server-sent events of one answer: objects, and comments as strings. Ends early after `stop`.

        Raises EngineDied when the server goes away in the middle.
        """
        self._stopped = False
        with self._open(_ANSWER_SECONDS) as connection:
            self._streaming = connection
            try:
                headers = {"Content-Type": "application/json", **self._headers}
                connection.request("POST", self._address.root + path, json.dumps(body).encode(), headers)
                response = connection.getresponse()
                if response.status != 200:
                    raise self._refusal(response.status, response.read(65536).decode("utf-8", "replace"))
                yield from self._events(response)
            except (OSError, http.client.HTTPException, AttributeError) as error:
                # AttributeError: http.client's own, when the socket is closed under it.
                if not self._stopped:
                    raise EngineDied(
                        f"{self._address.url} went away in the middle of the answer: {one_line(str(error))}",
                        "Ask again",
                    ) from error
            finally:
                self._streaming = None

    def stop(self) -> None:
        """Hang up on the answer being streamed; the server stops making it."""
        self._stopped = True
        connection = self._streaming
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    @property
    def stopped(self) -> bool:
        """Whether the last stream was stopped from here."""
        return self._stopped

    def _events(self, response: http.client.HTTPResponse) -> Iterator[dict[str, Any] | str]:
        while line := response.readline(_MOST_LINE):
            if line.startswith(b":"):
                yield line[1:].decode("utf-8", "replace").strip()
            elif line.startswith(b"data:"):
                data = line[5:].strip()
                if data == b"[DONE]":
                    return
                with contextlib.suppress(ValueError):
                    value = parse_json(data)
                    if isinstance(value, dict):
                        yield value
        if not self._stopped:
            raise EngineDied(f"{self._address.url} ended the answer in the middle", "Ask again")

    @contextlib.contextmanager
    def _open(self, seconds: float) -> Iterator[http.client.HTTPConnection]:
        kind = http.client.HTTPSConnection if self._address.https else http.client.HTTPConnection
        connection = kind(self._address.host, self._address.port, timeout=seconds)
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise EngineError(
                f"no answer from {self._address.url}: {one_line(str(error))}", "Is the server running?"
            ) from error
        try:
            yield connection
        finally:
            connection.close()

    def _refusal(self, status: int, text: str) -> LocalspecError:
        error = _error_object(text)
        said = f"{self._address.url} answers {status}: {_message(error, text)}"
        if (full := _context_full(error)) is not None:
            return full
        if status in (401, 403):
            return InvalidInput(said, "Set LOCALSPEC_API_KEY to the server's key")
        if status in (429, 500, 502, 503, 504):
            return EngineError(said, "Try again later")
        return InvalidInput(said, "Check the address and the options")


def _error_object(text: str) -> object:
    """What an error body holds, in OpenAI's shape or any other; None for what is no JSON object."""
    try:
        value = parse_json(text)
    except ValueError:
        return None
    return value.get("error", value) if isinstance(value, dict) else None


def _message(error: object, text: str) -> str:
    if isinstance(error, dict):
        text = str(error.get("message", error))
    elif error is not None:
        text = str(error)
    return one_line(text, 300) or "nothing more"


def _context_full(error: object) -> ContextFull | None:
    """Where a server says in numbers that the prompt is too long: llama-server and localspec serve do."""
    numbers = [error.get(name) for name in ("n_prompt_tokens", "n_ctx")] if isinstance(error, dict) else []
    tokens, capacity = (number if isinstance(number, int) else 0 for number in numbers or (0, 0))
    return ContextFull(tokens, capacity) if tokens >= capacity > 0 else None
