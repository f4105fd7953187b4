"""Numbers and small plots as text. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

_SPARKS = "▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def rate(value: float | None) -> str:
    """Tokens per second, a dash when unknown."""
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def share(value: float | None) -> str:
    """A part of one as per cent."""
    return "–" if value is None else f"{value:.0%}"


def times(value: float | None) -> str:
    """A factor."""
    return "–" if value is None else f"{value:.2f}x"


def seconds(value: float) -> str:
    """A duration in a unit that fits."""
    if abs(value) < 1:
        return f"{value * 1e3:.1f} ms" if abs(value) < 0.01 else f"{value * 1e3:.0f} ms"
    return f"{value:.1f} s" if abs(value) < 100 else f"{value / 60:.1f} min"


def size(value: int | None) -> str:
    """Bytes in a unit that fits."""
    if value is None:
        return "unknown"
    if value >= 1 << 30:
        return f"{value / (1 << 30):.2f} GiB"
    return f"{value / (1 << 20):.0f} MiB" if value >= 1 << 20 else f"{value / 1024:.0f} KiB"


def bar(value: float, width: int) -> str:
    """`value` of 0..1 as a bar exactly `width` cells wide."""
    eighths = round(min(max(value, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


def sparkline(values: Sequence[float], width: int) -> str:
    """The newest `width` values, scaled to the largest of them."""
    shown = list(values)[-width:]
    top = max(shown, default=0.0)
    if top <= 0:
        return " " * width
    return "".join(_SPARKS[min(7, int(value / top * 7.999))] for value in shown).rjust(width)


def shares(parts: Sequence[float], width: int, signs: str = "█▓▒░ ") -> str:
    """Parts of a whole as one bar of `width` cells, a sign each; never a cell too many."""
    whole = sum(parts)
    if whole <= 0:
        return " " * width
    text, done = "", 0.0
    for part, sign in zip(parts, signs, strict=False):
        done += part
        text += sign * (round(done / whole * width) - len(text))
    return text.ljust(width)[:width]
