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


def recommended(rows: Sequence[Row], run: BenchRun) -> str:
    """`on` when something pays, `off` otherwise; "" where only servers were measured."""
    if only_servers(run):
        return ""
    return "on" if any(row.verdict == "pays" for row in main_rows(rows)) else "off"


def only_servers(run: BenchRun) -> bool:
    """Whether no pair was measured: then nobody knows what plain decoding is."""
    return any(arm.name == PLAIN and arm.peer for arm in run.plan.arms)


def reference_of(run: BenchRun) -> str:
    """What the others are compared with, in words."""
    arm = next((arm for arm in run.plan.arms if arm.name == PLAIN), None)
    return (arm.label or arm.peer or PLAIN) if arm is not None else PLAIN


def headline(rows: Sequence[Row], run: BenchRun) -> str:
    """One sentence that a person can act on."""
    chosen = main_rows(rows)
    pooled = pooled_row(rows)
    reference = reference_of(run)
    if pooled is None or pooled.speedup is None:
        return _of_one_server(rows, reference) if len(run.plan.arms) == 1 else "Nothing to compare yet."
    if only_servers(run):
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
    if len(words["does not pay"]) == len(kinds):
        return f"Speculation does not pay here for {_and(words['does not pay'])}: {speed} over all kinds."
    slower = f"it does not pay for {_and(words['does not pay'])}" if words["does not pay"] else ""
    if pooled.verdict in words:
        rest = slower or "for no kind alone is that certain"
        return f"Speculation {pooled.verdict} here over all kinds together: {speed}; {rest}."
    if slower:
        return f"No measurable gain from speculation here: {speed} over all kinds; {slower}."
    why = f"; no verdict: {blocking[0]}" if all(blocking) else ""
    return f"No measurable gain from speculation here: {speed}{why}."


def _of_one_server(rows: Sequence[Row], reference: str) -> str:
    row = next((row for row in rows if row.kind == POOLED), rows[0] if rows else None)
    if row is None or row.tokens_per_second is None:
        return "Nothing was measured yet."
    return f"{reference} makes {row.tokens_per_second.value:.1f} tokens/s."


def _of_servers(row: Row, reference: str) -> str:
    """Two servers, neither of which is known to be plain."""
    assert row.speedup is not None
    said = f"{row.arm} makes {row.speedup.value:.2f}x the tokens/s of {reference}"
    if row.speedup.low is not None and row.speedup.high is not None:
        said += f" (95 % interval {row.speedup.low:.2f} to {row.speedup.high:.2f})"
    return f"{said} over {row.kind}." if row.kind == POOLED else f"{said} for {row.kind}."


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
