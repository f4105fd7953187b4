"""What was measured of a pair on this machine, kept on disk from run to run.

    {"version": 2, "costs": {...}, "beliefs": {"model": {...}, ...}}

One JSON file per combination of everything that times depend on: both files, the build of libllama, placement,
threads, cache type. A file that cannot be read is as good as none; one of version 1 is taken over.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localspec.engine.control.costs import Costs
from localspec.engine.settings import LoadSettings
from localspec.ground.parsing import parse_json

_LARGEST = 1 << 20
_VERSION = 2


@dataclass(slots=True)
class Profile:
    """Times of the target, which go on learning while it is used, and what each drafter believed."""

    costs: Costs
    beliefs: Mapping[str, Any] = field(default_factory=dict)
    """By the drafter's name; plain JSON, as the drafter gave it."""


def profile_key(files: tuple[Path, Path | None], settings: LoadSettings, threads: int, build: str) -> str:
    """The name of the profile: a hash of what the times depend on. Files count by size and time of change."""
    parts = [
        *(_identity(path) for path in files),
        str(threads),
        build,
        settings.cache_type,
        settings.flash_attention,
        settings.device,
        str((settings.gpu_layers, settings.draft_gpu_layers, settings.split_mode, settings.main_gpu)),
        *([] if settings.swa_full else ["windows only"]),  # long texts are read faster; no key of before changes
    ]
    return hashlib.sha256(os.fsencode("\0".join(parts))).hexdigest()[:24]


def read_profile(folder: Path, key: str) -> Profile | None:
    """The stored profile; None when there is none, or none that makes sense."""
    path = folder / f"{key}.json"
    try:
        if path.stat().st_size > _LARGEST:
            return None
        stored = parse_json(path.read_text("utf-8"))
        beliefs = stored["beliefs"] if "version" in stored else _beliefs_of_version_1(stored)
        if stored.get("version", 1) not in (1, _VERSION) or not isinstance(beliefs, dict):
            return None
        return Profile(Costs.from_dict(stored["costs"]), beliefs)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def write_profile(folder: Path, key: str, profile: Profile) -> None:
    """Store it; a disk that refuses is no reason to fail."""
    content = json.dumps(
        {"version": _VERSION, "costs": profile.costs.to_dict(), "beliefs": dict(profile.beliefs)}
    )
    part = folder / f"{key}.{os.getpid()}.part"
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        part.write_text(content, "utf-8")
        part.replace(folder / f"{key}.json")


def _beliefs_of_version_1(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """It knew one drafter, whose times stood with the target's."""
    acceptance = stored["acceptance"]
    return {"model": {"times": stored["costs"]["draft"], "acceptance": acceptance}}


def _identity(path: Path | None) -> str:
    if path is None:
        return "-"
    resolved = path.resolve()
    try:
        facts = resolved.stat()
    except OSError:
        return str(resolved)
    return f"{resolved.name} {facts.st_size} {facts.st_mtime_ns}"
