"""The progress of a download: a few lines redrawn on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TextIO

from localspec.ground.terminal import is_terminal, one_line
from localspec.reports.transfer import Speed, file_line, short_name, total_line

if TYPE_CHECKING:
    from localspec.pairs.hub.download import Transfer

_PLAIN_SECONDS = 5.0


class TransferView:
    """Shows transfers on `stream` each time it is called."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream, self.clock = stream, clock
        self.live = is_terminal(stream)
        self._speed = Speed()
        self._drawn = 0
        self._last_line = -_PLAIN_SECONDS
        self._told: set[str] = set()

    def __call__(self, transfers: Sequence[Transfer]) -> None:
        now = self.clock()
        speed = self._speed.update(now, sum(one.received for one in transfers))
        if self.live:
            self._redraw([*map(file_line, transfers), total_line(transfers, speed)])
            return
        for one in transfers:
            text = f"{short_name(one)}: {one.note}"
            if one.note and text not in self._told:
                self._told.add(text)
                print(one_line(text), file=self.stream, flush=True)
        if now - self._last_line >= _PLAIN_SECONDS:
            self._last_line = now
            print(total_line(transfers, speed), file=self.stream, flush=True)

    def _redraw(self, lines: list[str]) -> None:
        width = shutil.get_terminal_size().columns - 1
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        self.stream.write(up + "".join(f"\r\x1b[K{line[:width]}\n" for line in lines))
        self.stream.flush()
        self._drawn = len(lines)
