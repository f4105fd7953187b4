"""Calibration of real model objects, profiles on disk, and the loop driven by the adaptive controller."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.engine.control.adaptive import AdaptiveController
from localspec.engine.control.controller import FixedController
from localspec.engine.control.costs import calibrate
from localspec.engine.control.profile import Profile, profile_key, read_profile, write_profile
from localspec.engine.control.tuning import Tuning
from localspec.engine.drafters.lookup import LookupDrafter
from localspec.engine.drafters.model import ModelDrafter
from localspec.engine.drafters.model_belief import ModelBelief
from localspec.engine.drafters.protocol import Drafter
from localspec.engine.drive import drive
from localspec.engine.generate import Generation, Limits
from localspec.engine.records import Finished, GenerationStats
from localspec.engine.settings import LoadSettings, SamplerSettings
from tests.fake_model import FakeModel, FakeVocabulary

LETTERS = FakeVocabulary([bytes([65 + token]) for token in range(24)])
GREEDY = SamplerSettings(temperature=0.0)


class Clock:
    """A clock that only passes of timed models move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)


class TimedModel(FakeModel):
    """Says letters in turn; a pass of n rows takes `first + more * (n - 1)` seconds of the clock."""

    def __init__(self, clock: Clock, first: float, more: float, shift: int = 0) -> None:
        super().__init__(self._letter, LETTERS.size)
        self._clock, self._first, self._more, self._shift = clock, first, more, shift

    def _letter(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        row = np.zeros(self.n_vocab, np.float32)
        row[(len(tokens) + (self._shift if len(tokens) % 7 == 0 else 0)) % 20] = 20.0
        return row

    def extend(self, tokens: Sequence[int], rows: int = 1) -> NDArray[np.float32]:
        self._clock.now += self._first + self._more * (len(tokens) - 1)
        return super().extend(tokens, rows)


def opened(draft: FakeModel, tuned: Tuning) -> dict[str, Drafter]:
    """Both drafters."""
    return {"model": ModelDrafter(draft, ModelBelief("model", tuned.costs)), "lookup": LookupDrafter()}


def answer(target: FakeModel, drafters: dict[str, Drafter], tuned: Tuning, prompt: list[int]) -> GenerationStats:
    generation = Generation(
        target, LETTERS, list(drafters.values()), tuned.controller("auto", None), GREEDY, Limits(150), prompt,
        costs=tuned.costs, clock=time.perf_counter,
    )  # fmt: skip
    last = list(drive(generation, target, time.perf_counter))[-1]
    assert isinstance(last, Finished)
    return last.stats


def step_of(drafters: dict[str, Drafter]) -> float:
    """What the draft model takes for a guess, as it believes."""
    forecast = drafters["model"].forecast(4)
    assert forecast is not None
    return forecast.seconds[2] - forecast.seconds[1]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_calibration_leaves_both_models_empty_and_knows_their_times(clock: Clock) -> None:
    target, draft = TimedModel(clock, 0.1, 0.01), TimedModel(clock, 0.02, 0.002)
    tuned = Tuning(target, 16)
    drafters = opened(draft, tuned)
    tuned.measure(drafters, 0)
    assert (target.length, draft.length) == (0, 0)
    assert tuned.costs.verify_seconds(5, 0) == pytest.approx(0.14)
    drafters["model"].begin([1, 2, 3], GREEDY, frozenset(), False)
    assert step_of(drafters) == pytest.approx(0.02)


def test_a_target_that_holds_text_is_not_disturbed_by_a_new_draft(clock: Clock) -> None:
    target = TimedModel(clock, 0.1, 0.01)
    tuned = Tuning(target, 16)
    costs = tuned.costs
    tuned.measure(opened(TimedModel(clock, 0.02, 0.002), tuned), 0)
    target.extend([1, 2, 3])
    passes = len(target.passes)
    drafters = opened(TimedModel(clock, 0.05, 0.002), tuned)
    tuned.measure(drafters, 0)
    assert (len(target.passes), target.length) == (passes, 3)
    drafters["model"].begin([1, 2, 3], GREEDY, frozenset(), False)
    assert step_of(drafters) == pytest.approx(0.05)
    assert tuned.costs is costs
    assert tuned.costs.verify_seconds(5, 0) == pytest.approx(0.14)


def test_auto_drafts_where_it_pays_and_says_why_not_where_it_does_not(clock: Clock) -> None:
    """The fake clock stands still outside of passes, so every decision is reproducible."""
    cheap = TimedModel(clock, 0.1, 0.001)
    tuned = Tuning(cheap, 16)
    drafters = opened(TimedModel(clock, 0.01, 0.001), tuned)
    tuned.measure(drafters, 0)
    stats = answer(cheap, drafters, tuned, [1, 2, 3])
    assert stats.state == "on"
    assert stats.rounds_by_drafter["model"] > 0
    assert stats.speedup is not None and stats.speedup > 2

    dear = TimedModel(clock, 0.1, 0.09)
    tuned = Tuning(dear, 16)
    draft = TimedModel(clock, 0.05, 0.02)
    drafters = opened(draft, tuned)
    tuned.measure(drafters, 0)
    stats = answer(dear, drafters, tuned, [1, 2, 3])
    assert "model" not in stats.rounds_by_drafter
    assert draft.length == 0, "the draft model read a prompt for nothing"
    assert stats.plain_tokens_per_second == pytest.approx(10.0, rel=0.02)


def test_the_answer_is_the_targets_with_everything_on_auto(clock: Clock) -> None:
    texts = set()
    for first, more in ((0.1, 0.001), (0.1, 0.05), (0.1, 0.2)):
        target = TimedModel(clock, first, more)
        tuned = Tuning(target, 16)
        drafters = opened(TimedModel(clock, 0.01, 0.001, shift=3), tuned)
        tuned.measure(drafters, 0)
        answer(target, drafters, tuned, [1, 2, 3])
        texts.add(tuple(target.tokens[:120]))
    assert len(texts) == 1


def test_orders_are_fixed_and_decisions_last_from_answer_to_answer(clock: Clock) -> None:
    tuned = Tuning(TimedModel(clock, 0.1, 0.01), 16)
    tuned.measure({}, 0)
    assert isinstance(tuned.controller("model", 3), FixedController)
    assert isinstance(tuned.controller("auto", 0), FixedController)
    assert isinstance(tuned.controller("auto", 3), AdaptiveController)
    assert tuned.controller("auto", None) is tuned.controller("auto", None)
    assert tuned.controller("auto", None) is not tuned.controller("lookup", None)


def test_a_stored_profile_replaces_calibration(clock: Clock, tmp_path: Path) -> None:
    target, draft = TimedModel(clock, 0.1, 0.01), TimedModel(clock, 0.02, 0.002)
    first = Tuning(target, 16)
    drafters = opened(draft, first)
    first.measure(drafters, 0, tmp_path, "pair")
    answer(target, drafters, first, [1, 2, 3])
    first.save(drafters)

    again, draft = TimedModel(clock, 0.1, 0.01), TimedModel(clock, 0.02, 0.002)
    second = Tuning(again, 16)
    drafters = opened(draft, second)
    second.measure(drafters, 0, tmp_path, "pair")
    assert (again.passes, draft.passes) == ([1, 1, 4], [])
    assert second.costs.verify_seconds(5, 0) == pytest.approx(first.costs.verify_seconds(5, 0), rel=0.05)
    drafters["model"].begin([1, 2, 3], GREEDY, frozenset(), False)
    assert step_of(drafters) == pytest.approx(0.02, rel=0.05)
    other = Tuning(TimedModel(clock, 0.1, 0.01), 16)
    other.measure({}, 0, tmp_path, "another pair")
    assert other.costs.verify_seconds(5, 0) == pytest.approx(0.14)


def test_a_machine_that_is_faster_today_is_noticed_at_the_start(clock: Clock, tmp_path: Path) -> None:
    busy = Tuning(TimedModel(clock, 0.27, 0.027), 16)
    drafters = opened(TimedModel(clock, 0.054, 0.005), busy)
    busy.measure(drafters, 0, tmp_path, "pair")
    busy.save(drafters)
    free = Tuning(TimedModel(clock, 0.1, 0.01), 16)
    drafters = opened(TimedModel(clock, 0.02, 0.002), free)
    free.measure(drafters, 0, tmp_path, "pair")
    assert free.costs.verify_seconds(1, 0) == pytest.approx(0.1, rel=0.05)
    assert free.costs.verify_seconds(8, 0) == pytest.approx(0.17, rel=0.1)
    drafters["model"].begin([1, 2, 3], GREEDY, frozenset(), False)
    assert step_of(drafters) == pytest.approx(0.02, rel=0.1)


def test_beliefs_that_make_no_sense_are_measured_anew(clock: Clock, tmp_path: Path) -> None:
    write_profile(tmp_path, "pair", Profile(calibrate(lambda rows: 0.1), {"model": {"times": 3}, "gone": {}}))
    tuned = Tuning(TimedModel(clock, 0.1, 0.01), 16)
    drafters = opened(TimedModel(clock, 0.02, 0.002), tuned)
    tuned.measure(drafters, 0, tmp_path, "pair")
    drafters["model"].begin([1, 2, 3], GREEDY, frozenset(), False)
    assert step_of(drafters) == pytest.approx(0.02)


VERSION_1 = Path(__file__).parent / "data" / "profile_version_1.json"
"""Written by the engine when there was one drafter that learns: plain 0.1 s, a guess 0.02 s."""


def test_a_profile_of_version_1_is_taken_over(clock: Clock, tmp_path: Path) -> None:
    shutil.copy(VERSION_1, tmp_path / "pair.json")
    tuned = Tuning(TimedModel(clock, 0.1, 0.01), 16)
    draft = TimedModel(clock, 0.02, 0.002)
    drafters = opened(draft, tuned)
    tuned.measure(drafters, 0, tmp_path, "pair")
    assert draft.passes == []
    assert tuned.costs.verify_seconds(5, 0) == pytest.approx(0.14, rel=0.05)
    drafters["model"].begin([1, 2, 3], GREEDY, frozenset(), False)
    assert step_of(drafters) == pytest.approx(0.02, rel=0.05)
    tuned.save(drafters)
    assert json.loads((tmp_path / "pair.json").read_text())["version"] == 2


def stored_profile() -> Profile:
    return Profile(calibrate(lambda rows: 0.1 * rows), {"model": ModelBelief().to_dict()})


def test_profiles_survive_and_damaged_ones_are_as_good_as_none(tmp_path: Path) -> None:
    write_profile(tmp_path / "new folder", "key", stored_profile())
    path = tmp_path / "new folder" / "key.json"
    again = read_profile(path.parent, "key")
    assert again is not None
    assert again.costs.verify_seconds(4, 0) == pytest.approx(0.4)
    assert [one.name for one in path.parent.iterdir()] == ["key.json"]
    for damage in (b"", b"{", b"[]", b"null", b'{"costs": 3}', b'{"version": 9}', b"\xff\xfe", path.read_bytes()[:-20]):
        path.write_bytes(damage)
        assert read_profile(path.parent, "key") is None
    assert read_profile(tmp_path, "absent") is None


def test_a_disk_that_refuses_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    write_profile(tmp_path / "file", "key", stored_profile())


def test_the_key_depends_on_files_and_placement(tmp_path: Path) -> None:
    target, draft = tmp_path / "t.gguf", tmp_path / "d.gguf"
    target.write_bytes(b"1")
    draft.write_bytes(b"2")
    settings = LoadSettings(target, draft)
    base = profile_key((target, draft), settings, 4, "b1")
    assert base == profile_key((target, draft), settings, 4, "b1")
    others = [
        profile_key((target, None), settings, 4, "b1"),
        profile_key((target, draft), settings, 8, "b1"),
        profile_key((target, draft), settings, 4, "b2"),
        profile_key((target, draft), LoadSettings(target, draft, cache_type="q8_0"), 4, "b1"),
        profile_key((target, draft), LoadSettings(target, draft, gpu_layers=3), 4, "b1"),
        profile_key((target, draft), LoadSettings(target, draft, swa_full=False), 4, "b1"),
        profile_key((target, draft), LoadSettings(target, draft, device="another processor"), 4, "b1"),
    ]
    target.write_bytes(b"12")
    others.append(profile_key((target, draft), settings, 4, "b1"))
    assert len({base, *others}) == 9
    assert json.dumps(base)
