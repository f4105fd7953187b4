"""Measured times: calibration, interpolation, spikes, drift, context, storage."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from localspec.engine.control.costs import Costs, calibrate
from localspec.engine.control.pass_times import PassTimes
from localspec.engine.drafters.model_belief import ModelBelief
from localspec.engine.generate import Generation
from localspec.engine.records import Round


def make_round(rows: int, verify: float, position: int = 100, index: int = 1, **parts: Any) -> Round:
    drafted = (0,) * (rows - 1)
    return Round(
        index, position, "model" if drafted else "none", drafted, (0.9,) * len(drafted), rows - 1, 0, (1,), (),
        verify_seconds=verify, **parts,
    )  # fmt: skip


def curve_times(rows: int) -> float:
    return 0.1 * (1 + 0.05 * (rows - 1))


def test_calibration_interpolates_between_the_widths_it_timed() -> None:
    asked: list[int] = []

    def time_pass(rows: int) -> float:
        asked.append(rows)
        return curve_times(rows)

    costs = calibrate(time_pass)
    assert set(asked) == {1, 2, 4, 8}
    for rows in (1, 2, 3, 6, 8):
        assert costs.verify_seconds(rows, 0) == pytest.approx(curve_times(rows), rel=1e-6)
    assert costs.verify_seconds(12, 0) == pytest.approx(curve_times(12), rel=0.02)  # beyond: the mean slope


@pytest.mark.parametrize(("plain", "allowed"), [(0.02, 2.0), (0.1, 2.0), (1.0, 10.0)])
def test_calibration_keeps_to_its_budget(plain: float, allowed: float) -> None:
    spent = [0.0]

    def time_pass(rows: int) -> float:
        seconds = plain * (1 + 0.8 * (rows - 1))
        spent[0] += seconds
        return seconds

    calibrate(time_pass)
    warm_up = plain
    assert spent[0] - warm_up <= allowed + 1e-9


def test_calibration_is_not_fooled_by_one_spike() -> None:
    calls = [0]

    def time_pass(rows: int) -> float:
        calls[0] += 1
        return curve_times(rows) * (5 if calls[0] in (3, 9) else 1)

    costs = calibrate(time_pass)
    for rows in (1, 2, 4, 8):
        assert costs.verify_seconds(rows, 0) == pytest.approx(curve_times(rows), rel=0.01)


def test_a_plain_time_that_was_wrong_is_put_right_by_three_plain_passes() -> None:
    costs = calibrate(lambda rows: 0.3 if rows == 1 else curve_times(rows))
    doubts = []
    for index in range(3):
        costs.observe(make_round(1, 0.1, index=index + 1))
        doubts.append(costs.target.doubted(1))
    assert doubts == [True, True, False]
    assert costs.plain_seconds([100]) == pytest.approx(0.1, rel=0.1)


def test_a_spike_hardly_moves_an_estimate_and_a_lasting_change_moves_it_fully() -> None:
    costs = calibrate(curve_times)
    costs.observe(make_round(4, 10 * curve_times(4)))
    assert costs.verify_seconds(4, 100) < 1.15 * curve_times(4)
    for _ in range(8):
        costs.observe(make_round(4, 10 * curve_times(4)))
    assert costs.verify_seconds(4, 100) == pytest.approx(10 * curve_times(4), rel=0.2)


def test_a_slower_machine_slows_every_width() -> None:
    """The widths in use show it; plain decoding, which is run seldom, is believed to be slower, too."""
    rng = random.Random(1)
    costs = calibrate(curve_times)
    for index in range(60):
        rows = 1 if index in (10, 40) else rng.choice((3, 5, 6))
        costs.observe(make_round(rows, 1.2 * curve_times(rows) * rng.gauss(1, 0.02), index=index + 1))
    assert costs.plain_seconds([100]) == pytest.approx(1.2 * curve_times(1), rel=0.1)


def test_the_plain_estimate_follows_the_context() -> None:
    def slower(position: int) -> float:
        return 1 + 0.1 * position / 1000

    costs = calibrate(curve_times)
    for index, position in enumerate(range(10, 6000, 10)):
        costs.observe(make_round(1, curve_times(1) * slower(position), position, index + 1))
    for position in (200, 1500, 5900):
        assert costs.plain_seconds([position]) == pytest.approx(curve_times(1) * slower(position), rel=0.1)


@pytest.mark.parametrize("noise", [0.03, 0.1])
def test_the_plain_estimate_agrees_with_plain_decoding_within_a_tenth(noise: float) -> None:
    rng = random.Random(3)

    def mood() -> float:
        return max(0.5, rng.gauss(1, noise)) * (3 if rng.random() < 0.01 else 1)

    costs = calibrate(lambda rows: curve_times(rows) * mood())
    estimate = 0.0
    for index in range(200):
        rows = 1 if index % 40 == 0 else rng.choice((2, 4, 5, 7))
        costs.observe(make_round(rows, curve_times(rows) * mood(), index=index + 1))
        estimate += costs.plain_seconds([100])
    plain = sum(curve_times(1) * mood() for _ in range(200))
    assert estimate == pytest.approx(plain, rel=0.1)


def test_noise_never_makes_a_wider_pass_look_cheaper() -> None:
    rng = random.Random(7)
    times = PassTimes()
    for _ in range(300):
        rows = rng.randrange(1, 10)
        times.observe(rows, 0, 0.1 * (1 + 0.01 * rows) * max(0.3, rng.gauss(1, 0.15)))
    wider = [times.seconds(rows, 0) for rows in range(2, 66)]
    assert wider == sorted(wider)


def test_two_rows_may_be_cheaper_than_one() -> None:
    costs = calibrate(lambda rows: 0.1 if rows == 1 else 0.09 + 0.005 * rows)
    assert costs.verify_seconds(2, 0) < costs.verify_seconds(1, 0)


def test_a_cliff_is_learned_in_a_few_passes() -> None:
    costs = calibrate(curve_times)
    for _ in range(4):
        costs.observe(make_round(9, 0.3))
    assert costs.verify_seconds(9, 0) == pytest.approx(0.3, rel=0.1)
    assert costs.verify_seconds(8, 0) == pytest.approx(curve_times(8), rel=0.05)


def test_draft_time_is_shared_out_between_steps_and_catch_up() -> None:
    belief = ModelBelief()
    belief.calibrate(lambda rows: 0.02)
    for index in range(40):
        belief.learn(make_round(4, curve_times(4), index=index + 1, catch_up_rows=1, draft_seconds=3 * 0.01))
    assert belief.times.seconds(1, 100) == pytest.approx(0.01, rel=0.05)
    belief.observe_catch_up(65, 100, 0.01 + 64 * 0.002)
    for index in range(10):
        belief.learn(
            make_round(
                3, curve_times(3), index=50 + index, catch_up_rows=41, draft_seconds=0.01 + 0.01 + 0.08
            )
        )
    forecast = belief.forecast(4, 41, 100)
    usual = belief.forecast(4, 2, 100).seconds[1] - belief.forecast(4, 1, 100).seconds[1]
    assert forecast.debt + usual == pytest.approx(0.08, rel=0.2)
    assert belief.forecast(4, 1, 100).debt == 0.0
    assert belief.forecast(4, 650, 100).debt > 10 * forecast.debt


def test_a_drafter_that_was_not_used_follows_the_targets_pace() -> None:
    """Both run on the same machine; what was stored of a busy hour is not believed in a quiet one."""
    costs = calibrate(lambda rows: 2.7 * curve_times(rows))
    belief = ModelBelief(costs=costs)
    belief.calibrate(lambda rows: 0.027)
    stored = json.loads(json.dumps(belief.to_dict()))
    for index in range(4):
        costs.observe(make_round(1, curve_times(1), index=index + 1))
    assert belief.forecast(4, 1, 100).seconds[1] == pytest.approx(0.01, rel=0.15)
    again = ModelBelief(costs=costs)
    again.load(stored)
    assert again.forecast(4, 1, 100).seconds[1] == pytest.approx(0.01, rel=0.15)
    with pytest.raises(ValueError):
        again.load(stored | {"pace": 1e9})


def test_the_end_of_prefill_is_not_a_round_of_decoding() -> None:
    costs = calibrate(curve_times)
    costs.observe(make_round(1, 60.0, index=0))
    assert costs.verify_seconds(1, 0) == pytest.approx(curve_times(1))


@pytest.mark.parametrize("factor", [2.7, 1 / 2.7])
def test_what_one_width_shows_of_the_machine_moves_all_others(factor: float) -> None:
    costs = calibrate(curve_times)
    for index in range(8):
        costs.observe(make_round(1, factor * curve_times(1), index=index + 1))
    for rows in (1, 2, 4, 8):
        assert costs.verify_seconds(rows, 100) == pytest.approx(factor * curve_times(rows), rel=0.15)


def test_a_width_that_was_known_wrongly_is_told_apart_from_a_slow_machine_by_a_plain_pass() -> None:
    costs = calibrate(curve_times)
    for index in range(4):
        costs.observe(make_round(4, 3 * curve_times(4), index=index + 1))
    assert not costs.plain_known, "it may be the machine: a plain pass has to say"
    answer = SimpleNamespace(_costs=costs, _plain_seconds=0.4, _emitted=lambda: 4)
    assert Generation._plain_token_seconds(answer) is None  # type: ignore[arg-type]
    costs.observe(make_round(1, curve_times(1), index=5))
    assert costs.plain_known
    assert Generation._plain_token_seconds(answer) == pytest.approx(0.1)  # type: ignore[arg-type]
    assert costs.plain_seconds([100]) == pytest.approx(curve_times(1), rel=0.1)
    assert costs.verify_seconds(4, 100) == pytest.approx(3 * curve_times(4), rel=0.2)


def test_stored_times_of_a_busy_hour_are_put_right_by_one_look() -> None:
    costs = Costs.from_dict(json.loads(json.dumps(calibrate(lambda rows: 2.7 * curve_times(rows)).to_dict())))
    costs.look_again(1, curve_times(1))
    for rows in (1, 2, 4, 8):
        assert costs.verify_seconds(rows, 100) == pytest.approx(curve_times(rows), rel=0.1)
    assert costs.plain_known


def test_a_profile_survives_storage() -> None:
    costs = calibrate(curve_times)
    for index in range(30):
        costs.observe(make_round(5, 1.3 * curve_times(5), 3000, index + 1, other_seconds=0.001))
    again = Costs.from_dict(json.loads(json.dumps(costs.to_dict())))
    for rows in (1, 4, 9):
        expected = costs.verify_seconds(rows, 3000) / costs.target.scale(3000) * again.target.scale(3000)
        assert again.verify_seconds(rows, 3000) == pytest.approx(expected, rel=0.03)
    assert again.host_row_seconds == pytest.approx(costs.host_row_seconds)


def spoil(change: Callable[[dict[str, object]], object]) -> dict[str, object]:
    stored = calibrate(curve_times).to_dict()
    change(stored)
    return stored


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"version": 99},
        spoil(lambda stored: stored.pop("target")),
        spoil(lambda stored: stored.update(host_row_seconds="soon")),
        spoil(lambda stored: stored.update(target=[])),
        spoil(lambda stored: stored.update(target={"levels": {"1": [float("nan"), 1]}, "depths": {}})),
        spoil(lambda stored: stored.update(target={"levels": {"999": [0, 1]}, "depths": {}})),
        spoil(lambda stored: stored.update(target={"levels": {"1": [0]}, "depths": {}})),
    ],
)
def test_a_spoiled_profile_is_refused(stored: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        Costs.from_dict(stored)
