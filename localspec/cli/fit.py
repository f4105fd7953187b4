"""`localspec fit`: where a pair goes in memory, and whether it fits."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.cli import options as cli_options
from localspec.cli.streams import print_json
from localspec.cli.value_types import AutoNumber

if TYPE_CHECKING:
    from localspec.pairs.gguf.model_info import ModelInfo
    from localspec.pairs.memory.fit_records import FitPlan

SCHEMA = 1


@click.command()
@cli_options.pair_argument
@cli_options.option("--draft", metavar="D", help="Draft model: a file, a name, `auto` or `none`.")
@cli_options.option("--ctx", type=click.IntRange(16), metavar="N", help="Tokens of context (an order).")
@cli_options.option("--cache-type", metavar="T", help="Element type of the KV caches (an order).")
@cli_options.option(
    "-k", "--draft-length", type=click.IntRange(0, 64), default=16, help="Most guesses in one pass."
)
@cli_options.option(
    "--gpu-layers", type=AutoNumber(), default="auto", help="Target layers on the GPU."
)
@cli_options.option(
    "--draft-gpu-layers", type=AutoNumber(), default="auto", help="Draft layers on the GPU."
)
@cli_options.option("--ram", metavar="SIZE", help="What if this much RAM were free, for example 16GB.")
@cli_options.option(
    "--device", "devices", multiple=True, metavar="SIZE", help="What if there were a GPU of this size."
)
@cli_options.cache_option
@cli_options.output_options
def fit(pair: str, **values: Any) -> int:
    """Plan where the models of PAIR go, weights, caches and buffers, on this machine or an imagined one.

    Exit code 4 when nothing fits, with what is lacking.
    """
    from localspec.pairs.gguf.split_files import read_model
    from localspec.pairs.memory.sizes import CACHE_BITS
    from localspec.pairs.names import resolve
    from localspec.reports.fit import write_plan
    from localspec.session import memory_plan

    if values["cache_type"] and values["cache_type"] not in CACHE_BITS:
        raise click.UsageError(f"no cache type {values['cache_type']!r}; there are {', '.join(CACHE_BITS)}")
    folder = Path(values["cache_dir"]) if values["cache_dir"] else None
    files = resolve.find_pair(pair, values["draft"], cache_folder=folder)
    target = read_model(files.target_files)
    draft = read_model(files.draft_files) if files.draft_files else None
    ram = memory_plan.parse_size(values["ram"]) if values["ram"] else None
    devices = [memory_plan.parse_size(size) for size in values["devices"]]
    machine = memory_plan.imagined_machine(ram, devices) if ram or devices else memory_plan.this_machine()
    chosen = memory_plan.plan_pair(
        target, draft, machine, _wish(values), smaller_drafts=_smaller_drafts(target, draft)
    )
    if values["as_json"]:
        print_json(report(chosen))
    else:
        write_plan(sys.stdout, chosen, target, draft)
    return 0 if chosen.fits else 4


def _wish(values: dict[str, Any]) -> Any:
    from localspec.pairs.memory.fit_records import Wish

    return Wish(
        context=values["ctx"],
        cache_type=values["cache_type"],
        draft_length=values["draft_length"],
        gpu_layers=values["gpu_layers"],
        draft_gpu_layers=values["draft_gpu_layers"],
    )


def _smaller_drafts(target: ModelInfo, draft: ModelInfo | None) -> list[ModelInfo]:
    """Compatible drafts on this disk that take less than `draft`, the largest of them first."""
    from localspec.ground.errors import LocalspecError
    from localspec.pairs import compat
    from localspec.pairs.gguf.split_files import read_model
    from localspec.pairs.names import resolve

    if draft is None:
        return []
    found = []
    for _, paths in resolve.models_on_disk():
        try:
            found.append(read_model(paths))
        except LocalspecError:
            continue
    smaller = [info for info in found if info.weight_bytes < draft.weight_bytes]
    works = [info for info, _ in compat.drafts_that_work(target, smaller)]
    return sorted(works, key=lambda info: -info.weight_bytes)


def report(chosen: FitPlan) -> dict[str, Any]:
    """The object of `--json`; sizes are bytes."""
    from localspec.pairs.memory.fit_records import lacking

    return {
        "schema": SCHEMA,
        "fits": chosen.fits,
        "context": chosen.context,
        "cache_type": chosen.cache_type,
        "draft_length": chosen.draft_length,
        "placement": {
            "target": asdict(chosen.target),
            "draft": asdict(chosen.draft) | {"file": chosen.draft_source} if chosen.draft else None,
        },
        "parts": [asdict(part) for part in chosen.parts],
        "places": [asdict(place) | {"over": place.over} for place in chosen.places],
        "steps": [asdict(step) for step in chosen.steps],
        "notes": list(chosen.notes),
        "used": chosen.used,
        "lacking": lacking(chosen),
    }
