"""`localspec export`: the same pair, with the same settings, in another engine."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.cli import options as cli_options
from localspec.cli.streams import print_json
from localspec.ground.errors import InvalidInput

if TYPE_CHECKING:
    from localspec.export.records import PairSettings

FORMATS = ("llama-server", "llama-cli", "vllm", "sglang", "tensorrt-llm", "lmstudio", "ollama")


@click.command()
@cli_options.pair_argument
@cli_options.option("--to", "to_format", type=click.Choice(FORMATS), required=True, help="The other engine.")
@cli_options.option("--out", type=click.Path(dir_okay=False), help="Write it to this file instead of stdout.")
@cli_options.option("--engine", metavar="PROGRAM", help="A llama-server or llama-cli to ask for its flags.")
@cli_options.option("--target-repo", metavar="OWNER/NAME", help="Original weights of the target.")
@cli_options.option("--draft-repo", metavar="OWNER/NAME", help="Original weights of the draft.")
@cli_options.pair_options
@cli_options.speculation_options
@cli_options.sampling_options
@cli_options.output_options
def export(pair: str, **values: Any) -> int:
    """Print the command line or the file that runs PAIR in another engine, with notes on what changes."""
    from localspec.export.formats import make
    from localspec.reports.answer import SCHEMA

    found = make(values["to_format"], _settings(pair, values), values["engine"])
    if values["as_json"]:
        facts = {
            "schema": SCHEMA,
            "to": values["to_format"],
            "text": found.text,
            "file_name": found.file_name,
            "notes": list(found.notes),
            "checked": found.checked,
        }
        print_json(facts)
    elif values["out"]:
        _write(Path(values["out"]), found.text)
    else:
        sys.stdout.write(found.text)
    if not values["quiet"] and not values["as_json"]:
        print(f"note: {values['to_format']}: {found.checked}", file=sys.stderr)
    return 0


def _settings(pair: str, values: dict[str, Any]) -> PairSettings:
    """The pair's files and everything that was said about how to run it. Nothing is loaded."""
    from localspec.engine.settings import DEFAULT_CONTEXT
    from localspec.export.originals import original_of
    from localspec.export.records import PairSettings
    from localspec.session import open

    speculation = cli_options.speculation_settings(values)
    options = cli_options.load_options(values)
    sampler = cli_options.sampler_settings(values)
    files = open.find(pair, options)
    target, draft = open.read(files)
    open.check(files, target, draft, options)
    if speculation.drafter == "model" and files.draft is None:
        raise InvalidInput("--drafter model needs a draft model", "Add --draft, or use --drafter lookup")
    lock = files.lock
    target_repo = lock.target.repo if lock is not None else ""
    draft_repo = lock.draft.repo if lock is not None and lock.draft is not None else ""
    return PairSettings(
        name=files.target.stem if files.name.lower().endswith(".gguf") else files.name,
        target=Path(os.path.abspath(files.target)),
        draft=Path(os.path.abspath(files.draft)) if files.draft is not None else None,
        target_repo=values["target_repo"] or original_of(target_repo),
        draft_repo=values["draft_repo"] or original_of(draft_repo),
        drafter=speculation.drafter,
        draft_length=speculation.length,
        sampler=sampler,
        context=options.context or min(DEFAULT_CONTEXT, target.context_length or DEFAULT_CONTEXT),
        max_tokens=values["max_tokens"],
        threads=options.threads,
        gpu_layers=options.gpu_layers,
        draft_gpu_layers=options.draft_gpu_layers,
        split_mode=options.split_mode,
        main_gpu=options.main_gpu,
        cache_type=options.cache_type or "f16",
        flash_attention=options.flash_attention,
    )


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}", "Choose another --out") from None
