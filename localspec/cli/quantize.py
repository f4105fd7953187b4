"""`localspec quantize`: a smaller file of a model, to draft with."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Any

import click

from localspec.cli import options as cli_options
from localspec.cli.progress import ProgressLine
from localspec.cli.streams import print_json

SCHEMA = 1
TYPES = ("q4_0", "q4_0-pure", "q4_k_m", "iq4_nl", "q8_0", "bf16", "f16")


@click.command()
@click.argument("source")
@cli_options.option("--to", required=True, type=click.Choice(TYPES, case_sensitive=False), help="New type.")
@cli_options.option(
    "--out", metavar="FILE", type=click.Path(path_type=Path), help="Where to (default: the data folder)."
)
@cli_options.option("--force", is_flag=True, help="Replace a file that exists.")
@cli_options.option("--threads", type=click.IntRange(1, 512), metavar="N", help="Threads (default: cores).")
@cli_options.cache_option
@cli_options.output_options
def quantize(source: str, to: str, **values: Any) -> int:
    """Quantize SOURCE, a GGUF file or the name of a model on this disk, to another type.

    q4_0-pure also puts the output matrix, which libllama else keeps finer, in that type: such a draft guesses
    about a fifth faster and accepts about as much. The result appears under its name only when it is whole,
    and can then be named as a draft.
    """
    from localspec.session import quantizing

    quiet = values["quiet"] or values["as_json"]
    start = time.monotonic()
    folder = Path(values["cache_dir"]) if values["cache_dir"] else None
    plan = quantizing.prepare(source, to.lower(), values["out"], values["force"], folder)
    if plan.warning:
        print(f"warning: {plan.warning}", file=sys.stderr)
    if not quiet:
        print(f"{plan.source.name} -> {plan.out} ({plan.bytes / 1e6:.0f} MB)", file=sys.stderr)
    with ProgressLine(f"quantizing to {plan.to}", quiet) as progress:
        name = quantizing.run(plan, progress, values["threads"])
    seconds = time.monotonic() - start
    size = plan.out.stat().st_size
    if values["as_json"]:
        result = {
            "schema": SCHEMA, "name": name, "file": str(plan.out), "bytes": size, "type": plan.to,
            "source": str(plan.source), "seconds": seconds, "warning": plan.warning,
        }  # fmt: skip
        print_json(result)
    else:
        print(plan.out)
        if not quiet:
            print(f"{size / 1e6:.0f} MB in {seconds:.1f} s. Use it: --draft {shlex.quote(name)}", file=sys.stderr)
    return 0
