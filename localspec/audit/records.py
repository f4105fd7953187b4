"""What an audit finds. All goes to JSON as it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["near-tie", "bug", "unjudged"]
"""`unjudged`: too few rows were measured to tell a near-tie from a bug."""

_ENOUGH_ROWS = 24

CHECKS = ("greedy", "coupled", "penalties", "stops", "rewind", "distribution", "seeds")
"""What can be checked by itself."""


@dataclass(frozen=True, slots=True)
class Fork:
    """The first place where an answer with drafts and the plain answer differ."""

    check: str
    """`greedy`, `coupled`, `penalties`, ..."""
    case: str
    variant: str
    """The drafter and its length."""
    index: int
    """Generated tokens before it."""
    plain_token: int
    other_token: int
    plain_text: str
    other_text: str
    gap_single: float | None
    """How much better the target likes the plain token, decoded one row at a time: in log odds of the choice
    that is made (penalties and noise included). Where a filter's edge lies nearer than a tie, the way to
    that edge counts; None where filters removed both, or one for good."""
    gap_batch: float | None
    """The same in the pass that verified the draft. Below zero: there it likes the other one better."""
    width: int
    """Rows of that pass."""
    moved: float
    """How far the likeliest tokens' logits differ between the two passes."""
    tolerance: float
    """Gaps up to this are numeric, by what batches move here anyway."""
    kind: Kind
    why: str


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that no rounding explains."""

    check: str
    what: str
    """One sentence that names it."""


@dataclass(frozen=True, slots=True)
class Check:
    """One kind of check, summed up."""

    name: str
    compared: int
    """Answers, drafts or rows looked at."""
    equal: int
    near_ties: int = 0
    bugs: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Noise:
    """How much the shape of a batch moves the target's logits here, with nothing else changed."""

    largest: float
    """Of the five likeliest tokens of a row, over all rows looked at."""
    rows: int
    """Rows looked at, once for each width."""
    by_width: dict[str, float] = field(default_factory=dict)

    @property
    def is_known(self) -> bool:
        """Whether enough rows were looked at to judge by."""
        return self.rows >= _ENOUGH_ROWS

    @property
    def tolerance(self) -> float:
        """A gap between two tokens that may be numeric: both move, and so does what the cache holds."""
        return max(1e-4, 3.0 * self.largest)


@dataclass(frozen=True, slots=True)
class AuditResult:
    """All of it."""

    checks: tuple[Check, ...]
    forks: tuple[Fork, ...]
    faults: tuple[Fault, ...]
    noise: Noise
    tokens: int
    """Generated tokens compared."""
    seconds: float
    quick: bool
    complete: bool = True
    """False when it was stopped or an engine died before the end."""
    only: tuple[str, ...] = ()
    """The checks that were made when not all were; () = all."""

    @property
    def near_ties(self) -> int:
        return sum(fork.kind == "near-tie" for fork in self.forks)

    @property
    def unjudged(self) -> int:
        return sum(fork.kind == "unjudged" for fork in self.forks)

    @property
    def bugs(self) -> int:
        return len(self.faults) + sum(fork.kind == "bug" for fork in self.forks)

    @property
    def passed(self) -> bool:
        return self.complete and not self.bugs and not self.unjudged
