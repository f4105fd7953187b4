"""Everything at once in one engine process, for as long as is asked: memory stays, answers stay, nothing breaks.

    LOCALSPEC_SOAK_MINUTES=30 python -m pytest -m long tests/test_soak.py -s -o timeout=7200

Runs on the real pair when one is named, on the synthetic one otherwise.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from localspec.engine.process.client import EngineClient
from localspec.engine.records import Finished, GenerationStats, RoundFinished
from localspec.engine.settings import GenerationRequest, LoadSettings, SamplerSettings, SpeculationSettings
from tests.bigram import BigramPair

MINUTES = float(os.environ.get("LOCALSPEC_SOAK_MINUTES", "1"))
PROMPTS = (
    "def merge(left, right):\n    ",
    "Once upon a time there was a lighthouse",
    '{"name": "Anna", "age": 31, "name": "Bob", "age": ',
    "The quick brown fox. The quick brown fox. The quick",
    "1, 2, 3, 4, 5, 6, 7, 8, " * 12,
)
PROBE = GenerationRequest(
    prompt=PROMPTS[0], sampler=SamplerSettings(0.0), speculation=SpeculationSettings("none"), max_tokens=24,
    keep_cache=False,
)  # fmt: skip


class Soak:
    """Random requests to one engine, each checked."""

    def __init__(self, client: EngineClient, draft: Path, tokens: int, seed: int = 0) -> None:
        self.counts: Counter[str] = Counter()
        self._client = client
        self._draft = draft
        self._tokens = tokens
        self._rng = random.Random(seed)
        self._first = self._answer(PROBE).tokens

    def step(self) -> None:
        """One random thing; every tenth is the probe, whose tokens never change."""
        action = self._rng.choices(
            ("answer", "cancel", "change", "again", "swap", "probe"), (30, 15, 25, 10, 5, 10)
        )[0]
        self.counts[action] += 1
        getattr(self, f"_do_{action}")()

    def _do_answer(self) -> None:
        self._answer(self._request())

    def _do_cancel(self) -> None:
        after = self._rng.randrange(1, 12)
        finished = self._answer(self._request(), cancel_after=after)
        assert finished.reason in ("cancelled", "stop", "length")

    def _do_change(self) -> None:
        changes = {self._rng.randrange(1, 10): (self._speculation(), self._sampler()) for _ in range(3)}
        self._answer(self._request(), changes=changes)

    def _do_again(self) -> None:
        request = self._request()
        lengths = [len(self._answer(request).tokens) for _ in range(2)]
        if request.sampler.greedy and request.speculation.drafter == "none":
            assert lengths[0] == lengths[1]

    def _do_swap(self) -> None:
        self._client.load_draft(None)
        self._answer(replace(self._request(), speculation=SpeculationSettings("auto")))
        self._client.load_draft(self._draft)

    def _do_probe(self) -> None:
        assert self._answer(PROBE).tokens == self._first

    def _answer(
        self,
        request: GenerationRequest,
        cancel_after: int | None = None,
        changes: dict[int, tuple[SpeculationSettings, SamplerSettings]] | None = None,
    ) -> Finished:
        rounds = 0
        finished: Finished | None = None
        for event in self._client.generate(request):
            if isinstance(event, RoundFinished):
                rounds += 1
                if rounds == cancel_after:
                    self._client.cancel()
                if changes and rounds in changes:
                    self._client.change(*changes[rounds])
            elif isinstance(event, Finished):
                finished = event
        assert finished is not None
        check(finished.stats, len(finished.tokens))
        return finished

    def _request(self) -> GenerationRequest:
        return GenerationRequest(
            prompt="".join(self._rng.sample(PROMPTS, self._rng.randrange(1, 4))),
            sampler=self._sampler(),
            speculation=self._speculation(),
            max_tokens=self._rng.randrange(1, self._tokens),
            keep_cache=self._rng.random() < 0.7,
        )

    def _sampler(self) -> SamplerSettings:
        return SamplerSettings(
            self._rng.choice((0.0, 0.7, 1.2)),
            seed=self._rng.choice((None, 1, 2)),
            repeat_penalty=self._rng.choice((1.0, 1.0, 1.2)),
        )

    def _speculation(self) -> SpeculationSettings:
        drafter = self._rng.choice(("auto", "auto", "model", "lookup", "none"))
        return SpeculationSettings(drafter, self._rng.choice((None, None, 1, 3, 8)))


def check(stats: GenerationStats, tokens: int) -> None:
    """What holds for every answer, cancelled or not."""
    assert stats.emitted == tokens == stats.accepted + stats.corrected + stats.bonus + stats.plain
    assert stats.verified <= stats.drafted
    assert stats.accepted <= stats.verified
    assert sum(stats.draft_lengths.values()) == stats.target_passes == sum(stats.rounds_by_drafter.values())
    assert stats.verified == sum(length * rounds for length, rounds in stats.draft_lengths.items())


@pytest.mark.long
@pytest.mark.timeout(int(MINUTES * 60 * 3 + 600))
def test_soak(bigram: BigramPair, tmp_path: Path) -> None:
    named = [os.environ.get(f"LOCALSPEC_TEST_{part}", "") for part in ("TARGET", "DRAFT")]
    target, draft = map(Path, named) if all(named) else (bigram.target, bigram.draft)
    threads = int(os.environ.get("LOCALSPEC_SOAK_THREADS", "2"))
    with EngineClient(tmp_path / "log") as client:
        client.load(LoadSettings(target, draft, context=2048), threads)
        engine = psutil.Process(client.pid)
        soak = Soak(client, draft, 40 if all(named) else 200)
        begin, memory = time.monotonic(), [(0.0, engine.memory_info().rss)]
        while (elapsed := time.monotonic() - begin) < MINUTES * 60:
            soak.step()
            if elapsed - memory[-1][0] >= MINUTES * 60 / 12:
                memory.append((elapsed, engine.memory_info().rss))
                print(f"{elapsed:6.0f} s  {memory[-1][1] / 2**20:7.1f} MiB  {dict(soak.counts)}", flush=True)
    warm, late = memory[len(memory) // 3 : len(memory) * 2 // 3], memory[-3:]
    grown = max(rss for _, rss in late) - max(rss for _, rss in warm)
    print(f"grown after warm-up: {grown / 2**20:.1f} MiB")
    assert grown <= 0.02 * warm[0][1] + (4 << 20)
