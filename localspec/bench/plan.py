"""What to measure, in which order, so that it fits into the time there is.

Within a block two prompts of one kind follow each other, the second one with the arms in mirrored order
(A B B A): a machine that gets steadily slower then slows all arms alike. Which arm comes first is drawn anew for
every start of the engine.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from localspec.bench.options import BenchOptions
from localspec.bench.prompts import estimated_tokens
from localspec.bench.records import PLAIN, Arm, Cell, Plan, Prompt, Stage

SWEEP_LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16)
_FEW_LENGTHS = (2, 4, 8)
_SWEEP_KINDS = ("code", "chat")
_FEWEST_KINDS = 2
_USED = 0.85
"""Share of the budget that is planned: estimates err, and a run must end in time."""
_CELL_OVERHEAD = 0.1
_TOO_LITTLE = "nothing else: even this smallest run may take longer than the budget"


@dataclass(frozen=True, slots=True)
class Speeds:
    """What the warm-up of the first start showed."""

    plain: float
    """Decode tokens/s."""
    prompt: float
    """Prompt tokens/s."""
    start_seconds: float
    """To load and warm up once."""
    elapsed: float = 0.0
    """Already spent of the budget."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """How much of what was asked for is measured."""

    kinds: tuple[str, ...]
    temperatures: tuple[float, ...]
    depths: tuple[int, ...]
    prompts_per_kind: int
    sweep: tuple[Arm, ...]
    sweep_kinds: tuple[str, ...]
    sweep_starts: int
    left_out: tuple[str, ...] = ()


def make_plan(
    prompts: Sequence[Prompt], arms: tuple[Arm, ...], options: BenchOptions, speeds: Speeds, sweep: tuple[Arm, ...] = ()
) -> Plan:
    """The largest part of what was asked for that fits into the budget; `left_out` says what does not.

    `arms`: compared on every prompt, the plain one first unless only servers are measured. `sweep`: arms of fixed
    draft lengths, compared on a few prompts only.
    """
    wanted = [prompt for prompt in prompts if not options.kinds or prompt.kind in options.kinds]
    short = [prompt for prompt in wanted if prompt.quick] if options.quick else []
    usable = [_limited(prompt, options) for prompt in short or wanted]
    scope = _everything(usable, sweep, options)
    room = _USED * options.budget - speeds.elapsed - (options.starts - 1) * speeds.start_seconds
    for reduce in _REDUCTIONS:
        while estimated_seconds(_cells(usable, arms, options, scope), usable, options, speeds) > room:
            smaller = reduce(scope)
            if smaller is None:
                break
            scope = smaller
    cells = tuple(_cells(usable, arms, options, scope))
    if estimated_seconds(cells, usable, options, speeds) > room:
        scope = replace(scope, left_out=(*scope.left_out, _TOO_LITTLE))
    used = {cell.prompt for cell in cells}
    return Plan(
        (*arms, *scope.sweep),
        cells,
        tuple(prompt for prompt in usable if prompt.id in used),
        options.starts,
        options.seed,
        options.cooldown,
        options.quick,
        scope.left_out,
        max(1.0, options.budget - speeds.elapsed),
    )


def estimated_seconds(
    cells: Sequence[Cell] | Iterator[Cell], prompts: Sequence[Prompt], options: BenchOptions, speeds: Speeds
) -> float:
    """How long these cells take, about; drafts are not counted on to save time."""
    by_id = {prompt.id: prompt for prompt in prompts}
    total = 0.0
    seen: set[tuple[int, str]] = set()
    for cell in cells:
        prompt = by_id[cell.prompt]
        total += cell_seconds(prompt, cell, speeds, cached=options.quick and (cell.block, cell.prompt) in seen)
        total += options.cooldown
        seen.add((cell.block, cell.prompt))
    return total


def cell_seconds(prompt: Prompt, cell: Cell, speeds: Speeds, cached: bool = False) -> float:
    """One answer, about."""
    reading = 0.0 if cached else estimated_tokens(prompt, cell.depth) / speeds.prompt
    return reading + min(prompt.expected_tokens, cell.max_tokens) / speeds.plain + _CELL_OVERHEAD


def _everything(prompts: Sequence[Prompt], sweep: tuple[Arm, ...], options: BenchOptions) -> _Scope:
    kinds = tuple(dict.fromkeys(prompt.kind for prompt in prompts))
    sweep_kinds = tuple(kind for kind in _SWEEP_KINDS if kind in kinds) or kinds[:1]
    most = max(sum(prompt.kind == kind for prompt in prompts) for kind in kinds)
    return _Scope(kinds, options.temperatures, options.depths, most, sweep, sweep_kinds, options.starts)


def _cells(prompts: Sequence[Prompt], arms: tuple[Arm, ...], options: BenchOptions, scope: _Scope) -> list[Cell]:
    cells: list[Cell] = []
    block = 0
    for start in range(options.starts):
        rng = random.Random(f"{options.seed}/{start}")
        blocks = list(_blocks(prompts, arms, scope, start))
        # Every second start runs the blocks backwards, so that a drift can be told from what the prompts take.
        random.Random(f"{options.seed}/{start // 2}").shuffle(blocks)
        if start % 2:
            blocks.reverse()
        for stage, pair, taking_turns, temperature, depth in blocks:
            order = list(taking_turns)
            rng.shuffle(order)
            # A prompt without a partner takes turns from start to start instead.
            mirrored = len(pair) == 1 and start % 2 == 1
            for prompt in pair:
                for arm in reversed(order) if mirrored else order:
                    cells.append(
                        Cell(len(cells), start, block, stage, prompt.id, prompt.kind, arm.name, temperature,
                             depth, prompt.max_tokens)
                    )  # fmt: skip
                mirrored = not mirrored
            block += 1
    return cells


_Block = tuple[Stage, tuple[Prompt, ...], tuple[Arm, ...], float, int]


def _blocks(prompts: Sequence[Prompt], arms: tuple[Arm, ...], scope: _Scope, start: int) -> Iterator[_Block]:
    for kind in scope.kinds:
        chosen = [prompt for prompt in prompts if prompt.kind == kind][: scope.prompts_per_kind]
        for first in range(0, len(chosen), 2):
            for temperature in scope.temperatures:
                for depth in scope.depths:
                    yield "main", tuple(chosen[first : first + 2]), arms, temperature, depth
    if scope.sweep and start < scope.sweep_starts:
        for kind in scope.sweep_kinds:
            chosen = [prompt for prompt in prompts if prompt.kind == kind][:2]
            plain = tuple(arm for arm in arms if arm.name == PLAIN)
            yield "sweep", tuple(chosen), (*plain, *scope.sweep), scope.temperatures[0], scope.depths[0]


def _limited(prompt: Prompt, options: BenchOptions) -> Prompt:
    if options.max_tokens is None:
        return prompt
    expected = min(prompt.expected_tokens, options.max_tokens)
    return replace(prompt, max_tokens=options.max_tokens, expected_tokens=expected)


# --- what is left out first ---------------------------------------------------------------------------


def _sweep_once(scope: _Scope) -> _Scope | None:
    if not scope.sweep or scope.sweep_starts == 1:
        return None
    text = "the sweep of draft lengths runs in one start only: no intervals for it"
    return replace(scope, sweep_starts=1, left_out=(*scope.left_out, text))


def _fewer_lengths(scope: _Scope) -> _Scope | None:
    kept = tuple(arm for arm in scope.sweep if arm.length in _FEW_LENGTHS)
    if not kept or len(kept) == len(scope.sweep):
        return None
    dropped = ", ".join(arm.name.removeprefix("k") for arm in scope.sweep if arm not in kept)
    return replace(scope, sweep=kept, left_out=(*scope.left_out, f"draft lengths {dropped} in the sweep"))


def _fewer_prompts(scope: _Scope) -> _Scope | None:
    if scope.prompts_per_kind <= 2:
        return None
    fewer = 2 * ((scope.prompts_per_kind - 1) // 2)
    left = tuple(text for text in scope.left_out if not text.startswith("prompts beyond"))
    return replace(scope, prompts_per_kind=fewer, left_out=(*left, f"prompts beyond the first {fewer} of each kind"))


def _one_sweep_kind(scope: _Scope) -> _Scope | None:
    if not scope.sweep or len(scope.sweep_kinds) < 2:
        return None
    text = f"the sweep on {', '.join(scope.sweep_kinds[1:])}"
    return replace(scope, sweep_kinds=scope.sweep_kinds[:1], left_out=(*scope.left_out, text))


def _one_temperature(scope: _Scope) -> _Scope | None:
    if len(scope.temperatures) < 2:
        return None
    text = f"temperature {scope.temperatures[-1]:g}"
    return replace(scope, temperatures=scope.temperatures[:-1], left_out=(*scope.left_out, text))


def _one_depth(scope: _Scope) -> _Scope | None:
    if len(scope.depths) < 2:
        return None
    text = f"context depth {scope.depths[-1]}"
    return replace(scope, depths=scope.depths[:-1], left_out=(*scope.left_out, text))


def _no_sweep(scope: _Scope) -> _Scope | None:
    if not scope.sweep:
        return None
    left = tuple(text for text in scope.left_out if "sweep" not in text)
    return replace(scope, sweep=(), left_out=(*left, "the sweep of draft lengths"))


def _fewer_kinds(scope: _Scope) -> _Scope | None:
    if len(scope.kinds) <= _FEWEST_KINDS:
        return None
    order = sorted(scope.kinds, key=lambda kind: kind in _SWEEP_KINDS)  # those of the sweep go last
    text = f"kind {order[0]}"
    kinds = tuple(kind for kind in scope.kinds if kind != order[0])
    return replace(scope, kinds=kinds, left_out=(*scope.left_out, text))


_REDUCTIONS: tuple[Callable[[_Scope], _Scope | None], ...] = (
    _sweep_once, _one_temperature, _fewer_lengths, _fewer_prompts, _one_sweep_kind, _one_depth, _no_sweep,
    _fewer_kinds,
)  # fmt: skip
