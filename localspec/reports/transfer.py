"""How far downloads are, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from localspec.ground.terminal import row
from localspec.pairs.store.listing import shard_of

if TYPE_CHECKING:
    from localspec.pairs.hub.download import Transfer

_NAME = 28
"""Columns for a file's name, so that a line with speed and time left fits into 80."""
_MEMORY_SECONDS = 5.0
"""Over which time the shown speed is averaged, roughly."""


class Speed:
    """Bytes per second, averaged so that old times count less and less."""

    def __init__(self) -> None:
        self._at: tuple[float, int] | None = None
        self.value: float | None = None

    def update(self, now: float, total: int) -> float | None:
        """Feed the bytes received so far; None until there is a speed."""
        if self._at is None or total < self._at[1]:
            self._at = (now, total)
            return self.value
        seconds, count = now - self._at[0], total - self._at[1]
        if seconds < 0.2:
            return self.value
        self._at = (now, total)
        pace, weight = count / seconds, min(seconds / _MEMORY_SECONDS, 1.0)
        self.value = pace if self.value is None else self.value + weight * (pace - self.value)
        return self.value


def file_line(one: Transfer) -> str:
    """`name  45 %  503 MB / 1.12 GB`, or what it waits for."""
    states = {
        "waiting": "waiting",
        "elsewhere": "another process is fetching it",
        "checking": "checking what is here",
        "retrying": f"retry: {one.note}",
        "failed": "failed",
    }
    share = f"{100 * one.done / one.total:3.0f} %" if one.total else "     "
    extra = f"  {states[one.state]}" if one.state in states else ""
    return row(f"{short_name(one):<{_NAME}} {share}  {size(one.done)} / {size(one.total)}{extra}")


def total_line(transfers: Sequence[Transfer], speed: float | None) -> str:
    """`total  40 %  0.64 GB / 1.61 GB  24.1 MB/s  0:41 left`."""
    done, total = sum(one.done for one in transfers), sum(one.total for one in transfers)
    share = f"{100 * done / total:3.0f} %" if total else "     "
    pace = ""
    if speed and done < total:
        pace = f"  {size(int(speed))}/s  {clock(int((total - done) / speed))} left"
    return f"{'total':<{_NAME}} {share}  {size(done)} / {size(total)}{pace}"


def size(count: int) -> str:
    """Bytes for people, in decimal units as the hub shows them."""
    if count >= 10**9:
        return f"{count / 1e9:.2f} GB"
    if count >= 10**6:
        return f"{count / 1e6:.1f} MB"
    return f"{count / 1e3:.0f} kB" if count >= 1000 else f"{count} B"


def clock(seconds: int) -> str:
    """Seconds as 0:41 or 1:02:03."""
    hours, rest = divmod(seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def short_name(one: Transfer) -> str:
    """The file's name in few columns: its beginning, which tells models apart, its quant, its shard."""
    stem, number, count = shard_of(one.item.path.rpartition("/")[2].removesuffix(".gguf"))
    shard = f" {number}/{count}" if count > 1 else ""
    columns = _NAME - len(shard)
    return (stem if len(stem) <= columns else f"{stem[: columns - 9]}…{stem[-8:]}") + shard
