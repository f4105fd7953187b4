"""What a client did wrong, or what went wrong here, in the shape that OpenAI clients read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localspec.ground.errors import Cancelled, ContextFull, EngineDied, InvalidInput, LocalspecError
from localspec.ground.terminal import visible


class Problem(Exception):
    """One refusal: becomes an HTTP status and an error object, or an error event in a running stream."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
        more: Mapping[str, object] | None = None,
    ) -> None:
        """`more`: facts for programs, beside the usual fields of the error object."""
        super().__init__(message)
        self.status = status
        self.message = visible(message)[:1000]
        self.param = param
        self.code = code
        self.headers = headers or {}
        self._more = dict(more or {})

    @property
    def body(self) -> dict[str, Any]:
        """The JSON object that OpenAI's own servers send."""
        kind = _KINDS.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        usual = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": {**usual, **self._more}}


def from_error(error: BaseException) -> Problem:
    """The problem that an exception of the engine means to a client; never more than one line of it."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, ContextFull):
        full = {"n_prompt_tokens": error.tokens, "n_ctx": error.capacity}  # llama-server's names
        return Problem(400, error.message, code="context_length_exceeded", more=full)
    if isinstance(error, InvalidInput):
        return Problem(400, error.message, code="invalid_value")
    if isinstance(error, Cancelled):
        return Problem(503, "the answer was stopped by the server", code="cancelled")
    if isinstance(error, EngineDied):
        how = error.message.split(";")[0]  # what follows are lines of a log, which may name files
        return Problem(500, f"{how}; it is being started again", code="engine_died")
    if isinstance(error, LocalspecError):
        return Problem(500, f"the engine failed: {error.message}", code="engine_error")
    return Problem(500, "something went wrong in the server; its log says more", code="internal_error")


_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
