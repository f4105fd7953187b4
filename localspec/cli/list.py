"""`localspec list`: the pairs on this disk."""

from __future__ import annotations

import sys
from typing import Any

import click

from localspec.cli import options as cli_options
from localspec.cli.streams import print_json
from localspec.ground.terminal import one_line


@click.command("list")
@cli_options.output_options
def list_pairs(**values: Any) -> int:
    """The pairs on this disk, each with its state, size, verdict and measured speedup.

    Of several drafts of one target, `*` marks the one that the target's name alone means: the last one pulled.
    """
    from localspec.cli.pull import pair_json
    from localspec.pairs.store.store import Store

    store = Store()
    named = store.names()
    if values["as_json"]:
        pairs = [pair_json(lock, name) | {"default": _is_default(lock, named)} for name, lock in named]
        print_json({"schema": 1, "pairs": pairs})
    elif not named:
        print("no pairs yet. Get one: localspec pull qwen2.5-7b, or see: localspec catalog", file=sys.stderr)
    else:
        print("\n".join(_table([_row(name + " *" * _is_chosen(lock, named), lock) for name, lock in named])))
    for _, problem in store.faulty():
        print(f"note: {one_line(problem)}", file=sys.stderr)
    return 0


def _of_target(lock: Any, named: list[tuple[str, Any]]) -> list[Any]:
    return [other for _, other in named if other.target.name == lock.target.name]


def _is_default(lock: Any, named: list[tuple[str, Any]]) -> bool:
    """Whether its target's name alone means it."""
    return lock is max(_of_target(lock, named), key=lambda other: str(other.pulled))


def _is_chosen(lock: Any, named: list[tuple[str, Any]]) -> bool:
    """Whether it is the default among several."""
    return len(_of_target(lock, named)) > 1 and _is_default(lock, named)


def _row(name: str, lock: Any) -> tuple[str, ...]:
    from localspec.reports.transfer import size
    from localspec.session import verdicts

    speedup = verdicts.figures([model.paths() for model in lock.models]).get("speedup")
    measured = f"{speedup:.2f}x" if isinstance(speedup, int | float) else "-"
    draft = lock.draft.name if lock.draft else "-"
    return (name, draft, lock.state_text(), size(lock.size), lock.verdict or "-", measured)


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    lines = [("NAME", "DRAFT", "STATE", "SIZE", "VERDICT", "SPEEDUP"), *rows]
    cells = [[one_line(cell, 60) for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in cells]
