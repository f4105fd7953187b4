"""`localspec verify`: re-hash a pair's files; fetch again what is damaged."""

from __future__ import annotations

import sys
from threading import Event
from typing import TYPE_CHECKING, Any

import click

from localspec.cli import options as cli_options
from localspec.cli.completing import only_pair_names
from localspec.cli.streams import print_json
from localspec.ground.errors import ProblemFound
from localspec.ground.terminal import is_terminal, row

if TYPE_CHECKING:
    from localspec.pairs.store.integrity import FileCheck
    from localspec.pairs.store.store import PairLock


@click.command()
@click.argument("pair", shell_complete=only_pair_names)
@cli_options.option("--repair", is_flag=True, help="Fetch damaged and missing files again, and only those.")
@cli_options.option("--yes", "-y", is_flag=True, help="The same, without asking.")
@cli_options.option("--offline", is_flag=True, help="Only report.")
@cli_options.output_options
def verify(pair: str, **values: Any) -> int:
    """Read every file of PAIR and compare its hash with the one it was pulled with.

    Exit code 7 when something is wrong and was not repaired.
    """
    from localspec.pairs.store.integrity import check_file, with_hashes
    from localspec.pairs.store.store import Store

    store = Store()
    lock = store.get(pair)
    watch = _progress(lock, values)
    checks = [check_file(model, file, watch) for model, file in lock.files()]
    _clear_progress(values)
    store.save(with_hashes(lock, checks))
    bad = [check for check in checks if not check.good]
    if bad and _wants_repair(bad, values):
        _repair(bad, values)
        checks = [check_file(check.model, check.file, lambda count: None) for check in checks]
        bad = [check for check in checks if not check.good]
    _print(lock, checks, values)
    if bad:
        names = ", ".join(f"{check.path.name} is {check.finding}" for check in bad)
        fetchable = any(check.model.repo for check in bad)
        command = f"verify {pair} --repair" if fetchable else f"rm {pair}"
        hint = f"{'Mend' if fetchable else 'Forget'} it: localspec {command}"
        raise ProblemFound(f"{lock.full_name}: {names}", hint)
    return 0


def _wants_repair(bad: list[FileCheck], values: dict[str, Any]) -> bool:
    if values["offline"] or not any(check.model.repo for check in bad):
        return False
    if values["repair"] or values["yes"]:
        return True
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        return False
    return click.confirm(f"{len(bad)} file(s) are not right. Fetch them again?", err=True)


def _repair(bad: list[FileCheck], values: dict[str, Any]) -> None:
    from localspec.cli.transfer_view import TransferView
    from localspec.pairs.hub.hub import Hub
    from localspec.pairs.hub.transfers import finish_all
    from localspec.pairs.store.integrity import repair

    hub, cancel = Hub(), Event()
    downloads = [repair(check, hub, cancel) for check in bad if check.model.repo]
    finish_all(downloads, cancel, (lambda transfers: None) if values["quiet"] else TransferView(sys.stderr))


def _print(lock: PairLock, checks: list[FileCheck], values: dict[str, Any]) -> None:
    if values["as_json"]:
        files = [
            {"path": str(c.path), "finding": c.finding, "sha256": c.file.sha256, "detail": c.detail}
            for c in checks
        ]
        ok = all(check.good for check in checks)
        print_json({"schema": 1, "name": lock.full_name, "ok": ok, "files": files})
        return
    for check in checks:
        detail = f" ({check.detail})" if check.detail else ""
        print(row(f"{check.finding:<9} {check.path.name}{detail}"))


def _progress(lock: PairLock, values: dict[str, Any]) -> Any:
    if values["quiet"] or not is_terminal(sys.stderr):
        return lambda count: None
    done = 0

    def show(count: int) -> None:
        nonlocal done
        done += count
        print(f"\rreading {100 * done / max(lock.size, 1):3.0f} %", end="", file=sys.stderr, flush=True)

    return show


def _clear_progress(values: dict[str, Any]) -> None:
    if not values["quiet"] and is_terminal(sys.stderr):
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
