"""The controller against every other policy, on recorded chains and simulated machines."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import mean

import pytest
from click.testing import CliRunner

from benchmarks.simulator.__main__ import simulate
from benchmarks.simulator.comparison import Comparison, compare
from benchmarks.simulator.machine import Machine
from benchmarks.simulator.machine_profiles import PROFILES, MachineProfile, curve
from benchmarks.simulator.simulate import (
    Outcome,
    adaptive,
    clairvoyant_seconds,
    drafted,
    fixed,
    replay,
    restarted,
)
from benchmarks.simulator.traces import Trace, join, make_trace, read_traces
from localspec.engine.control.trials import PROBE_CREDIT, PROBE_SHARE
from localspec.engine.settings import Expectation

TRACES = Path(__file__).parent / "data" / "open.json.gz"
LONG_TRACES = Path(__file__).parent / "data" / "long.json.gz"
"""Ten answers of up to 420 tokens with chains of 16 guesses, made by `benchmarks/record_traces.py`."""
pytestmark = pytest.mark.timeout(900)
PAYING = [profile for profile in PROFILES if profile.pays]


@cache
def texts(lookup: bool = True) -> tuple[Trace, ...]:
    return tuple(read_traces(TRACES, lookup))


def text(kind: str, temperature: float, lookup: bool = True) -> Trace:
    return next(t for t in texts(lookup) if t.kind == kind and t.temperature == temperature)


@cache
def comparisons() -> tuple[Comparison, ...]:
    return tuple(quick(trace, profile) for profile in PROFILES for trace in texts())


def quick(trace: Trace, profile: MachineProfile, longest: int = 8) -> Comparison:
    """Of the policies only the two that are held against each other, of the fixed lengths the more different ones."""
    repeats = 2 if longest > 8 else 4
    return compare(trace, profile, (0,), repeats, longest, (0, 1, 2, 3, 4, 6, 8, 12, 16), ("auto", "recipe"))


@cache
def long_comparisons(profile: MachineProfile) -> tuple[Comparison, ...]:
    """With fixed lengths up to 16."""
    return tuple(quick(trace, profile, 16) for trace in read_traces(LONG_TRACES))


HELD_OUT = {"creative 0", "chat 0.8", "reasoning 0", "code 0.8"}
"""Long texts that neither a number nor a rule of the controller was chosen by."""


def even_text(
    acceptance: float, confidence: float, tokens: int = 512, seed: int = 0, chain: int = 8
) -> Trace:
    """A text where every guess is kept with the same chance, whatever the draft's confidence."""
    rng = random.Random(seed)
    output = [rng.randrange(10**6) for _ in range(tokens)]
    chains = [[(0, confidence, acceptance)] * chain for _ in range(tokens)]
    return make_trace(f"even {acceptance:.2f}", 0.8, [1, 2, 3], output, chains, lookup=False)


def speed_of_plain(trace: Trace, profile: MachineProfile, seed: int = 0) -> float:
    return replay(trace, profile, fixed("none", 0), seed).tokens_per_second


# --- against the others --------------------------------------------------------------------------------


def test_beats_the_best_fixed_setting_chosen_in_hindsight() -> None:
    paying = [row.of_best("auto") for row in comparisons() if row.profile.pays]
    assert mean(paying) >= 1.05
    assert min(paying) >= 0.95


@pytest.mark.parametrize("profile", PAYING, ids=lambda profile: profile.name)
def test_holds_up_on_every_machine_where_drafts_pay(profile: MachineProfile) -> None:
    shares = [row.of_best("auto") for row in comparisons() if row.profile == profile]
    assert mean(shares) >= 1.03


def test_without_lookup_is_still_ahead_of_the_best_fixed_length() -> None:
    shares = [quick(trace, profile).of_best("auto") for profile in PAYING[1::3] for trace in texts(False)]
    assert mean(shares) >= 1.03
    assert min(shares) >= 0.92


def test_never_slower_than_plain_on_any_machine() -> None:
    worst = min(comparisons(), key=lambda row: row.of_plain("auto"))
    assert worst.of_plain("auto") >= 0.99, worst


def test_beats_the_threshold_recipe_everywhere() -> None:
    for row in comparisons():
        # A text that is kept whole leaves nothing to gain over eight guesses each time, the most a chain here has.
        assert row.policies["auto"] >= (0.97 if row.trace == "edit 0" else 0.99) * row.policies["recipe"], row
    assert mean(row.policies["auto"] / row.policies["recipe"] for row in comparisons()) >= 1.2


