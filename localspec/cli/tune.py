"""`localspec tune`: measure what passes and drafts cost here, and keep it with the pair."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.cli import options as cli_options
from localspec.cli.bench import Minutes
from localspec.cli.streams import print_json
from localspec.ground.atomic_write import write_atomically

if TYPE_CHECKING:
    from localspec.bench.records import BenchRun, Report
    from localspec.bench.setup import BenchPair

_LENGTHS = (1, 2, 3, 4, 6, 8)
_BUDGET = 180.0


@click.command()
@cli_options.pair_argument
@cli_options.pair_options
@click.option("--budget", type=Minutes(), default="3m", show_default=True, help="Time to use.")
@cli_options.output_options
def tune(pair: str, **values: Any) -> int:
    """Measure PAIR's passes by width, its draft's steps, and a few draft lengths; store the profile with the pair.

    One engine start, two kinds of text: enough to know the costs, not for a verdict. That is what `bench` is for.
    """
    from localspec.bench.outcome import profile_record
    from localspec.ground.locations import state_folder
    from localspec.session import verdicts

    with tempfile.TemporaryDirectory(prefix="localspec-tune-") as name:
        found, run, report = _measured(pair, Path(name), values)
        keep_profiles(Path(name), state_folder() / "profiles")
    record = profile_record(report)
    device = found.settings.device
    path = verdicts.store(found.files.target, found.files.draft, device, profile=record)
    if values["as_json"]:
        print_json({"schema": 1, "kind": "localspec tune", "pair": run.pair, "device": device, **record})
    else:
        print(_text(run, report), end="")
    if not values["quiet"]:
        print(f"saved: {path}", file=sys.stderr)
    return 0


def keep_profiles(source: Path, folder: Path) -> None:
    """Put what an engine left in `source` in the place of the profiles that `auto` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    for profile in source.glob("*.json"):
        write_atomically(folder / profile.name, profile.read_text("utf-8"))


def _measured(pair: str, folder: Path, values: dict[str, Any]) -> tuple[BenchPair, BenchRun, Report]:
    from localspec.bench.analysis import analyse
    from localspec.bench.options import BenchOptions
    from localspec.bench.prompts import load_prompts
    from localspec.bench.runner import Clock, execute
    from localspec.bench.setup import begin, find_pair, starter

    load = cli_options.load_options(values | {"no_draft": False, "drafter": "auto", "draft_length": None})
    options = BenchOptions(
        pair, load, lengths=_LENGTHS, kinds=("code", "chat"), starts=1, quick=True,
        budget=values["budget"] or _BUDGET,
    )  # fmt: skip
    found = find_pair(options)
    assert found is not None
    # An empty folder makes the engine calibrate anew, and leaves a profile that is not mixed with older ones.
    settings = replace(found.settings, profiles=folder)
    found = replace(found, settings=settings)
    start = starter(options, found)
    engine, run = begin(options, found, load_prompts(), start)
    run = execute(run, start, Clock(), engine)
    return found, run, analyse(run)


def _text(run: BenchRun, report: Report) -> str:
    from localspec.bench.records import POOLED
    from localspec.bench.render import figures

    lines = [f"a target pass of {p.rows} rows: {figures.milliseconds(p.seconds)}" for p in report.curve]
    if report.draft_step_seconds is not None:
        lines.append(f"a draft step: {figures.milliseconds(report.draft_step_seconds)}")
    points = figures.sweep_points(report, run)
    for kind, found in points.items():
        if kind != POOLED or len(points) == 1:
            steps = " ".join(f"K{length} {figures.speedup(value)}" for length, value in found)
            lines.append(f"{kind}: {steps} of plain; {figures.knee(report, kind, found)}")
    return "\n".join(lines) + "\n"
