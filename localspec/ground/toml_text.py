"""Plain tables -> TOML. The standard library reads TOML and does not write it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(table: Mapping[str, Any]) -> str:
    """TOML text of nested tables of texts, numbers, truth values, lists of these, and lists of tables.

    Entries that are None are left out. Reading the text with tomllib gives the tables back.
    """
    lines: list[str] = []
    _write(table, "", lines)
    return "\n".join(lines).strip() + "\n"


def _write(table: Mapping[str, Any], prefix: str, lines: list[str]) -> None:
    tables = []
    for key, value in table.items():
        if isinstance(value, Mapping) or _is_tables(value):
            tables.append((f"{prefix}{_key(key)}", value))
        elif value is not None:
            lines.append(f"{_key(key)} = {_value(value)}")
    for name, value in tables:
        single = isinstance(value, Mapping)
        for one in [value] if single else value:
            lines += ["", f"[{name}]" if single else f"[[{name}]]"]
            _write(one, f"{name}.", lines)


def _is_tables(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(one, Mapping) for one in value)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for half surrogates, which TOML cannot hold at all, and DEL.
        text = value.encode("utf-8", "replace").decode("utf-8")
        return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return repr(value) if any(mark in repr(value) for mark in ".e") else f"{value!r}.0"
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    raise TypeError(f"no TOML for {type(value).__name__}")
