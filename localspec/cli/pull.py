"""`localspec pull`: a target and its draft, checked before the first gigabyte."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.cli import options as cli_options
from localspec.cli.completing import catalog_names, model_names
from localspec.cli.streams import print_json
from localspec.ground.errors import Cancelled, DoesNotFit, DownloadFailed
from localspec.ground.terminal import one_line

if TYPE_CHECKING:
    from localspec.pairs.memory.fit_records import FitPlan
    from localspec.pairs.pull import Puller, PullPlan, PullRequest
    from localspec.pairs.store.store import PairLock

_YES = ("1", "ON", "YES", "TRUE")  # as the hub client reads it


@click.command()
@click.argument("target", shell_complete=catalog_names)
@cli_options.option(
    "--draft",
    metavar="D",
    shell_complete=model_names,
    help="Draft: a name (1.5b-q4: of the same family), auto or none.",
)
@cli_options.option("--quant", metavar="Q", help="Quantization of the target: q4, q8, f16 or a full name.")
@cli_options.option("--revision", default="main", metavar="R", help="Branch, tag or commit of the target.")
@cli_options.option("--as", "alias", default="", metavar="NAME", help="Name the pair.")
@cli_options.option("--dry-run", is_flag=True, help="Print the exact files and sizes, download nothing.")
@cli_options.option("--force", is_flag=True, help="Go on when disk or memory look too small.")
@cli_options.option("--offline", is_flag=True, help="Only check what is on this disk.")
@cli_options.cache_option
@cli_options.output_options
def pull(target: str, **values: Any) -> int:
    """Download TARGET and a draft for it.

    TARGET is a catalog name (qwen2.5-7b, qwen2.5-7b-q8), hf:owner/repo[:quant or file], or a GGUF file.
    Both headers are read and compared first; an interrupted pull goes on where it stopped.
    """
    from localspec.pairs.hub.hub import HubUnreachable
    from localspec.pairs.memory.fit_records import lacking
    from localspec.pairs.pull import Puller
    from localspec.reports.pull import fit_lines, plan_lines

    request = _request(target, values)
    if values["cache_dir"]:
        _check_folder(request.cache)
    puller = Puller(request)
    if request.offline and (lock := puller.complete_lock()):
        return _say_complete(lock, values)
    try:
        plan = puller.plan()
    except HubUnreachable as error:
        if lock := puller.complete_lock():
            print(f"note: {one_line(error.message)}", file=sys.stderr)
            return _say_complete(lock, values)
        raise
    placed = _fit(plan)
    if values["dry_run"]:
        _print_plan(plan, placed, values)
        plan.discard()
        return 0
    if not values["quiet"]:
        print("\n".join([*plan_lines(plan), *fit_lines(placed)]), file=sys.stderr)
    if not placed.fits and not values["force"]:
        plan.discard()
        raise DoesNotFit(
            f"{target} does not fit this machine: {lacking(placed)}", "Pull a smaller one, or use --force"
        )
    return _download(puller, plan, values)


def _download(puller: Puller, plan: PullPlan, values: dict[str, Any]) -> int:
    from localspec.cli.transfer_view import TransferView
    from localspec.reports.transfer import size

    view = TransferView(sys.stderr)
    try:
        lock = puller.run(plan, (lambda transfers: None) if values["quiet"] else view)
    except KeyboardInterrupt:
        again = "Run the same command again: it goes on where it stopped"
        raise Cancelled("interrupted", again) from None
    if values["as_json"]:
        print_json({"schema": 1, "pulled": pair_json(lock, lock.short_name)})
    else:
        kind = f", {lock.verdict}" if lock.verdict else ""
        print(f"pulled {one_line(lock.short_name)}: {size(lock.size)}{kind}. Run it: {run_command(lock)}")
    return 0


def _request(target: str, values: dict[str, Any]) -> PullRequest:
    from localspec.pairs.hub.hf_cache import cache_folder
    from localspec.pairs.pull import PullRequest

    return PullRequest(
        target=target,
        draft=values["draft"],
        quant=values["quant"],
        revision=values["revision"],
        alias=values["alias"],
        force=values["force"],
        offline=values["offline"] or os.environ.get("HF_HUB_OFFLINE", "").upper() in _YES,
        cache=cache_folder(values["cache_dir"]),
    )


def _check_folder(cache: Path) -> None:
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DownloadFailed(f"cannot make {cache}: {error.strerror}", "Choose another --cache-dir") from None


def _say_complete(lock: PairLock, values: dict[str, Any]) -> int:
    if values["as_json"]:
        print_json({"schema": 1, "pulled": pair_json(lock, lock.short_name), "checked_online": False})
    else:
        print(f"{one_line(lock.short_name)} is complete (not checked online). Run it: {run_command(lock)}")
    return 0


def run_command(lock: PairLock) -> str:
    """What to type to use the pair."""
    return f'localspec run {one_line(lock.short_name)} "..."'


def _print_plan(plan: PullPlan, placed: FitPlan, values: dict[str, Any]) -> None:
    from localspec.reports.pull import fit_lines, plan_lines

    if values["as_json"]:
        print_json(plan_json(plan) | {"fits": placed.fits, "fit_bytes": placed.used})
    else:
        print("\n".join([*plan_lines(plan), *fit_lines(placed)]))


def _fit(plan: PullPlan) -> FitPlan:
    """Where the pair would go on this machine, if nothing else ran."""
    from localspec.session.memory_plan import plan_download

    target, draft = plan.target, plan.draft
    smaller = (draft.info, draft.size) if draft is not None else (None, 0)
    return plan_download(target.info, target.size, *smaller)


def plan_json(plan: PullPlan) -> dict[str, Any]:
    """The plan for machines."""
    return {
        "schema": 1,
        "models": [
            {
                "role": side.role,
                "name": side.name,
                "repo": side.listing.repo if side.listing else None,
                "revision": side.listing.commit if side.listing else None,
                "licence": side.listing.licence if side.listing else None,
                "files": [
                    {"path": one.item.path, "bytes": one.size, "missing": one.missing_bytes}
                    for one in side.downloads
                ]
                + [{"path": str(path), "bytes": path.stat().st_size, "missing": 0} for path in side.paths],
            }
            for side in plan.sides
        ],
        "verdict": plan.verdict.kind if plan.verdict else None,
        "why_no_draft": plan.why_no_draft or None,
        "notes": list(plan.notes),
        "bytes": sum(side.size for side in plan.sides),
        "bytes_to_download": plan.missing_bytes,
    }


def pair_json(lock: PairLock, name: str = "") -> dict[str, Any]:
    """One pair as `list --json` shows it."""
    from localspec.pairs.store.store import LockedModel
    from localspec.session import verdicts

    def model(one: LockedModel | None) -> dict[str, Any] | None:
        if one is None:
            return None
        return {
            "name": one.name,
            "repo": one.repo or None,
            "revision": one.revision or None,
            "files": [str(path) for path in one.paths()],
            "quant": one.quant,
            "bytes": one.size,
        }

    return {
        "name": name or lock.full_name,
        "state": lock.state_text(),
        "target": model(lock.target),
        "draft": model(lock.draft),
        "bytes": lock.size,
        "verdict": lock.verdict or None,
        "speedup": verdicts.figures([one.paths() for one in lock.models]).get("speedup"),
    }
