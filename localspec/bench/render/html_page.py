"""One self-contained page: no script, no fonts, nothing from the network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files

from localspec import __version__
from localspec.bench.headline import pooled_row
from localspec.bench.records import BenchRun, Report, Row
from localspec.bench.render import figures
from localspec.bench.render.plots import figures_of
from localspec.ground.terminal import visible

_HEADS = (
    ("kind of text", ""),
    ("{reference} tokens/s", "what is compared with"),
    ("tokens/s", "with guesses; decode only"),
    ("speedup", "on the same prompts"),
    ("95 % interval", "over engine starts"),
    ("acceptance", "guesses kept of those checked"),
    ("tokens/pass", "1.00 = no help"),
    ("first token", "seconds, prompt included"),
    ("verdict", ""),
)

_EXPLAINED = (
    ("auto,", "Auto: localspec decides by measured times, round by round, whether to guess, with what, and how far."),
    ("greedy", "Greedy: temperature 0, always the likeliest token."),
)


def html_report(run: BenchRun, report: Report) -> str:
    """The page."""
    style = files("localspec.bench").joinpath("data/report.css").read_text("utf-8")
    return "\n".join((
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{_text(run.pair)}: does speculation pay?</title>",
        f"<style>{style}</style></head><body><main>",
        *_top(run, report),
        *_tables(report),
        *_doubts(run, report),
        *_figures(run, report),
        *_time_parts(report),
        *_machine(run),
        "</main></body></html>",
    )) + "\n"  # fmt: skip


def _top(run: BenchRun, report: Report) -> Iterator[str]:
    yield f'<p class="pair">{_text(run.pair)}</p><h1>{_text(report.headline)}</h1>'
    yield (
        '<p class="lead">A small draft guesses the next words, the big model checks several guesses in one pass '
        "and keeps those it agrees with. Every kind of text was answered with and without guesses, turn about, on "
        "this machine. This page is about speed; whether the text is the same here, <code>localspec audit</code> "
        "tells.</p>"
    )
    pooled = pooled_row(report.rows)
    cards = []
    if pooled is not None and pooled.speedup is not None:
        plain = figures.plain_row(report, pooled)
        cards.append((figures.speedup(pooled.speedup), f"the speed of {report.reference}, {pooled.kind}"))
        if plain is not None:
            cards.append((figures.rate(plain.tokens_per_second), f"tokens/s {report.reference}"))
        cards.append((figures.rate(pooled.tokens_per_second), f"tokens/s {pooled.arm}"))
        cards.append((figures.share(pooled.acceptance_rate), "guesses accepted"))
    if report.recommended:
        cards.append((report.recommended, "recommended: speculation"))
    yield '<div class="cards">' + "".join(
        f'<div class="card"><b>{_text(value)}</b><span>{_text(name)}</span></div>' for value, name in cards
    ) + "</div>"  # fmt: skip


def _tables(report: Report) -> Iterator[str]:
    for group in figures.groups(report):
        conditions = figures.conditions(report, group)
        yield f"<h2>{_text(conditions[:1].upper() + conditions[1:])}</h2>"
        if explanation := " ".join(text for word, text in _EXPLAINED if word in conditions):
            yield f"<p>{explanation}</p>"
        yield '<div class="scroll"><table><thead><tr>'
        for name, small in _HEADS:
            yield f"<th>{_text(name.format(reference=report.reference))}<small>{small}</small></th>"
        yield "</tr></thead><tbody>"
        for row in figures.rows_of(report, group):
            yield _table_row(report, row)
        yield "</tbody></table></div>"


def _table_row(report: Report, row: Row) -> str:
    plain = figures.plain_row(report, row)
    blocked = any(flag.blocks for flag in row.flags)
    kind = {"pays": "good", "does not pay": "bad"}.get(row.verdict or "", "flat")
    cells = (
        _text(row.kind),
        figures.rate(plain.tokens_per_second if plain else None),
        figures.rate(row.tokens_per_second),
        f"<b>{figures.speedup(row.speedup)}</b>",
        figures.bounds(row.speedup),
        figures.share(row.acceptance_rate),
        figures.number(row.mean_acceptance_length),
        figures.number(row.ttft_seconds),
        f'<span class="verdict {kind}">{row.verdict or "-"}</span>' + (" *" if blocked else ""),
    )
    return (
        f'<tr class="{"pool" if row.kind == "all kinds" else ""}">' + "".join(f"<td>{c}</td>" for c in cells) + "</tr>"
    )


def _doubts(run: BenchRun, report: Report) -> Iterator[str]:
    lines = [*figures.flag_lines(report), *report.notes]
    if report.drift is not None and not any("drifted" in line for line in lines):
        sure = "" if report.drift.certain else " (within its noise)"
        lines.append(f"The speed of {report.reference} drifted by {report.drift.per_start:+.1%} within a start{sure}.")
    if run.plan.left_out:
        lines.append(f"Left out for lack of time: {'; '.join(run.plan.left_out)}.")
    if not run.finished:
        lines.append(f"The run was not finished: {len(run.samples)} of {len(run.plan.cells)} answers.")
    if lines:
        yield "<h2>Before you quote these numbers</h2><ul>"
        yield from (f"<li>{_text(line)}</li>" for line in lines)
        yield "</ul>"


def _figures(run: BenchRun, report: Report) -> Iterator[str]:
    for figure in figures_of(run, report):
        yield f"<section><h2>{_text(figure.title)}</h2><p>{_text(figure.explanation)}</p>{figure.body}</section>"


def _time_parts(report: Report) -> Iterator[str]:
    pooled = pooled_row(report.rows)
    if pooled is None or not pooled.parts:
        return
    yield "<section><h2>Where does the time go?</h2><p>Share of the decode time with guesses on, all kinds.</p>"
    yield '<div class="split">' + "".join(
        f'<span class="s{i}" style="flex-grow:{share:.4f}" title="{name} {share:.1%}"></span>'
        for i, (name, share) in enumerate(pooled.parts.items())
    ) + "</div>"  # fmt: skip
    yield '<p class="legend">' + "".join(
        f'<span class="key s{i}">{name} {share:.0%}</span>' for i, (name, share) in enumerate(pooled.parts.items())
    ) + "</p></section>"  # fmt: skip


def _machine(run: BenchRun) -> Iterator[str]:
    lines: Sequence[tuple[str, str]] = figures.environment_lines(run)
    yield "<h2>Machine and settings</h2><table class='plain'><tbody>"
    memory = figures.peak_memory(run)
    extra = [("measured", f"{figures.counted(run)}, {run.created}"), ("localspec", __version__)]
    if memory:
        extra.append(("resident memory", f"{memory / 2**30:.2f} GiB, both models"))
    extra += [(f"set: {name}", str(value)) for name, value in run.settings.items() if value not in ("", None)]
    for name, value in (*lines, *extra):
        yield f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>"
    yield "</tbody></table>"
    yield (
        '<p class="small">Method: the arms take turns on the same prompts in one engine process, in mirrored order; '
        "each process start gives one ratio, and the interval is Student's t over them. Speeds are decode speeds: "
        "tokens after the first, by the clock, divided by the time after the first.</p>"
    )


def _text(text: str) -> str:
    return escape(visible(text))
