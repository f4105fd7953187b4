"""Sparse distributions against the plain way of computing them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.engine.noise import Coupled, Rejection, gumbel_noise
from localspec.engine.sampling import Distribution, Sampler, confidence, largest
from localspec.engine.settings import SamplerSettings
from localspec.ground.errors import InvalidInput

GOLDEN_NOISE = [-0.4974153193975176, 3.6513043585901217, 0.7042046493896736]


def logits(seed: int, size: int = 5000, scale: float = 3.0) -> NDArray[np.float32]:
    return (np.random.default_rng(seed).standard_normal(size) * scale).astype(np.float32)


def reference(row: NDArray[np.float32], settings: SamplerSettings) -> dict[int, float]:
    """llama.cpp's chain written the slow, obvious way: top-k, top-p, min-p, temperature."""
    order = list(np.argsort(-row, kind="stable"))
    if settings.top_k:
        order = order[: settings.top_k]
    weights = np.exp(row[order].astype(np.float64) - float(row.max()))
    weights /= weights.sum()
    if settings.top_p < 1:
        kept = int(np.searchsorted(np.cumsum(weights), settings.top_p)) + 1
        order, weights = order[:kept], weights[:kept]
    if settings.min_p:
        keep = weights >= settings.min_p * weights[0] * (1 - 1e-9)
        order = [token for token, kept in zip(order, keep, strict=True) if kept]
    scaled = np.exp((row[order].astype(np.float64) - float(row.max())) / settings.temperature)
    return dict(zip(map(int, order), scaled / scaled.sum(), strict=True))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("size", [100, 5000, 151_936])
def test_largest_is_the_head_of_a_stable_sort(seed: int, size: int) -> None:
    row = np.round(logits(seed, size), 1)  # rounding makes ties
    assert largest(row, 40).tolist() == np.argsort(-row, kind="stable")[:40].tolist()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("temperature", [0.5, 1.5])
