"""What was measured and audited about a pair on this machine: the only place that stores it and reads it.

    verdicts.store(target, draft, device, bench={...})      # after localspec bench
    known = verdicts.read(target, draft, device)            # None when nothing holds any more
    known.expectation(conditions)                          # what `auto` may start from

One JSON file a pair in the state folder, found by the paths of the two files. What is in it counts only while both
files (size, time of change, first and last bytes), the engine's build and the device are as they were.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from localspec.engine.build import engine_build
from localspec.engine.settings import Expectation, LoadSettings
from localspec.ground.atomic_write import write_atomically
from localspec.ground.locations import state_folder
from localspec.ground.machine import cpu_name
from localspec.ground.parsing import parse_json

SCHEMA = 1
_WORTH_HAVING = 1.03
"""A speedup below this is none that a person would notice."""
_EDGE = 1 << 20
"""Bytes at each end of a file that its identity looks at; the header is at the beginning."""


@dataclass(frozen=True, slots=True)
class Known:
    """What holds for a pair here and now."""

    bench: Mapping[str, Any] = field(default_factory=dict)
    """`speedup`, `low`, `high`, `verdict`, `doubtful`, `recommended`, `headline`, `kinds`, `conditions`, `when`;
    empty = never measured."""
    audit: Mapping[str, Any] = field(default_factory=dict)
    """`passed`, `near_ties`, `bugs`, `quick`, `when`; empty = never audited."""
    profile: Mapping[str, Any] = field(default_factory=dict)
    """`best_length`, `verify_seconds`, `draft_step_seconds`, `when`; empty = never tuned."""

    def expectation(self, conditions: Mapping[str, Any]) -> Expectation | None:
        """What `auto` may start from; None when the bench measured under other `conditions`, or does not tell.

        A gain is ruled out by an interval that ends below any worth having, unless some kind of text pays.
        """
        if not self.bench or self.bench.get("conditions") != dict(conditions) or self.speedup is None:
            return None
        why = f"the bench of {str(self.bench.get('when', ''))[:10]} found {self.speedup:.2f}x plain"
        words = {row.get("verdict") for row in self.bench.get("kinds", {}).values()} | {self.bench.get("verdict")}
        if "pays" in words:
            return Expectation(True, why)
        high = self.bench.get("high")
        ruled_out = isinstance(high, int | float) and high < _WORTH_HAVING and not self.bench.get("doubtful")
        return Expectation(False, why) if ruled_out else None

    @property
    def speedup(self) -> float | None:
        """Over all kinds of text measured."""
        value = self.bench.get("speedup")
        return float(value) if isinstance(value, int | float) else None


def conditions(settings: LoadSettings) -> dict[str, Any]:
    """What a speed depends on beside files, build and device."""
    return {
        "threads": settings.threads, "gpu_layers": settings.gpu_layers,
        "draft_gpu_layers": settings.draft_gpu_layers, "cache_type": settings.cache_type,
        "flash_attention": settings.flash_attention,
    }  # fmt: skip


def read(target: Path, draft: Path | None, device: str | None = None) -> Known | None:
    """What is known and still holds; None when there is nothing. `device` None = this processor and any GPU."""
    table = _table(target, draft)
    if table is None or why_stale(table, target, draft, device):
        return None
    return Known(table.get("bench", {}), table.get("audit", {}), table.get("profile", {}))


def stale_reason(target: Path, draft: Path | None, device: str | None = None) -> str:
    """Why what was once known holds no more; "" when it holds or there is nothing."""
    table = _table(target, draft)
    return why_stale(table, target, draft, device) if table is not None else ""


def of_models(models: Sequence[Sequence[Path]]) -> Known | None:
    """What is known about a pair given as the files of its models, the target's first: what listings have."""
    return read(*_files(models)) if models else None


def stale_reason_of(models: Sequence[Sequence[Path]]) -> str:
    """As `stale_reason`, for a pair as in `of_models`."""
    return stale_reason(*_files(models)) if models else ""


