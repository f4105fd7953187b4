"""How our own modules are run in a process of their own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])


def command(module: str, *arguments: str) -> list[str]:
    """The command line of `python -m module`. -P: the working folder must not be able to shadow a module."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment() -> dict[str, str]:
    """Ours, with this very package in reach."""
    paths = [_PACKAGE_PARENT, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUTF8": "1"}
