"""localspec's own engine as something to measure: one process for all arms of a start."""

from __future__ import annotations

import hashlib
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from localspec.bench.plan import Speeds
from localspec.bench.prompts import filler
from localspec.bench.records import Arm, Cell, Measurement, Prompt
from localspec.engine.drafters import table
from localspec.engine.records import Finished, Round, RoundFinished
from localspec.engine.settings import GenerationRequest, LoadSettings, SamplerSettings, SpeculationSettings
from localspec.engine.templates.chat_template import Message
from localspec.ground.errors import EngineError

if TYPE_CHECKING:
    from localspec.engine.process.client import EngineClient

_WARM_UP_TOKENS = 12
_WARM_UP = "List the months of the year, one a line, and then list them once more."
_THINKING = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class DraftFile:
    """A draft model that some arms use."""

    path: Path
    masked_ids: tuple[int, ...] = ()
    shared_rows: int | None = None


class LocalEngine:
    """One engine process with the pair's models; other drafts are swapped in when an arm needs one."""

    def __init__(
        self,
        client: EngineClient,
        settings: LoadSettings,
        threads: int,
        drafts: Mapping[str, DraftFile],
        seed: int,
    ) -> None:
        """Loads. `drafts`: by the name that arms call them; "" is the pair's own."""
        start = time.perf_counter()
        self._client = client
        self._drafts = drafts
        self._loaded = ""
        self._seed = seed
        self._draft_works = False
        try:
            self.info = client.load(settings, threads)
        except BaseException:
            client.close()
            raise
        self._load_seconds = time.perf_counter() - start

    def warm_up(self) -> Speeds:
        """A plain and a drafted answer: page faults, calibration and the kernels of wide passes are paid for."""
        start = time.perf_counter()
        plain = self._answer(_WARM_UP, SpeculationSettings("none"), _WARM_UP_TOKENS)
        if not self.info.speculation_off:
            self._answer(_WARM_UP, SpeculationSettings("auto"), _WARM_UP_TOKENS)
        if self._loaded in self._drafts and not self.info.speculation_off:
            for name in filter(table.uses_draft, self.info.drafters):
                ordered = self._answer(_WARM_UP, SpeculationSettings(name, 3), _WARM_UP_TOKENS)
                self._draft_works |= ordered.stats.rounds_by_drafter.get(name, 0) > 0
        stats = plain.stats
        return Speeds(
            stats.tokens_per_second or 1.0,
            stats.prompt_tokens_per_second or 10.0,
            self._load_seconds + time.perf_counter() - start,
        )

    def measure(self, cell: Cell, prompt: Prompt, arm: Arm, reuse: bool) -> Measurement:
        self._use_draft(arm)
        text = f"{filler(cell.depth)}\n\n{prompt.text}" if cell.depth else prompt.text
        request = self._request(
            text,
            SpeculationSettings(arm.drafter, arm.length),
            cell.max_tokens,
            _sampler(cell, self._seed),
            reuse,
            arm.raw,
        )
        return replace(self._timed(request), draft_works=self._draft_works)

    def close(self) -> None:
        self._client.close()

    def _timed(self, request: GenerationRequest) -> Measurement:
        rounds: list[Round] = []
        finished: Finished | None = None
        start = time.perf_counter()
        first = start
        for event in self._client.generate(request):
            if isinstance(event, RoundFinished):
                if not rounds:
                    first = time.perf_counter()
                rounds.append(event.round)
            elif isinstance(event, Finished):
                finished = event
        end = time.perf_counter()
        if finished is None:
            raise EngineError("the engine gave no answer")
        return _measurement(finished, rounds, first - start, end - start, self._memory())

    def _answer(self, text: str, speculation: SpeculationSettings, tokens: int) -> Finished:
        request = self._request(text, speculation, tokens, SamplerSettings(temperature=0), False)
        events = list(self._client.generate(request))
        last = events[-1]
        assert isinstance(last, Finished)
        return last

    def _request(
        self,
        text: str,
        speculation: SpeculationSettings,
        tokens: int,
        sampler: SamplerSettings,
        reuse: bool,
        raw: bool = False,
    ) -> GenerationRequest:
        chat = self.info.has_template and not raw
        return GenerationRequest(
            messages=(Message("user", text),) if chat else (),
            prompt=None if chat else text,
            sampler=sampler,
            speculation=speculation,
            max_tokens=tokens,
            keep_cache=reuse,
        )

    def _use_draft(self, arm: Arm) -> None:
        """A swap costs a load, but not a measurement: it happens before the clock starts."""
        if not table.uses_draft(arm.drafter) or arm.draft == self._loaded:
            return
        draft = self._drafts[arm.draft]
        self._client.load_draft(draft.path, draft.masked_ids, draft.shared_rows)
        self._loaded = arm.draft
        self._answer(_WARM_UP, SpeculationSettings("auto"), _WARM_UP_TOKENS)

    def _memory(self) -> int:
        from localspec.ground.machine import resident_bytes

        return resident_bytes(self._client.pid)


def _sampler(cell: Cell, seed: int) -> SamplerSettings:
    """The product's own filters. Every arm of a prompt has the same seed; above 0 the texts still differ."""
    if cell.temperature == 0:
        return SamplerSettings(temperature=0)
    own = int.from_bytes(hashlib.sha256(f"{seed}/{cell.start}/{cell.prompt}".encode()).digest()[:4], "big")
    return SamplerSettings(temperature=cell.temperature, seed=own, mode="rejection")


def _measurement(finished: Finished, rounds: list[Round], ttft: float, wall: float, memory: int) -> Measurement:
    stats = finished.stats
    longest = max((round_.verified for round_ in rounds), default=0)
    passes = _passes(rounds)
    drafting = [round_ for round_ in rounds if round_.draft_seconds > 0]
    return Measurement(
        emitted=stats.emitted,
        prompt_tokens=stats.prompt_tokens,
        reused_tokens=stats.reused_tokens,
        ttft_seconds=ttft,
        wall_seconds=wall,
        finish=finished.reason,
        text_hash=hashlib.sha256(repr(finished.tokens).encode()).hexdigest()[:16],
        answer_empty=not _THINKING.sub("", finished.text).strip(),
        drafted=stats.drafted,
        verified=stats.verified,
        accepted=stats.accepted,
        target_passes=stats.target_passes,
        reached=tuple(sum(r.verified > place for r in rounds) for place in range(longest)),
        kept=tuple(sum(r.accepted > place for r in rounds) for place in range(longest)),
        rounds_by_drafter=dict(stats.rounds_by_drafter),
        parts={
            "draft": stats.draft_seconds,
            "verify": stats.verify_seconds,
            "sample": stats.sample_seconds,
            "rewind": stats.rewind_seconds,
            "other": stats.other_seconds,
        },
        verify_by_rows={str(rows): (len(times), median(times)) for rows, times in passes.items()},
        draft_steps=sum(len(round_.drafted) for round_ in drafting),
        draft_seconds=sum(round_.draft_seconds for round_ in drafting),
        engine_rate=stats.tokens_per_second,
        state=f"{stats.state}: {stats.reason}" if stats.reason else stats.state,
        memory_bytes=memory,
    )


def _passes(rounds: Iterable[Round]) -> dict[int, list[float]]:
    """Rows of a target pass -> seconds of each; the first round belongs to the prefill."""
    passes: dict[int, list[float]] = defaultdict(list)
    for round_ in rounds:
        if round_.index > 0:
            passes[round_.verified + 1].append(round_.verify_seconds)
    return dict(sorted(passes.items()))
