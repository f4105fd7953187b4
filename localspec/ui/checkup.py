"""What `localspec doctor` would say about this machine, as few lines for somebody who has just begun."""

from __future__ import annotations

from localspec.ground.terminal import one_line

_NOT_ASKED = ("hub", "terminal")
"""The hub is not asked before anybody wants something from it; a terminal is plainly there."""
_SHOWN = 3
_RANK = {"problem": 0, "warning": 1, "note": 2}


def checkup() -> list[tuple[str, str]]:
    """(finding, command that helps or ""), the worst first, at most three. Takes seconds: not for an event loop."""
    from localspec.doctor.gather import gather
    from localspec.doctor.rules import examine

    findings = [
        found for found in examine(gather(offline=True)) if found.level != "ok" and found.area not in _NOT_ASKED
    ]
    findings.sort(key=lambda found: _RANK[found.level])
    wanted = [found for found in findings if found.level != "note" or found.next]
    shown = [(f"{found.level}: {found.what}", found.next) for found in wanted[:_SHOWN]]
    if len(wanted) > _SHOWN:
        shown.append((f"and {len(wanted) - _SHOWN} more", "localspec doctor"))
    notes = [found.what for found in findings if found.level == "note" and not found.next]
    return shown or [(f"no problems found{': ' + notes[0] if notes else ''}", "")]


def checkup_text() -> str:
    """The same as text, a command indented below its finding."""
    lines = []
    for what, command in checkup():
        lines.append(one_line(what, 300))
        if command:
            lines.append(f"  {one_line(command, 300)}")
    return "\n".join(lines)
