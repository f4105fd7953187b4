"""Every way a draft can fare, as a table."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from localspec.engine import verify as verify_module
from localspec.engine.noise import Coupled, Rejection
from localspec.engine.records import Draft, Provenance
from localspec.engine.sampling import Distribution
from localspec.engine.verify import verify


def dist(**probabilities: float) -> Distribution:
    """`dist(a=0.5, b=0.5)`: ids are the letters' places in the alphabet."""
    ids = [ord(letter) - ord("a") for letter in probabilities]
    return Distribution(np.array(ids), np.array(list(probabilities.values())))


class Fixed(Rejection):
    """Answers with given uniforms."""

    def __init__(self, *uniforms: float) -> None:
        self.left = list(uniforms)

    def uniform(self) -> float:
        return self.left.pop(0)


A, B, C = 0, 1, 2


@pytest.mark.parametrize(
    ("guesses", "wanted", "accepted", "token", "provenance"),
    [
        ((), "a", 0, A, "plain"),
        ((A,), "ab", 1, B, "bonus"),
        ((A, B, C), "abca", 3, A, "bonus"),
        ((A, C), "aba", 1, B, "corrected"),
        ((B,), "ab", 0, A, "corrected"),
    ],
)
def test_greedy_keeps_what_the_target_would_have_said(
    guesses: tuple[int, ...], wanted: str, accepted: int, token: int, provenance: str
) -> None:
    draft = Draft.chain("model", guesses, (1.0,) * len(guesses))
    result = verify(draft, lambda i: dist(**{wanted[i]: 1.0}), Rejection(0), 10)
    assert (result.accepted, result.token, result.provenance) == (accepted, token, Provenance(provenance))


def test_rows_behind_a_rejection_are_never_computed() -> None:
    asked: list[int] = []

    def row(index: int) -> Distribution:
        asked.append(index)
        return dist(a=1.0)

    verify(Draft.chain("lookup", (A, B, B), (1.0,) * 3), row, Rejection(0), 0)
    assert asked == [0, 1]


def test_a_guess_is_kept_with_probability_p_over_q() -> None:
    draft = Draft.chain("model", (A,), (0.8,), (dist(a=0.8, b=0.2),))
    p = dist(a=0.4, b=0.6)
    assert verify(draft, lambda i: p, Fixed(0.49, 0.0), 0).accepted == 1
    rejected = verify(draft, lambda i: p, Fixed(0.51), 0)
    assert (rejected.accepted, rejected.token) == (0, B)  # the residual has only b left


def test_a_guess_the_target_likes_better_is_always_kept() -> None:
    draft = Draft.chain("model", (A,), (0.3,), (dist(a=0.3, b=0.7),))
    assert verify(draft, lambda i: dist(a=0.5, b=0.5), Fixed(0.2), 0).accepted == 1


def test_a_guess_the_target_cannot_say_is_never_kept() -> None:
    draft = Draft.chain("model", (C,), (1.0,), (dist(c=1.0),))
    result = verify(draft, lambda i: dist(a=0.5, b=0.5), Fixed(0.75), 0)
    assert (result.accepted, result.token) == (0, B)


def test_point_guesses_are_kept_with_probability_p() -> None:
    draft = Draft.chain("lookup", (A,), (1.0,))
    p = dist(a=0.25, b=0.75)
    assert verify(draft, lambda i: p, Fixed(0.24, 0.9), 0).accepted == 1
    assert verify(draft, lambda i: p, Fixed(0.26), 0).token == B


def test_coupled_keeps_the_targets_own_pick_and_nothing_else() -> None:
    p = dist(a=0.3, b=0.3, c=0.4)
    for seed in range(50):
        pick = Coupled(seed).choose(p, 7)
        assert verify(Draft.chain("lookup", (pick,), (1.0,)), lambda i: p, Coupled(seed), 7).accepted == 1
        wrong = Draft.chain("lookup", ((pick + 1) % 3,), (1.0,))
        result = verify(wrong, lambda i: p, Coupled(seed), 7)
        assert (result.accepted, result.token) == (0, pick)


