"""The answer of a run in one sentence, and what to set."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.bench.records import PLAIN, POOLED, BenchRun, Row


def main_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows that answer the question: of `auto` where it was measured, else of the first other arm."""
    candidates = [row for row in rows if row.stage == "main" and row.arm != PLAIN and row.speedup is not None]
    if not candidates:
        return []
    first = "auto" if any(row.arm == "auto" for row in candidates) else candidates[0].arm
    temperature, depth = min((row.temperature, row.depth) for row in candidates if row.arm == first)
    return [row for row in candidates if (row.arm, row.temperature, row.depth) == (first, temperature, depth)]


def pooled_row(rows: Sequence[Row]) -> Row | None:
    """The one row over all kinds; with one kind only, that kind's."""
    chosen = main_rows(rows)
    return next((row for row in chosen if row.kind == POOLED), chosen[0] if chosen else None)


def recommended(rows: Sequence[Row]) -> str:
    """`on` when something pays, `off` otherwise."""
    return "on" if any(row.verdict == "pays" for row in main_rows(rows)) else "off"


def headline(rows: Sequence[Row], run: BenchRun) -> str:
    """One sentence that a person can act on."""
    chosen = main_rows(rows)
    pooled = pooled_row(rows)
    if pooled is None or pooled.speedup is None:
        return "Nothing to compare yet."
    reference = next((arm.peer for arm in run.plan.arms if arm.name == PLAIN and arm.peer), "")
    if reference:
        return _of_servers(pooled, reference)
    kinds = [row for row in chosen if row.kind != POOLED] or chosen
    blocking = [next((flag.text for flag in row.flags if flag.blocks), "") for row in kinds]
    speed = f"{pooled.speedup.value:.2f}x plain decoding"
    if pooled.speedup.low is not None and pooled.speedup.high is not None:
        speed += f" (95 % interval {pooled.speedup.low:.2f} to {pooled.speedup.high:.2f})"
    words = {word: [row.kind for row in kinds if row.verdict == word] for word in ("pays", "does not pay")}
    if words["pays"] and not words["does not pay"] and len(words["pays"]) == len(kinds):
        return f"Speculation pays here for every kind of text measured: {speed} over all kinds."
    if words["pays"]:
        said = f"Speculation pays here for {_and(words['pays'])}"
        if words["does not pay"]:
            said += f", not for {_and(words['does not pay'])}"
        return f"{said}: {speed} over all kinds."
    if words["does not pay"]:
        return f"Speculation does not pay here for {_and(words['does not pay'])}: {speed} over all kinds."
    why = f"; no verdict: {blocking[0]}" if all(blocking) else ""
    return f"No measurable gain from speculation here: {speed}{why}."


def _of_servers(row: Row, reference: str) -> str:
    """Two servers, neither of which is known to be plain."""
    assert row.speedup is not None
    said = f"{row.arm} makes {row.speedup.value:.2f}x the tokens/s of {reference}"
    if row.speedup.low is not None and row.speedup.high is not None:
        said += f" (95 % interval {row.speedup.low:.2f} to {row.speedup.high:.2f})"
    return f"{said} over {row.kind}." if row.kind == POOLED else f"{said} for {row.kind}."


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
