"""What should the next round do: nothing, ask the draft model, or copy? And for how long?

    plan = controller.plan(situation)               # before the round
    while controller.go_on(confidences): guess()    # after each guess of the draft model
    controller.observe(round)                       # after it

Pure: events in, decisions out, no clock. No decision depends on which token was sampled from a draft
distribution, other than to stop after it. `FixedController` obeys an order; `adaptive.AdaptiveController`
decides by time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from localspec.engine.control.costs import Costs
    from localspec.engine.records import Round, State, StateChange

Choice = Literal["none", "model", "lookup"]


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known before a round."""

    position: int
    """Tokens in the sequence, `last` included."""
    budget: int
    """Guesses that may be made at most: by the context, the tokens left to make, and the widest pass."""
    catch_up_rows: int = 1
    """Rows the draft model would decode before its first guess, `last` included: mostly 1 or 2."""
    has_model: bool = False
    lookup_ids: tuple[int, ...] = ()
    """What lookup offers to continue with; () where nothing matches or lookup is not offered."""
    lookup_match: int = 0
    """Tokens that agree before that offer."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do in a round."""

    drafter: Choice
    length: int
    """Guesses at most; for the draft model `go_on` may stop earlier. 0 with `none`."""
    reason: str
    """Why, in a few words a person can act on."""


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

    def begin(self, related: bool) -> None:
        """An answer begins. `related`: its prompt goes on with the last one's text."""

    def wants_model(self, rows: int, position: int) -> bool:
        """Whether the draft model should read the `rows` prompt tokens that it lacks, before the answer."""

    def plan(self, situation: Situation) -> Plan:
        """Decide on a round."""

    def go_on(self, confidences: Sequence[float]) -> bool:
        """May the draft model guess once more, after guesses with these confidences?"""

    def observe(self, round_: Round) -> None:
        """Learn from a finished round."""


class FixedController:
    """Does what was ordered: this drafter, this many guesses, as far as the budget goes."""

    def __init__(self, drafter: Choice, length: int, costs: Costs | None = None) -> None:
        """`costs` go on learning, if given: the estimate of plain decoding needs them."""
        self._drafter: Choice = drafter if length else "none"
        self._length = length
        self._costs = costs
        self._planned = 0
        self.state: State = "off" if self._drafter == "none" else "on"
        self.reason = "as ordered: plain"
        if self.state == "on":
            self.reason = f"as ordered: {self._drafter}, {length} {'guess' if length == 1 else 'guesses'}"
        self.changes: tuple[StateChange, ...] = ()

    def begin(self, related: bool) -> None:
        """Nothing to prepare."""

    def wants_model(self, rows: int, position: int) -> bool:
        """When it was ordered."""
        return self._drafter == "model"

    def plan(self, situation: Situation) -> Plan:
        """The order, cut to the budget and to what there is to copy."""
        length = min(self._length, situation.budget)
        if self._drafter == "none":
            return Plan("none", 0, self.reason)
        if length <= 0:
            return Plan("none", 0, "no room for a draft")
        if self._drafter == "lookup":
            length = min(length, len(situation.lookup_ids))
            if not length:
                return Plan("none", 0, "nothing to copy")
        elif not situation.has_model:
            return Plan("none", 0, "no room in the draft model's context")
        self._planned = length
        return Plan(self._drafter, length, self.reason)

    def go_on(self, confidences: Sequence[float]) -> bool:
        """Until the ordered length is reached."""
        return len(confidences) < self._planned

    def observe(self, round_: Round) -> None:
        """Only times are learned from."""
        if self._costs is not None:
            self._costs.observe(round_)
