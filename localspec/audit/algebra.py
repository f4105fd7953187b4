"""Is what is emitted distributed as p? Computed exactly on real logits, not estimated by luck.

For one guess d sampled from q, `verify` keeps it with probability a(d) and otherwise chooses from r_d. So a token x
comes out with probability sum over d of q(d) * (a(d) * [x = d] + (1 - a(d)) * r_d(x)), and that must be p(x).
What holds for drafts of several guesses is proved in the tests. Here a(d) and r_d are read off the product's own
`verify` by handing it a scripted source of randomness.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from localspec.audit.records import Fault
from localspec.audit.subject import Subject
from localspec.engine.noise import Coupled, Rejection, gumbel_noise
from localspec.engine.records import Draft
from localspec.engine.sampling import Distribution, Sampler
from localspec.engine.settings import SamplerSettings
from localspec.engine.verify import share_after, verify

_EXACT = 1e-9
_HALVINGS = 44
_OTHER_BATCHES = (1, 5)
_CUT = 20
"""How the tokens before a draft are decoded anew: so many of them in passes of these widths."""


class ScriptedChance(Rejection):
    """Always the same uniform number; remembers what it was asked to choose from."""

    def __init__(self, uniform: float) -> None:
        super().__init__(0)
        self._uniform = uniform
        self.asked: list[tuple[Distribution, int]] = []

    def uniform(self) -> float:
        return self._uniform

    def choose(self, distribution: Distribution, position: int) -> int:
        self.asked.append((distribution, position))
        return int(distribution.ids[0])


@dataclass(frozen=True, slots=True)
class Place:
    """One draft on real logits: what was guessed, from what, and what the target says to it."""

    tokens: list[int]
    draft: Draft
    q: tuple[Distribution, ...]
    """Of each guess, computed anew from the draft model's logits."""
    p: tuple[Distribution, ...]
    """The target's after 0, 1, ... guesses; one more than q."""
    rounding: float = 0.0
    """How far other batches before the draft move q (total variation): no fault of anyone."""


def look(subject: Subject, tokens: list[int], length: int, sampler: SamplerSettings, round_before: int) -> Place:
    """Let the drafter guess after `tokens`, and ask both models for their logits there."""
    draft = subject.propose(tokens, length, sampler, round_before)
    ids = list(draft.ids)
    p_sampler = Sampler(sampler, banned=subject.suppressed)
    p_rows = subject.rows("target", [tokens[:-1], [tokens[-1], *ids]], len(ids) + 1)
    p = [p_sampler.distribution(row.copy(), [*tokens, *ids[:i]]) for i, row in enumerate(p_rows)]
    q = _draft_rows(subject, tokens, ids, sampler, [tokens[:-1]])
    rounding = max(
        (
            total_variation(one, other)
            for width in _OTHER_BATCHES
            for one, other in zip(q, _draft_rows(subject, tokens, ids, sampler, _cut(tokens[:-1], width)), strict=True)
        ),
        default=0.0,
    )
    return Place(tokens, draft, tuple(q), tuple(p), rounding)


def _draft_rows(
    subject: Subject, tokens: list[int], ids: list[int], sampler: SamplerSettings, head: list[list[int]]
) -> list[Distribution]:
    """q of each guess in `ids`, from the draft's logits; `head`: the passes before the last token."""
    if not ids:
        return []
    rows = subject.rows("draft", [*head, [tokens[-1]], *([token] for token in ids[:-1])], len(ids))
    q_sampler = Sampler(
        sampler,
        usable=subject.shared_rows or rows.shape[1],
        banned=subject.masked_ids,
        temperature=sampler.draft_temperature,
    )
    return [q_sampler.distribution(row.copy(), [*tokens, *ids[:i]]) for i, row in enumerate(rows)]


def _cut(tokens: list[int], width: int) -> list[list[int]]:
    """The same tokens, the last `_CUT` of them in passes of `width`."""
    head, tail = tokens[:-_CUT], tokens[-_CUT:]
    return [head, *(tail[first : first + width] for first in range(0, len(tail), width))]


def draft_faults(place: Place, sampler: SamplerSettings, tolerance: float) -> list[Fault]:
    """Was every guess truly sampled from the distribution that it is judged by?"""
    if place.draft.q is None:
        return []
    faults = []
    chance = Rejection(sampler.seed)
    for index, (guess, told, q) in enumerate(zip(place.draft.ids, place.draft.q, place.q, strict=True)):
        distance = total_variation(told, q)
        if distance > tolerance:
            faults.append(
                Fault(
                    "draft distribution",
                    f"guess {index + 1} is judged by a distribution that is {distance:.3g} away from the draft "
                    "model's own at that place (total variation): q is stale or shifted",
                )
            )
            break
        if chance.choose(told, 0) != guess:
            faults.append(
                Fault(
                    "draft distribution",
                    f"guess {index + 1} was not sampled from the distribution it is judged by",
                )
            )
            break
    return faults


