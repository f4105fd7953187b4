"""Prometheus' text format, for the few kinds of counters, gauges and histograms needed here. Thread-safe."""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[str, ...]


class Metric:
    """One name with its help and its label names."""

    kind = ""

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self.help = help
        self.labels = tuple(labels)
        self._lock = threading.Lock()

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {_escaped(self.help, quotes=False)}"
        yield f"# TYPE {self.name} {self.kind}"
        yield from self.samples()

    def samples(self) -> Iterator[str]:
        raise NotImplementedError

    def _sample(self, value: float, labels: Labels, suffix: str = "", extra: str = "") -> str:
        pairs = [f'{name}="{_escaped(text)}"' for name, text in zip(self.labels, labels, strict=True)]
        inside = ",".join([*pairs, *([extra] if extra else [])])
        return f"{self.name}{suffix}{'{' + inside + '}' if inside else ''} {_number(value)}"


class Counter(Metric):
    """Only goes up."""

    kind = "counter"

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, help, labels)
        self._values: dict[Labels, float] = {} if labels else {(): 0.0}

    def add(self, amount: float = 1.0, *labels: str) -> None:
        if amount < 0:
            raise ValueError(f"{self.name} cannot go back")
        with self._lock:
            self._values[labels] = self._values.get(labels, 0.0) + amount

    def value(self, *labels: str) -> float:
        return self._values.get(labels, 0.0)

    def samples(self) -> Iterator[str]:
        with self._lock:
            values = sorted(self._values.items())
        for labels, value in values:
            yield self._sample(value, labels)


class Gauge(Metric):
    """Read when asked for: `read` gives (labels, value) pairs; NaN says "undefined"."""

    kind = "gauge"

    def __init__(
        self,
        name: str,
        help: str,
        read: Callable[[], Sequence[tuple[Labels, float]]],
        labels: Sequence[str] = (),
    ) -> None:
        super().__init__(name, help, labels)
        self._read = read

    def samples(self) -> Iterator[str]:
        for labels, value in self._read():
            yield self._sample(value, labels)


class Histogram(Metric):
    """Counts by upper bounds, without labels."""

    kind = "histogram"

    def __init__(self, name: str, help: str, bounds: Sequence[float]) -> None:
        super().__init__(name, help)
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        with self._lock:
            self._counts[bisect_left(self._bounds, value)] += 1
            self._sum += value

    def samples(self) -> Iterator[str]:
        with self._lock:
            counts, total = list(self._counts), self._sum
        seen = 0
        for bound, count in zip((*self._bounds, math.inf), counts, strict=True):
            seen += count
            yield self._sample(seen, (), "_bucket", f'le="{_number(bound)}"')
        yield self._sample(total, (), "_sum")
        yield self._sample(seen, (), "_count")


def text(metrics: Sequence[Metric]) -> str:
    """The whole page."""
    return "".join(line + "\n" for metric in metrics for line in metric.lines())


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def _escaped(text: str, *, quotes: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text
