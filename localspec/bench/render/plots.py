"""The report's plots, each with the sentence that says how to read it."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.bench.headline import main_rows
from localspec.bench.records import PLAIN, POOLED, BenchRun, Report
from localspec.bench.render import figures
from localspec.bench.render.svg import SERIES_COLOURS, Axis, Plot, legend

_SWEEP = 3
"""First colour of plots in which green and red would seem to judge."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One plot of the page."""

    title: str
    explanation: str
    body: str
    """SVG and perhaps a legend, as HTML."""


def figures_of(run: BenchRun, report: Report) -> list[Figure]:
    """Those that this run has numbers for."""
    made = (
        speedup_by_kind(report), sweep(run, report), verify_curve(report), by_position(report), over_time(run),
    )  # fmt: skip
    return [figure for figure in made if figure is not None]


def speedup_by_kind(report: Report) -> Figure | None:
    """Speedup and its interval, a bar a kind; None without any."""
    rows = [row for row in main_rows(report.rows) if row.speedup is not None]
    if not rows:
        return None
    values = [1.0]
    for row in rows:
        assert row.speedup is not None
        values += [v for v in (row.speedup.value, row.speedup.low, row.speedup.high) if v is not None]
    names = {float(len(rows) - i): row.kind for i, row in enumerate(rows)}
    # An interval of two starts can be absurdly wide; it must not flatten all the others.
    most = 2.5 * max(row.speedup.value for row in rows if row.speedup is not None)
    x = Axis.around("times plain decoding's speed", [min(v, most) for v in values], write=lambda v: f"{v:g}x")
    y = Axis("", 0.4, len(rows) + 0.6, tuple(names), lambda tick: names[tick])
    plot = Plot("speedup by kind of text", x, y, height=74 + 30 * len(rows), left=96)
    plot.rule_x(1.0, "plain")
    for place, row in zip(names, rows, strict=True):
        assert row.speedup is not None
        colour = {"pays": 0, "does not pay": 1}.get(row.verdict or "", 2)
        if row.speedup.low is not None and row.speedup.high is not None:
            plot.whisker(max(row.speedup.low, x.low), min(row.speedup.high, x.high), place, colour)
        tip = f"{row.kind}: {figures.speedup(row.speedup)} ({figures.bounds(row.speedup)}), {row.verdict}"
        plot.point(row.speedup.value, place, colour, tip, 5)
    words = "Right of the line is faster than plain decoding. The bar is the 95 % interval over engine starts: only "
    words += "where it stays on one side of the line is there a verdict."
    key = legend(("pays", "does not pay", "no measurable gain"))
    return Figure(f"Speedup by kind of text ({rows[0].arm})", words, plot.svg() + key)


def sweep(run: BenchRun, report: Report) -> Figure | None:
    """Speedup by fixed draft length; None without a sweep."""
    by_kind = figures.sweep_points(report, run)
    if POOLED in by_kind and len(by_kind) == 2:
        del by_kind[POOLED]
    if not by_kind or max(map(len, by_kind.values())) < 2:
        return None
    lengths = sorted({length for points in by_kind.values() for length, _ in points})
    values = [1.0] + [value.value for points in by_kind.values() for _, value in points]
    x = Axis("draft length K (guesses a round)", 0, max(lengths) + 0.5, lengths)
    y = Axis.around("speedup", values, write=lambda v: f"{v:g}x")
    plot = Plot("speedup by draft length", x, y)
    plot.rule_y(1.0, "plain")
    for series, (kind, points) in enumerate(by_kind.items()):
        plot.line([(length, value.value) for length, value in points], _SWEEP + series, kind)
        for length, value in points:
            if value.low is not None and value.high is not None:
                plot.upright(max(value.low, y.low), min(value.high, y.high), length, _SWEEP + series)
    knees = ", ".join(f"{kind} {figures.knee(report, kind, points)}" for kind, points in by_kind.items())
    words = "With a fixed draft length: more guesses a round help until the later ones are mostly wrong or the wider "
    words += f"pass costs too much. The shortest length within 2 % of the best is enough: {knees}."
    return Figure("How long should a draft be?", words, plot.svg() + legend(tuple(by_kind), _SWEEP))