@pytest.mark.parametrize(
    "profile",
    [pytest.param(p, marks=() if p in PROFILES[3::3] else pytest.mark.long) for p in PROFILES],
    ids=lambda profile: profile.name,
)
def test_long_texts_are_ahead_of_the_best_setting_up_to_16_chosen_in_hindsight(profile: MachineProfile) -> None:
    rows = long_comparisons(profile)
    for row in rows:
        assert row.of_plain("auto") >= 0.99, row
        assert row.policies["auto"] >= row.policies["recipe"], row
    if profile.pays:
        assert mean(row.of_best("auto") for row in rows) >= 1.04
        assert min(row.of_best("auto") for row in rows) >= 0.95
        assert mean(row.of_best("auto") for row in rows if row.trace in HELD_OUT) >= 1.04


def test_a_draft_left_behind_by_copies_comes_back() -> None:
    """A story that runs into a loop, again and again: copying the loop must not cost the draft model its turn."""
    (story,) = (trace for trace in read_traces(LONG_TRACES) if trace.name == "creative 0")
    profile = next(profile for profile in PROFILES if profile.name == "two-cores-bf16")
    outcome = replay(story, profile, adaptive(profile, 0, 16), 0, 4)
    assert drafted(outcome.rounds[-100:], "model") >= 25


def test_nothing_beats_the_clairvoyant() -> None:
    profile = replace(PROFILES[1], noise=0.0, rebuild=0.0, context_growth=0.0, catch_up_row=0.0)
    for trace in texts():
        bound = clairvoyant_seconds(trace, profile)
        assert replay(trace, profile, adaptive(profile)).seconds >= bound * (1 - 1e-9)
        for length in (0, 3, 8):
            assert replay(trace, profile, fixed("model", length)).seconds >= bound * (1 - 1e-9)


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_a_fresh_answer_does_not_lose_its_first_hundred_tokens(profile: MachineProfile) -> None:
    for trace in texts():
        ratios = []
        for seed in range(3):
            plain = replay(trace, profile, fixed("none", 0), seed).seconds_of_tokens(0, 90)
            ratios.append(
                plain / replay(trace, profile, adaptive(profile, seed), seed).seconds_of_tokens(0, 90)
            )
        # Copies that fail at the start cost most where a row costs a whole plain step.
        assert mean(ratios) >= (0.94 if profile.name == "two-cores-q4_0" else 0.98), trace.name


# --- never slower, whatever the pair -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("confidence", "row_cost"),
    [
        (0.9, 0.02),
        (0.999, 0.3),
        pytest.param(0.9, 0.3, marks=pytest.mark.long),
        pytest.param(0.999, 0.02, marks=pytest.mark.long),
    ],
)
def test_grid_of_acceptance_and_cost(row_cost: float, confidence: float) -> None:
    """10 x 10 pairs of (acceptance, draft cost), confidences that say nothing: 4 % lost at most."""
    verify = curve([(1, 1.0), (9, 1 + 8 * row_cost), (65, 1 + 64 * row_cost)])
    worst = (9.0, 0.0, 0.0)
    for acceptance in (0.05 + 0.1 * step for step in range(10)):
        for cost in (0.05 + 0.1 * step for step in range(10)):
            profile = MachineProfile("grid", 0.05, verify, cost, 0.2, noise=0.03)
            trace = even_text(acceptance, confidence)
            ratio = replay(trace, profile, adaptive(profile)).tokens_per_second / speed_of_plain(
                trace, profile
            )
            worst = min(worst, (ratio, acceptance, cost))
    print("worst of the grid: {:.3f} of plain at acceptance {:.2f}, draft cost {:.2f}".format(*worst))
    assert worst[0] >= 0.96, worst


NET_LOSS = MachineProfile(
    "net loss", 0.05, curve([(1, 1.0), *((n, 1.2 * n + 0.1) for n in range(2, 66))]), 0.1, 0.0, noise=0.02
)
"""Round time 1.3 x (accepted + 1) x plain step: slower than plain even when everything is accepted."""


def test_net_loss_at_full_acceptance_never_starts_when_calibration_shows_it() -> None:
    controller = adaptive(NET_LOSS)
    outcome = replay(even_text(1.0, 0.999), NET_LOSS, controller)
    assert all(round_.verified == 0 for round_ in outcome.rounds)
    assert outcome.stats.state == "off"
    assert "verify" in outcome.stats.reason