def figures(models: Sequence[Sequence[Path]]) -> dict[str, Any]:
    """`speedup`, and `kinds` with the speedup of each, of a pair as in `of_models`; {} when not measured."""
    known = of_models(models)
    if known is None or known.speedup is None:
        return {}
    kinds = {kind: row.get("speedup") for kind, row in known.bench.get("kinds", {}).items()}
    return {"speedup": known.speedup, "kinds": kinds}


def as_json(known: Known | None) -> dict[str, Any] | None:
    """For `show --json`; None when nothing is known."""
    return asdict(known) if known is not None else None


def describe(known: Known | None) -> list[str]:
    """What is known, one sentence each. Nothing is claimed about the text without an audit."""
    if known is None:
        return []
    lines = []
    if headline := known.bench.get("headline"):
        lines.append(f"{headline} ({known.bench.get('when', '')})")
    if headline := known.audit.get("headline"):
        lines.append(f"{headline} ({known.audit.get('when', '')})")
    if known.profile:
        lines.append(f"tuned: draft length {known.profile.get('best_length')} ({known.profile.get('when', '')})")
    return lines


def store(target: Path, draft: Path | None, device: str, **parts: Mapping[str, Any]) -> Path:
    """Keep `bench`, `audit` or `profile`; the other parts stay if they still hold. Returns the file."""
    known = read(target, draft, device)
    table: dict[str, Any] = {
        "schema": SCHEMA,
        "target": asdict(_identity(target)),
        "draft": asdict(_identity(draft)) if draft is not None else None,
        "build": engine_build(),
        "device": device,
        **(asdict(known) if known is not None else {}),
    }
    now = datetime.now(UTC).isoformat(timespec="seconds")
    table |= {name: {**part, "when": now} for name, part in parts.items()}
    path = _path(target, draft)
    write_atomically(path, json.dumps(table, ensure_ascii=False, indent=1) + "\n")
    return path


def why_stale(table: Mapping[str, Any], target: Path, draft: Path | None, device: str | None) -> str:
    """Which part of the conditions has changed; "" when none has."""
    for part, path in (("target", target), ("draft", draft)):
        try:
            now = asdict(_identity(path)) if path is not None else None
        except OSError:
            return f"the {part} file is gone"
        if table.get(part) != now:
            return f"the {part} file has changed"
    if table.get("build") != engine_build():
        return f"the engine was {table.get('build')}, it is {engine_build()} now"
    if device is None:  # then the processor at least
        here, measured = cpu_name() or "unknown processor", str(table.get("device")).partition("; ")[0]
    else:
        here, measured = device, str(table.get("device"))
    if here != measured:
        return f"it was measured on {measured}"
    return ""


def _files(models: Sequence[Sequence[Path]]) -> tuple[Path, Path | None]:
    """The first file of each model."""
    return models[0][0], models[1][0] if len(models) > 1 else None


@dataclass(frozen=True, slots=True)
class _Identity:
    size: int
    mtime_ns: int
    edges: str
    """Digest of the first and the last MiB."""


def _identity(path: Path) -> _Identity:
    found = path.stat()
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        digest.update(file.read(_EDGE))
        file.seek(max(0, found.st_size - _EDGE))
        digest.update(file.read(_EDGE))
    return _Identity(found.st_size, found.st_mtime_ns, digest.hexdigest()[:32])


def _path(target: Path, draft: Path | None) -> Path:
    names = [os.path.realpath(path) if path is not None else "" for path in (target, draft)]
    return (
        state_folder() / "verdicts" / f"{hashlib.sha256(os.fsencode(chr(10).join(names))).hexdigest()[:24]}.json"
    )


def _table(target: Path, draft: Path | None) -> dict[str, Any] | None:
    try:
        table = parse_json(_path(target, draft).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return table if isinstance(table, dict) and table.get("schema") == SCHEMA else None
