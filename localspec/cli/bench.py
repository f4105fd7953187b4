"""`localspec bench`: plain against speculative on this machine, by kind of text."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.cli import options as cli_options
from localspec.ground.errors import InvalidInput, LocalspecError, UnreadableFile

if TYPE_CHECKING:
    from localspec.bench.options import BenchOptions
    from localspec.bench.records import BenchRun, Report
    from localspec.bench.setup import BenchPair


class NumberList(click.ParamType[Any]):
    """Numbers with commas between them, as a tuple."""

    def __init__(self, kind: type[int] | type[float], low: float) -> None:
        self._kind, self._low = kind, low
        self.name = "a,b"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        if value == "none":
            return ()
        try:
            numbers = tuple(self._kind(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is no list of numbers like 1,2,4", param, ctx)
        if any(not self._low <= number < 1e9 for number in numbers):
            self.fail(f"{value!r}: a number below {self._low:g}, or not finite", param, ctx)
        return numbers


class Minutes(click.ParamType[Any]):
    """`30`, `30m`, `90s`, as seconds."""

    name = "minutes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value)
        factor = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:], 60.0)
        try:
            seconds = float(text.rstrip("smh")) * factor
        except ValueError:
            self.fail(f"{value!r} is no time like 30, 90s or 2h", param, ctx)
        if not 10 <= seconds < 1e6:
            self.fail(f"{value!r} is outside 10 s .. 11 days", param, ctx)
        return seconds


@click.command()
@click.argument("words", nargs=-1, metavar="PAIR | compare A.json B.json")
@cli_options.pair_options
@click.option("--quick", is_flag=True, help="Under two minutes: fewer prompts, no sweep of draft lengths.")
@click.option("--budget", type=Minutes(), help="Time to use (default: 30 minutes, with --quick 100s).")
@click.option(
    "--starts",
    type=click.IntRange(1, 50),
    default=3,
    show_default=True,
    help="Engine restarts; intervals are over them.",
)
@click.option("--kinds", metavar="A,B", help="Only these kinds of text.")
@click.option("--temps", type=NumberList(float, 0.0), help="Temperatures (default: 0,0.8; with --quick 0).")
@click.option(
    "--depths",
    type=NumberList(int, 0),
    default="0",
    help="Tokens of other text before each question, e.g. 0,2048.",
)
@click.option(
    "--sweep", type=NumberList(int, 1), help="Draft lengths to compare, or none (default: 1,2,3,4,6,8,12,16)."
)
@click.option("--drafters", metavar="A,B", help="Further arms: model, lookup.")
@click.option("--drafts", metavar="A,B", help="Other draft models to try.")
@click.option(
    "--prompts",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Your own prompts: TOML, JSON, or one a line.",
)
@click.option("-n", "--max-tokens", type=click.IntRange(2), help="Most tokens an answer (default: each prompt's own).")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Of the order, and of sampling.")
@click.option("--cooldown", type=click.FloatRange(0, 3600), default=0.0, help="Seconds of rest before each answer.")
@click.option(
    "--against",
    multiple=True,
    metavar="NAME=PATH",
    help="Also measure llama-server or llama-speculative-simple.",
)
@click.option(
    "--url",
    "urls",
    multiple=True,
    metavar="[NAME=]URL",
    help="Also, or only, measure an OpenAI-compatible server.",
)
@click.option("--model", default="", help="Model to ask the servers for (default: the first they list).")
@click.option("--api-key", default="", envvar="LOCALSPEC_API_KEY", help="Key for the servers.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write everything, raw samples included.",
)
@click.option("--html", "html_file", type=click.Path(path_type=Path), metavar="FILE", help="Write a page with plots.")
@click.option("--md", "md_file", type=click.Path(path_type=Path), metavar="FILE", help="Write Markdown.")
@click.option("--csv", "csv_file", type=click.Path(path_type=Path), metavar="FILE", help="Write one line an answer.")
@click.option("--resume", is_flag=True, help="Continue the run in --json FILE, or this pair's last one.")
@cli_options.option("--quiet", "-q", is_flag=True, help="Only the result and errors.")
@cli_options.option("--verbose", "-v", is_flag=True, help="More detail, tracebacks included.")
def bench(words: tuple[str, ...], **values: Any) -> int:
    """Does speculation pay for PAIR on this machine, and for which kind of text?

    Every prompt is answered plain and with guesses, turn about, over several starts of the engine. The answer is a
    verdict per kind: pays, does not pay, or no measurable gain. It is stored with the pair. `bench compare A.json
    B.json` shows what got faster or slower between two runs.
    """
    if words[:1] == ("compare",):
        return _compare(words[1:], values)
    if len(words) > 1:
        raise click.UsageError(f"one pair, please, not {len(words)}")
    for path in (values["json_file"], values["html_file"], values["md_file"], values["csv_file"]):
        if path is not None and not path.absolute().parent.is_dir():
            raise UnreadableFile(f"no folder {path.absolute().parent}", "Make it first")
    return _bench(_options(words[0] if words else None, values), values)


def _bench(options: BenchOptions, values: dict[str, Any]) -> int:
    from localspec.bench.analysis import analyse
    from localspec.bench.render.table import text_report
    from localspec.bench.resume import stored_run
    from localspec.bench.runner import execute
    from localspec.bench.setup import begin, chosen_prompts, find_pair, starter

    pair = find_pair(options)
    path = _result_path(values)
    watch = _watch(path, values)
    start = starter(options, pair)
    if values["resume"]:
        first, run = None, stored_run(path, options, pair)
    else:
        prompts = chosen_prompts(options, values["prompts"])
        if not values["quiet"]:
            print("loading and warming up ...", file=sys.stderr)
        first, run = begin(options, pair, prompts, start)
    watch.saved(run)
    if not values["quiet"]:
        _say_plan(run)
    ended: BaseException | None = None
    try:
        run = execute(run, start, watch, first)
    except (KeyboardInterrupt, LocalspecError) as error:  # what is known by then is still worth telling
        ended, run = error, watch.run
    finally:
        watch.end()
    report = analyse(run)
    print(text_report(run, report), end="")
    _write_files(run, report, path, values)
    if ended is not None:
        print(f"ended early; go on with the same command and --resume --json {path}", file=sys.stderr)
        raise ended
    if pair is not None and run.finished:
        _store(run, report, pair)
    if report.draft_unused:
        print("error: the draft model was loaded and never used", file=sys.stderr)
        return 7
    return 0


def _options(pair: str | None, values: dict[str, Any]) -> BenchOptions:
    from localspec.bench.options import BenchOptions
    from localspec.bench.peers import parse_peer
    from localspec.engine.drafters.table import DRAFTERS

    quick = values["quick"]
    drafters = _words(values["drafters"])
    wrong = [name for name in drafters if name not in DRAFTERS]
    if wrong:
        raise InvalidInput(f"no drafter named {wrong[0]!r}", f"Use {' or '.join(DRAFTERS)}")
    peers = tuple(parse_peer(text) for text in values["against"])
    if pair is None and not values["urls"]:
        from localspec.cli.settings_file import default_pair

        pair = default_pair()
    if pair is None and (peers or not values["urls"]):
        raise click.UsageError("no pair given. Name one, or measure a server with --url")
    values = values | {"no_draft": False, "drafter": "auto", "draft_length": None}
    return BenchOptions(
        pair=pair,
        load=cli_options.load_options(values),
        drafters=drafters,
        lengths=values["sweep"],
        drafts=_words(values["drafts"]),
        peers=peers,
        urls=values["urls"],
        model=values["model"],
        api_key=values["api_key"],
        temperatures=values["temps"] or ((0.0,) if quick else (0.0, 0.8)),
        depths=values["depths"] or (0,),
        kinds=_words(values["kinds"]),
        starts=values["starts"],
        budget=values["budget"] or (100.0 if quick else 1800.0),
        quick=quick,
        cooldown=values["cooldown"],
        seed=values["seed"],
        max_tokens=values["max_tokens"],
    )


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def _result_path(values: dict[str, Any]) -> Path:
    """Where the run is kept while it grows: --json, else a file of our own."""
    import time

    from localspec.ground.locations import state_folder

    if values["json_file"] is not None:
        return Path(values["json_file"])
    folder = state_folder() / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    if values["resume"]:
        stored = sorted(folder.glob("bench-*.json"))
        if not stored:
            raise InvalidInput("there is no run to resume", "Name its file: --resume --json FILE")
        return stored[-1]
    return folder / f"bench-{time.strftime('%Y%m%d-%H%M%S')}.json"


def _say_plan(run: BenchRun) -> None:
    plan = run.plan
    arms = ", ".join(arm.label or arm.name for arm in plan.arms)
    kinds = ", ".join(dict.fromkeys(prompt.kind for prompt in plan.prompts))
    starts = f"{plan.starts} start{'s'[: plan.starts != 1]}"
    print(f"{len(plan.cells)} answers over {starts}: {kinds}; arms: {arms}", file=sys.stderr)
    for text in plan.left_out:
        print(f"left out for lack of time: {text}", file=sys.stderr)


def _watch(path: Path, values: dict[str, Any]) -> Any:
    from localspec.bench.watch import TerminalWatch

    return TerminalWatch(path, quiet=values["quiet"])


def _write_files(run: BenchRun, report: Report, path: Path, values: dict[str, Any]) -> None:
    from localspec.bench import storage
    from localspec.bench.render.csv_text import csv_report
    from localspec.bench.render.html_page import html_report
    from localspec.bench.render.table import markdown_report

    storage.save(path, run, report)
    pages: tuple[tuple[Path | None, Callable[[], str]], ...] = (
        (values["html_file"], lambda: html_report(run, report)),
        (values["md_file"], lambda: markdown_report(run, report)),
        (values["csv_file"], lambda: csv_report(run)),
    )
    saved = [path]
    for file, render in pages:
        if file is not None:
            file.write_text(render(), "utf-8")
            saved.append(file)
    if not values["quiet"]:
        print(f"saved: {', '.join(map(str, saved))}", file=sys.stderr)


def _store(run: BenchRun, report: Report, pair: BenchPair) -> None:
    """Keep the verdict with the pair; a run without one leaves what was known."""
    from localspec.bench.outcome import bench_record
    from localspec.session import verdicts

    record = bench_record(run, report, pair.settings)
    if record:
        verdicts.store(pair.files.target, pair.files.draft, pair.settings.device, bench=record)


def _compare(words: tuple[str, ...], values: dict[str, Any]) -> int:
    from localspec.bench.compare import compare
    from localspec.bench.render.comparison import comparison_json, comparison_markdown, comparison_text
    from localspec.bench.storage import load

    if len(words) != 2:
        raise click.UsageError("bench compare needs two files that bench --json wrote")
    found = compare(load(Path(words[0])), load(Path(words[1])))
    print(comparison_text(found), end="")
    if values["md_file"] is not None:
        Path(values["md_file"]).write_text(comparison_markdown(found), "utf-8")
    if values["json_file"] is not None:
        Path(values["json_file"]).write_text(json.dumps(comparison_json(found)) + "\n", "utf-8")
    return 0
