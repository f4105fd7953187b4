"""The table that a person reads in ten seconds, as plain text and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.bench.records import BenchRun, Report
from localspec.bench.render import figures
from localspec.ground.terminal import one_line, visible

_COLUMNS = (
    "kind of text", "{reference} tokens/s", "tokens/s", "speedup", "95 % interval", "acceptance", "tokens/pass",
    "verdict",
)  # fmt: skip


def text_report(run: BenchRun, report: Report) -> str:
    """For the terminal."""
    lines = [one_line(report.headline), ""]
    for group in figures.groups(report):
        lines += [figures.conditions(report, group), *aligned([_columns(report), *_cells(report, group)]), ""]
    lines += [one_line(line, 300) for line in _details(run, report)]
    return visible("\n".join(lines).rstrip()) + "\n"


def markdown_report(run: BenchRun, report: Report) -> str:
    """The same for a README or an issue."""
    lines = [f"# {_escaped(run.pair)}", "", _escaped(report.headline), ""]
    for group in figures.groups(report):
        lines += [
            f"**{_escaped(figures.conditions(report, group))}**",
            "",
            *markdown_table([_columns(report), *_cells(report, group)]),
            "",
        ]
    lines += [f"- {_escaped(line)}" for line in _details(run, report) if line.strip()]
    if report.curve:
        plain = next((point.seconds for point in report.curve if point.rows == 1), None)
        rows = [("rows in a target pass", "time", "times one row", "passes")]
        rows += [
            (str(point.rows), figures.milliseconds(point.seconds),
             figures.number(point.seconds / plain if plain else None), str(point.passes))
            for point in report.curve
        ]  # fmt: skip
        lines += ["", "**Cost of verifying**", "", *markdown_table(rows)]
    lines += ["", "**Machine and settings**", ""]
    lines += [f"- {_escaped(name)}: {_escaped(value)}" for name, value in figures.environment_lines(run)]
    return "\n".join(lines).rstrip() + "\n"


def _columns(report: Report) -> tuple[str, ...]:
    return tuple(column.format(reference=one_line(report.reference, 30)) for column in _COLUMNS)


def _cells(report: Report, group: figures.Group) -> list[tuple[str, ...]]:
    cells: list[tuple[str, ...]] = []
    for row in figures.rows_of(report, group):
        plain = figures.plain_row(report, row)
        cells.append((
            row.kind,
            figures.rate(plain.tokens_per_second if plain else None),
            figures.rate(row.tokens_per_second),
            figures.speedup(row.speedup),
            figures.bounds(row.speedup),
            figures.share(row.acceptance_rate),
            figures.number(row.mean_acceptance_length),
            figures.verdict(row),
        ))  # fmt: skip
    return cells


def _details(run: BenchRun, report: Report) -> list[str]:
    """What stands below the tables, a line each."""
    lines = []
    for kind, points in figures.sweep_points(report, run).items():
        steps = " ".join(f"K{length} {figures.speedup(value)}" for length, value in points)
        knee = figures.knee(report, kind, points)
        lines.append(f"draft lengths, {kind}: {steps}" + (f"; {knee}" if knee else ""))
    curve = [point for point in report.curve if point.rows in (1, 2, 3, 4, 5, 9, 17)]
    if len(curve) > 1:
        lines.append("a target pass: " + ", ".join(f"{p.rows} rows {figures.milliseconds(p.seconds)}" for p in curve))
    if report.draft_step_seconds is not None:
        lines.append(f"a draft step: {figures.milliseconds(report.draft_step_seconds)}")
    if report.drift is not None:
        sure = "" if report.drift.certain else ", within its noise"
        lines.append(
            f"drift of {report.reference}: {report.drift.per_start:+.1%} within a start{sure}; "
            f"{report.drift.over_run:+.1%} over the run"
        )
    if memory := figures.peak_memory(run):
        lines.append(f"resident memory: {memory / 2**30:.2f} GiB")
    lines += figures.flag_lines(report)
    lines += report.notes
    if run.plan.left_out:
        lines.append(f"left out for lack of time: {'; '.join(run.plan.left_out)}")
    if not run.finished:
        lines.append(f"not finished: {len(run.samples)} of {len(run.plan.cells)} answers; go on with --resume")
    if report.draft_unused:
        lines.append("the draft model was loaded and never used")
    if report.recommended:
        lines.append(f"recommended: speculation {report.recommended} ({figures.counted(run)})")
    else:
        lines.append(f"measured: {figures.counted(run)}")
    return lines


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns side by side, text to the left and figures to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column in (0, len(row) - 1) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """The first row is the head."""
    head, *body = rows
    rule = [":--" if column in (0, len(head) - 1) else "--:" for column in range(len(head))]
    return ["| " + " | ".join(map(_escaped, row)) + " |" for row in (head, rule, *body)]


def _escaped(text: str) -> str:
    return one_line(text, 600).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
