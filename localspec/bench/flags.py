"""What can make a row of numbers mislead, and what to do about it.

A blocking flag keeps the row from making a verdict; the others are notes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from localspec.bench.records import Arm, Drift, Flag, Plan, Sample
from localspec.engine.drafters.table import DRAFTERS

MAX_DRIFT = 0.08
_RATE_DISAGREES = 0.10
_SUSPICIOUS_RATE, _SUSPICIOUS_TOKENS = 0.98, 200
_RARE = 0.1
FEWEST_STARTS = 3


def flags_of(
    samples: Sequence[Sample], arm: Arm, plan: Plan, drift: Drift | None, starts: int, same_file: bool
) -> tuple[Flag, ...]:
    """Every reason to doubt this row. `samples`: its answers, failed ones included."""
    good = [sample for sample in samples if not sample.measured.error]
    checks = (
        _failed(samples, good),
        _few_starts(starts, plan),
        _cut_off(good),
        _empty(good),
        _repeated(good, arm, plan),
        _drifted(drift, plan),
        _uncounted(good),
        _rates_disagree(good),
        _suspicious(good, same_file),
        _rarely(good, arm),
    )
    return tuple(flag for flag in checks if flag is not None)


def _failed(samples: Sequence[Sample], good: Sequence[Sample]) -> Flag | None:
    bad = [sample for sample in samples if sample.measured.error]
    if not bad:
        return None
    text = f"{len(bad)} of {len(samples)} answers failed: {bad[0].measured.error}"
    return Flag("failed", text, blocks=2 * len(bad) >= len(samples) or not good)


def _few_starts(starts: int, plan: Plan) -> Flag | None:
    if starts >= FEWEST_STARTS:
        return None
    return Flag(
        "starts",
        f"{starts} engine start{'s'[: starts != 1]}: an interval needs {FEWEST_STARTS}. "
        + ("Allow more time" if plan.starts >= FEWEST_STARTS else f"Use --starts {FEWEST_STARTS}"),
    )


def _cut_off(good: Sequence[Sample]) -> Flag | None:
    cut = sum(sample.measured.finish == "length" for sample in good)
    if 2 * cut <= len(good):
        return None
    return Flag("cut", f"{cut} of {len(good)} answers were cut off by the token limit: allow more with -n")


def _empty(good: Sequence[Sample]) -> Flag | None:
    empty = sum(sample.measured.answer_empty for sample in good)
    if not empty:
        return None
    return Flag("empty", f"{empty} of {len(good)} answers are empty (nothing, or thinking only): allow more with -n")


def _repeated(good: Sequence[Sample], arm: Arm, plan: Plan) -> Flag | None:
    """A repeated prompt flatters guesses from earlier text. Our own index begins anew with each request."""
    if not arm.peer:
        uses_ngrams = arm.drafter in DRAFTERS and not DRAFTERS[arm.drafter].needs_draft
        texts = Counter(prompt.text for prompt in plan.prompts)
        if not uses_ngrams or max(texts.values(), default=0) < 2:
            return None
    else:
        seen = Counter((sample.cell.start, sample.cell.prompt) for sample in good)
        if max(seen.values(), default=0) < 2:
            return None
    return Flag("repeated", "the same prompt was asked twice while guesses come from earlier text")


def _drifted(drift: Drift | None, plan: Plan) -> Flag | None:
    if drift is None or not drift.certain or abs(drift.per_start) <= MAX_DRIFT or plan.cooldown > 0:
        return None
    return Flag("drift", f"the plain arm drifted by {drift.per_start:+.0%} within a start: use --cooldown SECONDS")


def _uncounted(good: Sequence[Sample]) -> Flag | None:
    if all(sample.measured.tokens_counted for sample in good):
        return None
    return Flag("uncounted", "the server gave no token counts: chunks were counted, which may hold several tokens")


def _rates_disagree(good: Sequence[Sample]) -> Flag | None:
    pairs = [(sample.measured.engine_rate, sample.measured.rate) for sample in good]
    off = [(own, ours) for own, ours in pairs if own is not None and ours and abs(own - ours) > _RATE_DISAGREES * ours]
    if 2 * len(off) <= len(good):
        return None
    own, ours = off[0]
    return Flag(
        "clock",
        f"the program's own rate ({own:.1f}) disagrees with the clock ({ours:.1f} tokens/s), which is shown",
        blocks=False,
    )


def _suspicious(good: Sequence[Sample], same_file: bool) -> Flag | None:
    verified = sum(sample.measured.verified for sample in good)
    accepted = sum(sample.measured.accepted for sample in good)
    rounds = sum(sample.measured.reached[0] for sample in good if sample.measured.reached)
    if same_file or verified <= _SUSPICIOUS_TOKENS or accepted <= _SUSPICIOUS_RATE * verified:
        return None
    drafted = sum(sample.measured.drafted for sample in good) / rounds if rounds else 0.0
    if rounds and drafted < 2:
        return None
    share = accepted / verified
    text = f"suspicious: {share:.1%} of {verified} guesses accepted ({drafted:.1f} drafted a round)"
    return Flag("suspicious", text, blocks=False)


def _rarely(good: Sequence[Sample], arm: Arm) -> Flag | None:
    drafted = sum(sample.measured.drafted for sample in good)
    emitted = sum(sample.measured.emitted for sample in good)
    if arm.drafter == "none" or arm.peer or not drafted or drafted >= _RARE * emitted:
        return None
    guesses = f"{drafted} guess{'es' if drafted != 1 else ''}"
    text = f"rarely drafts: {guesses} for {emitted} tokens, so the acceptance rate says little"
    return Flag("rarely", text, blocks=False)
