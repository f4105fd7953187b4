"""Replay recorded draft chains under machine profiles, without a model and without a clock.

A trace is one text: `{kind, temperature, prompt: [ids], output: [ids], chains}`, where `chains[i]` is what
a draft chain from the i-th output position met: `[token id, draft confidence, probability of being kept]`
per guess. What lookup would have offered follows from prompt and output. Every policy meets the same luck:
whether the k-th guess at a position is kept is drawn once per trace and seed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.simulator.machine_profiles import MachineProfile
from localspec.engine.control.adaptive import AdaptiveController
from localspec.engine.control.controller import Controller, Plan, Situation
from localspec.engine.control.costs import Costs, calibrate
from localspec.engine.drafters.ngram_index import NO_MATCH, Match, NgramIndex
from localspec.engine.records import Provenance, Round

MAX_DRAFT = 32


@dataclass(frozen=True, slots=True)
class Trace:
    """One recorded text."""

    kind: str
    temperature: float
    prompt: tuple[int, ...]
    output: tuple[int, ...]
    confidences: tuple[tuple[float, ...], ...]
    """Per output position, the draft's confidence in each guess of the chain from there."""
    kept: tuple[tuple[float, ...], ...]
    """Per output position, the chance that each of these guesses is kept if all before it were."""
    offers: tuple[Match, ...]
    """Per output position, what lookup offers."""

    @property
    def name(self) -> str:
        """Kind and temperature."""
        return f"{self.kind} {self.temperature:g}"


def make_trace(
    kind: str,
    temperature: float,
    prompt: Sequence[int],
    output: Sequence[int],
    chains: Sequence[Sequence[Sequence[float]]],
    lookup: bool = True,
) -> Trace:
    """A trace from its recorded parts; lookup's offers are computed."""
    index = NgramIndex(prompt)
    offers = []
    for token in output:
        offers.append(index.propose(MAX_DRAFT) if lookup else NO_MATCH)
        index.append(token)
    return Trace(
        kind,
        temperature,
        tuple(prompt),
        tuple(output),
        tuple(tuple(guess[1] for guess in chain) for chain in chains),
        tuple(tuple(guess[2] for guess in chain) for chain in chains),
        tuple(offers),
    )


def read_traces(path: Path, lookup: bool = True) -> list[Trace]:
    """Traces from a JSON file (plain or gzip). ValueError when it holds anything else."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        import gzip

        data = gzip.decompress(data)
    try:
        return [
            make_trace(t["kind"], t["temperature"], t["prompt"], t["output"], t["chains"], lookup)
            for t in json.loads(data)
        ]
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"not a file of traces: {error!r}") from error


def join(traces: Sequence[Trace], kind: str) -> Trace:
    """Texts one after the other in one answer (code, then prose, then code)."""
    return Trace(
        kind,
        traces[0].temperature,
        traces[0].prompt,
        tuple(token for trace in traces for token in trace.output),
        tuple(chain for trace in traces for chain in trace.confidences),
        tuple(chain for trace in traces for chain in trace.kept),
        tuple(offer for trace in traces for offer in trace.offers),
    )


class Luck:
    """Which guesses are kept: one draw per position and place, the same for every policy."""

    def __init__(self, trace: Trace, seed: int) -> None:
        rng = random.Random(f"{trace.name} {seed}")
        self.kept = []
        for chances in trace.kept:
            kept = 0
            for chance in chances:
                if rng.random() >= chance:
                    break
                kept += 1
            self.kept.append(kept)
        self.copied = [_agreement(offer.ids, trace.output, at) for at, offer in enumerate(trace.offers)]


def _agreement(ids: Sequence[int], output: Sequence[int], at: int) -> int:
    agreed = 0
    while agreed < len(ids) and at + agreed < len(output) and ids[agreed] == output[at + agreed]:
        agreed += 1
    return agreed


class Machine:
    """Seconds of passes on a simulated machine."""

    def __init__(self, profile: MachineProfile, seed: int) -> None:
        self._profile = profile
        self._rng = random.Random(f"{profile.name} {seed}")
        self._last_rows = 1

    def target_pass(self, rows: int, position: int) -> float:
        """One pass of the target."""
        profile = self._profile
        steps = profile.verify[rows - 1]
        if rows != self._last_rows:
            steps += profile.rebuild
        self._last_rows = rows
        return steps * profile.plain_seconds * self._mood(position)

    def draft_passes(self, catch_up_rows: int, passes: int, position: int) -> float:
        """The draft's passes of one round, the first with the rows it lacks."""
        profile = self._profile
        steps = profile.draft_step * (passes + (catch_up_rows - 1) * profile.catch_up_row)
        return steps * profile.plain_seconds * self._mood(position)

    def host(self, rows: int) -> float:
        """Work around a target pass."""
        return self._profile.host_row * rows * self._profile.plain_seconds

    def _mood(self, position: int) -> float:
        profile = self._profile
        mood = 1 + profile.context_growth * position / 1000
        if profile.noise:
            mood *= max(0.5, self._rng.gauss(1.0, profile.noise))
        if profile.spike_chance and self._rng.random() < profile.spike_chance:
            mood *= profile.spike
        return mood


