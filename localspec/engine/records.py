"""The records that travel between the engine's stages and out to the front ends.

All are frozen and picklable: they cross from the engine's process to its parent as they are.
Times are seconds, sizes bytes, positions count tokens from the start of the sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from localspec.engine.sampling import Distribution

DrafterName = str
"""`none`, or a name in `drafters.table`."""

State = Literal["on", "off"]
FinishReason = Literal["stop", "length", "stop_string", "cancelled"]


class Provenance(StrEnum):
    """How a token came to be."""

    ACCEPTED = "accepted"
    """Guessed by a drafter, kept by the target."""
    CORRECTED = "corrected"
    """The target's own token in place of the first guess it rejected."""
    BONUS = "bonus"
    """The target's own token after a draft that was kept whole."""
    PLAIN = "plain"
    """The target's own token in a round without a draft."""


@dataclass(frozen=True, slots=True)
class Token:
    """One emitted token."""

    id: int
    provenance: Provenance
    text: str
    """The characters that this token completed: "" inside a character, behind a held-back stop string,
    and for end tokens. A character made of several tokens belongs to the one that completes it."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What making a draft took."""

    draft_seconds: float = 0.0
    """In passes of the drafter's own model, catch-up included."""
    sample_seconds: float = 0.0
    """Turning its logits into guesses."""
    catch_up_rows: int = 0
    """Rows decoded before the first guess, `last` included; 0 without a model."""
    foreign: int = 0
    """Guesses it wanted to make of ids that the target does not share (they were masked)."""


NOTHING_SPENT = Spent()


@dataclass(frozen=True, slots=True)
class Draft:
    """The guesses of one round: a tree in topological order, which mostly is a chain."""

    drafter: DrafterName
    ids: tuple[int, ...]
    parents: tuple[int, ...]
    """For each node the index of the one before it, -1 = it follows `last`; a chain has (-1, 0, 1, ...)."""
    q: tuple[Distribution, ...] | None = None
    """The distribution each node was truly sampled from; None for point guesses (q = 1)."""
    confidences: tuple[float, ...] = ()
    """The drafter's own probability of each node, 1.0 where it has none."""
    judged: int = -1
    """The first nodes are guesses; rows behind them are the drafter's own (lookahead). -1 = all are guesses."""
    spent: Spent = NOTHING_SPENT

    @staticmethod
    def chain(
        drafter: DrafterName,
        ids: tuple[int, ...],
        confidences: tuple[float, ...],
        q: tuple[Distribution, ...] | None = None,
        spent: Spent = NOTHING_SPENT,
    ) -> Draft:
        """Guesses one after the other."""
        return Draft(drafter, ids, chain_parents(len(ids)), q, confidences, -1, spent)

    @property
    def is_chain(self) -> bool:
        """Whether every node follows the one before it."""
        return self.parents == chain_parents(len(self.ids))

    @property
    def guesses(self) -> int:
        """Nodes that are judged."""
        return len(self.ids) if self.judged < 0 else self.judged

    def path_to(self, node: int) -> tuple[int, ...]:
        """The nodes from the first one to `node`; () for -1."""
        path: list[int] = []
        while node >= 0:
            path.append(node)
            node = self.parents[node]
        return tuple(reversed(path))


@cache
def chain_parents(count: int) -> tuple[int, ...]:
    """(-1, 0, 1, ...) for so many nodes."""
    return tuple(range(-1, count - 1))


NO_DRAFT = Draft("none", (), ())


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """What the target said in one pass; valid until its next one."""

    logits: NDArray[np.float32]
    """Shape (rows, n_vocab): row 0 after `last`, row i + 1 after node i. Free to be written to."""
    hidden: Mapping[int, NDArray[np.float32]] | None = None
    """By layer, its input at the same rows, shape (rows, width); None where no drafter wants any."""
    seconds: float = 0.0
    """This sequence's part of the pass's time."""


@dataclass(frozen=True, slots=True)
class Round:
    """One draft and its verification."""

    index: int
    """0 is the round that prefill ends in: one plain token, no draft."""
    position: int
    """Tokens in the sequence before this round's tokens."""
    drafter: DrafterName
    drafted: tuple[int, ...]
    """Every guess of the round, kept or not."""
    confidences: tuple[float, ...]
    verified: int
    """Guesses that stood in the target's pass; those behind an id that the target does not have did not."""
    accepted: int
    """Guesses that the target kept (before a stop or a limit cut the block)."""
    emitted: tuple[int, ...]
    """Token ids that this round added to the sequence, after the cut."""
    provenance: tuple[Provenance, ...]
    """One per emitted token."""
    reason: str = ""
    """Why this drafter and length, in a few words; always set when there was no draft."""
    catch_up_rows: int = 0
    parents: tuple[int, ...] | None = None
    """Of a tree's nodes, as in `Draft`; None = a chain."""
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    sample_seconds: float = 0.0
    rewind_seconds: float = 0.0
    other_seconds: float = 0.0
    """What is left of the round's wall time."""

    @property
    def depth(self) -> int:
        """Guesses that stood one after the other: of a chain all that were verified, of a tree its longest path."""
        if self.parents is None:
            return self.verified
        depths: list[int] = []
        for parent in self.parents[: self.verified]:
            depths.append(1 if parent < 0 else depths[parent] + 1)
        return max(depths, default=0)

    @property
    def wall_seconds(self) -> float:
        """The whole round."""
        return (
            self.draft_seconds
            + self.verify_seconds
            + self.sample_seconds
            + self.rewind_seconds
            + self.other_seconds
        )


