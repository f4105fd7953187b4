"""Plots as inline SVG: a frame with axes, and the few marks that the report needs. The page's style colours them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

from localspec.ground.terminal import visible

SERIES_COLOURS = 6
"""Classes `s0` .. `s5` of the page's style."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 14, 44


@dataclass(slots=True)
class Axis:
    """One axis: what it shows, from where to where."""

    label: str
    low: float
    high: float
    ticks: Sequence[float] = ()
    write: Callable[[float], str] = "{:g}".format

    @classmethod
    def around(
        cls,
        label: str,
        values: Sequence[float],
        *,
        zero: bool = False,
        write: Callable[[float], str] = "{:g}".format,
    ) -> Axis:
        """An axis that holds all `values`, its ticks at round numbers."""
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        low = min(low, 0.0) if zero else low
        margin = (high - low or abs(high) or 1.0) * 0.06
        least = low - margin if low < 0 else max(0.0, low - margin)
        ticks = round_ticks(low if zero else least, high + margin)
        return cls(label, min(ticks[0], low), max(ticks[-1], high), ticks, write)


@dataclass(slots=True)
class Plot:
    """A plot under construction: marks are added in data coordinates."""

    title: str
    x: Axis
    y: Axis
    width: int = 640
    height: int = 300
    left: int = _LEFT
    marks: list[str] = field(default_factory=list)

    def at_x(self, value: float) -> float:
        inner = self.width - self.left - _RIGHT
        return self.left + inner * (value - self.x.low) / ((self.x.high - self.x.low) or 1.0)

    def at_y(self, value: float) -> float:
        inner = self.height - _TOP - _BOTTOM
        return self.height - _BOTTOM - inner * (value - self.y.low) / ((self.y.high - self.y.low) or 1.0)

    def line(self, points: Sequence[tuple[float, float]], series: int, name: str = "") -> None:
        """Points joined and marked."""
        path = " ".join(f"{self.at_x(x):.1f},{self.at_y(y):.1f}" for x, y in points)
        self.marks.append(f'<polyline class="line {_class(series)}" points="{path}"/>')
        for x, y in points:
            self.point(x, y, series, f"{name}: {self.x.write(x)}, {self.y.write(y)}")

    def point(self, x: float, y: float, series: int, tip: str = "", radius: float = 3.5) -> None:
        title = f"<title>{_safe(tip)}</title>" if tip else ""
        self.marks.append(
            f'<circle class="dot {_class(series)}" cx="{self.at_x(x):.1f}" cy="{self.at_y(y):.1f}" '
            f'r="{radius}">{title}</circle>'
        )

    def whisker(self, low: float, high: float, y: float, series: int) -> None:
        """A horizontal interval."""
        height = self.at_y(y)
        for x1, x2, y1, y2 in (
            (low, high, height, height), (low, low, height - 4, height + 4), (high, high, height - 4, height + 4),
        ):  # fmt: skip
            self.marks.append(_line("whisker " + _class(series), self.at_x(x1), y1, self.at_x(x2), y2))

    def upright(self, low: float, high: float, x: float, series: int) -> None:
        """A vertical interval."""
        self.marks.append(
            _line("whisker " + _class(series), self.at_x(x), self.at_y(low), self.at_x(x), self.at_y(high))
        )

    def rule_x(self, x: float, label: str) -> None:
        """A vertical reference line."""
        at = self.at_x(x)
        self.marks.append(_line("rule", at, _TOP, at, self.height - _BOTTOM))
        late = at > self.width - _RIGHT - 60
        place = f'class="rule-label{" end" if late else ""}" x="{at - 4 if late else at + 4:.1f}"'
        self.marks.append(f'<text {place} y="{_TOP + 9}">{_safe(label)}</text>')

    def rule_y(self, y: float, label: str) -> None:
        """A horizontal reference line."""
        at = self.at_y(y)
        self.marks.append(_line("rule", self.left, at, self.width - _RIGHT, at))
        self.marks.append(
            f'<text class="rule-label end" x="{self.width - _RIGHT}" y="{at - 4:.1f}">{_safe(label)}</text>'
        )

    def note(self, x: float, y: float, text: str) -> None:
        """Words to the right of a place."""
        self.marks.append(
            f'<text class="value" x="{self.at_x(x) + 8:.1f}" y="{self.at_y(y) + 4:.1f}">{_safe(text)}</text>'
        )

    def svg(self) -> str:
        """The whole picture; it scales with the page."""
        parts = [
            f'<svg viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{_safe(self.title)}">',
            *self._x_axis(),
            *self._y_axis(),
            *self.marks,
            "</svg>",
        ]
        return "\n".join(parts)

    def _x_axis(self) -> list[str]:
        bottom = self.height - _BOTTOM
        parts = [_line("axis", self.left, bottom, self.width - _RIGHT, bottom)]
        for tick in self.x.ticks:
            at = self.at_x(tick)
            parts.append(_line("grid", at, _TOP, at, bottom))
            parts.append(f'<text class="tick mid" x="{at:.1f}" y="{bottom + 15}">{_safe(self.x.write(tick))}</text>')
        middle = (self.left + self.width - _RIGHT) / 2
        parts.append(f'<text class="label mid" x="{middle:.0f}" y="{self.height - 8}">{_safe(self.x.label)}</text>')
        return parts

    def _y_axis(self) -> list[str]:
        parts = []
        for tick in self.y.ticks:
            at = self.at_y(tick)
            parts.append(_line("grid", self.left, at, self.width - _RIGHT, at))
            parts.append(
                f'<text class="tick end" x="{self.left - 6}" y="{at + 4:.1f}">{_safe(self.y.write(tick))}</text>'
            )
        if self.y.label:
            middle = (self.height - _BOTTOM + _TOP) / 2
            parts.append(
                f'<text class="label mid" transform="translate(13 {middle:.0f}) rotate(-90)">'
                f"{_safe(self.y.label)}</text>"
            )
        return parts


def round_ticks(low: float, high: float, count: int = 6) -> list[float]:
    """About `count` round numbers that enclose low .. high."""
    span = max(high - low, 1e-12)
    power = 10.0 ** math.floor(math.log10(span / count))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= span / count)
    first = math.floor(low / step)
    last = math.ceil(high / step)
    return [round(step * index, 10) for index in range(first, last + 1)]


def legend(names: Sequence[str], first: int = 0) -> str:
    """Names in the colours of their series, the first of which is `first`."""
    items = "".join(f'<span class="key {_class(i)}">{_safe(name)}</span>' for i, name in enumerate(names, first))
    return f'<p class="legend">{items}</p>'


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _class(series: int) -> str:
    return f"s{series % SERIES_COLOURS}"


def _safe(text: str) -> str:
    return escape(visible(text))
