"""Two answers that should be the same: where do they part, and does rounding explain it?

At the fork the target is asked again, on a cache made anew without any rewind: once with one row a pass, once with
the pass that verified the draft. A near-tie is a choice between tokens whose scores, or ways to a filter's edge, are
closer than batches move them here. Anything else is a bug, of the engine or of this build's kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from localspec.audit.noise import moved
from localspec.audit.records import Fault, Fork, Kind, Noise
from localspec.audit.subject import Answer, Subject
from localspec.engine.noise import gumbel_noise
from localspec.engine.sampling import Distribution, Sampler
from localspec.engine.settings import GenerationRequest

_FARTHEST_EDGE = 16.0
_EDGE_STEP = 1e-3
"""Moves of the logits that take a token across a filter's edge: what is tried at most, and how exactly it is found."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Which two answers are compared."""

    check: str
    case: str
    variant: str
    request: GenerationRequest
    """Of the answer with drafts."""


def compare(subject: Subject, plain: Answer, other: Answer, what: Comparison, noise: Noise) -> Fork | Fault | None:
    """None when the answers are the same."""
    index = first_difference(plain.tokens, other.tokens)
    where = f"{what.case}, {what.variant}"
    if index is None:
        if plain.tokens != other.tokens:
            return Fault(what.check, f"{where}: the same tokens end after {len(plain.tokens)} plain and "
                                     f"{len(other.tokens)} with drafts ({plain.reason}, {other.reason})")  # fmt: skip
        if (plain.text, plain.reason) != (other.text, other.reason):
            return Fault(
                what.check,
                f"{where}: the same tokens give another text or end ({plain.reason}, {other.reason})",
            )
        return None
    return _fork(subject, plain, other, index, what, noise)


def count_faults(answer: Answer, check: str, where: str) -> list[Fault]:
    """Rounds that do not add up: counts, provenance and tokens of one answer."""
    faults = []
    emitted = [token for round_ in answer.rounds for token in round_.emitted]
    if tuple(emitted) != answer.tokens:
        faults.append(Fault(check, f"{where}: the rounds' tokens are not the answer's"))
    for round_ in answer.rounds:
        kept = min(round_.accepted, len(round_.emitted))
        guessed = sum(origin == "accepted" for origin in round_.provenance)
        if round_.emitted[:kept] != round_.drafted[:kept] or guessed != kept:
            faults.append(Fault(check, f"{where}: round {round_.index} shows tokens as accepted that were not guessed"))
            break
    return faults


def _fork(subject: Subject, plain: Answer, other: Answer, index: int, what: Comparison, noise: Noise) -> Fork:
    ours, theirs = plain.tokens[index], other.tokens[index]
    round_, before = other.round_at(index)
    known = [*plain.prompt, *plain.tokens[: index - before]]
    between = list(plain.tokens[index - before : index])
    block = [known[-1], *round_.drafted[: round_.verified]]
    first = len(plain.prompt) - 1
    prefix = [known[:first], *([token] for token in known[first:-1])]
    single = subject.row_after(plain.prompt, plain.tokens[:index])
    batch = subject.rows("target", [*prefix, block], len(block) - before)[0]
    judge = _Judge(subject, what.request, [*known, *between], index)
    gaps = [judge.gap(row, ours, theirs) for row in (single, batch)]
    difference = moved(single, batch)
    repeated = judge.choice(single) == ours and judge.choice(batch) == theirs
    tolerance = noise.tolerance / (what.request.sampler.temperature or 1.0)
    close = all(gap is not None and abs(gap) <= tolerance for gap in gaps)
    explained = close or (repeated and difference <= noise.tolerance)
    kind: Kind = "near-tie" if explained else "bug" if noise.is_known else "unjudged"
    fork = Fork(
        what.check, what.case, what.variant, index, ours, theirs,
        _text(plain, other, ours), _text(plain, other, theirs),
        gaps[0], gaps[1], len(block), difference, tolerance, kind, "",
    )  # fmt: skip
    return replace(fork, why=_why(fork, repeated, noise))


def _why(fork: Fork, repeated: bool, noise: Noise) -> str:
    alike = "both tokens score alike" if fork.check != "coupled" else "both score alike, or one is at a filter's edge"
    if fork.kind == "near-tie" and fork.width == 1:
        return f"{alike}, and the cache before them was filled in other batches"
    if fork.kind == "near-tie":
        return f"{alike}, and the two passes round differently"
    if fork.kind == "unjudged":
        return f"only {noise.rows} rows were measured: too few to know how far batches move the logits here"
    if fork.moved > noise.tolerance:
        usual = f"batches usually by {noise.largest:.3g}"
        return f"the pass of {fork.width} rows moves the logits by {fork.moved:.3g}, {usual}"
    if not repeated:
        return "decoded anew, the target does not choose this token: the answer did not come from its own logits"
    return "the scores are too far apart for rounding"


