"""Every way a draft can fare, as a table."""

from __future__ import annotations

import numpy as np
import pytest

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
    draft = Draft(guesses, "model", (1.0,) * len(guesses))
    result = verify(draft, lambda i: dist(**{wanted[i]: 1.0}), Rejection(0), 10)
    assert (result.accepted, result.token, result.provenance) == (accepted, token, Provenance(provenance))


def test_rows_behind_a_rejection_are_never_computed() -> None:
    asked: list[int] = []

    def row(index: int) -> Distribution:
        asked.append(index)
        return dist(a=1.0)

    verify(Draft((A, B, B), "lookup", (1.0,) * 3), row, Rejection(0), 0)
    assert asked == [0, 1]


def test_a_guess_is_kept_with_probability_p_over_q() -> None:
    draft = Draft((A,), "model", (0.8,), (dist(a=0.8, b=0.2),))
    p = dist(a=0.4, b=0.6)
    assert verify(draft, lambda i: p, Fixed(0.49, 0.0), 0).accepted == 1
    rejected = verify(draft, lambda i: p, Fixed(0.51), 0)
    assert (rejected.accepted, rejected.token) == (0, B)  # the residual has only b left


def test_a_guess_the_target_likes_better_is_always_kept() -> None:
    draft = Draft((A,), "model", (0.3,), (dist(a=0.3, b=0.7),))
    assert verify(draft, lambda i: dist(a=0.5, b=0.5), Fixed(0.2), 0).accepted == 1


def test_a_guess_the_target_cannot_say_is_never_kept() -> None:
    draft = Draft((C,), "model", (1.0,), (dist(c=1.0),))
    result = verify(draft, lambda i: dist(a=0.5, b=0.5), Fixed(0.75), 0)
    assert (result.accepted, result.token) == (0, B)


def test_point_guesses_are_kept_with_probability_p() -> None:
    draft = Draft((A,), "lookup", (1.0,))
    p = dist(a=0.25, b=0.75)
    assert verify(draft, lambda i: p, Fixed(0.24, 0.9), 0).accepted == 1
    assert verify(draft, lambda i: p, Fixed(0.26), 0).token == B


def test_coupled_keeps_the_targets_own_pick_and_nothing_else() -> None:
    p = dist(a=0.3, b=0.3, c=0.4)
    for seed in range(50):
        pick = Coupled(seed).choose(p, 7)
        assert verify(Draft((pick,), "lookup", (1.0,)), lambda i: p, Coupled(seed), 7).accepted == 1
        wrong = Draft(((pick + 1) % 3,), "lookup", (1.0,))
        result = verify(wrong, lambda i: p, Coupled(seed), 7)
        assert (result.accepted, result.token) == (0, pick)
