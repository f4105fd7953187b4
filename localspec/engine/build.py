"""Which llama.cpp runs the models."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def engine_build() -> str:
    """Name and version of the binding; measured times and verdicts hold for one build only."""
    try:
        return f"llama-cpp-python {version('llama-cpp-python')}"
    except PackageNotFoundError:
        return "llama-cpp-python of unknown version"