@pytest.mark.parametrize("min_p", [0.0, 0.05])
@pytest.mark.parametrize("top_p", [0.5, 0.95, 1.0])
@pytest.mark.parametrize("top_k", [0, 1, 40])
def test_filters_act_as_llama_cpp_orders_them(
    seed: int, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    settings = SamplerSettings(temperature, top_k, top_p, min_p)
    row = logits(seed)
    got = Sampler(settings).distribution(row, [])
    wanted = reference(row, settings)
    assert sorted(got.ids.tolist()) == sorted(wanted)
    for token, probability in zip(got.ids.tolist(), got.probs.tolist(), strict=True):
        assert probability == pytest.approx(wanted[token], rel=1e-6)


def test_greedy_takes_the_lowest_of_equals() -> None:
    row = np.zeros(50, np.float32)
    assert Sampler(SamplerSettings(temperature=0)).distribution(row, []).ids.tolist() == [0]


def test_penalties_follow_llama_cpps_formula_and_leave_the_row_as_it_was() -> None:
    settings = SamplerSettings(
        1.0, 0, 1, 0, repeat_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.2, penalty_window=5
    )
    row = logits(1, 20)
    before = row.copy()
    history = [7, 3, 3, 9, 3, 12]  # 7 is outside the window
    got = Sampler(settings).distribution(row, history)
    assert np.array_equal(row, before)
    expected = before.astype(np.float64)
    for token, count in {3: 3, 9: 1, 12: 1}.items():
        scaled = expected[token] / 1.3 if expected[token] > 0 else expected[token] * 1.3
        expected[token] = scaled - 0.2 * count - 0.4
    weights = np.exp(expected - expected.max())
    weights /= weights.sum()
    for token in range(20):
        assert got.probability(token) == pytest.approx(weights[token], rel=1e-5)


def test_biases_bans_and_missing_rows() -> None:
    settings = SamplerSettings(1.0, 0, 1, 0, logit_bias=((4, 100.0), (5, -math.inf)))
    sampler = Sampler(settings, usable=10, banned=[6])
    got = sampler.distribution(logits(2, 20), [], banned=[7])
    assert got.top == 4
    assert {5, 6, 7}.isdisjoint(got.ids.tolist()) and max(got.ids.tolist()) < 10


def test_all_but_one_banned_still_chooses() -> None:
    sampler = Sampler(SamplerSettings(0.8), banned=list(range(1, 300)))
    assert sampler.distribution(logits(3, 300), []).ids.tolist() == [0]


def test_tiny_temperatures_do_not_overflow() -> None:
    for temperature in (1e-6, 1e-30, 0.01):
        got = Sampler(SamplerSettings(temperature)).distribution(logits(4), [])
        assert np.isfinite(got.probs).all() and got.probs.sum() == pytest.approx(1.0)


def test_residual_is_what_the_first_has_more() -> None:
    p = Distribution(np.array([1, 2, 3]), np.array([0.5, 0.3, 0.2]))
    q = Distribution(np.array([3, 1, 9]), np.array([0.1, 0.8, 0.1]))
    left = p.without(q)
    assert dict(zip(left.ids.tolist(), left.probs.tolist(), strict=True)) == pytest.approx({2: 0.75, 3: 0.25})
    assert p.without(p).ids.tolist() == [1, 2, 3]  # nothing left but rounding: either is right
    assert p.probabilities(np.array([3, 7, 2])).tolist() == [0.2, 0.0, 0.3]


def test_sampling_follows_the_probabilities() -> None:
    p = Distribution(np.array([5, 1, 8]), np.array([0.2, 0.5, 0.3]))
    assert [p.sample(u) for u in (0.0, 0.19, 0.2, 0.69, 0.7, 0.9999999)] == [5, 5, 1, 1, 8, 8]
    chance = Coupled(11)
    picks = [chance.choose(p, position) for position in range(20_000)]
    for token, probability in ((5, 0.2), (1, 0.5), (8, 0.3)):
        assert picks.count(token) / len(picks) == pytest.approx(probability, abs=0.012)


def test_noise_depends_on_seed_position_and_id_alone() -> None:
    ids = np.arange(1000)
    noise = gumbel_noise(3, 77, ids)
    assert np.array_equal(noise[[5, 2]], gumbel_noise(3, 77, np.array([5, 2])))
    for other in (gumbel_noise(4, 77, ids), gumbel_noise(3, 78, ids)):
        assert abs(np.corrcoef(noise, other)[0, 1]) < 0.1
    assert noise.mean() == pytest.approx(0.5772, abs=0.15)
    assert gumbel_noise(1, 2, np.array([3]))[0] == pytest.approx(gumbel_noise(1, 2, np.array([3]))[0])


def test_the_noise_is_the_same_on_every_machine() -> None:
    assert gumbel_noise(42, 1000, np.array([0, 1, 151_935])).tolist() == pytest.approx(
        GOLDEN_NOISE, rel=1e-12
    )


def test_rejection_mode_repeats_itself_with_a_seed() -> None:
    assert [Rejection(5).uniform() for _ in range(3)] == [Rejection(5).uniform()] * 3


def test_confidence_is_close_to_the_softmax() -> None:
    row = logits(6, 5000, 4.0)
    weights = np.exp(row.astype(np.float64) - row.max())
    token = int(row.argmax())
    assert confidence(row, token) == pytest.approx(weights[token] / weights.sum(), rel=0.1)


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": -1.0},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"top_p": 1.5},
        {"min_p": -0.1},
        {"top_k": -1},
        {"repeat_penalty": 0.0},
        {"seed": -1},
        {"frequency_penalty": math.nan},
        {"penalty_window": -2},
        {"logit_bias": ((1, math.nan),)},
        {"draft_temperature": -1.0},
    ],
)
def test_values_that_cannot_work_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        SamplerSettings(**values)  # type: ignore[arg-type]
