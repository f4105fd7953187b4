"""`localspec import`: use models of other programs where they are."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from localspec.cli import options as cli_options
from localspec.cli.streams import print_json
from localspec.ground.errors import InvalidInput
from localspec.ground.terminal import one_line

if TYPE_CHECKING:
    from localspec.pairs.store.imports import Found
    from localspec.pairs.store.store import Store


@click.command("import")
@click.argument("where")
@cli_options.option("--dry-run", is_flag=True, help="Print what would be imported.")
@cli_options.output_options
def import_models(where: str, **values: Any) -> int:
    """Register the models at WHERE: lmstudio, ollama, llama.cpp, a folder or a file. Nothing is copied."""
    from localspec.pairs.names.catalog import load_catalog
    from localspec.pairs.store.imports import find_models
    from localspec.pairs.store.store import Store

    found = find_models(where, load_catalog())
    good = [one for one in found if one.info is not None]
    store = Store()
    if not values["dry_run"]:
        good = [register(one, where, store) for one in good]
    if values["as_json"]:
        rows = [
            {"name": one.name, "files": list(map(str, one.paths)), "problem": one.problem or None}
            for one in found
        ]
        print_json({"schema": 1, "models": rows})
    else:
        for one in good:
            print(one_line(f"{one.name}  {one.paths[0]}"))
        for one in found:
            if one.problem and not values["quiet"]:
                print(one_line(f"skipped {one.name}: {one.problem}"), file=sys.stderr)
    if not good:
        raise InvalidInput(f"no model that can be used at {where}", "Name a folder with .gguf files")
    return 0


def register(found: Found, where: str, store: Store) -> Found:
    """Save the model's lock, under a name that no other model has."""
    from localspec.pairs.store.imports import lock_of

    one, number = found, 1
    while (other := store.find(one.name)) and other.target.paths() != one.paths:
        number += 1
        one = replace(found, name=f"{found.name}-{number}")
    store.save(lock_of(one, where))
    return one
