"""An audit as people and programs read it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from localspec.audit.records import AuditResult, Fork
from localspec.ground.terminal import one_line

SCHEMA = 1
_TIES_SHOWN = 6

_WORDS = {
    "greedy": "greedy text with drafts is the plain text",
    "coupled": "with a seed, sampled text with drafts is the plain text",
    "penalties": "penalties and biases act alike",
    "stops": "stops and limits cut alike",
    "distribution": "what is emitted has the target's distribution (exact, on real logits)",
    "rewind": "rewinding leaves no trace",
    "seeds": "the sampler is obeyed",
    "plain twice": "plain decoding repeats itself",
}


def result_json(result: AuditResult, about: dict[str, Any]) -> dict[str, Any]:
    """`audit --json`: `about` names the pair, the build and the device."""
    return {
        "schema": SCHEMA,
        "kind": "localspec audit",
        "passed": result.passed,
        "near_ties": result.near_ties,
        "bugs": result.bugs,
        **about,
        **asdict(result),
    }


def summary(result: AuditResult) -> dict[str, Any]:
    """For `verdicts.store(audit=...)`."""
    return {
        "passed": result.passed,
        "near_ties": result.near_ties,
        "bugs": result.bugs,
        "tokens": result.tokens,
        "quick": result.quick,
        "complete": result.complete,
        "largest_batch_noise": result.noise.largest,
        "headline": headline(result),
    }


def headline(result: AuditResult) -> str:
    """The answer in one sentence."""
    return _answer(result) + (f" Only checked: {', '.join(result.only)}." if result.only else "")


def _answer(result: AuditResult) -> str:
    if not result.complete:
        return f"Not finished; {result.bugs} problems found so far."
    if result.bugs:
        word = "problem" if result.bugs == 1 else "problems"
        return f"{result.bugs} {word} that no rounding explains: the output is not the target's own here."
    if result.unjudged:
        forks = f"{result.unjudged} fork{'s'[: result.unjudged != 1]}"
        return f"{forks} could not be judged: too few rows to know how far batches move the logits here."
    if result.near_ties:
        ties = f"{result.near_ties} near-tie{'s'[: result.near_ties != 1]}"
        return f"The output is the target's own here, but for {ties} between equally good tokens."
    return "The output is the target's own here, token for token."


def text_report(result: AuditResult, about: dict[str, Any]) -> str:
    """For the terminal."""
    lines = [one_line(headline(result)), ""]
    width = max((len(check.name) for check in result.checks), default=0)
    unjudged = {fork.check for fork in result.forks if fork.kind == "unjudged"}
    for check in result.checks:
        state = "BUG" if check.bugs else "ok" if check.equal == check.compared else "near-ties"
        state = "unjudged" if not check.bugs and check.name in unjudged else state
        counts = f"{check.equal} of {check.compared} equal"
        counts += f", {check.near_ties} near-ties" if check.near_ties else ""
        counts += f", {check.bugs} bugs" if check.bugs else ""
        lines.append(f"{check.name:<{width}}  {state:<9}  {counts:<28}  {_WORDS.get(check.name, '')}".rstrip())
        if check.note:
            lines.append(f"{'':<{width}}  note: {one_line(check.note)}")
    lines += [""] if result.forks or result.faults else []
    lines += [one_line(f"BUG {fault.check}: {fault.what}", 400) for fault in result.faults]
    lines += [fork_line(fork) for fork in result.forks if fork.kind != "near-tie"]
    ties = [fork for fork in result.forks if fork.kind == "near-tie"]
    lines += [fork_line(fork) for fork in ties[:_TIES_SHOWN]]
    lines += [f"and {len(ties) - _TIES_SHOWN} more near-ties: see --json"] if len(ties) > _TIES_SHOWN else []
    widths = ", ".join(f"{width} rows {value:.3g}" for width, value in result.noise.by_width.items())
    lines += [
        "",
        f"a batch's shape moves the likeliest logits by up to {result.noise.largest:.3g} here ({widths})",
        f"{result.tokens} tokens compared in {result.seconds:.0f} s; {about.get('build')}, {about.get('device')}",
    ]
    return "\n".join(lines) + "\n"


def fork_line(fork: Fork) -> str:
    """One fork on one line."""
    gaps = f"gap {_gap(fork.gap_single)} alone, {_gap(fork.gap_batch)} in a pass of {fork.width}"
    word = "BUG" if fork.kind == "bug" else fork.kind
    return one_line(
        f"{word} {fork.check}: {fork.case}, {fork.variant}: token {fork.index + 1} is {fork.other_text!r} instead of "
        f"{fork.plain_text!r}; {gaps} (numeric up to {fork.tolerance:.3g}): {fork.why}",
        400,
    )


def _gap(value: float | None) -> str:
    return "filtered" if value is None else f"{value:+.3g}"
