"""Recorded texts, and which of their guesses are kept.

A trace is one text: `{kind, temperature, prompt: [ids], output: [ids], chains}`, where `chains[i]` is what
a draft chain from the i-th output position met: `[token id, draft confidence, probability of being kept]`
per guess. What lookup would have offered follows from prompt and output. Every policy meets the same luck:
whether the k-th guess at a position is kept is drawn once per trace and seed.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from localspec.engine.drafters.ngram_index import NO_MATCH, Match, NgramIndex

LONGEST_OFFER = 32
"""Tokens that lookup offers at most."""


@dataclass(frozen=True, slots=True, eq=False)
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
        offers.append(index.propose(LONGEST_OFFER) if lookup else NO_MATCH)
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
        data = gzip.decompress(data)
    try:
        return [
            make_trace(t["kind"], t["temperature"], t["prompt"], t["output"], t["chains"], lookup)
            for t in json.loads(data)
        ]
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"not a file of traces: {error!r}") from error


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
        """Per output position, how many guesses of the chain from there are kept."""
        for chances in trace.kept:
            kept = 0
            for chance in chances:
                if rng.random() >= chance:
                    break
                kept += 1
            self.kept.append(kept)
        self.copied = [_agreement(offer.ids, trace.output, at) for at, offer in enumerate(trace.offers)]
        """The same of what lookup offers."""


@lru_cache(maxsize=64)
def luck(trace: Trace, seed: int) -> Luck:
    """The luck of a trace and a seed."""
    return Luck(trace, seed)


def _agreement(ids: Sequence[int], output: Sequence[int], at: int) -> int:
    agreed = 0
    while agreed < len(ids) and at + agreed < len(output) and ids[agreed] == output[at + agreed]:
        agreed += 1
    return agreed
