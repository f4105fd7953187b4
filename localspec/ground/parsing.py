"""JSON and TOML from outside: whatever is wrong with it is a ValueError, nesting without end included."""

from __future__ import annotations

import json
import tomllib
from typing import Any

_TOO_DEEP = "it is nested too deeply"


def parse_json(text: str | bytes) -> Any:
    """The value in `text`. Raises ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def parse_toml(text: str) -> dict[str, Any]:
    """The tables in `text`. Raises ValueError."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
