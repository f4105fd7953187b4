"""`localspec check`: may this draft serve this target, and why."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from localspec.cli import options as cli_options
from localspec.cli.streams import print_json
from localspec.terminal import one_line, wants_colour

if TYPE_CHECKING:
    from localspec.pairs.compat import Reason, Verdict
    from localspec.pairs.model_info import ModelInfo
    from localspec.pairs.resolve import PairFiles

SCHEMA = 1
_COLOURS = {"ok": "32", "note": "36", "warning": "33", "stop": "31", "refused": "31"}
_ORDER = ("identical", "shared", "stopped", "swapped", "refused")
_SUMMARY = {
    "identical": "every token id means the same in both",
    "shared": "{masked:,} ids are masked in the draft; the rest mean the same in both",
    "refused": "this draft cannot serve this target",
}


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
    from localspec.pairs import compat, resolve
    from localspec.pairs.split_files import read_model

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


def would_work(target: ModelInfo, files: PairFiles) -> list[str]:
    """Names of drafts that may serve `target`, the smallest first."""
    from localspec.pairs import compat

    models = on_disk(files)
    names = {info.source: name for name, info in models}
    working = compat.drafts_that_work(target, [info for _, info in models])
    return [names[info.source] for info, _ in working]


def on_disk(files: PairFiles) -> list[tuple[str, ModelInfo]]:
    """Models that were pulled or imported, and files beside the pair, each once: (name, header)."""
    from localspec.errors import LocalspecError
    from localspec.pairs import resolve
    from localspec.pairs.split_files import local_set, read_model

    found: dict[str, tuple[Path, ...]] = {name: paths for name, paths in resolve.models_on_disk()}
    for folder in {path.parent for path in (*files.target_files, *files.draft_files)}:
        for path in sorted(folder.glob("*.gguf"))[:50]:
            found.setdefault(str(path), (path,))
    candidates: dict[str, tuple[str, ModelInfo]] = {}
    for name, paths in found.items():
        try:
            info = read_model(local_set(paths[0]))
        except LocalspecError:
            continue  # another report will say what is wrong with that file
        candidates.setdefault(info.source, (name, info))
    return list(candidates.values())


def _check_all(files: PairFiles, as_json: bool) -> int:
    """Every model on this disk as a draft of one target, with the reason that decides."""
    from localspec.pairs import compat
    from localspec.pairs.split_files import read_model

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


def write_report(
    out: TextIO, models: tuple[ModelInfo, ModelInfo], verdict: Verdict, works: list[str], quiet: bool
) -> None:
    """The report for people."""
    colour = wants_colour(out)
    for role, info in zip(("target", "draft"), models, strict=True):
        about = f"{info.architecture}, {info.parameters / 1e9:.2f} B parameters, {info.file_type}"
        print(f"{role:8} {one_line(Path(info.source).name, 60)}  ({one_line(about)})", file=out)
    summary = _SUMMARY[verdict.kind].format(masked=verdict.masked)
    print(f"verdict  {_painted(verdict.kind, verdict.kind, colour)}: {summary}\n", file=out)
    for reason in verdict.reasons if quiet else verdict.rules:
        _write_reason(out, reason, colour)
    if verdict.first_differences:
        _write_differences(out, verdict)
    if works:
        print("\ndrafts on this disk that would work:", file=out)
        for name in works[:8]:
            print(f"  {one_line(name)}", file=out)
    elif verdict.kind == "refused":
        print("\nno draft on this disk would work; see: localspec catalog", file=out)


def _write_reason(out: TextIO, reason: Reason, colour: bool) -> None:
    mark = _painted(f"{reason.severity:8}", reason.severity, colour)
    both = f": {reason.target}" if reason.severity == "ok" and reason.target == reason.draft != "" else ""
    print(f"{mark} {reason.rule:16} {one_line(reason.detail + both)}", file=out)
    if reason.severity != "ok" and (reason.target or reason.draft):
        for role, value in (("target", reason.target), ("draft", reason.draft)):
            print(f"{'':26}{role}: {one_line(value or '-', 120)}", file=out)


def _write_differences(out: TextIO, verdict: Verdict) -> None:
    print("\nfirst ids that differ:", file=out)
    for difference in verdict.first_differences:
        sides = [
            f"{one_line(text, 40)} ({kind})" if kind else "none"
            for text, kind in (
                (difference.target_text, difference.target_type),
                (difference.draft_text, difference.draft_type),
            )
        ]
        print(f"  {difference.id:>7}  {sides[0]:34}  {sides[1]}", file=out)


def _painted(text: str, severity: str, colour: bool) -> str:
    code = {"identical": "32", "shared": "33"}.get(severity) or _COLOURS[severity]
    return f"\x1b[{code}m{text}\x1b[0m" if colour else text
