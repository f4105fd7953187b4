"""`localspec doctor`: what this machine and this build can do, and what to type next."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from localspec.cli import options as cli_options
from localspec.cli.settings_file import file_error
from localspec.cli.streams import print_json
from localspec.ground.terminal import one_line, wants_colour

if TYPE_CHECKING:
    from localspec.doctor.facts import Facts
    from localspec.doctor.rules import Finding

SCHEMA = 1
_COLOURS = {"ok": "32", "note": "36", "warning": "33", "problem": "31"}


@click.command()
@cli_options.option("--offline", is_flag=True, help="Do not ask the hub.")
@cli_options.cache_option
@cli_options.output_options
def doctor(**values: Any) -> int:
    """Look at Python, the llama.cpp build, processor, graphics cards, memory, disk, hub and terminal.

    Each problem comes with the command that helps. Exit code 7 when there is one.
    """
    from localspec.doctor.gather import gather
    from localspec.doctor.rules import examine

    folder = Path(values["cache_dir"]) if values["cache_dir"] else None
    facts = gather(values["offline"], folder)
    if wrong := file_error():
        facts = replace(facts, settings_error=wrong.message, settings_fix=wrong.hint)
    findings = examine(facts)
    if values["as_json"]:
        print_json(report(facts, findings))
    else:
        write_findings(sys.stdout, findings, values["quiet"])
    return 7 if any(finding.level == "problem" for finding in findings) else 0


def report(facts: Facts, findings: list[Finding]) -> dict[str, Any]:
    """The object of `--json`."""
    from localspec.doctor.rules import do_this_next

    known = asdict(facts)
    known["cpu_features"] = sorted(facts.cpu_features)
    known["build"]["features"] = sorted(facts.build.features)
    return {
        "schema": SCHEMA,
        "ok": not any(finding.level == "problem" for finding in findings),
        "findings": [asdict(finding) for finding in findings],
        "next": do_this_next(findings),
        "facts": known,
    }


def write_findings(out: TextIO, findings: list[Finding], quiet: bool) -> None:
    """The findings for people."""
    from localspec.doctor.rules import do_this_next

    colour = wants_colour(out)
    for finding in findings:
        if quiet and finding.level == "ok":
            continue
        mark = f"{finding.level:8}"
        if colour:
            mark = f"\x1b[{_COLOURS[finding.level]}m{mark}\x1b[0m"
        print(f"{mark} {finding.area:9} {one_line(finding.what)}", file=out)
        if finding.next:
            print(f"{'':18} {one_line(finding.next, 1000)}", file=out)
    print(f"\nDo this next: {one_line(do_this_next(findings), 1000)}", file=out)
