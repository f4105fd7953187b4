"""What should the next round do: nothing, or ask one of the drafters? And for how long?

    plan = controller.plan(position, budget, forecasts)     # before the round
    while controller.worth(chance, made): guess()           # while a draft is made
    controller.observe(round)                               # after it

Pure: events in, decisions out, no clock. It keeps the money (what a second is worth); what a drafter believes of
its own guesses comes as a `Forecast`. `FixedController` obeys an order; `adaptive.AdaptiveController` decides by time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from localspec.engine.control.costs import Costs
    from localspec.engine.drafters.protocol import Forecast
    from localspec.engine.records import Round, State, StateChange


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do in a round."""

    drafter: str
    """A name in `drafters.table`, or `none`."""
    length: int
    """Guesses at most; `worth` may stop earlier. 0 with `none`."""
    reason: str
    """Why, in a few words a person can act on."""
    is_probe: bool = False
    """Whether it is only to see whether guesses are kept."""


class Controller(Protocol):
    """Decides what each round does."""

    @property
    def state(self) -> State:
        """Whether guesses are in use at the moment."""

    @property
    def reason(self) -> str:
        """Why, in words a person can act on."""

    @property
    def changes(self) -> Sequence[StateChange]:
        """Every change of state since the answer began."""

    @property
    def weighs(self) -> Collection[str] | None:
        """The drafters whose forecasts it looks at; None = all that there are."""

    def begin(self, related: bool) -> None:
        """An answer begins. `related`: its prompt goes on with the last one's text."""

    def pays_debt(self, drafter: str, forecast: Forecast, position: int) -> bool:
        """Whether a drafter should read what it lacks of the prompt, before the answer."""

    def plan(self, position: int, budget: int, forecasts: Mapping[str, Forecast]) -> Plan:
        """Decide on a round.

        `position`: tokens in the sequence, `last` included. `budget`: guesses at most, by the context, the tokens left
        to make and the widest pass. `forecasts`: of the drafters that can guess now, by name, in the table's order.
        """

    def worth(self, chance: float, made: int) -> bool:
        """Is one more guess worth its time, when so many are made and it will be kept with this chance, all before it
        as well?"""

    def observe(self, round_: Round) -> None:
        """Learn from a finished round."""


class FixedController:
    """Does what was ordered: this drafter, this many guesses, as far as the budget goes."""

    def __init__(self, drafter: str, length: int, costs: Costs | None = None) -> None:
        """`costs` go on learning, if given: the estimate of plain decoding needs them."""
        self._drafter = drafter if length else "none"
        self._length = length
        self._costs = costs
        self.weighs = () if self._drafter == "none" else (self._drafter,)
        self.state: State = "off" if self._drafter == "none" else "on"
        self.reason = "as ordered: plain"
        if self.state == "on":
            self.reason = f"as ordered: {self._drafter}, {length} {'guess' if length == 1 else 'guesses'}"
        self.changes: tuple[StateChange, ...] = ()

    def begin(self, related: bool) -> None:
        """Nothing to prepare."""

    def pays_debt(self, drafter: str, forecast: Forecast, position: int) -> bool:
        """When it was ordered."""
        return self._drafter == drafter

    def plan(self, position: int, budget: int, forecasts: Mapping[str, Forecast]) -> Plan:
        """The order, cut to the budget and to what there is to guess."""
        if self._drafter == "none":
            return Plan("none", 0, self.reason)
        if budget <= 0:
            return Plan("none", 0, "no room for a draft")
        forecast = forecasts.get(self._drafter)
        if forecast is None:
            return Plan("none", 0, f"{self._drafter} has nothing to guess here")
        return Plan(self._drafter, min(self._length, budget, forecast.longest), self.reason)

    def worth(self, chance: float, made: int) -> bool:
        """Until the ordered length is reached."""
        return True

    def observe(self, round_: Round) -> None:
        """Only times are learned from."""
        if self._costs is not None:
            self._costs.observe(round_)
