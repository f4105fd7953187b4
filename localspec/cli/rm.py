"""`localspec rm`: remove a pair and the files only it uses."""

from __future__ import annotations

import sys
from typing import Any

import click

from localspec.cli import options as cli_options
from localspec.cli.completing import only_pair_names
from localspec.ground.errors import InvalidInput
from localspec.ground.terminal import is_terminal, one_line, row


@click.command()
@click.argument("pair", shell_complete=only_pair_names)
@cli_options.option("--yes", "-y", is_flag=True, help="Do not ask.")
@cli_options.option("--dry-run", is_flag=True, help="Print what would go, remove nothing.")
@cli_options.output_options
def rm(pair: str, **values: Any) -> int:
    """Remove PAIR. Files that another pair uses stay, and so do files that are used in place."""
    from localspec.pairs.store.cleanup import plan_removal, remove
    from localspec.pairs.store.store import Store
    from localspec.reports.transfer import size

    store = Store()
    removal = plan_removal(store.get(pair), store)
    name = one_line(removal.lock.full_name)
    lines = [f"delete  {path}" for path in removal.files if path.exists()]
    lines += [f"keep    {path}" for path in removal.kept]
    freed = size(removal.size)
    if values["dry_run"]:
        print("\n".join(row(line) for line in [*lines, f"would free {freed}"]))
        return 0
    if not values["yes"]:
        print("\n".join(map(row, lines)), file=sys.stderr)
        confirm(f"Remove {name} and free {freed}?")
    remove(removal, store)
    print(f"removed {name}, {freed} free")
    return 0


def confirm(question: str) -> None:
    """Ask on a terminal; click.Abort on no. Without a terminal nobody can be asked: InvalidInput."""
    if not is_terminal(sys.stdin):
        raise InvalidInput("nobody is there to confirm", "Add --yes")
    click.confirm(question, abort=True, err=True)
