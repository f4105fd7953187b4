"""`localspec draft-ladder`: which quantization of a draft is best for a target, here."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from localspec.cli import options as cli_options
from localspec.cli.progress import ProgressLine
from localspec.cli.streams import print_json
from localspec.ground.terminal import one_line

if TYPE_CHECKING:
    from localspec.bench.ladder import Ladder

SCHEMA = 1


@click.command()
@click.argument("target")
@click.argument("draft")
@cli_options.option("--types", default="q4_0,q4_k_m,q8_0", metavar="A,B", help="Quantizations to compare.")
@cli_options.option("-k", "--draft-length", type=click.IntRange(1, 64), default=4, help="Guesses per round.")
@cli_options.option("-n", "--max-tokens", type=click.IntRange(2), default=64, help="Tokens per prompt.")
@cli_options.option("--prompts", metavar="FILE", type=click.Path(path_type=Path), help="As for bench.")
@cli_options.option("--ctx", type=int, default=4096, metavar="N", help="Tokens of context.")
@cli_options.option("--threads", type=int, metavar="N", help="Threads (default: physical cores).")
@cli_options.cache_option
@cli_options.output_options
def draft_ladder(target: str, draft: str, **values: Any) -> int:
    """Make or take each quantization of DRAFT, measure it with TARGET on the bench prompts, and rank them.

    Ranked by accepted tokens per second; of nearly equal ones the smallest is the best.
    """
    from localspec.bench import ladder
    from localspec.bench.prompts import load_prompts
    from localspec.session import LoadOptions, open_session

    quiet = values["quiet"] or values["as_json"]
    types = [word.strip().lower() for word in values["types"].split(",") if word.strip()]
    prompts = load_prompts(values["prompts"])
    if values["prompts"] is None:  # one of each kind is enough to tell quantizations apart
        prompts = tuple({prompt.kind: prompt for prompt in reversed(prompts) if prompt.quick}.values())
    with ProgressLine("quantizing", quiet) as progress:
        folder = Path(values["cache_dir"]) if values["cache_dir"] else None
        found = ladder.rungs(draft, types, lambda to, fraction: progress(fraction), folder)
    options = LoadOptions(
        draft="none", context=values["ctx"], threads=values["threads"],
        draft_length=values["draft_length"], cache_folder=values["cache_dir"],
    )  # fmt: skip

    length, limit = values["draft_length"], values["max_tokens"]
    with open_session(target, options) as session, ProgressLine("measuring", quiet) as progress:
        turns = (len(found) + 1) * len(prompts)
        steps = iter(range(turns))
        result = ladder.measure(
            session, found, options, prompts, length, limit, lambda rung, number: progress(next(steps) / turns)
        )
    if values["as_json"]:
        print_json(report(result))
    else:
        write_ladder(sys.stdout, result)
    return 0


def report(result: Ladder) -> dict[str, Any]:
    """The object of `--json`."""
    rungs = []
    for measured in result.rungs:
        numbers = asdict(measured)
        rung = numbers.pop("rung")
        rungs.append(
            {"type": rung["type"], "file": str(rung["file"]), "made": rung["made"],
             "acceptance_rate": measured.acceptance_rate, **numbers}
        )  # fmt: skip
    return {
        "schema": SCHEMA,
        "rungs": rungs,
        "best": result.best.rung.type,
        "best_file": str(result.best.rung.file),
        "plain_tokens_per_second": result.plain_tokens_per_second,
    }


def write_ladder(out: TextIO, result: Ladder) -> None:
    """The ranking for people."""
    from localspec.pairs.memory.fit_records import size_text

    plain = result.plain_tokens_per_second
    head = f"{'draft':8} {'acceptance':>10} {'ms a guess':>10} {'accepted/s':>10}"
    print(f"{head} {'tokens/s':>8} {'x plain':>7} {'memory':>9}", file=out)
    for rung in result.rungs:
        times = f"{rung.tokens_per_second / plain:.2f}" if plain else "-"
        print(
            f"{rung.rung.type:8} {rung.acceptance_rate:10.0%} {rung.step_seconds * 1e3:10.1f} "
            f"{rung.accepted_per_second:10.2f} {rung.tokens_per_second:8.2f} {times:>7} "
            f"{size_text(rung.memory_bytes):>9}",
            file=out,
        )
    print(f"{'plain':8} {'':10} {'':10} {'':10} {plain:8.2f} {'1.00':>7}", file=out)
    best = result.best
    print(f"\nbest: {best.rung.type}  --draft {one_line(str(best.rung.file), 300)}", file=out)
    if best.tokens_per_second <= plain:
        print("none of them pays here: the target alone is as fast", file=out)