def algebra_faults(place: Place, position: int) -> list[Fault]:
    """Exact output distribution of `verify` at every row of this draft, against p."""
    rows = place.draft.q or place.q
    for index, q in enumerate(rows):
        fault = _row_fault(place.p[index], place.p[index + 1], q)
        if fault:
            return [Fault("residual", f"row {index + 1}: {fault}")]
    return _order_faults(place, tuple(rows), position)


def coupled_faults(place: Place, seed: int, position: int) -> list[Fault]:
    """Does coupled verification emit argmax(log p + noise), whatever was guessed?"""
    noise = [_choose_coupled(p, seed, position + i) for i, p in enumerate(place.p)]
    result = verify(place.draft, lambda node: place.p[node + 1], Coupled(seed), position)
    right = next((i for i, guess in enumerate(place.draft.ids) if guess != noise[i]), len(place.draft.ids))
    if (result.accepted, result.token) != (right, noise[right]):
        return [Fault("coupled choice", "a guess was kept or replaced otherwise than the shared noise says")]
    return []


def total_variation(left: Distribution, right: Distribution) -> float:
    """Half the sum of |left - right| over all ids."""
    ids = np.union1d(left.ids, right.ids)
    return float(np.abs(left.probabilities(ids) - right.probabilities(ids)).sum() / 2)


def output_distribution(p: Distribution, after: Distribution, q: Distribution) -> tuple[np.ndarray, np.ndarray, str]:
    """(ids, probability of each as the next token, first thing that is wrong on the way or "")."""
    ids = np.union1d(p.ids, q.ids)
    out = np.zeros(len(ids))
    for guess, chance in zip(q.ids, q.probs, strict=True):
        if chance <= 0:
            continue
        keep, residual = _rule(p, after, q, int(guess))
        out[np.searchsorted(ids, guess)] += chance * keep
        if keep < 1.0 and residual is not None:
            total = float(residual.probs.sum())
            if abs(total - 1.0) > _EXACT:
                return (
                    ids,
                    out,
                    f"the residual after a rejected guess sums to {total:.6f}: it is not normalised",
                )
            out += chance * (1.0 - keep) * residual.probabilities(ids)
    return ids, out, ""


def _row_fault(p: Distribution, after: Distribution, q: Distribution) -> str:
    ids, out, wrong = output_distribution(p, after, q)
    if wrong:
        return wrong
    distance = float(np.abs(out - p.probabilities(ids)).sum() / 2)
    if distance > _EXACT:
        return f"what is emitted is {distance:.3g} away from the target's distribution (total variation)"
    return ""


def _rule(p: Distribution, after: Distribution, q: Distribution, guess: int) -> tuple[float, Distribution | None]:
    """(probability that the guess is kept, what is chosen from when it is not)."""
    draft = Draft.chain("audit", (guess,), (1.0,), (q,))

    def rejected(uniform: float) -> Distribution | None:
        chance = ScriptedChance(uniform)
        result = verify(draft, lambda node: (p, after)[node + 1], chance, 0)
        return None if result.accepted else chance.asked[0][0]

    almost_one = float(np.nextafter(1.0, 0.0))
    residual = rejected(almost_one)
    if residual is None:
        return 1.0, None
    if rejected(0.0) is not None:
        return 0.0, residual
    return _bisect(lambda uniform: rejected(uniform) is None), residual


def _bisect(kept: Callable[[float], bool]) -> float:
    """Where acceptance ends, as the uniform number grows."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if kept(middle) else (low, middle)
    return high


def _order_faults(place: Place, rows: Sequence[Distribution], position: int) -> list[Fault]:
    """Is each guess judged by its own row, and the token after the draft taken from the row after it?"""
    draft = Draft.chain("audit", place.draft.ids, (1.0,) * len(place.draft.ids), tuple(rows))
    asked: list[int] = []

    def row(node: int) -> Distribution:
        asked.append(node + 1)
        return place.p[node + 1]

    chance = ScriptedChance(0.0)
    result = verify(draft, row, chance, position)
    chosen_from, chosen_at = chance.asked[-1]
    shares = _shares(place, rows)
    expected = place.p[result.accepted]
    if result.accepted < len(rows):
        expected = expected.without(rows[result.accepted], shares[result.accepted])
    if asked != list(range(len(shares))) or chosen_at != position + result.accepted:
        return [Fault("row order", f"rows {asked} were asked for after {result.accepted} kept guesses")]
    if total_variation(chosen_from, expected) > _EXACT:
        return [Fault("row order", "the token after the kept guesses is chosen from another row's distribution")]
    return []


def _shares(place: Place, rows: Sequence[Distribution]) -> list[float]:
    """Probability that at least the first 0, 1, ... guesses are kept, given them, up to an impossible one."""
    shares = [1.0]
    for guess, p, q in zip(place.draft.ids, place.p, rows, strict=False):
        share = share_after(shares[-1], p, q, guess)
        if share <= 0.0:
            break
        shares.append(share)
    return shares


def _choose_coupled(p: Distribution, seed: int, position: int) -> int:
    if len(p.ids) == 1:
        return int(p.ids[0])
    return int(p.ids[int(np.argmax(np.log(p.probs) + gumbel_noise(seed, position, p.ids)))])
