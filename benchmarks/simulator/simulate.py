"""Play traces on simulated machines through the engine's own loop, without a model.

    setup = adaptive(PROFILES[0])
    outcome = replay(trace, PROFILES[0], setup)
    outcome.tokens_per_second
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from benchmarks.simulator.actors import Story, TraceLookupDrafter, TraceModelDrafter, TraceTarget, TraceText
from benchmarks.simulator.machine import Machine
from benchmarks.simulator.machine_profiles import MachineProfile
from benchmarks.simulator.traces import Luck, Trace
from localspec.engine.control.adaptive import AdaptiveController
from localspec.engine.control.controller import Controller, FixedController
from localspec.engine.control.costs import Costs, calibrate
from localspec.engine.drafters.lookup_belief import LookupBelief
from localspec.engine.drafters.model_belief import ModelBelief
from localspec.engine.drafters.protocol import Drafter
from localspec.engine.drive import drive
from localspec.engine.generate import Generation, Limits
from localspec.engine.records import Finished, GenerationStats, Round, RoundFinished
from localspec.engine.settings import Expectation, SamplerSettings

_SAMPLER = SamplerSettings(temperature=0.0)


@dataclass(slots=True)
class Setup:
    """What lasts from answer to answer: a controller and what the drafters believe."""

    controller: Controller
    model: ModelBelief = field(default_factory=ModelBelief)
    lookup: LookupBelief = field(default_factory=LookupBelief)
    costs: Costs | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """One policy on one trace."""

    rounds: tuple[Round, ...]
    """Those after the first token."""
    stats: GenerationStats

    @property
    def tokens(self) -> int:
        """Of these rounds."""
        return sum(len(round_.emitted) for round_ in self.rounds)

    @property
    def seconds(self) -> float:
        """Of these rounds."""
        return sum(round_.wall_seconds for round_ in self.rounds)

    @property
    def tokens_per_second(self) -> float:
        """Speed over the whole text."""
        return self.tokens / self.seconds

    def seconds_of_tokens(self, start: int, stop: int) -> float:
        """Time spent on the tokens start..stop of the text; a round that straddles a bound counts in part."""
        total, at = 0.0, 1
        for round_ in self.rounds:
            emitted = len(round_.emitted)
            inside = min(stop, at + emitted) - max(start, at)
            if inside > 0:
                total += round_.wall_seconds * inside / emitted
            at += emitted
        return total


def replay(
    trace: Trace,
    machine: MachineProfile | Machine,
    setup: Setup,
    seed: int = 0,
    repeats: int = 1,
    model: bool = True,
    related: bool = False,
) -> Outcome:
    """Play a text, `repeats` times in a row as one long answer.

    A `machine` goes on where it stands, busy as it is; of a profile a new one is made.
    """
    if isinstance(machine, MachineProfile):
        machine = Machine(machine, seed)
    story, target = Story(trace, seed, repeats), TraceTarget(machine)
    drafters: list[Drafter] = [TraceModelDrafter(story, machine, setup.model)] if model else []
    drafters.append(TraceLookupDrafter(story, setup.lookup))
    generation = Generation(
        target,
        TraceText(),
        drafters,
        setup.controller,
        _SAMPLER,
        Limits(story.length),
        trace.prompt,
        related=related,
        costs=setup.costs,
        clock=machine.clock,
        judge=story.judge,
    )
    events = list(drive(generation, target, machine.clock))
    last = events[-1]
    assert isinstance(last, Finished)
    rounds = (event.round for event in events if isinstance(event, RoundFinished))
    return Outcome(tuple(round_ for round_ in rounds if round_.index), last.stats)


def fixed(drafter: str, length: int) -> Setup:
    """Always this."""
    return Setup(FixedController(drafter, length))


def adaptive(
    profile: MachineProfile,
    seed: int = 0,
    longest: int = 8,
    expectation: Expectation | None = None,
    machine: Machine | None = None,
) -> Setup:
    """Our controller, fresh but for its calibration. `longest`: guesses of the model in a draft, at most.

    `machine`: the one to calibrate on, where it is not one of its own.
    """
    machine = machine or Machine(profile, seed + 77)
    costs = calibrate(lambda rows: machine.target_pass(rows, 0))
    belief = ModelBelief(costs=costs)
    belief.calibrate(lambda rows: machine.draft_passes(rows, 1, 0))
    controller = AdaptiveController(costs, longest=longest, expectation=expectation)
    return Setup(controller, belief, LookupBelief(), costs)


def restarted(setup: Setup, machine: Machine, longest: int = 8) -> Setup:
    """The same pair after a new start: times and beliefs come from the disk, the target is looked at again."""
    assert setup.costs is not None
    costs = Costs.from_dict(_stored(setup.costs))
    belief = ModelBelief(costs=costs)
    belief.load(_stored(setup.model))
    machine.target_pass(1, 0)
    for rows in (1, 4):
        costs.look_again(rows, machine.target_pass(rows, 0))
    return Setup(AdaptiveController(costs, longest=longest), belief, LookupBelief(), costs)


def _stored(part: Costs | ModelBelief) -> dict[str, object]:
    stored: dict[str, object] = json.loads(json.dumps(part.to_dict()))
    return stored


def clairvoyant_seconds(trace: Trace, profile: MachineProfile, seed: int = 0) -> float:
    """The least time any policy could have needed with this luck, all of it known in advance.

    Dynamic programming from the end of the text; noise, spikes, context growth and catch-up are left out,
    which only makes the bound stricter. The first token is not counted.
    """
    luck, count = Luck(trace, seed), len(trace.output)
    best = [0.0] * (count + 1)
    for at in range(count - 1, 0, -1):
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
    return best[1] * profile.plain_seconds


def drafted(rounds: Iterable[Round], drafter: str) -> int:
    """Rounds in which this drafter guessed."""
    return sum(round_.drafter == drafter for round_ in rounds)
