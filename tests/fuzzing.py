"""One shape for all fuzzers: seeds are mutated, a subject is fed, and every outcome has a name.

A subject returns a word for what happened (`read`, `refused`, ...) and lets nothing else out: any other error is
the finding, and comes with the bytes that caused it. Time and memory are watched, so that a hang or a flood is a
finding too.
"""

from __future__ import annotations

import random
import struct
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SLOWEST = 5.0
"""Seconds of work that one case may take, whatever else the machine does; a good one takes milliseconds."""
MEMORY = 256 << 20
"""Bytes that a whole run may add to this process."""

_NUMBERS = (0, 1, 0x7F, 0xFF, 1 << 16, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 62, 1 << 63, (1 << 64) - 1)

Mutate = Callable[[random.Random, Sequence[bytes]], bytes]
Subject = Callable[[bytes], str]


@dataclass
class Report:
    """What a run saw."""

    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    slowest: float = 0.0
    """Seconds of the worst case."""
    grown: int = 0
    """Bytes added to the most that this process ever had."""

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {name}" for name, count in self.outcomes.most_common())
        return (
            f"{self.cases} cases in {self.seconds:.0f} s: {kinds}; "
            f"slowest {self.slowest * 1e3:.0f} ms, memory +{self.grown >> 20} MB"
        )


def fuzz(subject: Subject, seeds: Sequence[bytes], cases: int, mutate: Mutate | None = None, seed: int = 1) -> Report:
    """Feed `cases` mutations; an error that the subject let out is raised with its case."""
    noise, report, begun, before = random.Random(seed), Report(), time.perf_counter(), peak_bytes()
    change = mutate or mutated_bytes
    for _ in range(cases):
        data = change(noise, seeds)
        start = time.process_time()
        try:
            outcome = subject(data)
        except BaseException as error:
            raise AssertionError(f"case {report.cases} of seed {seed}: {error!r} for {data[:2000]!r}") from error
        took = time.process_time() - start
        assert took < SLOWEST, f"case {report.cases} of seed {seed} took {took:.1f} s: {data[:2000]!r}"
        report.cases += 1
        report.outcomes[outcome] += 1
        report.slowest = max(report.slowest, took)
    report.seconds, report.grown = time.perf_counter() - begun, peak_bytes() - before
    assert report.grown < MEMORY, report
    print(report)
    return report


def mutated_bytes(noise: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Flips, large numbers, cuts, insertions, repetitions, and pieces of other seeds."""
    data = bytearray(noise.choice(seeds))
    for _ in range(noise.randint(1, 4)):
        at = noise.randrange(len(data) + 1)
        match noise.randrange(8):
            case 0 if at < len(data):
                data[at] ^= 1 << noise.randrange(8)
            case 1 if at < len(data):
                data[at] = noise.randrange(256)
            case 2:
                data[at : at + 8] = struct.pack("<Q", noise.choice(_NUMBERS))
            case 3:
                data[at : at + 4] = struct.pack("<I", noise.choice(_NUMBERS) & 0xFFFFFFFF)
            case 4:
                del data[at : at + noise.randint(1, 40)]
            case 5:
                data[at:at] = noise.randbytes(noise.randint(1, 9))
            case 6:
                data[at:at] = data[at : at + noise.randint(1, 200)] * noise.randint(1, 4)
            case _:
                other = noise.choice(seeds)
                start = noise.randrange(len(other) + 1)
                data[at:at] = other[start : start + noise.randint(1, 100)]
    if noise.random() < 0.05:
        del data[noise.randrange(len(data) + 1) :]
    return bytes(data)


def mutated_words(words: Sequence[bytes]) -> Mutate:
    """As `mutated_bytes`, and also with words of the language put in, so that more than the first line is reached."""

    def mutate(noise: random.Random, seeds: Sequence[bytes]) -> bytes:
        if noise.random() < 0.3:
            return mutated_bytes(noise, seeds)
        data = noise.choice(seeds)
        for _ in range(noise.randint(1, 4)):
            at = noise.randrange(len(data) + 1)
            end = at + noise.choice((0, 0, 1, 3, 10, 60))
            data = data[:at] + noise.choice(words) + data[end:]
        return data

    return mutate


def peak_bytes() -> int:
    """The most memory this process ever had; 0 where the system does not say."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return int(status.split("VmHWM:")[1].split()[0]) << 10
