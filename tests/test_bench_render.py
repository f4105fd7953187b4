"""Reports of a run: the same numbers in each format, and nothing hostile gets out."""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from localspec.bench.analysis import analyse
from localspec.bench.compare import compare
from localspec.bench.records import Arm, BenchRun, Interval
from localspec.bench.render import figures
from localspec.bench.render.comparison import comparison_json, comparison_markdown, comparison_text
from localspec.bench.render.csv_text import csv_report
from localspec.bench.render.html_page import html_report
from localspec.bench.render.plots import figures_of
from localspec.bench.render.svg import round_ticks
from localspec.bench.render.table import markdown_report, text_report
from localspec.bench.runner import Progress
from localspec.bench.watch import progress_text
from tests.bench_fakes import AUTO_ARM, PLAIN_ARM, World, simulate

HOSTILE = "<script>alert(1)</script>|\x1b[31m=cmd"


def run(speedup: float = 1.5, **world: float) -> BenchRun:
    speeds = {"auto": speedup, "k1": 1.1, "k2": 1.4, "k4": 1.3}
    sweep = tuple(Arm(name, "model", int(name[1:])) for name in speeds if name != "auto")
    return simulate(World(speeds, **world), 3, (PLAIN_ARM, AUTO_ARM), sweep=sweep)  # type: ignore[arg-type]


def hostile() -> BenchRun:
    made = run()
    samples = tuple(replace(s, cell=replace(s.cell, kind=HOSTILE)) for s in made.samples)
    prompts = tuple(replace(prompt, kind=HOSTILE) for prompt in made.plan.prompts)
    return replace(
        made, pair=HOSTILE, samples=samples, plan=replace(made.plan, prompts=prompts), environment={"cpu": HOSTILE}
    )


def test_the_table_is_read_in_ten_seconds() -> None:
    text = text_report(run(start_noise=0.0, cell_noise=0.0), analyse(run(start_noise=0.0, cell_noise=0.0)))
    assert text.splitlines()[:7] == [
        "Speculation pays here for every kind of text measured: 1.50x plain decoding (95 % interval 1.50 to 1.50) "
        "over all kinds.",
        "",
        "auto, greedy",
        "kind of text  plain tokens/s    tokens/s  speedup  95 % interval  acceptance  tokens/pass  verdict",
        "code              10.0 ± 0.0  15.0 ± 0.0    1.50x   1.50 to 1.50         50%         2.55  pays",
        "chat              10.0 ± 0.0  15.0 ± 0.0    1.50x   1.50 to 1.50         50%         2.55  pays",
        "all kinds         10.0 ± 0.0  15.0 ± 0.0    1.50x   1.50 to 1.50         50%         2.55  pays",
    ]
    assert "draft lengths, all kinds: K1 1.10x K2 1.40x K4 1.30x; K 2 is enough" in text
    assert text.endswith("recommended: speculation on (96 answers, 3 engine starts)\n")


def test_markdown_has_the_same_rows() -> None:
    made = run(start_noise=0.0, cell_noise=0.0)
    text = markdown_report(made, analyse(made))
    assert "| code | 10.0 ± 0.0 | 15.0 ± 0.0 | 1.50x | 1.50 to 1.50 | 50% | 2.55 | pays |" in text
    assert "| 4 | 150 ms | 1.50 |" in text


def test_csv_has_one_line_an_answer() -> None:
    made = run()
    rows = list(csv.DictReader(io.StringIO(csv_report(made))))
    assert len(rows) == len(made.samples)
    assert float(rows[0]["tokens_per_second"]) == pytest.approx(made.samples[0].measured.rate, abs=1e-3)


def test_plots_are_well_formed_and_each_says_how_to_read_it() -> None:
    made = run()
    found = figures_of(made, analyse(made))
    assert [figure.title for figure in found] == [
        "Speedup by kind of text (auto)", "How long should a draft be?", "What does checking cost?",
        "How good are the guesses?", "Did the machine stay the same?",
    ]  # fmt: skip
    for figure in found:
        ElementTree.fromstring(f"<div>{figure.body}</div>")
        assert len(figure.explanation) > 60


def test_a_run_with_nothing_in_it_is_still_a_page() -> None:
    made = replace(run(), samples=(), finished=False)
    report = analyse(made)
    assert "Nothing to compare yet." in text_report(made, report)
    assert "not finished" in text_report(made, report)
    assert "<h1>Nothing to compare yet.</h1>" in html_report(made, report)
    assert figures_of(made, report) == []


