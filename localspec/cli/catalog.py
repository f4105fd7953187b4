"""`localspec catalog`: what can be pulled by name."""

from __future__ import annotations

import sys
from typing import Any

import click

from localspec.cli import options as cli_options
from localspec.cli.streams import print_json
from localspec.ground.errors import UnknownName
from localspec.ground.terminal import one_line, row


@click.command()
@click.argument("words", nargs=-1, metavar="[WORD]...")
@cli_options.output_options
def catalog(words: tuple[str, ...], **values: Any) -> int:
    """Models known by name, those that match every WORD: sizes, the draft that goes with each and why."""
    from localspec.ground.machine import total_memory
    from localspec.pairs.names.catalog import load_catalog

    known = load_catalog()
    models = known.search(" ".join(words))
    if not models:
        raise UnknownName(f"nothing in the catalog matches {' '.join(words)!r}", known.unknown(words[0]).hint)
    if values["as_json"]:
        print_json({"schema": 1, "models": [_json(model) for model in models]})
        return 0
    memory = total_memory()
    for model in models:
        print(_line(model, memory))
        if len(models) <= 12:
            print("\n".join(_details(model)))
    if not values["quiet"]:
        size = f"{memory / 1e9:.0f} GB"
        print(f"{len(models)} models; * = larger than this machine's memory ({size})", file=sys.stderr)
    return 0


def _line(model: Any, memory: int) -> str:
    sizes = "  ".join(
        f"{quant} {gb:g} GB{'*' if gb * 1e9 > memory else ''}" for quant, gb in model.gb.items()
    )
    draft = f"draft {model.drafts[0]}" if model.drafts else "no draft"
    return row(f"{model.name:<24} {draft:<22} {sizes}").rstrip()


def _details(model: Any) -> list[str]:
    facts = [f"{model.title}, {', '.join(model.repos)}"]
    terms = f"licence {model.licence or 'unknown'}" + (", gated" if model.gated else "")
    facts.append(f"{terms}, context {model.context:,}")
    if model.why:
        facts.append(f"drafts: {', '.join(model.drafts) or 'none'}; {model.why}")
    facts += [f"not {draft}: {reason}" for draft, reason in model.avoid.items()]
    facts += [model.note] if model.note else []
    return [f"    {one_line(fact, 300)}" for fact in facts]


def _json(model: Any) -> dict[str, Any]:
    return {
        "name": model.name,
        "title": model.title,
        "repos": list(model.repos),
        "licence": model.licence,
        "gated": model.gated,
        "tokenizer": model.tokenizer,
        "context": model.context,
        "bytes": {quant: round(gb * 1e9) for quant, gb in model.gb.items()},
        "split": list(model.split),
        "drafts": list(model.drafts),
        "why": model.why,
        "avoid": dict(model.avoid),
        "note": model.note,
    }
