"""Times that were learned on a busy machine, when it becomes free; and the other way round.

    python benchmarks/busy.py TARGET.gguf --draft DRAFT.gguf [--scenario free|light|stored|busy] [--starts 3]

free    load and answer twice while two other processes use the cores; these end
light   the same, but a light load stays (a process that works a third of the time)
stored  as `free`, and the program is started again with the times that it stored
busy    load and answer twice on a free machine, then two processes use the cores

After a text of 150 tokens in the new state, each prompt is answered by this engine, by one that was loaded in the new
state, and plainly, taking turns. Printed are the ratio to the fresh one (`free`, `light`, `stored`) or to plain
(`busy`), and by how much the plain estimate is off a measured plain answer (`?`: it says that it does not know).
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean

from gains import PROMPTS, TEMPLATE

from localspec.engine.process.client import EngineClient
from localspec.engine.records import Finished, GenerationStats
from localspec.engine.settings import GenerationRequest, LoadSettings, SamplerSettings, SpeculationSettings
from localspec.ground.machine import physical_cores

_BURN = """\
import time
while True:
    end = time.perf_counter() + {work}
    while time.perf_counter() < end:
        pass
    time.sleep({rest})
"""
"""A neighbour that works and rests in turn."""

BEFORE = ("creative", "chat")
"""What is answered while the machine is in its first state,"""
BETWEEN = "reasoning"
"""then in the new one, until the old times must be forgotten,"""
MEASURED = ("code", "extraction", "chat")
"""and then these."""
SETTLING = 150
"""Tokens of the text between."""


@contextmanager
def load(count: int, work: float = 1.0, rest: float = 0.0) -> Iterator[None]:
    """So many processes that work and rest for so many seconds in turn."""
    burners = [subprocess.Popen([sys.executable, "-c", _BURN.format(work=work, rest=rest)]) for _ in range(count)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


class Program:
    """One engine; `profiles` is where it keeps times."""

    def __init__(self, options: argparse.Namespace, folder: Path, profiles: Path | None = None) -> None:
        self._client = EngineClient(folder / "logs")
        settings = LoadSettings(options.target, options.draft, context=2048, profiles=profiles)
        self._client.load(settings, physical_cores())

    def answer(self, kind: str, tokens: int, drafter: str = "auto") -> GenerationStats:
        """Statistics of one greedy answer of exactly `tokens` tokens."""
        request = GenerationRequest(
            prompt=TEMPLATE.format(PROMPTS[kind]),
            sampler=SamplerSettings(0.0),
            speculation=SpeculationSettings(drafter),
            max_tokens=tokens,
            min_tokens=tokens,
            keep_cache=False,
        )
        *_, finished = self._client.generate(request)
        assert isinstance(finished, Finished)
        return finished.stats

    def close(self) -> None:
        """End it."""
        self._client.close()


def rate(stats: GenerationStats) -> float:
    """Tokens per second."""
    return stats.tokens_per_second or math.nan


def one_start(options: argparse.Namespace, folder: Path) -> list[float]:
    """One run of the scenario; its ratios."""
    profiles = folder / "profiles" if options.scenario == "stored" else None
    first, later = ((0, 1.0, 0.0), (2, 1.0, 0.0)) if options.scenario == "busy" else ((2, 1.0, 0.0), (0, 1.0, 0.0))
    if options.scenario == "light":
        later = (1, 0.1, 0.2)
    with load(*first):
        program = Program(options, folder, profiles)
        for kind in BEFORE:
            stats = program.answer(kind, options.tokens)
            print(f"  before  {kind:11s} auto {rate(stats):5.1f}", flush=True)
        if options.scenario == "stored":
            program.close()
    with load(*later):
        if options.scenario == "stored":
            program = Program(options, folder, profiles)
        stats = program.answer(BETWEEN, SETTLING)
        print(f"  settles {BETWEEN:11s} auto {rate(stats):5.1f}  passes {stats.mean_acceptance_length:.2f}", flush=True)
        fresh = Program(options, folder) if options.scenario != "busy" else program
        ratios = [measure(program, fresh, kind, options.tokens) for kind in MEASURED]
        program.close()
        fresh.close()
    return ratios


def measure(program: Program, fresh: Program, kind: str, tokens: int) -> float:
    """One prompt by all; the ratio."""
    own = program.answer(kind, tokens)
    other = fresh.answer(kind, tokens) if fresh is not program else None
    plain = fresh.answer(kind, tokens // 2, "none")
    estimate = own.plain_tokens_per_second
    off = "    ?" if estimate is None else f"{estimate / rate(plain) - 1:+.0%}"
    against = rate(other) if other is not None else rate(plain)
    lengths = [own.mean_acceptance_length, other.mean_acceptance_length if other is not None else None]
    print(
        f"  {kind:11s} auto {rate(own):5.1f}  {'fresh' if other else 'plain'} {against:5.1f}  "
        f"{rate(own) / against:.3f}x  plain {rate(plain):4.1f}, estimate off by {off}  tokens a pass "
        + " / ".join(f"{length:.2f}" for length in lengths if length is not None),
        flush=True,
    )
    return rate(own) / against


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("--draft", type=Path, required=True)
    parser.add_argument("--scenario", choices=("free", "light", "stored", "busy"), default="free")
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=100)
    options = parser.parse_args()
    means = []
    for start in range(options.starts):
        print(f"{options.scenario}, start {start + 1}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            means.append(math.exp(fmean(map(math.log, one_start(options, Path(folder))))))
        print(f"  geometric mean {means[-1]:.3f}x", flush=True)
    print(f"{options.scenario}: " + ", ".join(f"{mean:.3f}x" for mean in means))


if __name__ == "__main__":
    main()
