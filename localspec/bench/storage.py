"""A bench run on disk: one JSON file, replaced whole after every cell."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from localspec.bench.records import Arm, BenchRun, Cell, Measurement, Plan, Prompt, Report, Sample
from localspec.ground.atomic_write import write_atomically
from localspec.ground.errors import UnreadableFile
from localspec.ground.parsing import parse_json

SCHEMA = 1


def save(path: Path, run: BenchRun, report: Report | None = None) -> None:
    """Write the run, and what it says once that is known."""
    write_atomically(path, json.dumps(run_json(run, report), ensure_ascii=False, allow_nan=False) + "\n")


def run_json(run: BenchRun, report: Report | None = None) -> dict[str, Any]:
    """The run as plain values."""
    found = {"schema": SCHEMA, "kind": "localspec bench", **asdict(run)}
    if report is not None:
        found["report"] = asdict(report)
    plain = _plain(found)
    assert isinstance(plain, dict)
    return plain


def load(path: Path) -> BenchRun:
    """The inverse of `save`. UnreadableFile when it is anything else."""
    try:
        table = parse_json(path.read_text("utf-8"))
        if table.get("kind") != "localspec bench" or table["schema"] != SCHEMA:
            raise ValueError("another kind of file, or another version's")
        return _run(table)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UnreadableFile(
            f"{path} is no bench result: {reason}", "Name a file written by localspec bench --json"
        ) from None


def _run(table: Mapping[str, Any]) -> BenchRun:
    plan = table["plan"]
    return BenchRun(
        str(table["pair"]),
        str(table["created"]),
        dict(table["environment"]),
        dict(table["settings"]),
        Plan(
            tuple(Arm(**arm) for arm in plan["arms"]),
            tuple(Cell(**cell) for cell in plan["cells"]),
            tuple(Prompt(**prompt) for prompt in plan["prompts"]),
            int(plan["starts"]),
            int(plan["seed"]),
            float(plan["cooldown"]),
            bool(plan["reuse_prompt"]),
            tuple(plan["left_out"]),
            float(plan["budget"]),
        ),
        tuple(_sample(sample) for sample in table["samples"]),
        bool(table["finished"]),
    )


def _sample(table: Mapping[str, Any]) -> Sample:
    measured = dict(table["measured"])
    for name in ("reached", "kept"):
        measured[name] = tuple(measured[name])
    measured["verify_by_rows"] = {
        rows: (int(count), float(seconds)) for rows, (count, seconds) in measured["verify_by_rows"].items()
    }
    return Sample(Cell(**table["cell"]), Measurement(**measured), float(table["at"]))


def _plain(value: Any) -> Any:
    """JSON has no infinities and no tuples."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