# --- drafts as a whole: every draft and every outcome, added up -------------------------------------------


class Chain:
    """Next-token tables that depend on the token before; `q` may be unable to say what `p` can."""

    def __init__(self, seed: int, letters: int = 3, impossible: bool = False) -> None:
        rng = np.random.default_rng(seed)
        self.letters = letters
        self._table = rng.dirichlet(np.ones(letters) * 0.8, letters + 1)
        if impossible:
            self._table[1, 2] = 0.0
            self._table[1] /= self._table[1].sum()

    def after(self, prefix: tuple[int, ...]) -> Distribution:
        row = self._table[prefix[-1] + 1 if prefix else 0]
        ids = np.flatnonzero(row)
        return Distribution(ids, row[ids])

    def probability(self, tokens: tuple[int, ...]) -> float:
        return float(np.prod([self.after(tokens[:i]).probability(token) for i, token in enumerate(tokens)]))


class Recorder(Rejection):
    """Takes the first choice, and remembers among what."""

    def choose(self, distribution: Distribution, position: int) -> int:
        self.among = distribution
        return int(distribution.ids[0])


def outcomes(
    ids: tuple[int, ...], p: Chain, q: Chain, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[float, int, Distribution]]:
    """(probability, guesses kept, what the token after them is chosen from) of every way `verify` can go."""
    draft = Draft.chain("model", ids, (1.0,) * len(ids), tuple(q.after(ids[:i]) for i in range(len(ids))))
    for script in product((False, True), repeat=len(ids)):
        answers, weights = list(script), []

        def happens(
            probability: float, _: Rejection, answers: list[bool] = answers, weights: list[float] = weights
        ) -> bool:
            weights.append(probability if answers[0] else 1.0 - probability)
            return answers.pop(0)

        monkeypatch.setattr(verify_module, "_happens", happens)
        recorder = Recorder(0)
        result = verify(draft, lambda i: p.after(ids[:i]), recorder, 0)
        if not any(answers):  # what was not asked has one answer, not two
            yield float(np.prod(weights)), result.accepted, recorder.among


@pytest.mark.parametrize("impossible", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_any_draft_gives_exactly_the_targets_distribution(
    seed: int, impossible: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The joint distribution of four tokens: those of one round, and the target's own after them."""
    p, q = Chain(seed, impossible=impossible), Chain(seed + 100)
    emitted: dict[tuple[int, ...], float] = {}
    kept_together = 0.0
    for ids in product(range(p.letters), repeat=3):
        sampled = q.probability(ids)
        for weight, kept, among in outcomes(ids, p, q, monkeypatch):
            kept_together += sampled * weight * kept
            for token, chance in zip(among.ids, among.probs, strict=True):
                key = (*ids[:kept], int(token))
                emitted[key] = emitted.get(key, 0.0) + sampled * weight * chance
    for tokens in product(range(p.letters), repeat=4):
        made = sum(
            chance * p.probability(tokens) / p.probability(tokens[:length])
            for length in range(1, 5)
            if (chance := emitted.get(tokens[:length], 0.0)) > 0
        )
        assert made == pytest.approx(p.probability(tokens), abs=1e-12), tokens
    one_by_one = sum(
        np.prod([min(1.0, p.after(ids[:i]).probability(t) / q.after(ids[:i]).probability(t)) * 1.0
                 for i, t in enumerate(ids)]) * q.probability(ids)
        for length in (1, 2, 3) for ids in product(range(p.letters), repeat=length)
    )  # fmt: skip
    assert kept_together >= one_by_one - 1e-12


def test_a_later_guess_makes_an_earlier_one_good() -> None:
    """p likes the pair: b less than q does, then c more. One by one, b would be kept half the time."""
    b, c = dist(b=0.8, c=0.2), dist(a=0.6, c=0.4)
    draft = Draft.chain("model", (B, C), (0.8, 0.4), (b, c))
    rows = [dist(b=0.4, c=0.6), dist(a=0.2, c=0.8), dist(a=1.0)]
    assert verify(draft, lambda i: rows[i], Fixed(0.99, 0.99, 0.5), 0).accepted == 2