class _Judge:
    """Scores tokens as the sampler would choose them at one place of an answer."""

    def __init__(self, subject: Subject, request: GenerationRequest, history: list[int], index: int) -> None:
        sampler = request.sampler
        self.noisy = not sampler.greedy
        self._settings = sampler
        self._history = history
        self._banned = subject.ends if index < request.min_tokens else ()
        self._choosing = Sampler(sampler, banned=subject.suppressed)
        # Greedy choices are judged by their logits after penalties: a distribution that nothing is cut from.
        scoring = replace(sampler, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0) if sampler.greedy else sampler
        self._scoring = Sampler(scoring, banned=subject.suppressed)

    def choice(self, row: NDArray[np.float32]) -> int:
        """The token that this row leads to."""
        distribution = self._choosing.distribution(row.copy(), self._history, self._banned)
        if not self.noisy:
            return distribution.top
        return distribution.sample_with_noise(self._gumbel(distribution))

    def gap(self, row: NDArray[np.float32], first: int, second: int) -> float | None:
        """How far `first` is ahead of `second`, in log odds; below zero: behind. None when filters removed both.

        A filter's edge is as sharp as a tie: a token just inside may be chosen by far, and one just outside not at
        all. So what counts is the least that must change to turn the choice around, by way of an edge or not.
        """
        inside = [bool(self._chances(row, token).all()) for token in (first, second)]
        if not any(inside):
            return None
        if all(inside):
            ahead = self._ahead(row, first, second)
            edge = self._edge(row, first if ahead > 0 else second)
            return ahead if edge is None else float(np.copysign(min(abs(ahead), self._odds(edge)), ahead))
        if not inside[0]:
            other_way = self.gap(row, second, first)
            return None if other_way is None else -other_way
        edge = self._edge(row, second)
        if edge is None:
            return None
        entered = _moved_towards_edge(row, second, edge, enter=True)
        return self._odds(edge) + max(0.0, self._ahead(entered, first, second))

    def _ahead(self, row: NDArray[np.float32], first: int, second: int) -> float:
        """Score of `first` less that of `second`, both inside the filters."""
        chances = self._chances(row, first, second)
        if not chances.all():  # making room for one took the other out
            return 0.0
        scores = np.log(chances)
        if self.noisy:
            scores = scores + self._gumbel(Distribution(np.array([first, second], np.int64), chances))
        return float(scores[0] - scores[1])

    def _odds(self, move: float) -> float:
        """Log odds between two tokens whose logits each move so far, apart."""
        return 2.0 * move / (self._settings.temperature or 1.0)

    def _edge(self, row: NDArray[np.float32], token: int) -> float | None:
        """How far the logits must move for a filter to let this token in, or out; None when nothing does."""
        inside = bool(self._chances(row, token).all())

        def crossed(move: float) -> bool:
            moved_row = _moved_towards_edge(row, token, move, enter=not inside)
            return bool(self._chances(moved_row, token).all()) != inside

        low, high = 0.0, _FARTHEST_EDGE
        if not crossed(high):
            return None
        while high - low > _EDGE_STEP:
            middle = (low + high) / 2
            low, high = (low, middle) if crossed(middle) else (middle, high)
        return high

    def _chances(self, row: NDArray[np.float32], *tokens: int) -> NDArray[np.float64]:
        distribution = self._scoring.distribution(row.copy(), self._history, self._banned)
        return distribution.probabilities(np.array(tokens, np.int64))

    def _gumbel(self, distribution: Distribution) -> NDArray[np.float64]:
        assert self._settings.seed is not None
        return gumbel_noise(self._settings.seed, len(self._history), distribution.ids)


def _moved_towards_edge(row: NDArray[np.float32], token: int, move: float, *, enter: bool) -> NDArray[np.float32]:
    """Every logit moved by `move`, in the way that lets the token past min-p, top-p and top-k soonest, or out."""
    above = row > row[token]
    return np.where(above == enter, row - np.float32(move), row + np.float32(move)).astype(np.float32)


def _text(plain: Answer, other: Answer, token: int) -> str:
    return plain.pieces.get(token) or other.pieces.get(token) or f"<{token}>"


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """Index of the first differing entry; None when one begins with the other."""
    return next((i for i, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]), None)
