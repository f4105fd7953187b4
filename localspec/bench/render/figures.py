"""Every number of a bench report is formatted here."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.bench.records import PLAIN, BenchRun, Interval, Report, Row

_FAR = 3.0
"""Times the value, from where an interval's upper end is not shown."""

Group = tuple[str, str, float, int]
"""(stage, arm, temperature, depth)"""


def rate(interval: Interval | None) -> str:
    """`6.1 ± 0.2`: half the interval's width behind the sign, `>50%` when it is more than half of the value."""
    if interval is None:
        return "-"
    if interval.low is None or interval.high is None:
        return f"{interval.value:.1f}"
    half = (interval.high - interval.low) / 2
    return f"{interval.value:.1f} ± {half:.1f}" if half < interval.value / 2 else f"{interval.value:.1f} ±>50%"


def speedup(interval: Interval | None) -> str:
    """`1.79x`"""
    return "-" if interval is None else f"{interval.value:.2f}x"


def bounds(interval: Interval | None) -> str:
    """`1.70 to 1.88`; `?` where they are so far apart that they say nothing."""
    if interval is None or interval.low is None or interval.high is None:
        return "-"
    if interval.high > _FAR * interval.value:
        return "?"
    return f"{interval.low:.2f} to {interval.high:.2f}"


def share(value: float | None) -> str:
    """`71%`"""
    return "-" if value is None else f"{value:.0%}"


def number(value: float | None, digits: int = 2) -> str:
    """`2.94`"""
    return "-" if value is None else f"{value:.{digits}f}"


def verdict(row: Row) -> str:
    """The verdict, with a mark where flags stand in its way."""
    if row.verdict is None:
        return "-"
    return f"{row.verdict} !" if any(flag.blocks for flag in row.flags) else row.verdict


def milliseconds(seconds: float) -> str:
    """`145 ms`"""
    return f"{1000 * seconds:.3g} ms"


def duration(seconds: float) -> str:
    """`about 12 min`, `40 s`"""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def groups(report: Report, stage: str = "main") -> list[Group]:
    """What gets a table of its own: an arm under one temperature and depth, `auto` first. The reference has none,
    unless it is alone."""
    found = {(row.stage, row.arm, row.temperature, row.depth) for row in report.rows if row.stage == stage}
    others = {group for group in found if group[1] != PLAIN}
    return sorted(others or found, key=lambda g: (g[2], g[3], g[1] != "auto", g[1]))


def rows_of(report: Report, group: Group) -> list[Row]:
    """The rows of one group, kinds in the order of the prompts."""
    return [row for row in report.rows if (row.stage, row.arm, row.temperature, row.depth) == group]


def plain_row(report: Report, row: Row) -> Row | None:
    """The plain arm's row beside this one; None for the plain arm itself."""
    if row.arm == PLAIN:
        return None
    key = (row.stage, row.kind, row.temperature, row.depth)
    for other in report.rows:
        if other.arm == PLAIN and (other.stage, other.kind, other.temperature, other.depth) == key:
            return other
    return None


def conditions(report: Report, group: Group) -> str:
    """`auto, temperature 0.8`"""
    _, arm, temperature, depth = group
    name = report.reference if arm == PLAIN else arm
    words = [name, "greedy" if temperature == 0 else f"temperature {temperature:g}"]
    if depth:
        words.append(f"after {depth} tokens of context")
    return ", ".join(words)


def flag_lines(report: Report) -> list[str]:
    """Each flag once, with the rows it concerns. Where no verdict is made none is missed: those are notes."""
    where: dict[tuple[bool, str], list[str]] = {}
    alone = all(row.arm == PLAIN for row in report.rows)
    for row in report.rows:
        if row.arm != PLAIN or alone:
            judged = row.verdict is not None
            for flag in (flag for flag in row.flags if judged or flag.code != "starts"):
                where.setdefault((flag.blocks and judged, flag.text), []).append(f"{row.arm}/{row.kind}")
    lines = []
    for (blocks, text), rows in sorted(where.items(), key=lambda item: not item[0][0]):
        names = ", ".join(dict.fromkeys(rows)) if len(rows) <= 4 else f"{len(rows)} rows"
        lines.append(f"{'no verdict' if blocks else 'note'} ({names}): {text}")
    return lines


def sweep_points(report: Report, run: BenchRun) -> dict[str, list[tuple[int, Interval]]]:
    """Kind -> (draft length, speedup), by length."""
    lengths = {arm.name: arm.length for arm in run.plan.arms}
    points: dict[str, list[tuple[int, Interval]]] = {}
    for row in report.rows:
        length = lengths.get(row.arm)
        if row.stage == "sweep" and length and row.speedup is not None:
            points.setdefault(row.kind, []).append((length, row.speedup))
    return {kind: sorted(found, key=lambda point: point[0]) for kind, found in points.items()}


def knee(report: Report, kind: str, points: Sequence[tuple[int, Interval]]) -> str:
    """`K 4 is enough`, or that no fixed length is faster than plain decoding; "" when nothing is known."""
    if kind not in report.knee:
        return ""
    pays = max(value.value for _, value in points) > 1.0
    return f"K {report.knee[kind]} is enough" if pays else "none is faster than plain"


def environment_lines(run: BenchRun) -> list[tuple[str, str]]:
    """(what, value) for the reader who wants to repeat it."""
    found: list[tuple[str, str]] = []
    for key, value in run.environment.items():
        if isinstance(value, dict):
            value = ", ".join(f"{name} {item}" for name, item in value.items() if item not in ("", None))
        elif isinstance(value, list | tuple):
            value = ", ".join(map(str, value))
        if value not in ("", None):
            found.append((key.replace("_", " "), str(value)))
    return found


def peak_memory(run: BenchRun) -> int:
    """Most resident bytes seen after any answer; 0 = unknown."""
    return max((sample.measured.memory_bytes for sample in run.samples), default=0)


def counted(run: BenchRun) -> str:
    """`96 answers, 3 engine starts`"""
    starts = len({sample.cell.start for sample in run.samples})
    return f"{len(run.samples)} answers, {starts} engine start{'s'[: starts != 1]}"