@dataclass(frozen=True, slots=True)
class Outcome:
    """One policy on one trace."""

    rounds: tuple[Round, ...]
    tokens: int
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Speed over the whole text."""
        return self.tokens / self.seconds

    def seconds_of_tokens(self, start: int, stop: int) -> float:
        """Time spent on the tokens start..stop of the text; a round that straddles a bound counts in part."""
        total, at = 0.0, 0
        for round_ in self.rounds:
            emitted = len(round_.emitted)
            inside = min(stop, at + emitted) - max(start, at)
            if inside > 0:
                total += round_.wall_seconds * inside / emitted
            at += emitted
        return total


def replay(
    trace: Trace,
    profile: MachineProfile,
    controller: Controller,
    seed: int = 0,
    repeats: int = 1,
    model: bool = True,
) -> Outcome:
    """Run one policy over a text, `repeats` times in a row as one long answer."""
    machine = Machine(profile, seed)
    rounds: list[Round] = []
    controller.begin(related=False)
    drafted_to = len(trace.prompt)  # tokens that the draft model has decoded
    position = len(trace.prompt) + 1
    for repeat in range(repeats):
        luck, at = Luck(trace, seed * 1000 + repeat), 0
        while at < len(trace.output):
            budget = min(MAX_DRAFT, len(trace.output) - at - 1)
            offer = trace.offers[at]
            situation = Situation(
                position,
                budget,
                catch_up_rows=position - drafted_to,
                has_model=model,
                lookup_ids=offer.ids[:budget],
                lookup_match=offer.length,
            )
            plan = controller.plan(situation)
            round_ = _play(trace, luck, at, plan, situation, controller, machine, len(rounds) + 1)
            rounds.append(round_)
            controller.observe(round_)
            emitted = len(round_.emitted)
            if plan.drafter == "model":
                drafted_to = position + min(round_.accepted, round_.verified - 1)
            at += emitted
            position += emitted
    return Outcome(tuple(rounds), repeats * len(trace.output), sum(round_.wall_seconds for round_ in rounds))


def _play(
    trace: Trace,
    luck: Luck,
    at: int,
    plan: Plan,
    situation: Situation,
    controller: Controller,
    machine: Machine,
    index: int,
) -> Round:
    made, draft_seconds, catch_up, kept = 0, 0.0, 0, 0
    confidences: tuple[float, ...] = ()
    if plan.drafter == "model":
        chain = trace.confidences[at]
        limit = min(plan.length, len(chain))
        while made < limit and controller.go_on(chain[:made]):
            made += 1
        confidences, kept, catch_up = chain[:made], min(made, luck.kept[at]), situation.catch_up_rows
        draft_seconds = machine.draft_passes(catch_up, made, situation.position)
    elif plan.drafter == "lookup":
        made = min(plan.length, len(situation.lookup_ids))
        confidences, kept = (1.0,) * made, min(made, luck.copied[at])
    emitted = trace.output[at : at + kept + 1]
    return Round(
        index=index,
        position=situation.position,
        drafter=plan.drafter if made else "none",
        drafted=situation.lookup_ids[:made] if plan.drafter == "lookup" else (0,) * made,
        confidences=confidences,
        verified=made,
        accepted=kept,
        emitted=emitted,
        provenance=(Provenance.ACCEPTED,) * len(emitted),
        reason=plan.reason,
        catch_up_rows=catch_up,
        draft_seconds=draft_seconds,
        verify_seconds=machine.target_pass(made + 1, situation.position),
        other_seconds=machine.host(made + 1),
    )


def calibrated_costs(profile: MachineProfile, seed: int = 0) -> Costs:
    """What calibration at load finds on this machine."""
    machine = Machine(profile, seed + 77)
    return calibrate(lambda rows: machine.target_pass(rows, 0), lambda rows: machine.draft_passes(rows, 1, 0))


def adaptive(profile: MachineProfile, seed: int = 0, longest: int = 8) -> AdaptiveController:
    """Our controller, fresh but for its calibration. `longest`: guesses of the model in a draft, at most."""
    return AdaptiveController(calibrated_costs(profile, seed), longest=longest)


def clairvoyant_seconds(trace: Trace, profile: MachineProfile, seed: int = 0) -> float:
    """The least time any policy could have needed with this luck, all of it known in advance.

    Dynamic programming from the end of the text; noise, spikes, context growth and catch-up are left out,
    which only makes the bound stricter.
    """
    luck, count = Luck(trace, seed), len(trace.output)
    best = [0.0] * (count + 1)
    for at in range(count - 1, -1, -1):
        room = count - at - 1
        options = [profile.verify[0] + profile.host_row + best[at + 1]]
        for length in range(1, min(room, len(trace.kept[at])) + 1):
            kept = min(length, luck.kept[at])
            price = length * profile.draft_step + profile.verify[length] + profile.host_row * (length + 1)
            options.append(price + best[at + kept + 1])
        for length in range(1, min(room, len(trace.offers[at].ids)) + 1):
            kept = min(length, luck.copied[at])
            price = profile.verify[length] + profile.host_row * (length + 1)
            options.append(price + best[at + kept + 1])
        best[at] = min(options)
    return best[0] * profile.plain_seconds


PolicyMaker = Callable[[MachineProfile, int], Controller]


def record(trace: Trace) -> dict[str, Any]:
    """The trace as JSON, in the shape that `read_traces` reads."""
    chains = [
        [[0, confidence, kept] for confidence, kept in zip(confidences, chances, strict=True)]
        for confidences, chances in zip(trace.confidences, trace.kept, strict=True)
    ]
    return {
        "kind": trace.kind,
        "temperature": trace.temperature,
        "prompt": list(trace.prompt),
        "output": list(trace.output),
        "chains": chains,
    }
