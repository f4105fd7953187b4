"""Every policy on every text and machine, next to the best fixed setting in hindsight and to the bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import mean

from benchmarks.simulator.machine_profiles import MachineProfile
from benchmarks.simulator.rivals import ConfidenceCut, Heuristic, Recipe, SelfAssured
from benchmarks.simulator.simulate import Setup, adaptive, clairvoyant_seconds, fixed, replay
from benchmarks.simulator.traces import Trace

PolicyMaker = Callable[[MachineProfile, int, int], Setup]

POLICIES: dict[str, PolicyMaker] = {
    "recipe": lambda profile, seed, longest: Setup(Recipe()),
    "heuristic": lambda profile, seed, longest: Setup(Heuristic()),
    "cut 0.4": lambda profile, seed, longest: Setup(ConfidenceCut(0.4), SelfAssured()),
    "cut 0.75": lambda profile, seed, longest: Setup(ConfidenceCut(0.75), SelfAssured()),
    "auto": adaptive,
}
"""Policies by name; each is made anew for a (profile, seed, longest draft)."""

COPY_LENGTHS = (2, 4, 8, 16)
LENGTHS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
"""Of fixed drafts; between the longer ones little changes."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One text on one machine. Speeds are tokens per second, means over the seeds."""

    trace: str
    profile: MachineProfile
    plain: float
    best_fixed: float
    """Of every fixed draft length and copy length, the best for this very text."""
    best_setting: str
    policies: dict[str, float]
    bound: float
    """What a clairvoyant would have reached."""

    def of_best(self, policy: str) -> float:
        """Speed as a share of the best fixed setting."""
        return self.policies[policy] / self.best_fixed

    def of_plain(self, policy: str) -> float:
        """Speedup."""
        return self.policies[policy] / self.plain


def compare(
    trace: Trace,
    profile: MachineProfile,
    seeds: Sequence[int] = (0,),
    repeats: int = 4,
    longest: int = 8,
    lengths: Sequence[int] = LENGTHS,
    names: Sequence[str] = tuple(POLICIES),
) -> Comparison:
    """Run everything, or these fixed lengths and policies.

    `repeats`: times the text is repeated to make one long answer. `longest`: of the fixed lengths, and for auto.
    """

    def speed(maker: PolicyMaker) -> float:
        return mean(
            replay(trace, profile, maker(profile, seed, longest), seed, repeats).tokens_per_second for seed in seeds
        )

    settings = {f"K={k}": speed(_fixed("model", k)) for k in lengths if k <= longest}
    if any(offer.ids for offer in trace.offers):
        settings |= {f"copy {k}": speed(_fixed("lookup", k)) for k in COPY_LENGTHS}
    best_setting = max(settings, key=lambda name: settings[name])
    runs = [seed * 1000 + repeat for seed in seeds for repeat in range(repeats)]
    seconds = mean(clairvoyant_seconds(trace, profile, run) for run in runs)
    return Comparison(
        trace.name,
        profile,
        settings["K=0"],
        settings[best_setting],
        best_setting,
        {name: speed(POLICIES[name]) for name in names},
        (len(trace.output) - 1) / seconds,
    )


def _fixed(drafter: str, length: int) -> PolicyMaker:
    return lambda profile, seed, longest: fixed(drafter, length)


def table(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """One line per text and machine, then the means and worst cases per machine."""
    names = list(POLICIES)
    yield f"{'machine':20s} {'text':12s} {'best fixed':>16s} " + " ".join(
        f"{n:>9s}" for n in (*names, "bound")
    )
    for row in comparisons:
        best = f"{row.best_setting} x{row.best_fixed / row.plain:.2f}"
        shares = [row.of_best(name) for name in names] + [row.bound / row.best_fixed]
        yield f"{row.profile.name:20s} {row.trace:12s} {best:>16s} " + " ".join(f"{s:9.3f}" for s in shares)
    yield "speeds above: share of the best fixed setting for that text, chosen in hindsight"
    for profile in dict.fromkeys(row.profile.name for row in comparisons):
        rows = [row for row in comparisons if row.profile.name == profile]
        of_best = [row.of_best("auto") for row in rows]
        yield (
            f"{profile:20s} auto: mean {mean(of_best):.3f}, worst {min(of_best):.3f} of the best fixed; "
            f"worst {min(row.of_plain('auto') for row in rows):.3f} of plain; worst "
            f"{min(row.policies['auto'] / row.policies['recipe'] for row in rows):.3f} of the recipe"
        )
