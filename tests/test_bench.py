"""Bench on a simulated engine: the statistics keep their promises, nothing that misleads makes a verdict."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.bench import storage
from localspec.bench.analysis import analyse, plain_drift, verdict_of
from localspec.bench.compare import compare
from localspec.bench.headline import pooled_row
from localspec.bench.options import BenchOptions
from localspec.bench.plan import Speeds, make_plan
from localspec.bench.prompts import filler, load_prompts
from localspec.bench.records import (
    POOLED,
    Arm,
    BenchRun,
    Cell,
    Interval,
    Measurement,
    Prompt,
    Report,
    Row,
    Sample,
)
from localspec.bench.runner import execute, whole_blocks
from localspec.bench.statistics import difference_interval, log_interval, t95, without_levels
from localspec.ground.errors import EngineDied, EngineError, InvalidInput, UnreadableFile
from tests.bench_fakes import (
    ANSWER,
    AUTO_ARM,
    PLAIN_ARM,
    SimulatedClock,
    SimulatedEngine,
    World,
    empty_run,
    prompts,
    simulate,
)

TRIALS = 200
ARMS = (PLAIN_ARM, AUTO_ARM)


def row(report: Report, kind: str = POOLED, arm: str = "auto", stage: str = "main") -> Row:
    return next(r for r in report.rows if (r.kind, r.arm, r.stage) == (kind, arm, stage))


def codes(found: Row) -> set[str]:
    return {flag.code for flag in found.flags}


class TestStatistics:
    """The three promises of the interval, on 200 runs each."""

    def trials(self, world: World) -> tuple[Counter[str], Counter[str]]:
        covered: Counter[str] = Counter()
        verdicts: Counter[str] = Counter()
        for seed in range(TRIALS):
            found = row(analyse(simulate(world, seed)))
            assert found.speedup is not None and found.speedup.low is not None and found.speedup.high is not None
            covered["truth"] += found.speedup.low <= world.speedups["auto"] <= found.speedup.high
            verdicts[str(found.verdict)] += 1
        return covered, verdicts

    def test_intervals_cover_the_truth_with_noise_between_starts(self) -> None:
        covered, _ = self.trials(World({"auto": 1.2}, start_noise=0.03, cell_noise=0.003))
        assert covered["truth"] >= 0.9 * TRIALS

    def test_intervals_cover_the_truth_when_the_gain_itself_differs_from_start_to_start(self) -> None:
        covered, _ = self.trials(World({"auto": 1.2}, start_noise=0.03, ratio_noise=0.03))
        assert covered["truth"] >= 0.9 * TRIALS

    def test_a_drift_of_five_percent_a_run_makes_no_winner(self) -> None:
        _, verdicts = self.trials(World({"auto": 1.0}, drift=-0.05))
        assert verdicts == {"no measurable gain": TRIALS}

    def test_a_gain_of_five_percent_is_found(self) -> None:
        covered, verdicts = self.trials(World({"auto": 1.05}, start_noise=0.03, cell_noise=0.01))
        assert verdicts["pays"] >= 0.8 * TRIALS
        assert covered["truth"] >= 0.9 * TRIALS

    def test_equal_arms_rarely_look_different(self) -> None:
        _, verdicts = self.trials(World({"auto": 1.0}))
        assert verdicts["no measurable gain"] >= 0.9 * TRIALS

    def test_the_interval_is_students(self) -> None:
        found = log_interval([0.0, 0.1, 0.2])
        assert found.value == pytest.approx(1.10517, abs=1e-5)
        assert found.low == pytest.approx(2.71828 ** (0.1 - 4.303 * 0.1 / 3**0.5), rel=1e-4)
        assert log_interval([0.3]).low is None
        assert (t95(1), t95(30)) == (12.706, 2.042) and 1.96 < t95(100) < 2.0

    def test_levels_of_two_groupings_are_taken_out_together(self) -> None:
        values = [1.0 + 10 * (i % 3) + 100 * (i // 3) for i in range(9)]
        left = without_levels(values, [i % 3 for i in range(9)], [i // 3 for i in range(9)])
        assert max(map(abs, left)) < 1e-9

    def test_two_sets_of_starts_are_compared_by_welch(self) -> None:
        found = difference_interval([0.0, 0.02, 0.04], [0.2, 0.22, 0.24])
        assert found is not None and found.low is not None and found.low > 1.1
        assert found.value == pytest.approx(1.2214, abs=1e-4)
        assert difference_interval([0.0], [0.1, 0.2]) is None


class TestPlan:
    def plan(self, budget: float = 1e6, plain: float = 10.0, **options: object) -> tuple[Cell, ...]:
        asked = BenchOptions(budget=budget, **options)  # type: ignore[arg-type]
        return make_plan(prompts(), ARMS, asked, Speeds(plain, 100.0, 1.0)).cells

    def test_arms_take_turns_in_mirrored_order(self) -> None:
        cells = self.plan()
        for block in {cell.block for cell in cells}:
            order = [cell.arm for cell in cells if cell.block == block]
            assert order == order[::-1] and set(order) == {"plain", "auto"}
            assert len({cell.prompt for cell in cells if cell.block == block}) == 2

    def test_no_prompt_is_asked_twice_of_one_arm_in_a_start(self) -> None:
        seen = Counter((cell.start, cell.prompt, cell.arm, cell.stage) for cell in self.plan())
        assert set(seen.values()) == {1}

    def test_the_first_arm_is_drawn_anew(self) -> None:
        cells = self.plan(starts=10)
        firsts = Counter(next(c.arm for c in cells if c.block == block) for block in {c.block for c in cells})
        assert min(firsts.values()) >= 10

    def test_the_same_seed_gives_the_same_plan(self) -> None:
        assert self.plan(seed=4) == self.plan(seed=4) != self.plan(seed=5)

    def test_what_does_not_fit_is_left_out_and_said(self) -> None:
        sweep = tuple(Arm(f"k{k}", "model", k) for k in (1, 2, 3, 4, 6, 8))
        asked = BenchOptions(temperatures=(0.0, 0.8), budget=900)
        plan = make_plan(prompts(), ARMS, asked, Speeds(5.0, 50.0, 5.0), sweep)
        assert plan.starts == 3
        assert {cell.temperature for cell in plan.cells} == {0.0}
        assert any("temperature 0.8" in text for text in plan.left_out)
        assert any("sweep" in text for text in plan.left_out)
        whole = make_plan(prompts(), ARMS, replace(asked, budget=1e6), Speeds(5.0, 50.0, 5.0), sweep)
        assert whole.left_out == () and {cell.temperature for cell in whole.cells} == {0.0, 0.8}

    def test_kinds_without_quick_prompts_use_what_they_have(self) -> None:
        some = prompts(("code",)) + tuple(replace(p, quick=False) for p in prompts(("law",)))
        plan = make_plan(some, ARMS, BenchOptions(kinds=("law",), quick=True), Speeds(10.0, 100.0, 1.0))
        assert {cell.kind for cell in plan.cells} == {"law"}

    def test_a_run_that_cannot_fit_keeps_three_starts_and_two_kinds(self) -> None:
        asked = BenchOptions(budget=20, quick=True)
        kinds = ("edit", "code", "maths", "chat")
        plan = make_plan(prompts(kinds), ARMS, asked, Speeds(1.0, 10.0, 5.0))
        assert {cell.kind for cell in plan.cells} == {"code", "chat"}
        assert {cell.start for cell in plan.cells} == {0, 1, 2}
        assert "longer than the budget" in plan.left_out[-1]


class TestRunner:
    def plan_run(self, **options: object) -> BenchRun:
        asked = BenchOptions(**options)  # type: ignore[arg-type]
        return empty_run(make_plan(prompts(), ARMS, asked, Speeds(10.0, 100.0, 1.0)))

    def start(self, clock: SimulatedClock, made: list[SimulatedEngine]) -> SimulatedEngine:
        made.append(SimulatedEngine(World({"auto": 1.3}), random.Random(len(made)), clock))
        return made[-1]

    def test_every_start_has_its_own_engine_and_each_cell_is_saved(self) -> None:
        clock, made = SimulatedClock(), list[SimulatedEngine]()
        run = execute(self.plan_run(starts=4), lambda: self.start(clock, made), clock)
        assert len(made) == 4 and all(engine.closed for engine in made)
        assert run.finished and len(run.samples) == len(run.plan.cells)
        assert [len(state.samples) for state in clock.states[:3]] == [1, 2, 3]

    def test_a_warm_first_engine_is_used(self) -> None:
        clock, made = SimulatedClock(), list[SimulatedEngine]()
        first = self.start(clock, made)
        execute(self.plan_run(), lambda: self.start(clock, made), clock, first)
        assert len(made) == 3

    def test_an_interrupted_run_goes_on_with_whole_blocks(self) -> None:
        clock, made = SimulatedClock(), list[SimulatedEngine]()
        run = self.plan_run()
        whole = execute(run, lambda: self.start(clock, made), clock)
        cut = replace(whole, samples=whole.samples[:7], finished=False)
        assert len(whole_blocks(cut)) == 4
        again = execute(cut, lambda: self.start(clock, made), clock)
        assert again.finished and again.samples[:4] == whole.samples[:4]
        assert sorted(s.cell.index for s in again.samples) == [cell.index for cell in run.plan.cells]

    def test_an_interrupt_leaves_what_was_measured(self) -> None:
        clock, made = SimulatedClock(), list[SimulatedEngine]()

        class Impatient(SimulatedClock):
            def saved(self, run: BenchRun) -> None:
                super().saved(run)
                if len(run.samples) == 5:
                    raise KeyboardInterrupt

        watch = Impatient()
        with pytest.raises(KeyboardInterrupt):
            execute(self.plan_run(), lambda: self.start(clock, made), watch)
        assert len(watch.states[-1].samples) == 5 and made[0].closed
        assert "not finished" not in analyse(watch.states[-1]).headline

    def test_failed_answers_are_kept_and_a_dead_engine_is_replaced(self) -> None:
        clock, made = SimulatedClock(), list[SimulatedEngine]()

        class Dying(SimulatedEngine):
            def measure(self, cell: Cell, prompt: Prompt, arm: Arm, reuse: bool) -> Measurement:
                if cell.index == 2:
                    raise EngineDied("the engine's process ended (SIGABRT)")
                if cell.index == 3:
                    raise EngineError("out of memory")
                return super().measure(cell, prompt, arm, reuse)

        def start() -> SimulatedEngine:
            made.append(Dying(World({"auto": 1.3}), random.Random(1), clock))
            return made[-1]

        run = execute(self.plan_run(), start, clock)
        assert len(made) == 4
        assert [s.measured.error for s in run.samples[2:4]] == [
            "EngineDied: the engine's process ended (SIGABRT)", "EngineError: out of memory",
        ]  # fmt: skip
        assert run.finished and any("failed" in note for note in analyse(run).notes)

    def test_cooldown_rests_before_every_answer(self) -> None:
        clock, made = SimulatedClock(), list[SimulatedEngine]()
        run = execute(self.plan_run(cooldown=2.0), lambda: self.start(clock, made), clock)
        assert clock.slept == 2.0 * len(run.plan.cells)

    def test_a_run_ends_with_its_time_however_slow_the_machine_becomes(self) -> None:
        clock, made = SimulatedClock(), list[SimulatedEngine]()
        run = self.plan_run(kinds=("code",))
        run = replace(run, plan=replace(run.plan, budget=30.0))
        done = execute(run, lambda: self.start(clock, made), clock)
        assert done.finished and 33 < clock.seconds < 39 and len(done.samples) == len(done.plan.cells) == 8
        assert done.plan.left_out[-1].endswith("answers (the time was used up)")
        flag = next(f for r in analyse(done).rows for f in r.flags if f.code == "starts")
        assert flag.text == "1 engine start: an interval needs 3. Allow more time"

    def test_a_run_that_gets_slower_gives_up_kinds_and_not_starts(self) -> None:
        clock, made = SimulatedClock(), list[SimulatedEngine]()
        run = self.plan_run()
        run = replace(run, plan=replace(run.plan, budget=150.0))
        done = execute(run, lambda: self.start(clock, made), clock)
        assert done.finished and len(made) == 3 and clock.seconds < 150
        report = analyse(done)
        assert row(report, "code").starts == 3 and row(report, "code").verdict == "pays"
        assert done.plan.left_out == ("the rest of chat (slower than it seemed at first)",)
        assert all("starts" in codes(r) for r in report.rows if r.kind == "chat" and r.arm == "auto")
        assert row(report).starts == 3 and codes(row(report)) <= {"pool"}
        assert len(whole_blocks(done)) == len(done.samples)

    def test_the_rest_of_the_time_is_estimated_from_what_was_seen(self) -> None:
        clock, made = SimulatedClock(), list[SimulatedEngine]()
        execute(self.plan_run(), lambda: self.start(clock, made), clock)
        total = clock.seconds
        halfway = clock.seen[len(clock.seen) // 2]
        assert halfway.eta_seconds == pytest.approx(total / 2, rel=0.25)


class TestFlags:
    """Rows that could mislead are flagged and cannot pay."""

    def report(self, answer: Measurement = ANSWER, speedup: float = 2.0, **changes: object) -> Report:
        run = simulate(World({"auto": speedup}, answer=answer), 1, starts=int(str(changes.pop("starts", 3))))
        return analyse(replace(run, **changes))  # type: ignore[arg-type]

    def test_a_sound_row_pays(self) -> None:
        found = row(self.report())
        assert (found.verdict, found.flags) == ("pays", ())

    @pytest.mark.parametrize(
        ("answer", "code"),
        [
            (replace(ANSWER, finish="length"), "cut"),
            (replace(ANSWER, answer_empty=True), "empty"),
            (replace(ANSWER, tokens_counted=False), "uncounted"),
        ],
    )
    def test_blocking_flags(self, answer: Measurement, code: str) -> None:
        found = row(self.report(answer))
        assert code in codes(found) and found.verdict == "no measurable gain"

    def test_fewer_than_three_starts_make_no_verdict(self) -> None:
        found = row(self.report(starts=2))
        assert codes(found) == {"starts"} and found.verdict == "no measurable gain"

    def test_a_repeated_prompt_with_an_ngram_drafter(self) -> None:
        arms = (PLAIN_ARM, Arm("lookup", "lookup"))
        run = simulate(World({"lookup": 2.0}), 1, arms)
        twice = tuple(replace(prompt, text="the same") for prompt in run.plan.prompts)
        found = row(analyse(replace(run, plan=replace(run.plan, prompts=twice))), arm="lookup")
        assert codes(found) == {"repeated"} and found.verdict == "no measurable gain"
        assert row(analyse(run), arm="lookup").verdict == "pays"

    def test_drift_beyond_eight_percent_unless_cooled_down(self) -> None:
        world = World({"auto": 2.0}, drift=-0.02)
        hot = analyse(simulate(world, 1))
        assert hot.drift is not None and hot.drift.per_start < -0.08 and hot.drift.certain
        assert "drift" in codes(row(hot)) and row(hot).verdict == "no measurable gain"
        assert "drifted" in hot.headline
        assert row(analyse(simulate(world, 1, cooldown=5.0))).verdict == "pays"
        assert codes(row(analyse(simulate(World({"auto": 2.0}, drift=-0.002), 1)))) == set()

    def test_drift_is_measured_rightly(self) -> None:
        found = plain_drift(simulate(World({"auto": 1.5}, drift=-0.01, cell_noise=0.0), 3).samples)
        # 16 answers a start, the first plain one to the last: 13 to 15 steps of one per cent.
        assert found is not None and 0.99**15.01 - 1 <= found.per_start <= 0.99**12.99 - 1

    def test_notes_do_not_block(self) -> None:
        sure = replace(ANSWER, accepted=60, kept=(20, 20, 20))
        rare = replace(ANSWER, drafted=2, verified=2, accepted=1, reached=(2,), kept=(1,))
        off = replace(ANSWER, engine_rate=95_000.0)
        for answer, code in ((sure, "suspicious"), (rare, "rarely"), (off, "clock")):
            found = row(self.report(answer))
            assert code in codes(found) and found.verdict == "pays", code

    def test_the_same_file_as_its_own_draft_is_not_suspicious(self) -> None:
        sure = replace(ANSWER, accepted=60, kept=(20, 20, 20))
        run = simulate(World({"auto": 0.8}, answer=sure), 1)
        assert "suspicious" not in codes(row(analyse(replace(run, settings={"same_file": True}))))

    def test_absurd_rates_are_never_shown(self) -> None:
        for emitted, wall in ((1, 1.0), (0, 1.0), (96_000, 1.0), (10, 0.0)):
            assert Measurement(emitted=emitted, wall_seconds=wall).rate is None
        assert Measurement(emitted=11, ttft_seconds=0.5, wall_seconds=1.5).rate == 10.0

    def test_an_interval_around_one_is_no_measurable_gain(self) -> None:
        assert verdict_of(Interval(1.02, 0.97, 1.07), False) == "no measurable gain"
        assert verdict_of(Interval(1.02, 1.01, 1.03), False) == "pays"
        assert verdict_of(Interval(0.9, 0.85, 0.95), False) == "does not pay"
        assert verdict_of(Interval(1.5), False) == "no measurable gain"

    def test_recommended_is_off_unless_something_pays(self) -> None:
        assert self.report(speedup=1.0).recommended == "off"
        assert self.report(speedup=0.8).recommended == "off"
        assert self.report(speedup=1.5).recommended == "on"

    def test_a_draft_that_was_never_used_is_noticed(self) -> None:
        off = replace(ANSWER, rounds_by_drafter={"none": 50}, drafted=0, verified=0, accepted=0, reached=(), kept=())
        assert not self.report(off).draft_unused, "switched off by time, but it works"
        idle = replace(
            off,
            draft_works=False,
            rounds_by_drafter={"none": 50},
            drafted=0,
            verified=0,
            accepted=0,
            reached=(),
            kept=(),
        )
        assert self.report(idle).draft_unused and not self.report().draft_unused


class TestReport:
    def test_rows_say_what_was_accepted(self) -> None:
        found = row(analyse(simulate(World({"auto": 1.5}), 2)), "code")
        assert found.acceptance_rate == pytest.approx(0.5)
        assert found.mean_acceptance_length == pytest.approx(51 / 20)
        assert found.accepted_per_position == pytest.approx((0.75, 0.45, 0.3))
        assert found.drafted_per_round == pytest.approx(3.0)
        assert found.ttft_seconds == pytest.approx(0.4)
        assert found.prompt_tokens_per_second == pytest.approx(100.0)
        assert found.same_text == (12, 12)

    def test_other_texts_are_counted(self) -> None:
        run = simulate(World({"auto": 1.5}), 2)
        samples = [replace(s, measured=replace(s.measured, text_hash=s.cell.arm)) for s in run.samples]
        report = analyse(replace(run, samples=tuple(samples)))
        assert row(report, "code").same_text == (0, 12)
        assert any("24 of 24 greedy answers differ" in note for note in report.notes)

    def test_the_sweep_has_a_knee_and_the_curve_its_points(self) -> None:
        speedups = {"auto": 1.5, "k1": 1.2, "k2": 1.4, "k4": 1.41, "k8": 1.1}
        sweep = tuple(Arm(name, "model", int(name[1:])) for name in speedups if name != "auto")
        report = analyse(simulate(World(speedups), 1, sweep=sweep))
        assert report.knee == {"code": 2, "chat": 2, POOLED: 2}
        assert [(point.rows, point.seconds) for point in report.curve] == [(1, 0.1), (4, 0.15)]
        assert report.draft_step_seconds == pytest.approx(0.01)
        assert row(report, "code", "k4", "sweep").speedup is not None

    def test_raw_text_and_a_chat_are_told_apart(self) -> None:
        """TPL-08: acceptance by format; no draft length is recommended from raw text."""
        sweep = (Arm("k2", "model", 2), Arm("k4", "model", 4), Arm("k4 raw", "model", 4, raw=True))
        run = simulate(World({"auto": 1.5, "k2": 1.4, "k4": 1.2, "k4 raw": 3.0}), 1, sweep=sweep)
        raw = [s for s in run.samples if s.cell.arm == "k4 raw"]
        better = [replace(s, measured=replace(s.measured, accepted=54)) if s in raw else s for s in run.samples]
        report = analyse(replace(run, samples=tuple(better)))
        assert report.acceptance_by_format == {"chat": 0.5, "raw": 0.9}
        assert report.knee == {"code": 2, "chat": 2, POOLED: 2}
        found = row(report, "code", "k4 raw", "sweep")
        assert found.acceptance_rate == 0.9 and found.speedup is None and found.verdict is None
        (note,) = [note for note in report.notes if "raw text" in note]
        assert "50% behind the chat template, 90% on raw text" in note
        assert analyse(simulate(World({"auto": 1.5}), 1)).acceptance_by_format == {}

    def test_kinds_count_the_same_in_the_pool(self) -> None:
        report = analyse(simulate(World({"auto": 1.5}, cell_noise=0.0, start_noise=0.0), 1))
        found = pooled_row(report.rows)
        assert found is not None and found.speedup is not None and found.kind == POOLED
        assert found.speedup.value == pytest.approx(1.5)

    @pytest.mark.parametrize(
        ("speed", "start", "end"),
        [
            (1.5, "Speculation pays here for code, not for chat: ", "over all kinds."),
            (1.0, "Speculation does not pay here over all kinds together: ", "; it does not pay for chat."),
        ],
    )
    def test_the_headline_names_the_kinds(self, speed: float, start: str, end: str) -> None:
        run = simulate(World({"auto": speed}), 1)
        slow = [
            replace(s, measured=replace(s.measured, wall_seconds=s.measured.wall_seconds * 3))
            if s.cell.kind == "chat" and s.cell.arm == "auto"
            else s
            for s in run.samples
        ]
        text = analyse(replace(run, samples=tuple(slow))).headline
        assert text.startswith(start) and text.endswith(end)

    def test_the_headline_agrees_with_the_pool_where_no_kind_alone_is_certain(self) -> None:
        """Each kind gains in other starts than the other one; together they gain in all."""
        gains = {"code": (1.3, 1.0, 1.15), "chat": (1.0, 1.3, 1.15)}
        run = simulate(World({"auto": 1.0}, start_noise=0.0, cell_noise=0.0), 1)

        def gained(s: Sample) -> Sample:
            gain = gains[s.cell.kind][s.cell.start] if s.cell.arm == "auto" else 1.0
            return replace(s, measured=replace(s.measured, wall_seconds=s.measured.wall_seconds / gain))

        report = analyse(replace(run, samples=tuple(gained(s) for s in run.samples)))
        assert report.headline.startswith("Speculation pays here over all kinds together: 1.1")
        assert report.headline.endswith("; for no kind alone is that certain.")
        assert report.recommended == "on"

    def test_servers_are_compared_with_each_other(self) -> None:
        arms = (replace(PLAIN_ARM, peer="http://one"), Arm("two", "none", peer="http://two"))
        text = analyse(simulate(World({"two": 1.25}), 1, arms)).headline
        assert text.startswith("two makes 1.2") and "the tokens/s of http://one" in text and "all kinds" in text


class TestFiles:
    def test_a_run_survives_the_disk(self, tmp_path: Path) -> None:
        run = simulate(World({"auto": 1.5}), 1)
        path = tmp_path / "run.json"
        storage.save(path, run, analyse(run))
        assert storage.load(path) == run
        stored = json.loads(path.read_text())
        assert (stored["schema"], stored["finished"]) == (1, True)
        assert stored["report"]["rows"][0]["kind"] == "code"
        assert len(stored["samples"]) == len(run.samples)

    @pytest.mark.parametrize("text", ["", "{}", '{"schema": 2, "kind": "localspec bench"}', "[]", '{"kind": 5}'])
    def test_other_files_are_refused(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "x.json"
        path.write_text(text)
        with pytest.raises(UnreadableFile, match="no bench result"):
            storage.load(path)

    def test_regressions_are_marked(self) -> None:
        before, after = (
            simulate(World({"auto": 1.5}, start_noise=0.005), 1),
            simulate(World({"auto": 1.3}, start_noise=0.005), 1),
        )
        after = replace(after, environment={"build": "new"})
        found = compare(before, after)
        words = {(change.kind, change.arm): change.word for change in found.changes}
        assert words[POOLED, "auto"] == "regression" and words[POOLED, "plain"] == "same"
        assert words["code", "auto"] == "regression"
        assert found.differences == (("build", "-", "new"),)
        back = {(c.kind, c.arm): c.word for c in compare(after, before).changes}
        assert back[POOLED, "auto"] == "better"


class TestPrompts:
    def test_ours_cover_every_kind_with_even_numbers(self) -> None:
        ours = load_prompts()
        kinds = Counter(prompt.kind for prompt in ours)
        assert set(kinds) == {"code", "edit", "extraction", "chat", "reasoning", "summary", "translation", "creative"}
        assert all(count >= 4 and count % 2 == 0 for count in kinds.values())
        quick = Counter(prompt.kind for prompt in ours if prompt.quick)
        assert set(quick) >= {"code", "chat"} and all(count % 2 == 0 for count in quick.values())
        assert len({prompt.text for prompt in ours}) == len(ours)
        assert min(len(p.text) for p in ours) < 150 and max(len(p.text) for p in ours) > 700
        assert all(p.expected_tokens * 2 <= p.max_tokens for p in ours)

    def test_a_persons_own_in_three_formats(self, tmp_path: Path) -> None:
        lines = tmp_path / "own.txt"
        lines.write_text("What is a knot?\n\nWhat is a bend?\n")
        assert [p.text for p in load_prompts(lines)] == ["What is a knot?", "What is a bend?"]
        table = tmp_path / "own.toml"
        table.write_text('[[prompt]]\nid = "a"\nkind = "law"\ntext = "Define tort."\nmax_tokens = 50\n')
        assert load_prompts(table) == (Prompt("a", "law", "Define tort.", 50, 50),)
        listed = tmp_path / "own.json"
        listed.write_text('["Why?", {"text": "How?", "kind": "how"}]')
        assert [(p.kind, p.text) for p in load_prompts(listed)] == [("own", "Why?"), ("how", "How?")]

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("a.toml", '[[prompt]]\nid = "a"\n'), ("a.json", "[3]"), ("a.txt", "\n\n"),
            ("a.toml", '[[prompt]]\ntext = "x"\nmax_tokens = "many"\n'),
            ("a.json", '[{"text": "a", "id": "1"}, {"text": "b", "id": "1"}]'),
        ],
    )  # fmt: skip
    def test_wrong_sets_are_named(self, tmp_path: Path, name: str, text: str) -> None:
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(InvalidInput):
            load_prompts(path)

    def test_broken_files_are_unreadable(self, tmp_path: Path) -> None:
        path = tmp_path / "a.toml"
        path.write_text("[[prompt\n")
        with pytest.raises(UnreadableFile):
            load_prompts(path)

    def test_filler_has_the_length_that_was_asked_for(self) -> None:
        assert abs(len(filler(500)) / 4.2 - 500) < 2 and filler(0) == ""
