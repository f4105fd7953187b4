"""When a plain pass is due: drafts are held against plain decoding, and only making such a pass measures it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localspec.engine.control.pass_times import PassTimes

_FIRST_GAP, _GAP = 24, 128  # rounds without a plain pass at most: the first time, later
_GAP_IN_DOUBT = 2  # rounds until the next one, when the last one was a surprise
_LEAST_GAP = 10
_CHANGE = 1.2  # of all pass times, that a plain pass has to confirm


class PlainReference:
    """The last plain pass, and what it said."""

    def __init__(self) -> None:
        self._round = 0
        self._scale = 1.0
        self._is_first = True
        self._revised = False  # the time of a plain pass jumped: was it a burst of other work, or is it so now?

    def due(self, round_: int, target: PassTimes, position: int) -> bool:
        """Whether the round after so many should be plain."""
        since = round_ - self._round
        doubted = target.doubted(1) or self._revised
        if since >= (_GAP_IN_DOUBT if doubted else _FIRST_GAP if self._is_first else _GAP):
            return True
        change = target.scale(position) / self._scale
        return since >= _LEAST_GAP and not 1 / _CHANGE < change < _CHANGE

    def observe(self, round_: int, target: PassTimes, position: int) -> None:
        """The round of that number was plain, and `target` has learned from it."""
        self._round = round_
        self._scale = target.scale(position)
        self._is_first = False
        self._revised = target.revised
