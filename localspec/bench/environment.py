"""What was measured on what: enough for somebody else to repeat it, or to see why a number changed."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from localspec import __version__
from localspec.ground.errors import EngineError

_HEAD = 16 << 20
_TAIL = 1 << 20


def describe(target: Path | None, draft: Path | None, known_hashes: Mapping[Path, str] | None = None) -> dict[str, Any]:
    """The machine, the build and the files, as plain values for people and for `compare`."""
    from localspec.ground.machine import available_memory, cpu_name, physical_cores, usable_cpus

    found: dict[str, Any] = {
        "cpu": cpu_name(),
        "cores": f"{physical_cores()} physical, {usable_cpus()} logical usable",
        "free_memory": f"{available_memory() / 2**30:.1f} GiB at the start",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "localspec": __version__,
    }
    if hasattr(os, "getloadavg"):
        found["load_at_start"] = f"{os.getloadavg()[0]:.2f}"
    if target is not None:
        found |= _engine()
    for part, path in (("target", target), ("draft", draft)):
        if path is not None:
            found[part] = {
                "file": path.name,
                "bytes": path.stat().st_size,
                "fingerprint": fingerprint(path),
                "sha256": (known_hashes or {}).get(path, ""),
            }
    return found


def fingerprint(path: Path) -> str:
    """A digest of the size, the first 16 MiB (the header is there) and the last one: quick to make."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with open(path, "rb") as file:
        digest.update(file.read(_HEAD))
        file.seek(max(0, size - _TAIL))
        digest.update(file.read(_TAIL))
    return digest.hexdigest()[:32]


def _engine() -> dict[str, Any]:
    from importlib.metadata import PackageNotFoundError, version

    from localspec.engine.process import ask_libllama

    found: dict[str, Any] = {}
    try:
        found["llama_cpp_python"] = version("llama-cpp-python")
        build = ask_libllama.build()
        found["build"] = build.system_info
        found["devices"] = [f"{d.name} ({d.description}, {d.total / 2**30:.1f} GiB)" for d in build.devices]
    except (PackageNotFoundError, EngineError) as error:
        found["build"] = f"unknown: {error}"
    return found
