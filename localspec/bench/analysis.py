"""Samples to a report. Pure: the same run always gives the same report, also when it was interrupted."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median

from localspec.bench import statistics
from localspec.bench.flags import flags_of
from localspec.bench.headline import headline, only_servers, recommended, reference_of
from localspec.bench.records import (
    PLAIN,
    POOLED,
    Arm,
    BenchRun,
    CurvePoint,
    Drift,
    Flag,
    Interval,
    Measurement,
    Report,
    Row,
    Sample,
    VerdictWord,
)
from localspec.engine.drafters import table

_KNEE = 0.02
_FEWEST_GUESSES = 5
"""Below this many guesses at a place of the draft their share says nothing."""

Group = tuple[str, float, int]
"""(stage, temperature, depth)"""


def analyse(run: BenchRun) -> Report:
    """Rows, curves and the answer, from whatever has been measured so far."""
    drift = plain_drift(run.samples)
    rows: list[Row] = []
    for group in _groups(run.samples):
        members = [sample for sample in run.samples if group_of(sample) == group]
        rows.extend(_rows(run, group, members, drift))
    return Report(
        rows=tuple(rows),
        curve=_curve(run.samples),
        draft_step_seconds=_draft_step(run.samples),
        drift=drift,
        knee=_knees(rows, run.plan.arms),
        headline=headline(rows, run),
        recommended=recommended(rows, run),
        notes=_notes(run, rows),
        draft_unused=_draft_unused(run),
        reference=reference_of(run),
        acceptance_by_format=acceptance_by_format(run),
    )


def verdict_of(speedup: Interval | None, blocked: bool) -> VerdictWord:
    """`pays` and `does not pay` need an interval on one side of 1 and nothing that could mislead."""
    if blocked or speedup is None or speedup.low is None or speedup.high is None:
        return "no measurable gain"
    if speedup.low > 1.0:
        return "pays"
    return "does not pay" if speedup.high < 1.0 else "no measurable gain"


def start_ratios(samples: Iterable[Sample], arm: str) -> dict[str, dict[int, list[float]]]:
    """Kind -> start -> log(rate of `arm` / rate of plain), one per block and prompt that has both."""
    rates: dict[tuple[int, str, str, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        rate = sample.measured.rate
        if rate is not None and sample.cell.arm in (arm, PLAIN):
            cell = sample.cell
            rates[cell.block, cell.prompt, cell.kind, cell.start][cell.arm].append(math.log(rate))
    ratios: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (_, _, kind, start), both in rates.items():
        if len(both) == 2:
            ratios[kind][start].append(fmean(both[arm]) - fmean(both[PLAIN]))
    return {kind: dict(starts) for kind, starts in ratios.items()}


def start_rates(samples: Iterable[Sample], arm: str) -> dict[str, dict[int, list[float]]]:
    """Kind -> start -> log tokens/s of every answer of `arm`."""
    rates: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        rate = sample.measured.rate
        if rate is not None and sample.cell.arm == arm:
            rates[sample.cell.kind][sample.cell.start].append(math.log(rate))
    return {kind: dict(starts) for kind, starts in rates.items()}


def by_start(values: Mapping[str, Mapping[int, Sequence[float]]], kind: str) -> list[float]:
    """One number a start. In the pool each kind counts the same; kinds that lack a start others have do not count."""
    if kind != POOLED:
        return [fmean(values[kind][start]) for start in sorted(values.get(kind, {}))]
    whole = pooled_kinds(values)
    if not whole:
        return []
    common = set.intersection(*(set(values[kind]) for kind in whole))
    return [statistics.mean_of_groups({kind: values[kind][start] for kind in whole}) for start in sorted(common)]


def pooled_kinds(values: Mapping[str, Mapping[int, Sequence[float]]]) -> list[str]:
    """The kinds that were measured in as many starts as any."""
    most = max(map(len, values.values()), default=0)
    return [kind for kind, starts in values.items() if len(starts) == most]


def acceptance_by_format(run: BenchRun) -> dict[str, float]:
    """`chat` and `raw` -> acceptance rate of the draft model on the same prompts at the same draft length.

    A draft that was trained before chat tuning guesses worse behind a chat template; what `raw` shows is not what
    a chat gets.
    """
    raw = next((arm for arm in run.plan.arms if arm.raw), None)
    if raw is None:
        return {}
    chat = next((arm for arm in run.plan.arms if arm == replace(raw, name=arm.name, raw=False)), None)
    found = {}
    for name, arm in (("chat", chat), ("raw", raw)):
        good = [s.measured for s in run.samples if arm and s.cell.arm == arm.name and not s.measured.error]
        if verified := sum(m.verified for m in good):
            found[name] = sum(m.accepted for m in good) / verified
    return found if len(found) == 2 else {}


def group_of(sample: Sample) -> Group:
    """The conditions of an answer: only answers under the same ones are compared."""
    return sample.cell.stage, sample.cell.temperature, sample.cell.depth


def plain_drift(samples: Sequence[Sample]) -> Drift | None:
    """How plain decoding moved: least squares on the place in the run, with a level a prompt and a start.

    None where that cannot be told apart from what the prompts take.
    """
    plain = [s for s in samples if s.cell.arm == PLAIN and s.measured.rate is not None]
    starts = [s.cell.start for s in plain]
    prompts = [(s.cell.prompt, group_of(s)) for s in plain]
    logs = [math.log(s.measured.rate or 1.0) for s in plain]
    places = [float(s.cell.index) for s in plain]
    y = statistics.without_levels(logs, starts, prompts)
    x = statistics.without_levels(places, starts, prompts)
    parameters = len(set(starts)) + len(set(prompts))
    if len(plain) <= parameters or sum(value * value for value in x) < 1.0:
        return None
    rise, error = statistics.slope(x, y, parameters)
    spans, levels = [], []
    unlevelled = statistics.without_levels(logs, prompts)
    for start in sorted(set(starts)):
        own = [i for i, s in enumerate(starts) if s == start]
        spans.append(max(places[i] for i in own) - min(places[i] for i in own))
        levels.append(fmean(unlevelled[i] for i in own))
    return Drift(math.expm1(rise * fmean(spans)), math.expm1(levels[-1] - levels[0]), certain=abs(rise) > 2 * error)


# --- parts --------------------------------------------------------------------------------------------


def _groups(samples: Iterable[Sample]) -> list[Group]:
    return sorted({group_of(sample) for sample in samples})


def _rows(run: BenchRun, group: Group, members: Sequence[Sample], drift: Drift | None) -> list[Row]:
    rows = []
    used = {sample.cell.kind for sample in members}
    kinds = [kind for kind in dict.fromkeys(prompt.kind for prompt in run.plan.prompts) if kind in used]
    for arm in run.plan.arms:
        own = [sample for sample in members if sample.cell.arm == arm.name]
        if not own:
            continue
        ratios = {} if arm.name == PLAIN or arm.raw else start_ratios(members, arm.name)
        rates = start_rates(members, arm.name)
        for kind in (*kinds, *((POOLED,) if len(kinds) > 1 else ())):
            meant = (pooled_kinds(ratios or rates) or kinds) if kind == POOLED else [kind]
            chosen = [sample for sample in own if sample.cell.kind in meant]
            if chosen:
                rows.append(_row(run, group, arm, kind, chosen, members, ratios, rates, drift))
    return rows


def _row(
    run: BenchRun,
    group: Group,
    arm: Arm,
    kind: str,
    chosen: Sequence[Sample],
    members: Sequence[Sample],
    ratios: Mapping[str, Mapping[int, Sequence[float]]],
    rates: Mapping[str, Mapping[int, Sequence[float]]],
    drift: Drift | None,
) -> Row:
    paired = by_start(ratios, kind)
    speeds = by_start(rates, kind)
    speedup = statistics.log_interval(paired) if paired else None
    starts = len(paired) if arm.name != PLAIN else len(speeds)
    flags = flags_of(chosen, arm, run.plan, drift, starts, bool(run.settings.get("same_file")))
    if kind == POOLED and len(whole := pooled_kinds(ratios)) < len(ratios):
        flags = (
            *flags,
            Flag("pool", f"only {', '.join(whole)} measured in every start: others do not count", blocks=False),
        )
    stage, temperature, depth = group
    good = [sample.measured for sample in chosen if not sample.measured.error]
    verified = sum(m.verified for m in good)
    passes = sum(m.target_passes for m in good)
    rounds = sum(m.reached[0] for m in good if m.reached)
    fresh = [m for m in good if not m.reused_tokens]
    comparable = arm.name != PLAIN and not arm.raw and any(sample.cell.arm == PLAIN for sample in members)
    # Only the engine itself tells token ids; texts of other programs are cut and escaped in their own way.
    same_source = bool(arm.peer) == only_servers(run)
    return Row(
        stage="sweep" if stage == "sweep" else "main",
        kind=kind,
        arm=arm.name,
        temperature=temperature,
        depth=depth,
        cells=len(chosen),
        starts=starts,
        tokens_per_second=statistics.log_interval(speeds) if speeds else None,
        speedup=speedup,
        verdict=verdict_of(speedup, any(f.blocks for f in flags)) if comparable and not only_servers(run) else None,
        flags=flags,
        acceptance_rate=sum(m.accepted for m in good) / verified if verified else None,
        mean_acceptance_length=sum(m.emitted for m in good if m.target_passes) / passes if passes else None,
        accepted_per_position=_per_position(good),
        drafted_per_round=sum(m.drafted for m in good) / rounds if rounds else None,
        ttft_seconds=median(m.ttft_seconds for m in fresh) if fresh else None,
        prompt_tokens_per_second=_prompt_rate(fresh),
        parts=_shares(good),
        rounds_by_drafter=dict(sum((Counter(m.rounds_by_drafter) for m in good), Counter())),
        same_text=_same_text(chosen, members) if temperature == 0 and comparable and same_source else (0, 0),
    )


def _prompt_rate(fresh: Sequence[Measurement]) -> float | None:
    measured = [m for m in fresh if m.prompt_tokens and m.ttft_seconds > 0]
    seconds = sum(m.ttft_seconds for m in measured)
    return sum(m.prompt_tokens for m in measured) / seconds if seconds else None


def _per_position(good: Sequence[Measurement]) -> tuple[float | None, ...]:
    longest = max((len(m.reached) for m in good), default=0)
    reached = [sum(m.reached[i] for m in good if i < len(m.reached)) for i in range(longest)]
    kept = [sum(m.kept[i] for m in good if i < len(m.kept)) for i in range(longest)]
    return tuple(k / r if r >= _FEWEST_GUESSES else None for k, r in zip(kept, reached, strict=True))


def _shares(good: Sequence[Measurement]) -> dict[str, float]:
    """Share of the decode time by part."""
    totals: Counter[str] = Counter()
    for measured in good:
        totals.update(measured.parts)
    whole = sum(totals.values())
    return {part: seconds / whole for part, seconds in totals.items()} if whole else {}


def _same_text(chosen: Sequence[Sample], members: Sequence[Sample]) -> tuple[int, int]:
    plain = {(s.cell.block, s.cell.prompt): s.measured.text_hash for s in members if s.cell.arm == PLAIN}
    pairs = [
        (s.measured.text_hash, plain.get((s.cell.block, s.cell.prompt), "")) for s in chosen if s.measured.text_hash
    ]
    compared = [(ours, theirs) for ours, theirs in pairs if theirs]
    return sum(ours == theirs for ours, theirs in compared), len(compared)


def _curve(samples: Iterable[Sample]) -> tuple[CurvePoint, ...]:
    """Median pass times by rows, at the plain depth."""
    passes: Counter[int] = Counter()
    medians: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for sample in samples:
        if sample.cell.depth == 0:
            for rows, (count, seconds) in sample.measured.verify_by_rows.items():
                passes[int(rows)] += count
                medians[int(rows)].append((count, seconds))
    return tuple(
        CurvePoint(rows, passes[rows], _weighted_median(medians[rows])) for rows in sorted(medians) if passes[rows] >= 3
    )


def _weighted_median(values: Sequence[tuple[int, float]]) -> float:
    half = sum(count for count, _ in values) / 2
    for count, value in sorted(values, key=lambda pair: pair[1]):
        half -= count
        if half <= 0:
            return value
    return values[-1][1]


def _draft_step(samples: Iterable[Sample]) -> float | None:
    steps = [s.measured.draft_seconds / s.measured.draft_steps for s in samples if s.measured.draft_steps >= 8]
    return median(steps) if steps else None


def _knees(rows: Iterable[Row], arms: Sequence[Arm]) -> dict[str, int]:
    """The shortest draft length within 2 % of the best, by kind."""
    lengths = {arm.name: arm.length for arm in arms}
    speeds: dict[str, dict[int, float]] = defaultdict(dict)
    for row in rows:
        length = lengths.get(row.arm)
        if row.stage == "sweep" and length and row.speedup is not None:
            speeds[row.kind][length] = row.speedup.value
    return {
        kind: min(length for length, value in by_length.items() if value >= (1 - _KNEE) * max(by_length.values()))
        for kind, by_length in speeds.items()
    }


def _notes(run: BenchRun, rows: Sequence[Row]) -> tuple[str, ...]:
    notes = []
    different = [row for row in rows if row.same_text[1] and row.same_text[0] < row.same_text[1] and row.kind != POOLED]
    if different:
        count = sum(row.same_text[1] - row.same_text[0] for row in different)
        whole = sum(row.same_text[1] for row in rows if row.kind != POOLED)
        notes.append(
            f"{count} of {whole} greedy answers differ from plain decoding's: batched passes round "
            "differently; whether that is all, localspec audit tells"
        )
    if formats := acceptance_by_format(run):
        notes.append(
            f"acceptance of the draft model: {formats['chat']:.0%} behind the chat template, {formats['raw']:.0%} "
            "on raw text; the draft lengths are chosen behind it, as in a chat"
        )
    if any(sample.measured.error for sample in run.samples):
        notes.append("some answers failed; their errors are in the JSON")
    return tuple(notes)


def _draft_unused(run: BenchRun) -> bool:
    """Whether a draft model was there and never guessed, not even when it was ordered to."""
    if not run.settings.get("draft") or not any(
        table.uses_draft(arm.drafter) for arm in run.plan.arms if not arm.peer
    ):
        return False
    drafting = [s for s in run.samples if not s.measured.error and s.cell.arm != PLAIN]
    own = {arm.name for arm in run.plan.arms if not arm.peer}
    drafting = [s for s in drafting if s.cell.arm in own]
    used = any(s.measured.draft_works or any(map(table.uses_draft, s.measured.rounds_by_drafter)) for s in drafting)
    return bool(drafting) and not used
