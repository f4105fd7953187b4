"""What a compatibility check found, for people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from localspec.ground.terminal import one_line, wants_colour

if TYPE_CHECKING:
    from localspec.pairs.compat import Reason, Verdict
    from localspec.pairs.gguf.model_info import ModelInfo

_COLOURS = {"ok": "32", "note": "36", "warning": "33", "stop": "31", "refused": "31"}
_SUMMARY = {
    "identical": "every token id means the same in both",
    "shared": "{masked:,} ids are masked in the draft; the rest mean the same in both",
    "refused": "this draft cannot serve this target",
}


def write_report(
    out: TextIO, models: tuple[ModelInfo, ModelInfo], verdict: Verdict, works: list[str], quiet: bool
) -> None:
    """Write the verdict, every rule or with `quiet` those that matter, and the drafts that would work."""
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