def test_nothing_hostile_gets_out() -> None:
    made = hostile()
    report = analyse(made)
    assert "\x1b" not in text_report(made, report)
    page = html_report(made, report)
    assert "<script" not in page and "\x1b" not in page
    markdown = markdown_report(made, report)
    assert "<script" not in markdown and "\x1b" not in markdown
    rows = [line for line in markdown.splitlines() if "alert" in line and line.startswith("|")]
    assert rows and all(line.replace("\\|", "").count("|") == 9 for line in rows)
    assert "\x1b" not in comparison_text(compare(made, made))
    formula = replace(made, samples=tuple(replace(s, cell=replace(s.cell, kind="=1+1")) for s in made.samples[:1]))
    assert ",'=1+1," in csv_report(formula)


def test_wide_intervals_are_not_dressed_up() -> None:
    assert figures.rate(Interval(17.9, 2.0, 90.0)) == "17.9 ±>50%"
    assert figures.rate(Interval(6.1, 5.9, 6.3)) == "6.1 ± 0.2"
    assert figures.rate(Interval(6.1)) == "6.1" and figures.rate(None) == "-"
    assert figures.duration(40) == "40 s" and figures.duration(720) == "12 min" and figures.duration(7200) == "2.0 h"


def test_ticks_are_round_and_enclose() -> None:
    for low, high in ((0, 1), (0.93, 1.71), (0, 20_000), (12, 13), (0.001, 0.002)):
        ticks = round_ticks(low, high)
        assert ticks[0] <= low and ticks[-1] >= high and 3 <= len(ticks) <= 12


def test_comparisons_say_what_changed() -> None:
    found = compare(run(1.5, start_noise=0.002), run(1.2, start_noise=0.002))
    text = comparison_text(found)
    assert "regression" in text and " regressions, " in text
    assert comparison_markdown(found).startswith("| kind of text | arm |")
    assert comparison_json(found)["changes"][0]["kind"] == "code"


def test_the_line_that_a_person_watches() -> None:
    made = run()
    last = made.samples[3]
    text = progress_text(Progress(11, 96, made.plan.cells[11], last, 720.0), {})
    assert text.startswith("[12/96] start 1 · ") and text.endswith(" tokens/s · 12 min left")


SERVER = Arm("plain", "none", peer="http://one", label="<one>")


def test_servers_are_called_by_their_names_and_get_no_verdict() -> None:
    made = simulate(World({"two": 1.5}), 1, (SERVER, Arm("two", "none", peer="http://two")))
    report = analyse(made)
    assert (report.reference, report.recommended) == ("<one>", "")
    assert all(row.verdict is None for row in report.rows)
    text, page = text_report(made, report), html_report(made, report)
    assert text.startswith("two makes 1.50x the tokens/s of <one> (95 % interval 1.50")
    assert "<one> tokens/s" in text and "plain" not in text and text.endswith("measured: 48 answers, 3 engine starts\n")
    assert "&lt;one&gt; tokens/s" in page and "recommended" not in page


def test_one_server_alone_has_a_table() -> None:
    made = simulate(World({}), 1, (SERVER,))
    text = text_report(made, analyse(made))
    assert text.startswith("<one> makes 10.") and "<one>, greedy\n" in text and "\ncode " in text


def test_texts_of_other_programs_are_not_compared_with_the_engines_tokens() -> None:
    peer = Arm("llama-server", "none", peer="llama-server")
    report = analyse(simulate(World({"auto": 1.2, "llama-server": 1.1}), 1, (PLAIN_ARM, AUTO_ARM, peer)))
    compared = {row.arm: row.same_text[1] for row in report.rows if row.kind == "code"}
    assert compared == {"plain": 0, "auto": 12, "llama-server": 0}


def test_what_says_nothing_is_not_shown_as_a_number() -> None:
    assert figures.bounds(Interval(1.0, 0.002, 895.3)) == "?"
    assert figures.bounds(Interval(1.0, 0.9, 1.1)) == "0.90 to 1.10"
    lengths = {"auto": 1.0, "k1": 0.8, "k4": 0.7}
    sweep = tuple(Arm(name, "model", int(name[1:])) for name in lengths if name != "auto")
    made = simulate(World(lengths), 1, sweep=sweep)
    assert "none is faster than plain" in text_report(made, analyse(made))
