"""Which guesses does the target keep? Pure functions on distributions: no model, no clock.

Rejection sampling (arXiv 2211.17192, 2302.01318), for a draft as a whole (block verification, arXiv 2403.10444):
the output is distributed as p for any q that was truly sampled from, and never fewer guesses are kept than one by
one. A guess that the target likes less than the draft did can be made good by a later one that it likes more.
Greedy decoding and point guesses are the same rule with all the mass on one token.

A tree is walked: the target's own token is drawn at each node, exactly as without a draft, and the walk goes on
where a child of that node guessed it. That is lossless for any tree, however it was made. So is it for a chain under
shared noise, where draft and target draw with the same luck (arXiv 2408.07978).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localspec.engine.noise import Coupled, Rejection
from localspec.engine.records import Draft, Provenance
from localspec.engine.sampling import Distribution


@dataclass(frozen=True, slots=True)
class Verification:
    """What came of one draft."""

    path: tuple[int, ...]
    """The nodes that are kept, from the first guess on; for a chain 0, 1, ..."""
    token: int
    """The target's own token after them."""
    provenance: Provenance
    """Of that token."""

    @property
    def accepted(self) -> int:
        """Guesses kept."""
        return len(self.path)


TargetRow = Callable[[int], Distribution]


def verify(draft: Draft, target_row: TargetRow, chance: Rejection | Coupled, position: int) -> Verification:
    """Judge `draft`, whose first guess would stand at `position`.

    `target_row(node)` is the target's distribution after that node, -1 = before the first guess; asked for along one
    path, in order, and only while needed.
    """
    is_chain = draft.is_chain and draft.guesses == len(draft.ids)
    if not is_chain:
        return _walk(draft, target_row, chance, position)
    if isinstance(chance, Coupled):
        return _by_shared_noise(draft.ids, target_row, chance, position)
    q = draft.q
    if q is None:
        q = tuple(Distribution.certain(guess) for guess in draft.ids)
    return _as_a_block(draft.ids, q, target_row, chance, position)


def _walk(draft: Draft, target_row: TargetRow, chance: Rejection | Coupled, position: int) -> Verification:
    """From node to child, as long as a child guessed what the target says."""
    children: dict[tuple[int, int], int] = {}
    for node in range(draft.guesses):
        children.setdefault((draft.parents[node], draft.ids[node]), node)
    inner = set(draft.parents[: draft.guesses])
    path: list[int] = []
    node = -1
    while True:
        token = chance.choose(target_row(node), position + len(path))
        child = children.get((node, token))
        if child is None:
            origin = Provenance.CORRECTED if node in inner else Provenance.BONUS if path else Provenance.PLAIN
            return Verification(tuple(path), token, origin)
        path.append(child)
        node = child


def _by_shared_noise(
    ids: Sequence[int], target_row: TargetRow, chance: Coupled, position: int
) -> Verification:
    """Keep the guesses that the target's own choice under the shared noise agrees with: the walk of a chain."""
    for index, guess in enumerate(ids):
        token = chance.choose(target_row(index - 1), position + index)
        if token != guess:
            return Verification(tuple(range(index)), token, Provenance.CORRECTED)
    return _whole(len(ids), target_row, chance, position)


def _as_a_block(
    ids: Sequence[int], rows: Sequence[Distribution], target_row: TargetRow, chance: Rejection, position: int
) -> Verification:
    """Block verification: the longest beginning of the draft that is chosen as an end of what is kept.

    `share` is the probability with which at least the guesses so far are kept, given them. It is 1 before
    the first guess, and each guess multiplies it by p/q, up to 1. Reaching it takes two ways: a longer
    beginning is kept, or the block ends here, with what probability the former leaves over.
    """
    share, kept = 1.0, 0
    p = target_row(-1)
    end_row, end_share = p, share
    for index, (guess, q) in enumerate(zip(ids, rows, strict=True)):
        if index:
            p = target_row(index - 1)
            if _happens(_end_probability(p, q, share), chance):
                kept, end_row, end_share = index, p, share
        share = share_after(share, p, q, guess)
        if share <= 0.0:
            break
    else:
        if _happens(share, chance):
            return _whole(len(ids), target_row, chance, position)
    left = end_row.without(rows[kept], end_share)
    return Verification(tuple(range(kept)), chance.choose(left, position + kept), Provenance.CORRECTED)


def _whole(count: int, target_row: TargetRow, chance: Rejection | Coupled, position: int) -> Verification:
    """Everything is kept: one more token of the target's own."""
    token = chance.choose(target_row(count - 1), position + count)
    return Verification(tuple(range(count)), token, Provenance.BONUS if count else Provenance.PLAIN)


def share_after(before: float, p: Distribution, q: Distribution, guess: int) -> float:
    """Probability that at least `guess` and all before it are kept, given them; `before`: the same without it."""
    wanted, offered = before * p.probability(guess), q.probability(guess)
    return 1.0 if wanted >= offered else wanted / offered


def _end_probability(p: Distribution, q: Distribution, share: float) -> float:
    """Probability that what is kept ends here if no later end is chosen; the next guess is sampled from `q`."""
    left = p.excess(q, share)
    return left / (left + 1.0 - share) if left > 0.0 else 0.0


def _happens(probability: float, chance: Rejection) -> bool:
    """With this probability; no randomness is used where the answer is certain."""
    return probability >= 1.0 or (probability > 0.0 and chance.uniform() < probability)
