"""What prompt lookup believes: how often a match of a length goes on. It belongs to one text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localspec.engine.drafters.acceptance import MatchAcceptance
from localspec.engine.drafters.protocol import Forecast

if TYPE_CHECKING:
    from localspec.engine.drafters.ngram_index import Match
    from localspec.engine.records import Round

_NO_TIME = (0.0,) * 65


class LookupBelief:
    """Of one text."""

    def __init__(self) -> None:
        self._acceptance = MatchAcceptance()

    def begin(self, related: bool) -> None:
        """An answer begins; in an unrelated text matches mean something else."""
        if not related:
            self._acceptance = MatchAcceptance()

    def forecast(self, match: Match, room: int) -> Forecast | None:
        """Of copying up to `room` tokens of `match`; None = nothing matched."""
        offered = min(len(match.ids), room)
        if offered < 1:
            return None
        chances, at = self._acceptance.chances, match.length
        last = len(chances) - 1
        kept, total, chance = [0.0], 0.0, 1.0
        for _ in range(offered):
            chance *= chances[at]
            at += at < last
            total += chance
            kept.append(total)
        return Forecast(kept, _NO_TIME[: offered + 1], range(1, offered + 2), chances[at], is_free=True)

    def learn(self, match: Match, round_: Round) -> None:
        """What was offered before a round, used or not, against what the round emitted: that costs nothing."""
        offered, emitted = match.ids, round_.emitted
        judged = min(len(offered), len(emitted))
        if judged:
            agreed = 0
            while agreed < judged and offered[agreed] == emitted[agreed]:
                agreed += 1
            self._acceptance.observe(match.length, judged, agreed)


