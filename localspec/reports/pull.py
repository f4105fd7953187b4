"""What a pull would bring, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localspec.ground.terminal import row
from localspec.pairs.memory.fit_records import lacking, size_text
from localspec.reports.transfer import size

if TYPE_CHECKING:
    from localspec.pairs.memory.fit_records import FitPlan
    from localspec.pairs.pull import PullPlan, Side

# Licences that allow what people do with models on their own machines.
_FREE = ("apache-2.0", "mit", "")


def fit_lines(placed: FitPlan) -> list[str]:
    """Whether it fits, for people."""
    if not placed.fits:
        return [f"fit     does not fit this machine: {lacking(placed)}"]
    lines = [f"fit     fits this machine: {size_text(placed.used)} with {placed.context:,} tokens of context"]
    return lines + [f"        {step.name}: {step.detail}" for step in placed.steps]


def plan_lines(plan: PullPlan) -> list[str]:
    """The plan for people: every file with its size, the verdict, what will cross the network."""
    lines = [line for side in plan.sides for line in _side_lines(side)]
    if plan.draft is None:
        lines.append(f"draft   none: {plan.why_no_draft}")
    if plan.verdict is not None:
        masked = f", {plan.verdict.masked} ids masked" if plan.verdict.masked else ""
        lines.append(f"check   {plan.verdict.kind}{masked}")
        lines += [f"        {one.severity}: {one.detail}" for one in plan.verdict.reasons]
    lines += [f"note    {note}" for note in plan.notes]
    total = sum(side.size for side in plan.sides)
    lines.append(f"total   {size(total)}, to download {size(plan.missing_bytes)}")
    return [row(line) for line in lines]


def _side_lines(side: Side) -> list[str]:
    place = f"{side.listing.repo} @ {side.listing.commit[:8]}" if side.listing else "in place"
    licence = side.listing.licence if side.listing else ""
    lines = [f"{side.role:<8}{side.name} ({side.info.file_type or 'unknown quant'}) from {place}"]
    lines += [f"        {size(d.size):>9}  {d.item.path}" for d in side.downloads]
    lines += [f"        {size(path.stat().st_size):>9}  {path}" for path in side.paths]
    if licence not in _FREE:
        lines.append(f"        licence: {licence}")
    return lines
