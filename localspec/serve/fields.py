"""Reading a JSON body field by field: every value is checked, every unknown name is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, NoReturn

from localspec.ground.terminal import one_line
from localspec.serve.problems import Problem


def parse(data: bytes) -> dict[str, Any]:
    """The JSON object in `data`. NaN, other encodings than UTF-8 and absurd nesting are refused."""
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise Problem(400, f"the body is not UTF-8: byte 0x{data[error.start]:02x} at {error.start}") from None
    except RecursionError:
        raise Problem(400, "the body is nested too deeply") from None
    except ValueError as error:
        raise Problem(400, f"the body is not JSON: {one_line(str(error), 200)}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise Problem(400, f"the body must be a JSON object, not {_kind(value)}", code="invalid_json")
    return value


class Fields:
    """One JSON object being read. Reading a field takes it out; `finish` refuses what nobody took.

    A null counts as absent, as OpenAI's clients mean it.
    """

    def __init__(self, value: dict[str, Any], where: str = "") -> None:
        self._left = dict(value)
        self._where = where
        self._known: list[str] = []

    def name(self, key: str) -> str:
        """How a client finds `key`: `messages[0].content`."""
        return f"{self._where}.{key}" if self._where else key

    def take(self, key: str) -> Any:
        """The raw value, None when absent or null."""
        self._known.append(key)
        return self._left.pop(key, None)

    def text(self, key: str, *, limit: int = 1 << 20) -> str | None:
        value = self.take(key)
        return None if value is None else checked_text(value, self.name(key), limit)

    def flag(self, key: str) -> bool | None:
        value = self.take(key)
        if value is not None and not isinstance(value, bool):
            wrong(self.name(key), "must be true or false", value)
        return value

    def number(self, key: str, low: float, high: float) -> float | None:
        value = self.take(key)
        return None if value is None else checked_number(value, self.name(key), low, high)

    def whole(self, key: str, low: int, high: int) -> int | None:
        value = self.take(key)
        return None if value is None else checked_whole(value, self.name(key), low, high)

    def choice(self, key: str, options: Iterable[str]) -> str | None:
        value = self.take(key)
        options = list(options)
        if value is not None and value not in options:
            wrong(self.name(key), f"must be one of {', '.join(options)}", value)
        return None if value is None else str(value)

    def fields(self, key: str) -> Fields | None:
        """A nested object."""
        value = self.take(key)
        return None if value is None else Fields(checked_object(value, self.name(key)), self.name(key))

    def items(self, key: str, *, limit: int) -> list[Any] | None:
        """A list of at most `limit` entries."""
        value = self.take(key)
        return None if value is None else checked_list(value, self.name(key), limit)

    def refuse(self, key: str, why: str, *harmless: Any) -> None:
        """Refuse `key` by name unless its value is one of those that change nothing."""
        value = self.take(key)
        if value is not None and not any(value is h or (value == h and type(value) is type(h)) for h in harmless):
            raise Problem(
                400,
                f"{self.name(key)} is not supported: {why}",
                param=self.name(key),
                code="unsupported_parameter",
            )

    def finish(self) -> None:
        """Refuse what is left."""
        for key in self._left:
            shown = one_line(str(key), 60)
            close = get_close_matches(key, self._known, n=1)
            near = f". Did you mean {close[0]}?" if close else ""
            raise Problem(
                400,
                f"unknown parameter {self.name(shown)}{near}",
                param=self.name(shown),
                code="unknown_parameter",
            )


def checked_text(value: Any, name: str, limit: int) -> str:
    """A string of at most `limit` characters that UTF-8 can hold, or a Problem."""
    if not isinstance(value, str):
        wrong(name, "must be a string", value)
    if len(value) > limit:
        raise Problem(
            400,
            f"{name} has {len(value):,} characters; at most {limit:,} are allowed",
            param=name,
            code="string_too_long",
        )
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise Problem(400, f"{name} holds half of a surrogate pair", param=name, code="invalid_value") from None
    return value


def checked_number(value: Any, name: str, low: float, high: float) -> float:
    """A finite number of low .. high, or a Problem."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        wrong(name, "must be a number", value)
    if not (isinstance(value, int) or math.isfinite(value)) or not low <= value <= high:
        wrong(name, f"must be between {low:g} and {high:g}", value)
    return float(value)


def checked_whole(value: Any, name: str, low: int, high: int) -> int:
    """A whole number of low .. high, or a Problem; 3.0 counts as 3."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        wrong(name, "must be a whole number", value)
    if not low <= value <= high:
        wrong(name, f"must be at least {low}" if value < low else f"must be at most {high}", value)
    return value


def checked_object(value: Any, name: str) -> dict[str, Any]:
    """A JSON object, or a Problem."""
    if not isinstance(value, dict):
        wrong(name, "must be an object", value)
    return value


def checked_list(value: Any, name: str, limit: int) -> list[Any]:
    """A list of at most `limit` entries, or a Problem."""
    if not isinstance(value, list):
        wrong(name, "must be a list", value)
    if len(value) > limit:
        raise Problem(
            400,
            f"{name} has {len(value):,} entries; at most {limit:,} are allowed",
            param=name,
            code="array_too_long",
        )
    return value


def checked_tree(value: Any, name: str, *, depth: int = 32) -> Any:
    """Any JSON value that is passed on: its texts must be whole and its nesting bounded."""
    if depth == 0:
        raise Problem(400, f"{name} is nested too deeply", param=name, code="invalid_value")
    if isinstance(value, str):
        checked_text(value, name, 1 << 20)
    elif isinstance(value, dict):
        for key, item in value.items():
            checked_text(key, name, 1024)
            checked_tree(item, name, depth=depth - 1)
    elif isinstance(value, list):
        for item in value:
            checked_tree(item, name, depth=depth - 1)
    elif isinstance(value, float):
        checked_number(value, name, -math.inf, math.inf)
    return value


def wrong(name: str, rule: str, value: Any) -> NoReturn:
    """Refuse a value by the rule that it breaks."""
    shown = _kind(value) if isinstance(value, dict | list) else one_line(json.dumps(value), 60)
    raise Problem(400, f"{name} {rule}, not {shown}", param=name, code="invalid_value")


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")
