"""Every number of a bench report is formatted here."""

from __future__ import annotations

from localspec.bench.records import PLAIN, BenchRun, Interval, Report, Row

Group = tuple[str, str, float, int]
"""(stage, arm, temperature, depth)"""


def rate(interval: Interval | None) -> str:
    """`6.1 ± 0.2`: half the interval's width behind the sign, `?` when it is more than half of the value."""
    if interval is None:
        return "-"
    if interval.low is None or interval.high is None:
        return f"{interval.value:.1f}"
    half = (interval.high - interval.low) / 2
    return f"{interval.value:.1f} ± {half:.1f}" if half < interval.value / 2 else f"{interval.value:.1f} ± ?"


def speedup(interval: Interval | None) -> str:
    """`1.79x`"""
    return "-" if interval is None else f"{interval.value:.2f}x"


def bounds(interval: Interval | None) -> str:
    """`1.70 to 1.88`"""
    if interval is None or interval.low is None or interval.high is None:
        return "-"
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
    """What gets a table of its own: an arm under one temperature and depth, `auto` first."""
    found = {(row.stage, row.arm, row.temperature, row.depth) for row in report.rows if row.stage == stage}
    return sorted((g for g in found if g[1] != PLAIN), key=lambda g: (g[2], g[3], g[1] != "auto", g[1]))


def rows_of(report: Report, group: Group) -> list[Row]:
    """The rows of one group, kinds in the order of the prompts."""
    return [row for row in report.rows if (row.stage, row.arm, row.temperature, row.depth) == group]


def plain_row(report: Report, row: Row) -> Row | None:
    """The plain arm's row beside this one."""
    key = (row.stage, row.kind, row.temperature, row.depth)
    for other in report.rows:
        if other.arm == PLAIN and (other.stage, other.kind, other.temperature, other.depth) == key:
            return other
    return None


def conditions(group: Group) -> str:
    """`auto, temperature 0`"""
    _, arm, temperature, depth = group
    words = [arm, "greedy" if temperature == 0 else f"temperature {temperature:g}"]
    if depth:
        words.append(f"after {depth} tokens of context")
    return ", ".join(words)


def flag_lines(report: Report) -> list[str]:
    """Each flag once, with the rows it concerns."""
    where: dict[tuple[bool, str], list[str]] = {}
    for row in report.rows:
        if row.arm != PLAIN:
            for flag in row.flags:
                where.setdefault((flag.blocks, flag.text), []).append(f"{row.arm}/{row.kind}")
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
