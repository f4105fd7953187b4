"""Two answers that should be the same: where do they part, and does rounding explain it?

At the fork the target is asked again, on a cache made anew without any rewind: once with one row a pass, once with
the pass that verified the draft. A near-tie is a choice between tokens whose scores are closer than batches move
them here. Anything else is a bug, of the engine or of this build's kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from localspec.audit.noise import moved
from localspec.audit.records import Fault, Fork, Noise
from localspec.audit.subject import Answer, Subject
from localspec.engine.noise import gumbel_noise
from localspec.engine.sampling import Distribution, Sampler
from localspec.engine.settings import GenerationRequest

_HIGHEST_RISE = 32.0
_RISE_STEP = 1e-3
"""Of a logit, to get past the filters: what is tried at most, and how exactly it is found."""


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
    fork = Fork(
        what.check, what.case, what.variant, index, ours, theirs,
        _text(plain, other, ours), _text(plain, other, theirs),
        gaps[0], gaps[1], len(block), difference, tolerance, "near-tie" if explained else "bug", "",
    )  # fmt: skip
    return replace(fork, why=_why(fork, repeated, noise))


def _why(fork: Fork, repeated: bool, noise: Noise) -> str:
    if fork.kind == "near-tie" and fork.width == 1:
        return "both tokens score alike, and the cache before them was filled in other batches"
    if fork.kind == "near-tie":
        return "both tokens score alike, and the two passes round differently"
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
        """Score of `first` less that of `second`, in log odds.

        A token outside the filters counts as one just inside, less what its logit must rise to get there: a filter's
        edge is as sharp as a tie, and rounding crosses it as easily. None when no rise lets it in.
        """
        rise_first, rise_second = self._rise_to_pass(row, first), self._rise_to_pass(row, second)
        if rise_first is None or rise_second is None:
            return None
        raised = row.copy()
        raised[first] += rise_first
        raised[second] += rise_second
        chances = self._chances(raised, first, second)
        if not chances.all():
            return None
        scores = np.log(chances)
        if self.noisy:
            scores = scores + self._gumbel(Distribution(np.array([first, second], np.int64), chances))
        return float(scores[0] - scores[1]) - (rise_first - rise_second) / (self._settings.temperature or 1.0)

    def _rise_to_pass(self, row: NDArray[np.float32], token: int) -> float | None:
        """How much this token's logit must grow for the filters to let it in; None when that does not help."""

        def passes(rise: float) -> bool:
            raised = row.copy()
            raised[token] += rise
            return bool(self._chances(raised, token).all())

        if passes(0.0):
            return 0.0
        low, high = 0.0, _HIGHEST_RISE
        if not passes(high):
            return None
        while high - low > _RISE_STEP:
            middle = (low + high) / 2
            low, high = (low, middle) if passes(middle) else (middle, high)
        return high

    def _chances(self, row: NDArray[np.float32], *tokens: int) -> NDArray[np.float64]:
        distribution = self._scoring.distribution(row.copy(), self._history, self._banned)
        return distribution.probabilities(np.array(tokens, np.int64))

    def _gumbel(self, distribution: Distribution) -> NDArray[np.float64]:
        assert self._settings.seed is not None
        return gumbel_noise(self._settings.seed, len(self._history), distribution.ids)


def _text(plain: Answer, other: Answer, token: int) -> str:
    return plain.pieces.get(token) or other.pieces.get(token) or f"<{token}>"


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """Index of the first differing entry; None when one begins with the other."""
    return next((i for i, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]), None)
