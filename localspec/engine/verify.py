"""Which guesses does the target keep? Pure functions on distributions: no model, no clock.

Rejection sampling (arXiv 2211.17192, 2302.01318): a guess d sampled from q is kept with probability min(1,
p(d)/q(d)); the first rejected one is replaced by a sample of norm(max(0, p - q)); after a draft kept whole
one more token comes from p. The result is distributed as p for any q that was truly sampled from. Greedy
decoding and point guesses are the same rule with all the mass on one token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from localspec.engine.noise import Chance, Coupled
from localspec.engine.records import Draft, Provenance
from localspec.engine.sampling import Distribution


@dataclass(frozen=True, slots=True)
class Verification:
    """What came of one draft."""

    accepted: int
    """Leading guesses kept."""
    token: int
    """The target's own token after them."""
    provenance: Provenance
    """Of that token."""


def verify(
    draft: Draft, target_row: Callable[[int], Distribution], chance: Chance, position: int
) -> Verification:
    """Judge `draft`, whose first guess would stand at `position`.

    `target_row(i)` is the target's distribution after the first i guesses; asked for in order and only
    while needed.
    """
    coupled = isinstance(chance, Coupled)
    for index, guess in enumerate(draft.ids):
        p = target_row(index)
        if coupled:
            token = chance.choose(p, position + index)
            if token != guess:
                return Verification(index, token, Provenance.CORRECTED)
            continue
        q = draft.rows[index] if draft.rows is not None else Distribution.certain(guess)
        if not _keep(p, q, guess, chance):
            return Verification(index, chance.choose(p.without(q), position + index), Provenance.CORRECTED)
    count = len(draft.ids)
    token = chance.choose(target_row(count), position + count)
    return Verification(count, token, Provenance.BONUS if count else Provenance.PLAIN)


def _keep(p: Distribution, q: Distribution, guess: int, chance: Chance) -> bool:
    """Accept with probability min(1, p/q); no randomness is used where the answer is certain."""
    assert not isinstance(chance, Coupled)
    wanted, offered = p.probability(guess), q.probability(guess)
    if wanted >= offered:
        return True
    return wanted > 0.0 and chance.uniform() * offered < wanted
