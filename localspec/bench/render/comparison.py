"""Two runs side by side, for people and programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from localspec.bench.compare import Change, Comparison
from localspec.bench.render import figures
from localspec.bench.render.table import aligned, markdown_table
from localspec.ground.terminal import one_line, visible

SCHEMA = 1
COLUMNS = ("kind of text", "arm", "tokens/s B/A", "95 % interval", "speedup B/A", "")


def comparison_text(found: Comparison) -> str:
    """For the terminal: what differs, what changed, and the count of regressions."""
    lines = [f"{what}: {one_line(a, 80)} -> {one_line(b, 80)}" for what, a, b in found.differences]
    lines += [""] if lines else []
    lines += aligned([COLUMNS, *(_cells(change) for change in found.changes)])
    return visible("\n".join([*lines, "", _summary(found)])) + "\n"


def comparison_markdown(found: Comparison) -> str:
    """The same as a table for an issue."""
    table = markdown_table([COLUMNS, *(_cells(change) for change in found.changes)])
    differences = [f"- {what}: {one_line(a)} -> {one_line(b)}" for what, a, b in found.differences]
    return "\n".join([*table, "", _summary(found), "", *differences]).rstrip() + "\n"


def comparison_json(found: Comparison) -> dict[str, Any]:
    """As plain values."""
    return {"schema": SCHEMA, "kind": "localspec bench compare", **asdict(found)}


def _cells(change: Change) -> tuple[str, ...]:
    kind = change.kind + (f" (T {change.temperature:g})" if change.temperature else "")
    kind += f" (depth {change.depth})" if change.depth else ""
    return (
        kind,
        change.arm + (" (sweep)" if change.stage == "sweep" else ""),
        figures.speedup(change.rate),
        figures.bounds(change.rate),
        figures.speedup(change.speedup),
        "" if change.word == "same" else change.word,
    )


def _summary(found: Comparison) -> str:
    words = [change.word for change in found.changes]
    if not words:
        return "The two runs have no row in common."
    if set(words) == {"not known"}:
        return "Nothing can be said: each run needs two engine starts or more."
    return (
        f"{words.count('regression')} regressions, {words.count('better')} better, {words.count('same')} the same "
        f"(B against A, {len(words)} rows; one of twenty would look changed by chance)."
    )