def verify_curve(report: Report) -> Figure | None:
    """Time of a target pass by its rows; None with fewer than two widths."""
    if len(report.curve) < 2:
        return None
    points = [(float(point.rows), 1000 * point.seconds) for point in report.curve]
    x = Axis("rows in one target pass (guesses + 1)", 0, points[-1][0] + 0.5, [rows for rows, _ in points])
    y = Axis.around("milliseconds", [ms for _, ms in points], zero=True)
    plot = Plot("time of a target pass by rows", x, y)
    plot.line(points, 0, "measured")
    one = next((ms for rows, ms in points if rows == 1), None)
    words = "The time of one pass of the big model by how many tokens it checks at once. The flatter this line, the "
    words += "cheaper it is to have guesses checked."
    if one is not None:
        most = y.high / one
        plot.line([(1.0, one), (min(most, points[-1][0]), one * min(most, points[-1][0]))], 2, "row by row")
        words += " The second line is what plain decoding needs for as many tokens."
    if report.draft_step_seconds is not None:
        words += f" One guess of the draft model takes {figures.milliseconds(report.draft_step_seconds)}."
    names = ("one pass", "", "one by one")
    key = '<p class="legend">' + "".join(
        f'<span class="key s{i}">{name}</span>' for i, name in enumerate(names) if name and (i == 0 or one is not None)
    )
    return Figure("What does checking cost?", words, plot.svg() + key + "</p>")


def by_position(report: Report) -> Figure | None:
    """Share of the guesses that was kept, by place in the draft; None where no kind has two places known."""
    known = {
        row.kind: [(float(place), share) for place, share in enumerate(row.accepted_per_position[:16], 1)
                   if share is not None]
        for row in main_rows(report.rows)
        if row.kind != POOLED
    }
    lines = {kind: points for kind, points in known.items() if len(points) > 1}
    lines = dict(list(lines.items())[:SERIES_COLOURS])
    if not lines:
        return None
    longest = int(max(points[-1][0] for points in lines.values()))
    x = Axis("place of the guess in its draft", 0.5, longest + 0.5, range(1, longest + 1))
    y = Axis("share accepted", 0, 1, (0, 0.25, 0.5, 0.75, 1), lambda v: f"{v:.0%}")
    plot = Plot("acceptance by position", x, y)
    for series, (kind, points) in enumerate(lines.items(), _SWEEP):
        plot.line(points, series, kind)
    words = "Of the guesses that were checked at this place of a draft, the share that the big model kept."
    return Figure("How good are the guesses?", words, plot.svg() + legend(list(lines), _SWEEP))


def over_time(run: BenchRun) -> Figure | None:
    """Every answer's speed in the order of the run; None with fewer than four."""
    arms = [arm.name for arm in run.plan.arms if any(s.cell.arm == arm.name for s in run.samples)]
    arms = arms[:SERIES_COLOURS]
    seen = [(s.at / 60, s.measured.rate, s) for s in run.samples if s.measured.rate and s.cell.arm in arms]
    points = [(at, rate, sample) for at, rate, sample in seen if rate is not None]
    if len(points) < 4:
        return None
    x = Axis.around("minutes since the run began", [at for at, _, _ in points], zero=True)
    y = Axis.around("tokens/s", [rate for _, rate, _ in points], zero=True)
    plot = Plot("speed of every answer over time", x, y)
    starts: dict[int, float] = {}
    for at, rate, sample in points:
        starts.setdefault(sample.cell.start, at)
        tip = f"{sample.cell.arm}, {sample.cell.prompt}: {rate:.1f} tokens/s"
        plot.point(at, rate, _SWEEP + arms.index(sample.cell.arm), tip)
    for start, at in starts.items():
        plot.rule_x(at, f"start {start + 1}")
    words = (
        f"Every dot is one answer. The dots of `{PLAIN}` should lie on a level line: where they sink, the machine got "
    )
    words += "slower while it was measured (heat, other programs)."
    return Figure("Did the machine stay the same?", words.replace("`", ""), plot.svg() + legend(arms, _SWEEP))