@dataclass(frozen=True, slots=True)
class StateChange:
    """Guessing was turned on or off in the middle of an answer."""

    position: int
    """Tokens in the sequence when it was, those of the prompt included."""
    state: State
    reason: str
    """Why, in words a person can act on."""


@dataclass(frozen=True, slots=True)
class GenerationStats:
    """What one answer cost and gave. Rates that are undefined are None."""

    prompt_tokens: int
    """Tokens of the whole prompt, reused ones included."""
    reused_tokens: int
    """Prompt tokens that were still in the cache from the turn before."""
    emitted: int
    """Generated tokens, the end token included."""
    target_passes: int
    """Target passes that produced tokens; prefill's last pass is the first of them."""
    drafted: int
    verified: int
    accepted: int
    """Emitted tokens that were guesses."""
    discarded_unverified: int
    """Guesses that never stood in a target pass: drafted - verified."""
    bonus: int
    corrected: int
    plain: int
    acceptance_rate: float | None
    """accepted / verified."""
    mean_acceptance_length: float | None
    """emitted / target_passes; 1.00 is no help."""
    tokens_per_second: float | None
    """Tokens after the first / (wall - ttft)."""
    prompt_tokens_per_second: float | None
    """Prompt tokens really decoded (not reused) / ttft."""
    ttft_seconds: float | None
    """From the request to the first token: the prefill of both models and one pass."""
    wall_seconds: float
    """Prefill and decode; load and calibration are not in it."""
    draft_seconds: float
    verify_seconds: float
    sample_seconds: float
    rewind_seconds: float
    other_seconds: float
    """The five parts cover the time after the first token."""
    plain_tokens_per_second: float | None = None
    """What plain decoding would have done on this text, estimated from measured plain passes."""
    speedup: float | None = None
    """tokens_per_second / plain_tokens_per_second."""
    accepted_per_position: tuple[float | None, ...] = ()
    """Share of the guesses at draft position 1, 2, ... that were kept, among rounds that verified one
    there."""
    rounds_by_drafter: dict[str, int] = field(default_factory=dict)
    draft_lengths: dict[int, int] = field(default_factory=dict)
    """Rounds by verified draft length (0 = plain)."""
    out_of_vocabulary: int = 0
    """Guesses masked because the target does not share their id."""
    state: State = "off"
    """Whether drafts were in use at the end of the answer."""
    reason: str = ""
    """Why: in words a person can act on."""
    changes: tuple[StateChange, ...] = ()
    """Every time guessing was turned on or off, in order."""
    trouble: str = ""
    """Why a drafter was turned off for good, though others may go on; "" when none was."""


def stats_values(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `GenerationStats` in a JSON object, as the record wants them; malformed parts are left out."""
    names = {field.name for field in fields(GenerationStats)}
    values = {name: value for name, value in stored.items() if name in names}
    for name, convert in _CONVERTED.items():
        if name in values:
            try:
                values[name] = convert(values[name])
            except (TypeError, ValueError, AttributeError):
                del values[name]
    return values


_CONVERTED: dict[str, Callable[[Any], Any]] = {
    "accepted_per_position": lambda shares: tuple(None if share is None else float(share) for share in shares),
    "draft_lengths": lambda lengths: {int(length): int(rounds) for length, rounds in lengths.items()},
    "changes": lambda changes: tuple(StateChange(**change) for change in changes),
}


# --- events of a generation, in the order they arrive -----------------------------------------------


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """A model is being read from disk."""

    part: Literal["target", "draft"]
    fraction: float


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """Prompt tokens decoded so far, both models together."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class RoundFinished:
    """One round, and the tokens whose text is settled now.

    Tokens come in order and once. Those that may still turn out to begin a stop string come with a later
    round, or with the end.
    """

    round: Round
    tokens: tuple[Token, ...]
    guesses: tuple[str, ...] = ()
    """Text of every guess of the round, kept or not; a part of a character reads U+FFFD."""
    plain_token_seconds: float | None = None
    """What plain decoding would have needed per token of this answer so far; None = nothing measured it."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of an answer; always the last event of a generation that did not raise."""

    reason: FinishReason
    text: str
    tokens: tuple[int, ...]
    """Every generated id, the end token included."""
    stats: GenerationStats
    tail: tuple[Token, ...] = ()
    """Tokens that no `RoundFinished` has carried yet, their texts already part of `text`."""


Event = PrefillProgress | RoundFinished | Finished
