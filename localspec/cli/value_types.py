"""Kinds of option values that click does not have."""

from __future__ import annotations

from typing import Any

import click


class AutoNumber(click.ParamType[Any]):
    """`auto` (None) or a whole number."""

    name = "auto|N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        if value is None or isinstance(value, int) or value == "auto":
            return None if value == "auto" else value
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is neither auto nor a whole number", param, ctx)


class KeyValue(click.ParamType[Any]):
    """`key=value`; true, false and numbers are read as such."""

    name = "k=v"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, object]:
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        if not equals or not key.isidentifier():
            self.fail(f"{value!r} is not name=value", param, ctx)
        return key, _literal(text)


class LogitBias(click.ParamType[Any]):
    """`id=number`; `-inf` bans the token."""

    name = "id=bias"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, float]:
        if isinstance(value, tuple):
            return value
        token, _, bias = str(value).partition("=")
        try:
            return int(token), float(bias)
        except ValueError:
            self.fail(f"{value!r} is not id=number", param, ctx)


def _literal(text: str) -> object:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