def test_net_loss_at_full_acceptance_is_noticed_when_calibration_was_wrong() -> None:
    flattering = replace(NET_LOSS, verify=curve([(1, 1.0), (65, 1.2)]))
    controller = adaptive(flattering, longest=16)
    trace = even_text(1.0, 0.999)
    outcome = replay(trace, NET_LOSS, controller)
    assert sum(round_.verified > 0 for round_ in outcome.rounds) <= 20
    assert outcome.stats.state == "off"
    assert outcome.tokens_per_second >= 0.95 * speed_of_plain(trace, NET_LOSS)


@pytest.mark.parametrize("acceptance", [0.9, 0.97, 1.0])
def test_cliff_at_nine_rows_is_found_and_kept_away_from(acceptance: float) -> None:
    verify = curve([(1, 1.0), (8, 1.1), (9, 2.6), (65, 5.0)])
    profile = MachineProfile("cliff", 0.05, verify, 0.1, 0.0, noise=0.02)
    trace = even_text(acceptance, 0.99, chain=16)
    outcome = replay(trace, profile, adaptive(profile, longest=16))
    late = outcome.rounds[len(outcome.rounds) // 2 :]
    assert all(round_.verified <= 7 for round_ in late)
    best = max(replay(trace, profile, fixed("model", k)).tokens_per_second for k in range(17))
    assert outcome.tokens_per_second >= 0.9 * best


def test_worth_going_over_a_cliff_when_what_is_behind_it_is_flat() -> None:
    verify = curve([(1, 1.0), (8, 1.1), (9, 1.5), (65, 1.6)])
    profile = MachineProfile("plateau", 0.05, verify, 0.02, 0.0, noise=0.02)
    trace = even_text(0.99, 0.99, chain=16)
    outcome = replay(trace, profile, adaptive(profile, longest=16))
    assert mean(round_.verified for round_ in outcome.rounds[10:]) >= 13


# --- following the text --------------------------------------------------------------------------------


def stretch(trace: Trace, times: int = 4) -> Trace:
    return join([trace] * times, trace.kind)


@pytest.mark.parametrize("profile", PAYING, ids=lambda profile: profile.name)
@pytest.mark.parametrize(
    ("first", "second", "temperature", "length"),
    [("code", "story", 0.0, 4), ("edit", "chat", 0.0, 4), ("code", "chat", 0.8, 10)],
)
def test_after_a_switch_of_text_the_new_one_runs_at_its_own_rate(
    profile: MachineProfile, first: str, second: str, temperature: float, length: int
) -> None:
    """Code, prose, code: from 60 tokens after each switch on, within 5 % of a session that knows the text.

    The last case has 1440 tokens of prose: reading what the draft model missed is a debt then.
    """
    profile = replace(profile, context_growth=0.0, spike_chance=0.0)
    one, other = (text(kind, temperature, lookup=False) for kind in (first, second))
    parts = [stretch(one), stretch(other, length), stretch(one)]
    lengths = [len(part.output) for part in parts]
    starts = [0, lengths[0], lengths[0] + lengths[1]]
    ratios: dict[int, list[float]] = {1: [], 2: []}
    for seed in range(3 if temperature else 2):
        whole = replay(join(parts, f"{first}-{second}"), profile, adaptive(profile, seed), seed)
        for part in (1, 2):
            own = adaptive(profile, seed)
            replay(parts[part], profile, own, seed + 9)
            alone = replay(parts[part], profile, own, seed + 9)
            begin, end = starts[part] + 60, starts[part] + lengths[part]
            ratios[part].append(
                alone.seconds_of_tokens(60, lengths[part]) / whole.seconds_of_tokens(begin, end)
            )
    assert mean(ratios[1]) >= 0.95
    assert mean(ratios[2]) >= 0.95


def test_prose_to_code_turns_on_where_only_code_pays() -> None:
    """Off in prose; the probes find out, within their budget."""
    profile = MachineProfile("m3", 0.05, curve([(1, 1.0), (8, 2.4), (65, 12.0)]), 0.25, 0.0, noise=0.02)
    prose, code = even_text(0.2, 0.5, 400, chain=8), even_text(0.97, 0.99, 400, chain=8)
    controller = adaptive(profile)
    outcome = replay(join([prose, code], "prose, code"), profile, controller)
    plain = speed_of_plain(code, profile)
    assert 400 / outcome.seconds_of_tokens(0, 400) >= 0.96 * plain
    assert 340 / outcome.seconds_of_tokens(460, 800) >= 1.3 * plain
    assert outcome.stats.changes[0].state == "off"
    assert (outcome.stats.state, outcome.stats.changes[-1].state) == ("on", "on")


def test_probes_lose_at_most_their_credit_and_one_percent_of_all_time() -> None:
    """Whatever they meet: nothing is ever kept, and the first rounds ran up a debt."""
    for cost, row in ((0.05, 0.02), (0.3, 0.1), (0.2, 0.6)):
        profile = MachineProfile("p", 0.05, curve([(1, 1.0), (65, 1 + 64 * row)]), cost, 0.1, noise=0.05)
        outcome = replay(even_text(0.0, 0.9, 6000), profile, adaptive(profile))
        probes = [round_ for round_ in outcome.rounds if round_.reason.startswith("a probe")]
        lost = sum(round_.wall_seconds - 0.05 * len(round_.emitted) for round_ in probes)
        assert lost <= 1.15 * (PROBE_SHARE * outcome.seconds + PROBE_CREDIT * 0.05)  # 5 % noise in each probe


HOPELESS, EASY = (0.0, (0.15, 0.3, 0.5)), (0.93, (0.9, 0.97, 0.99, 0.995))


def parts(*texts: tuple[int, float, tuple[float, ...]], seed: int = 0, prompt: int = 300) -> Trace:
    """Stretches of (tokens, chance of a guess, the draft's confidences)."""
    rng = random.Random(seed)
    output, chains = [], []
    for tokens, chance, confidences in texts:
        for _ in range(tokens):
            output.append(rng.randrange(10**6))
            chains.append([(0, rng.choice(confidences), chance) for _ in range(16)])
    return make_trace("parts", 0.8, range(prompt), output, chains, lookup=False)


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
@pytest.mark.parametrize("seed", [0, 1])
def test_off_is_not_for_good(profile: MachineProfile, seed: int) -> None:
    """Fifty hopeless tokens, then easy text: 300 tokens later it runs as if they had not been there."""
    tokens = 1500
    easy = replay(parts((tokens, *EASY), seed=seed + 50), profile, adaptive(profile, seed, 16), seed)
    both = replay(parts((50, *HOPELESS), (tokens, *EASY), seed=seed), profile, adaptive(profile, seed, 16), seed)
    assert both.seconds_of_tokens(350, tokens) <= 1.1 * easy.seconds_of_tokens(300, tokens) * (tokens - 350) / (
        tokens - 300
    )


@pytest.mark.parametrize("name", ["rtx4090-7b-1.5b", "rtx3060-7b-0.5b", "laptop-cpu-7b-0.5b", "two-cores-bf16"])
def test_a_bench_that_said_no_can_be_proven_wrong(name: str) -> None:
    profile = next(profile for profile in PROFILES if profile.name == name)
    doubted = adaptive(profile, 0, 16, Expectation(False, "the bench found 0.97x plain"))
    outcome = replay(parts((1500, *EASY)), profile, doubted)
    known = replay(parts((1500, *EASY)), profile, adaptive(profile, 0, 16))
    assert outcome.seconds_of_tokens(400, 1500) <= 1.1 * known.seconds_of_tokens(400, 1500)
    assert outcome.rounds[0].drafter == "none"


def test_a_pause_of_an_hour_does_not_buy_an_hour_of_probes() -> None:
    class Paused(Machine):
        passes = 0

        def target_pass(self, rows: int, position: int) -> float:
            self.passes += 1
            self.clock.now += 3600.0 * (self.passes == 1500)
            return super().target_pass(rows, position)

    profile = MachineProfile("p", 0.05, curve([(1, 1.0), (8, 2.0), (65, 12.0)]), 0.3, 0.1)
    outcome = replay(even_text(0.0, 0.9, 6000), Paused(profile), adaptive(profile))
    late = [round_ for round_ in outcome.rounds if round_.position > 1700]
    lost = sum(round_.wall_seconds - 0.05 * len(round_.emitted) for round_ in late if round_.drafted)
    assert lost <= 1.15 * PROBE_SHARE * 0.05 * 6000 + 6 * 0.05  # and what the account held by then


CLIFF_AT_ONE = MachineProfile(
    "cliff at one guess", 0.05, curve([(1, 1.0), (2, 1.9), (5, 2.0), (9, 2.15), (65, 5.0)]), 0.3, 0.06, noise=0.03
)


def test_a_draft_is_judged_by_its_best_length_and_not_by_one_guess() -> None:
    """The first extra row is dear and the next three are free: four guesses gain, one loses."""
    ratios = []
    for seed in range(24):
        trace = parts((1200, 0.86 + 0.01 * (seed % 6), (0.6, 0.8, 0.9, 0.95, 0.99)), seed=seed, prompt=100)
        plain = replay(trace, CLIFF_AT_ONE, fixed("none", 0), seed).tokens_per_second
        ratios.append(replay(trace, CLIFF_AT_ONE, adaptive(CLIFF_AT_ONE, seed, 16), seed).tokens_per_second / plain)
    assert sum(ratio >= 1.1 for ratio in ratios) >= 21
    assert min(ratios) >= 0.98


# --- a machine that others use -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rtx4090-7b-0.5b", "m3-7b-1.5b", "laptop-cpu-7b-0.5b", "two-cores-bf16"])
@pytest.mark.parametrize(("before", "after"), [(2.7, 1.0), (2.7, 1.3), (1.0, 2.7)])
def test_times_of_a_busy_machine_do_not_stay(name: str, before: float, after: float) -> None:
    """Calibration and two answers so, four answers otherwise, with new starts in between."""
    profile = next(profile for profile in PROFILES if profile.name == name)
    trace = next(trace for trace in read_traces(LONG_TRACES) if trace.name == "code 0")
    fresh = replay(trace, profile, adaptive(profile, 0, 16), 5).tokens_per_second
    load = [before]
    machine = Machine(profile, 3, busy=lambda seconds: load[0])
    setup = adaptive(profile, 0, 16, machine=machine)
    for answer in range(6):
        if answer == 2:
            load[0] = after
        if answer in (1, 3):
            setup = restarted(setup, machine, 16)
        outcome = replay(trace, machine, setup, 5)
        assert outcome.tokens_per_second * load[0] >= (0.8 if answer == 2 else 0.85) * fresh, answer
        check_plain_estimate(outcome, profile, load[0])


def check_plain_estimate(outcome: Outcome, profile: MachineProfile, load: float) -> None:
    """Within 15 % of the truth, or unknown."""
    estimate = outcome.stats.plain_tokens_per_second
    if estimate is not None:
        middle = mean(round_.position for round_ in outcome.rounds)
        growth = profile.context_growth * middle / 1000
        truth = profile.plain_seconds * (load * (1 + growth) + profile.host_row)
        assert 1 / estimate == pytest.approx(truth, rel=0.15)


def test_a_burst_of_other_work_does_not_make_drafts_look_cheap() -> None:
    """Four slow passes in a row while nothing is drafted: they are the machine's, and say nothing of drafts."""

    class Busy(Machine):
        passes = 0

        def target_pass(self, rows: int, position: int) -> float:
            self.passes += 1
            return super().target_pass(rows, position) * (2.2 if 20 < self.passes <= 24 else 1.0)

    profile = next(profile for profile in PROFILES if profile.name == "two-cores-q4_k_m")
    trace = text("chat", 0.0, lookup=False)
    for seed in range(3):
        outcome = replay(trace, Busy(profile, seed), adaptive(profile, seed), seed)
        assert sum(round_.verified > 0 for round_ in outcome.rounds) <= 10
        assert outcome.stats.state == "off"


def test_lookup_alone_never_loses_and_gains_on_copied_text() -> None:
    profile = next(profile for profile in PROFILES if profile.name == "two-cores-q4_0")
    for trace in texts():
        speeds = [
            replay(trace, profile, adaptive(profile, seed), seed, repeats=2, model=False).tokens_per_second
            / replay(trace, profile, fixed("none", 0), seed, repeats=2).tokens_per_second
            for seed in range(3)
        ]
        assert mean(speeds) >= (1.02 if trace.kind == "edit" else 0.985), trace.name


def test_answers_are_the_same_from_run_to_run() -> None:
    profile = PROFILES[3]
    first, second = (replay(text("chat", 0.8), profile, adaptive(profile)) for _ in range(2))
    assert first == second


# --- the command ---------------------------------------------------------------------------------------


def test_command_prints_a_table_and_the_worst_cases() -> None:
    result = CliRunner().invoke(
        simulate, [str(TRACES), "--profile", "two-cores-q4_k_m", "--seeds", "1", "--repeats", "1"]
    )
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].split()[:2] == ["machine", "text"]
    assert sum(line.startswith("two-cores-q4_k_m") for line in lines) == 9
    assert "of plain" in lines[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--profile", "cray-1"], "no machine profile named 'cray-1'"), ([], "not a file of traces")],
)
def test_command_says_what_is_wrong(tmp_path: Path, arguments: list[str], message: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text('[{"kind": "code"}]')
    result = CliRunner().invoke(simulate, [str(path), *arguments])
    assert message in str(result.exception)
