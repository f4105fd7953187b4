"""`localspec check`: may this draft serve this target, and why."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.cli import options as cli_options
from localspec.cli.streams import print_json
from localspec.ground.terminal import one_line

if TYPE_CHECKING:
    from localspec.pairs.compat import Verdict
    from localspec.pairs.names.resolve import PairFiles

SCHEMA = 1
_ORDER = ("identical", "shared", "stopped", "swapped", "refused")


@click.command()
@click.argument("target")
@click.argument("draft", required=False)
@cli_options.option("--draft", "named_draft", metavar="D", help="The same as the second argument.")
@cli_options.option("--all", "every", is_flag=True, help="Every model on this disk as a draft, one line each.")
@cli_options.option("--force", is_flag=True, help="Exit 0 although the draft is larger than its target.")
@cli_options.cache_option
@cli_options.output_options
def check(target: str, draft: str | None, **values: Any) -> int:
    """Report whether DRAFT may guess for TARGET: every rule, what it found, and what that means.

    TARGET and DRAFT are GGUF files or names of models on this disk. Exit code 3 when the pair cannot work.
    """
    from localspec.pairs import compat
    from localspec.pairs.gguf.split_files import read_model
    from localspec.pairs.names import resolve
    from localspec.pairs.store.drafts_here import would_work
    from localspec.reports.compat import write_report

    folder = Path(values["cache_dir"]) if values["cache_dir"] else None
    if values["every"]:
        return _check_all(resolve.find_pair(target, "none", cache_folder=folder), values["as_json"])
    files = resolve.find_pair(target, draft or values["named_draft"], cache_folder=folder)
    if not files.draft_files:
        why = files.why_no_draft or "none is known"
        raise click.UsageError(f"no draft to check: {why}. Name one: localspec check {target} DRAFT")
    models = (read_model(files.target_files), read_model(files.draft_files))
    verdict = compat.check(*models)
    works = would_work(models[0], files) if verdict.kind == "refused" or verdict.stopped else []
    if values["as_json"]:
        print_json(report(verdict, works))
    else:
        write_report(sys.stdout, models, verdict, works, values["quiet"])
    return 3 if verdict.kind == "refused" or (verdict.stopped and not values["force"]) else 0


def _check_all(files: PairFiles, as_json: bool) -> int:
    """Every model on this disk as a draft of one target, with the reason that decides."""
    from localspec.pairs import compat
    from localspec.pairs.gguf.split_files import read_model
    from localspec.pairs.store.drafts_here import on_disk

    target = read_model(files.target_files)
    rows = []
    for name, info in on_disk(files):
        if info.source != target.source:
            verdict = compat.check(target, info)
            worst = verdict.worst()
            state: str = verdict.kind
            if verdict.stopped and verdict.kind != "refused":
                state = "swapped" if verdict.swapped else "stopped"
            rows.append({"name": name, "verdict": state, "reason": worst.detail if worst else ""})
    rows.sort(key=lambda row: _ORDER.index(row["verdict"]))
    if as_json:
        print_json({"schema": SCHEMA, "drafts": rows})
        return 0
    for row in rows:
        print(f"{row['verdict']:9} {one_line(row['name'], 80)}")
        if row["reason"]:
            print(f"{'':9} {one_line(row['reason'])}")
    return 0


def report(verdict: Verdict, works: list[str]) -> dict[str, Any]:
    """The object of `--json`."""
    return {
        "schema": SCHEMA,
        "verdict": verdict.kind,
        "reasons": [asdict(reason) for reason in verdict.reasons],
        "masked_ids": verdict.masked,
        "first_differences": [asdict(difference) for difference in verdict.first_differences],
        "would_work": works,
        "rules": [asdict(rule) for rule in verdict.rules],
        "swapped": verdict.swapped,
        "shared_rows": verdict.shared_rows,
        "differing_ids": verdict.differing,
    }
