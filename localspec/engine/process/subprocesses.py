"""How our own modules are run in a process of their own, by an installed Python and in an app folder alike."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_PACKAGE_PARENT = str(Path(__file__).resolve().parents[3])


def command(module: str, *arguments: str) -> list[str]:
    """The command line of `python -m module`. -P: the working folder must not be able to shadow a module."""
    if is_frozen():
        return [sys.executable, MODULE_FLAG, module, *arguments]
    return [sys.executable, "-P", "-m", module, *arguments]


MODULE_FLAG = "--localspec-module"
"""First argument of a program that has no `python -m`: the app folder's entry runs the module that follows."""


def is_frozen() -> bool:
    """Whether this is an app folder: `sys.executable` is localspec itself, and no Python."""
    return bool(getattr(sys, "frozen", False))


def environment() -> dict[str, str]:
    """Ours, with this very package in reach."""
    paths = [_PACKAGE_PARENT, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUTF8": "1"}
