"""Where a pair goes in memory, for people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from localspec.ground.terminal import one_line, wants_colour
from localspec.pairs.memory.fit_records import lacking, size_text

if TYPE_CHECKING:
    from localspec.pairs.gguf.model_info import ModelInfo
    from localspec.pairs.memory.fit_records import FitPlan, Place

_BAR = 50
_KINDS = {"weights": "█", "second copy of weights": "▓", "KV cache": "▒", "state": "▒", "compute": "░"}
_COLOURS = {"target": "34", "draft": "32", "program": "37"}


def write_plan(out: TextIO, chosen: FitPlan, target: ModelInfo, draft: ModelInfo | None) -> None:
    """Write a bar for each memory, then the parts."""
    colour = wants_colour(out)
    for role, info in (("target", target), ("draft", draft)):
        if info is not None:
            print(f"{role:8} {one_line(Path(info.source).name, 60)}", file=out)
    drafts = f", {chosen.draft_length} guesses a pass" if chosen.draft else ", no draft model"
    print(f"context  {chosen.context:,} tokens, {chosen.cache_type} cache{drafts}\n", file=out)
    for place in chosen.places:
        _write_bar(out, chosen, place, colour)
    print(f"{'':8} █ weights  ▓ second copy for the CPU  ▒ cache  ░ buffers  · free  ! too much\n", file=out)
    for part in chosen.parts:
        print(f"{part.model:8} {part.what:24} {part.place:10} {size_text(part.bytes):>10}", file=out)
    print(f"{'':8} {'in all':24} {'':10} {size_text(chosen.used):>10}\n", file=out)
    _write_placement(out, chosen)
    for step in chosen.steps:
        print(f"step     {step.name}: {one_line(step.detail)} (saves {size_text(step.saves)})", file=out)
    for note in chosen.notes:
        print(f"note     {note}", file=out)
    if chosen.fits:
        print("fits", file=out)
    else:
        print(f"does not fit: {lacking(chosen)}", file=out)
        print("Shown is what lacks least. Try a smaller quantization or model: localspec catalog", file=out)


def _write_placement(out: TextIO, chosen: FitPlan) -> None:
    if len(chosen.places) == 1:
        return
    for role, placed in (("draft", chosen.draft), ("target", chosen.target)):
        if placed is not None:
            on = ", ".join(
                f"{count} on {place.name}"
                for place, count in zip(chosen.places[1:], placed.by_device, strict=True)
                if count
            )
            print(f"layers   {role}: {on or 'none on a GPU'} of {placed.layers} (output included)", file=out)


def _write_bar(out: TextIO, chosen: FitPlan, place: Place, colour: bool) -> None:
    scale = max(place.free, place.used + place.reserve, 1)
    bar, drawn, seen = "", 0, 0
    for part in chosen.parts:
        if part.place != place.name:
            continue
        seen += part.bytes
        width = round(seen * _BAR / scale) - drawn
        drawn += width
        piece = _KINDS.get(part.what, "░") * width
        bar += f"\x1b[{_COLOURS[part.model]}m{piece}\x1b[0m" if colour else piece
    end = "!" if place.over else "·"
    numbers = f"{size_text(place.used)} of {size_text(place.free)} free, {size_text(place.reserve)} left alone"
    about = f" {one_line(place.description, 30)}" if place.description else ""
    print(f"{place.name:8} {bar}{end * (_BAR - drawn)} {numbers}{about}", file=out)
