"""What the server counts: events of the engine's thread in, /metrics and the live part of /v1/pair out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from localspec.engine.records import Event, Finished, GenerationStats, Provenance, Round, RoundFinished
from localspec.reports.answer import stats_json
from localspec.serve.exposition import Counter, Gauge, Histogram, Labels, Metric, text
from localspec.serve.queue import Job

_PASS_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_WAIT_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_TOKEN_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)


class Statistics:
    """Counters of one server's life."""

    def __init__(
        self,
        queue: Callable[[], tuple[int, int]],
        memory: Callable[[], Sequence[tuple[Labels, float]]],
    ) -> None:
        """`queue` gives (running, waiting), `memory` bytes by process, when asked."""
        self.last: GenerationStats | None = None
        """Of the answer that ended last."""
        self._first_token: dict[Job, float] = {}
        self._draft_tokens = Counter("spec_dec_draft_tokens_total", "Draft tokens that the target verified.")
        self._accepted = Counter("spec_dec_accepted_tokens_total", "Draft tokens that were kept and sent.")
        self._draft_latency = Histogram(
            "spec_dec_draft_latency_seconds", "Time to make the draft of one round.", _PASS_BOUNDS
        )
        self._verify_latency = Histogram(
            "spec_dec_verify_latency_seconds", "Time of one pass of the target over a draft.", _PASS_BOUNDS
        )
        self._requests = Counter("localspec_requests_total", "Requests by path and HTTP status.", ("path", "status"))
        self._finished = Counter("localspec_answers_total", "Answers by how they ended.", ("reason",))
        self._prompt = Counter("localspec_prompt_tokens_total", "Prompt tokens, reused ones included.")
        self._reused = Counter("localspec_prompt_tokens_reused_total", "Prompt tokens found in the cache.")
        self._generated = Counter("localspec_generation_tokens_total", "Generated tokens, end tokens included.")
        self._passes = Counter("localspec_target_passes_total", "Passes of the target that made tokens.")
        self._rounds = Counter("localspec_rounds_total", "Rounds by what guessed in them.", ("drafter",))
        self._drafts = Counter(
            "localspec_spec_decode_num_drafts_total",
            "Rounds in which a draft was verified; named as in vLLM.",
        )
        self._verified = Counter(
            "localspec_spec_decode_num_draft_tokens_total", "The same as spec_dec_draft_tokens_total."
        )
        self._kept = Counter(
            "localspec_spec_decode_num_accepted_tokens_total", "The same as spec_dec_accepted_tokens_total."
        )
        self._verified_at = Counter(
            "localspec_spec_decode_num_draft_tokens_per_pos_total",
            "Draft tokens verified, by place in the draft from 0.",
            ("position",),
        )
        self._accepted_at = Counter(
            "localspec_spec_decode_num_accepted_tokens_per_pos_total",
            "Draft tokens that the target kept, by place in the draft from 0.",
            ("position",),
        )
        self._queued = Histogram("localspec_queue_seconds", "Time a request waited for the engine.", _WAIT_BOUNDS)
        self._ttft = Histogram(
            "localspec_time_to_first_token_seconds",
            "From a request's arrival to its first token.",
            _WAIT_BOUNDS,
        )
        self._tpot = Histogram(
            "localspec_time_per_output_token_seconds",
            "Mean time between the tokens of one answer after its first.",
            _TOKEN_BOUNDS,
        )
        self._seconds = Histogram(
            "localspec_request_seconds", "From a request's arrival to the end of its answer.", _WAIT_BOUNDS
        )
        self._gauges = (
            Gauge(
                "spec_dec_acceptance_rate",
                "Kept / verified draft tokens since the start; NaN before the first.",
                lambda: [((), self._ratio(self._accepted, self._draft_tokens))],
            ),
            Gauge(
                "spec_dec_tokens_per_step",
                "Generated tokens / passes of the target since the start; 1 is no help.",
                lambda: [((), self._ratio(self._generated, self._passes))],
            ),
            Gauge("localspec_requests_running", "Answers being made.", lambda: [((), queue()[0])]),
            Gauge("localspec_requests_waiting", "Requests in the queue.", lambda: [((), queue()[1])]),
            Gauge(
                "localspec_speculation_on",
                "1 = drafts were in use at the end of the last answer, 0 = not (why: /v1/pair).",
                lambda: [((), float(self.last.state == "on"))] if self.last is not None else [],
            ),
            Gauge("localspec_tokens_per_second", "Decode speed of the last answer.", self._speed),
            Gauge("localspec_resident_memory_bytes", "Resident memory by process.", memory, ("process",)),
        )

    def page(self) -> str:
        """/metrics."""
        return text(self.metrics())

    def request(self, path: str, status: int) -> None:
        """One HTTP request was answered."""
        self._requests.add(1, path, str(status))

    def live(self) -> dict[str, Any]:
        """The part of /v1/pair that changes."""
        verified, accepted = self._draft_tokens.value(), self._accepted.value()
        length = self._ratio(self._generated, self._passes)
        return {
            "prompt_tokens": int(self._prompt.value()),
            "generated_tokens": int(self._generated.value()),
            "target_passes": int(self._passes.value()),
            "verified": int(verified),
            "accepted": int(accepted),
            "acceptance_rate": accepted / verified if verified else None,
            "mean_acceptance_length": None if math.isnan(length) else length,
            "last_answer": stats_json(self.last) if self.last is not None else None,
        }

    # --- told by the engine's thread -------------------------------------------------------------------

    def started(self, job: Job) -> None:
        assert job.began is not None
        self._queued.observe(job.began - job.arrived)

    def event(self, job: Job, event: Event) -> None:
        if isinstance(event, RoundFinished):
            self._round(job, event.round)
        elif isinstance(event, Finished):
            self._end(job, event)

    def failed(self, job: Job, error: BaseException) -> None:
        self._first_token.pop(job, None)
        self._finished.add(1, "error")

    def _round(self, job: Job, round: Round) -> None:
        if job not in self._first_token:
            self._first_token[job] = now = time.perf_counter()
            self._ttft.observe(now - job.arrived)
        self._passes.add()
        self._generated.add(len(round.emitted))
        self._rounds.add(1, round.drafter)
        if not round.verified:
            return
        accepted = sum(origin is Provenance.ACCEPTED for origin in round.provenance)
        self._drafts.add()
        for verified, kept in ((self._draft_tokens, self._accepted), (self._verified, self._kept)):
            verified.add(round.verified)
            kept.add(accepted)
        self._draft_latency.observe(round.draft_seconds)
        self._verify_latency.observe(round.verify_seconds)
        for position in range(round.verified):
            self._verified_at.add(1, str(position))
            self._accepted_at.add(int(position < round.accepted), str(position))

    def _end(self, job: Job, end: Finished) -> None:
        now = time.perf_counter()
        first = self._first_token.pop(job, None)
        self.last = end.stats
        self._finished.add(1, end.reason)
        self._prompt.add(end.stats.prompt_tokens)
        self._reused.add(end.stats.reused_tokens)
        self._seconds.observe(now - job.arrived)
        if first is not None and end.stats.emitted > 1:
            self._tpot.observe((now - first) / (end.stats.emitted - 1))

    # --- read ------------------------------------------------------------------------------------------

    def metrics(self) -> list[Metric]:
        """All there are, in the order of the page."""
        own = [value for value in vars(self).values() if isinstance(value, Metric)]
        return [*own, *self._gauges]

    def _speed(self) -> list[tuple[Labels, float]]:
        rate = self.last.tokens_per_second if self.last is not None else None
        return [((), math.nan if rate is None else rate)]

    @staticmethod
    def _ratio(part: Counter, whole: Counter) -> float:
        return part.value() / whole.value() if whole.value() else math.nan
