"""What the server counts: events of the engine's thread in, /metrics and the live part of /v1/pair out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from localspec.engine.records import Event, Finished, GenerationStats, Provenance, Round, RoundFinished
from localspec.reports.answer import stats_json
from localspec.serve.queue import Job

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of the page."""

Labels = tuple[str, ...]

_PASS_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_WAIT_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_TOKEN_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Described:
    """One name of the page, for people."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


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
        self._queue = queue
        self._memory = memory
        self._registry = CollectorRegistry()
        self._described: list[Described] = []
        self._draft_tokens = self._counter("spec_dec_draft_tokens_total", "Draft tokens that the target verified.")
        self._accepted = self._counter("spec_dec_accepted_tokens_total", "Draft tokens that were kept and sent.")
        self._draft_latency = self._histogram(
            "spec_dec_draft_latency_seconds", "Time to make the draft of one round.", _PASS_BOUNDS
        )
        self._verify_latency = self._histogram(
            "spec_dec_verify_latency_seconds", "Time of one pass of the target over a draft.", _PASS_BOUNDS
        )
        self._requests = self._counter(
            "localspec_requests_total", "Requests by path and HTTP status.", ("path", "status")
        )
        self._finished = self._counter("localspec_answers_total", "Answers by how they ended.", ("reason",))
        self._prompt = self._counter("localspec_prompt_tokens_total", "Prompt tokens, reused ones included.")
        self._reused = self._counter("localspec_prompt_tokens_reused_total", "Prompt tokens found in the cache.")
        self._generated = self._counter(
            "localspec_generation_tokens_total", "Generated tokens, end tokens included."
        )
        self._passes = self._counter("localspec_target_passes_total", "Passes of the target that made tokens.")
        self._rounds = self._counter("localspec_rounds_total", "Rounds by what guessed in them.", ("drafter",))
        self._drafts = self._counter(
            "localspec_spec_decode_num_drafts_total",
            "Rounds in which a draft was verified; named as in vLLM.",
        )
        self._verified = self._counter(
            "localspec_spec_decode_num_draft_tokens_total", "The same as spec_dec_draft_tokens_total."
        )
        self._kept = self._counter(
            "localspec_spec_decode_num_accepted_tokens_total", "The same as spec_dec_accepted_tokens_total."
        )
        self._verified_at = self._counter(
            "localspec_spec_decode_num_draft_tokens_per_pos_total",
            "Draft tokens verified, by place in the draft from 0.",
            ("position",),
        )
        self._accepted_at = self._counter(
            "localspec_spec_decode_num_accepted_tokens_per_pos_total",
            "Draft tokens that the target kept, by place in the draft from 0.",
            ("position",),
        )
        self._queued = self._histogram(
            "localspec_queue_seconds", "Time a request waited for the engine.", _WAIT_BOUNDS
        )
        self._ttft = self._histogram(
            "localspec_time_to_first_token_seconds",
            "From a request's arrival to its first token.",
            _WAIT_BOUNDS,
        )
        self._tpot = self._histogram(
            "localspec_time_per_output_token_seconds",
            "Mean time between the tokens of one answer after its first.",
            _TOKEN_BOUNDS,
        )
        self._seconds = self._histogram(
            "localspec_request_seconds", "From a request's arrival to the end of its answer.", _WAIT_BOUNDS
        )
        self._registry.register(_Asked(self._gauges))

    def page(self) -> str:
        """/metrics."""
        return generate_latest(self._registry).decode("utf-8")

    def described(self) -> list[Described]:
        """Everything on the page, in its order."""
        gauges = [
            Described(m.name, m.type, m.documentation, tuple(m.samples[0].labels) if m.samples else ())
            for m in self._gauges()
        ]
        return [*self._described, *gauges]

    def request(self, path: str, status: int) -> None:
        """One HTTP request was answered."""
        self._requests.labels(path, str(status)).inc()

    def live(self) -> dict[str, Any]:
        """The part of /v1/pair that changes."""
        verified, accepted = _value(self._draft_tokens), _value(self._accepted)
        length = self._ratio(self._generated, self._passes)
        return {
            "prompt_tokens": int(_value(self._prompt)),
            "generated_tokens": int(_value(self._generated)),
            "target_passes": int(_value(self._passes)),
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
        self._finished.labels("error").inc()

    def _round(self, job: Job, round: Round) -> None:
        if job not in self._first_token:
            self._first_token[job] = now = time.perf_counter()
            self._ttft.observe(now - job.arrived)
        self._passes.inc()
        self._generated.inc(len(round.emitted))
        self._rounds.labels(round.drafter).inc()
        if not round.verified:
            return
        accepted = sum(origin is Provenance.ACCEPTED for origin in round.provenance)
        self._drafts.inc()
        for verified, kept in ((self._draft_tokens, self._accepted), (self._verified, self._kept)):
            verified.inc(round.verified)
            kept.inc(accepted)
        self._draft_latency.observe(round.draft_seconds)
        self._verify_latency.observe(round.verify_seconds)
        for position in range(round.verified):
            self._verified_at.labels(str(position)).inc()
            self._accepted_at.labels(str(position)).inc(int(position < round.accepted))

    def _end(self, job: Job, end: Finished) -> None:
        now = time.perf_counter()
        first = self._first_token.pop(job, None)
        self.last = end.stats
        self._finished.labels(end.reason).inc()
        self._prompt.inc(end.stats.prompt_tokens)
        self._reused.inc(end.stats.reused_tokens)
        self._seconds.observe(now - job.arrived)
        if first is not None and end.stats.emitted > 1:
            self._tpot.observe((now - first) / (end.stats.emitted - 1))

    # --- parts -----------------------------------------------------------------------------------------

    def _counter(self, name: str, help: str, labels: Sequence[str] = ()) -> Counter:
        self._described.append(Described(name, "counter", help, tuple(labels)))
        return Counter(name, help, labels, registry=self._registry)

    def _histogram(self, name: str, help: str, bounds: Sequence[float]) -> Histogram:
        self._described.append(Described(name, "histogram", help))
        return Histogram(name, help, buckets=bounds, registry=self._registry)

    def _gauges(self) -> Iterator[Metric]:
        """What is read when somebody asks; NaN says "undefined"."""
        running, waiting = self._queue()
        last = self.last
        speed = last.tokens_per_second if last is not None else None
        yield _gauge(
            "spec_dec_acceptance_rate",
            "Kept / verified draft tokens since the start; NaN before the first.",
            self._ratio(self._accepted, self._draft_tokens),
        )
        yield _gauge(
            "spec_dec_tokens_per_step",
            "Generated tokens / passes of the target since the start; 1 is no help.",
            self._ratio(self._generated, self._passes),
        )
        yield _gauge("localspec_requests_running", "Answers being made.", running)
        yield _gauge("localspec_requests_waiting", "Requests in the queue.", waiting)
        yield _gauge(
            "localspec_speculation_on",
            "1 = drafts were in use at the end of the last answer, 0 = not (why: /v1/pair).",
            float(last.state == "on") if last is not None else None,
        )
        yield _gauge(
            "localspec_tokens_per_second", "Decode speed of the last answer.", math.nan if speed is None else speed
        )
        memory = GaugeMetricFamily(
            "localspec_resident_memory_bytes", "Resident memory by process.", labels=("process",)
        )
        for labels, size in self._memory():
            memory.add_metric(labels, size)
        yield memory

    @staticmethod
    def _ratio(part: Counter, whole: Counter) -> float:
        return _value(part) / _value(whole) if _value(whole) else math.nan


class _Asked(Collector):
    """Metrics that `read` gives when somebody asks for them."""

    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        return self._read()

    def describe(self) -> Iterable[Metric]:
        """Nothing: whoever registers asks for names, and the engine is not there yet."""
        return ()


def _gauge(name: str, help: str, value: float | None) -> GaugeMetricFamily:
    """One number; a name without a sample where there is none yet."""
    family = GaugeMetricFamily(name, help)
    if value is not None:
        family.add_metric((), value)
    return family


def _value(counter: Counter) -> float:
    (metric,) = counter.collect()
    return float(metric.samples[0].value)


disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series beside each, which nobody asked for
