"""The loop over scripted models: blocks, cuts, limits, positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.engine.control.controller import FixedController
from localspec.engine.drafters.base import PointDrafter
from localspec.engine.drafters.ngram_index import Match
from localspec.engine.drive import drive
from localspec.engine.generate import Generation, Limits
from localspec.engine.records import Finished, Provenance
from localspec.engine.settings import SamplerSettings
from localspec.ground.errors import Cancelled, InvalidInput
from tests.engine_tools import GREEDY, Answer, model_drafter, run_fake
from tests.fake_model import FakeModel, FakeVocabulary, markov, script

N = 64
END = 63
LETTERS = FakeVocabulary([bytes([32 + token]) for token in range(N)], ends=[END])


def story(length: int = 400, seed: int = 1) -> list[int]:
    """A text without its end."""
    return np.random.default_rng(seed).integers(0, END, length).tolist()


def wrong_now_and_then(sequence: list[int], rate: float, seed: int = 2) -> list[int]:
    """The same text with some other tokens in it."""
    rng = np.random.default_rng(seed)
    return [(token + 1) % END if rng.random() < rate else token for token in sequence]


def pair(sequence: list[int], guesses: list[int], **settings: int) -> tuple[FakeModel, FakeModel]:
    return FakeModel(script(sequence, N), N, **settings), FakeModel(script(guesses, N), N)  # type: ignore[arg-type]


# --- what comes out ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("length", [0, 1, 2, 4, 8])
def test_the_text_is_the_targets_whatever_the_draft_says(length: int, rate: float) -> None:
    text = story()
    target, draft = pair(text, wrong_now_and_then(text, rate))
    answer = run_fake(
        target, LETTERS, text[:5], draft=draft, drafter="model", length=length, limits=Limits(100)
    )
    assert list(answer.ids) == text[5:105]
    assert answer.finished.reason == "length"


def test_an_oracle_is_always_right_and_costs_one_pass_a_round() -> None:
    text = story(3000)
    target, draft = pair(text, text)
    answer = run_fake(target, LETTERS, text[:3], draft=draft, drafter="model", length=4, limits=Limits(2501))
    assert answer.finished.stats.acceptance_rate == 1.0
    assert len(answer.rounds) == 501
    assert all(round.accepted == 4 for round in answer.rounds[1:])
    # The draft's cache is kept: after its prefill, two rows of catch-up a round, then one a guess.
    assert draft.passes == [2] + [2, 1, 1, 1] * 500


def test_positions_hold_after_every_one_of_500_random_rounds() -> None:
    text = story(4000)
    target, draft = pair(text, wrong_now_and_then(text, 0.4))
    generation = Generation(
        target, LETTERS, [model_drafter(draft)], FixedController("model", 5), GREEDY, Limits(), text[:4]
    )
    rounds = 0
    for event in drive(generation, target):
        tokens = generation.tokens
        if rounds:
            assert target.tokens == tokens[:-1]
            assert draft.tokens == tokens[: draft.length] and draft.length <= len(tokens) - 1
        rounds += hasattr(event, "round")
        if rounds == 500:
            break
    assert rounds == 500


def test_every_token_has_one_origin_and_they_add_up() -> None:
    text = story()
    target, draft = pair(text, wrong_now_and_then(text, 0.3))
    answer = run_fake(target, LETTERS, text[:5], draft=draft, drafter="model", limits=Limits(150))
    stats = answer.finished.stats
    assert [token.id for token in answer.tokens] == list(answer.ids)
    assert stats.accepted + stats.corrected + stats.bonus + stats.plain == stats.emitted == 150
    assert stats.drafted == stats.verified + stats.discarded_unverified
    assert stats.plain == 1  # the first token; every later one comes from a round with a draft
    assert stats.target_passes == len(answer.rounds) == len(target.passes) - 1
    assert answer.text == "".join(token.text for token in answer.tokens)


# --- ends inside a block -----------------------------------------------------------------------------


def test_end_token_inside_an_accepted_block() -> None:
    text = [10, 11, 33, 34, END, 35, 36, 37]
    target, draft = pair(text, text)
    answer = run_fake(target, LETTERS, text[:2], draft=draft, drafter="model", length=5, limits=Limits())
    assert answer.text == "AB"
    assert answer.finished.reason == "stop"
    assert answer.finished.stats.emitted == 3
    assert target.tokens == text[:4]  # nothing behind the end stays anywhere
    assert draft.length <= 4


def test_drafting_stops_behind_an_end_token() -> None:
    text = [10, 11, 33, END, 35, 36, 37, 38]
    target, draft = pair(text, text)
    ends = frozenset({END})
    answer = run_fake(
        target, LETTERS, text[:2], draft=draft, drafter="model", length=6, limits=Limits(), ends=ends
    )
    assert answer.rounds[-1].drafted == (END,)


def test_stop_string_inside_an_accepted_block() -> None:
    text = [10] + [byte - 32 for byte in b"OK HA MORE OF IT"] + [END]
    target, draft = pair(text, text)
    answer = run_fake(
        target, LETTERS, text[:1], draft=draft, drafter="model", length=8, limits=Limits(stop=("HA ",))
    )
    assert answer.finished.reason == "stop_string"
    assert answer.text == "OK "
    assert answer.finished.stats.emitted == 6  # up to the token that completes the stop string
    assert len(answer.tokens) == 6
    assert target.length == 1 + 6 - 1
    assert answer.finished.stats.verified > answer.finished.stats.accepted


@pytest.mark.parametrize("limit", range(0, 12))
def test_token_limit_is_exact(limit: int) -> None:
    text = story()
    target, draft = pair(text, text)
    answer = run_fake(target, LETTERS, text[:5], draft=draft, drafter="model", length=4, limits=Limits(limit))
    assert list(answer.ids) == text[5 : 5 + limit]
    assert answer.finished.reason == "length"


@pytest.mark.parametrize("capacity", range(6, 20))
def test_context_end_is_exact_and_nothing_reaches_beyond_it(capacity: int) -> None:
    text = story()
    target, draft = pair(text, text, capacity=capacity)
    draft.capacity = capacity
    answer = run_fake(target, LETTERS, text[:5], draft=draft, drafter="model", length=8, limits=Limits())
    assert answer.finished.reason == "length"
    assert 5 + len(answer.ids) == capacity
    assert list(answer.ids) == text[5:capacity]


def test_a_full_prompt_gets_no_token() -> None:
    text = story()
    target = FakeModel(script(text, N), N, capacity=5)
    answer = run_fake(target, LETTERS, text[:5], limits=Limits())
    assert len(answer.ids) <= 1


def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers() -> None:
    with pytest.raises(InvalidInput, match=r"300 tokens.* 256"):
        run_fake(FakeModel(script([1], N), N, capacity=256), LETTERS, [1] * 300)


def test_a_smaller_draft_context_ends_drafts_not_the_answer() -> None:
    text = story()
    target, draft = pair(text, text)
    draft.capacity = 50
    answer = run_fake(target, LETTERS, text[:5], draft=draft, drafter="model", length=4, limits=Limits(200))
    assert list(answer.ids) == text[5:205]
    assert any(round.drafted for round in answer.rounds) and not answer.rounds[-1].drafted


def test_min_tokens_holds_the_end_back_at_any_draft_length() -> None:
    def row(tokens: object) -> NDArray[np.float32]:
        logits = np.zeros(N, np.float32)
        logits[END], logits[7] = 9.0, 8.0
        return logits

    for length in (0, 4):
        target, draft = FakeModel(row, N), FakeModel(row, N)
        answer = run_fake(
            target, LETTERS, [1], draft=draft, drafter="model", length=length,
            limits=Limits(50, min_tokens=20), ends=frozenset({END}),
        )  # fmt: skip
        assert list(answer.ids) == [7] * 20 + [END]


# --- samplers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sampler",
    [
        SamplerSettings(temperature=0, frequency_penalty=0.8),
        SamplerSettings(temperature=0, repeat_penalty=1.4),
        SamplerSettings(temperature=0, presence_penalty=0.5, penalty_window=-1),
        SamplerSettings(temperature=0, logit_bias=((3, -5.0), (4, 2.0))),
        SamplerSettings(temperature=0.9, seed=4, frequency_penalty=0.8),
        SamplerSettings(temperature=1.2, seed=5, top_k=5),
        SamplerSettings(temperature=1.2, seed=5, top_p=0.5, min_p=0, top_k=0),
    ],
)
def test_every_sampler_option_acts_alike_with_and_without_drafts(sampler: SamplerSettings) -> None:
    rng = np.random.default_rng(9)
    table = rng.dirichlet(np.full(N, 0.1), N)  # repetition-prone
    noisy = 0.8 * table + 0.2 * rng.dirichlet(np.full(N, 0.1), N)
    texts = set()
    for drafter, length in (("none", 0), ("model", 1), ("model", 4), ("model", 8), ("lookup", 4)):
        draft = FakeModel(markov(noisy), N) if drafter == "model" else None
        target = FakeModel(markov(table), N)
        answer = run_fake(
            target, LETTERS, [5, 6, 7], draft=draft, drafter=drafter, length=length, sampler=sampler,
            limits=Limits(120, min_tokens=120), ends=frozenset({END}),
        )  # fmt: skip
        texts.add(answer.ids)
    assert len(texts) == 1


@pytest.mark.parametrize("temperature", [0, 0.0, 1e-6, 0.01])
def test_drafts_are_kept_at_any_low_temperature(temperature: float) -> None:
    text = story()
    target, draft = pair(text, text)
    sampler = SamplerSettings(temperature=temperature)
    answer = run_fake(target, LETTERS, text[:5], draft=draft, drafter="model", sampler=sampler)
    assert answer.finished.stats.acceptance_rate == 1.0


# --- drafters ----------------------------------------------------------------------------------------


def test_lookup_finds_repeated_text_and_changes_nothing() -> None:
    text = story(40) * 6
    target = FakeModel(script(text, N), N)
    answer = run_fake(target, LETTERS, text[:50], drafter="lookup", length=6, limits=Limits(120))
    assert list(answer.ids) == text[50:170]
    assert answer.finished.stats.acceptance_rate == 1.0
    assert len(answer.rounds) < 25


def test_a_guess_outside_the_targets_vocabulary_ends_the_draft_there() -> None:
    text = story()

    class Stray(PointDrafter):
        name = "stray"

        def start(self, tokens: Sequence[int]) -> None:
            self._n = len(tokens)

        def add(self, tokens: Sequence[int]) -> None:
            self._n += len(tokens)

        def offer(self, room: int) -> Match:
            n = self._n
            return Match((text[n], text[n + 1], N + 5, text[n + 3]), 4)

    target = FakeModel(script(text, N), N)
    generation = Generation(
        target, LETTERS, [Stray()], FixedController("stray", 4), GREEDY, Limits(40), text[:5]
    )
    answer = Answer(list(drive(generation, target)))
    assert list(answer.ids) == text[5:45]
    assert answer.rounds[1].accepted == 2
    cut = [round_ for round_ in answer.rounds if len(round_.drafted) == 4]
    assert cut and all(round_.verified == 2 for round_ in cut)
    stats = answer.finished.stats
    assert stats.out_of_vocabulary == stats.discarded_unverified == 2 * len(cut)
    assert stats.drafted - stats.verified == stats.discarded_unverified


def test_a_target_that_can_go_back_one_token_gets_drafts_of_one() -> None:
    text = story()
    target, draft = pair(text, wrong_now_and_then(text, 0.5), max_rewind=1)
    answer = run_fake(target, LETTERS, text[:5], draft=draft, drafter="model", length=4, limits=Limits(60))
    assert list(answer.ids) == text[5:65]
    assert max(round.verified for round in answer.rounds) == 1


def test_the_accepted_share_follows_what_can_be_guessed() -> None:
    """Hardly anything of a draft that knows nothing; most of a text that repeats itself, from its second copy on."""
    text = story()
    chance = np.random.default_rng(8).integers(0, END, len(text)).tolist()
    target, draft = pair(text, chance)
    blind = run_fake(target, LETTERS, text[:5], draft=draft, drafter="model", length=4, limits=Limits(300))
    assert (blind.finished.stats.acceptance_rate or 0) < 0.05

    paragraph = story(60, seed=7)
    target = FakeModel(script(text[:5] + paragraph * 3, N), N)
    copies = run_fake(target, LETTERS, text[:5], drafter="lookup", length=6, limits=Limits(180))
    assert list(copies.ids) == paragraph * 3
    accepted = [token.provenance == Provenance.ACCEPTED for token in copies.tokens]
    first, second, third = (sum(accepted[start : start + 60]) / 60 for start in (0, 60, 120))
    assert second > first + 0.2 and third > first + 0.2
    assert sum(accepted) == copies.finished.stats.accepted


# --- turns and cancels -------------------------------------------------------------------------------


def test_the_common_prefix_is_not_decoded_again() -> None:
    text = story()
    target = FakeModel(script(text, N), N)
    run_fake(target, LETTERS, text[:20], limits=Limits(10))
    answer = run_fake(target, LETTERS, text[:29], limits=Limits(5))
    assert answer.finished.stats.reused_tokens == 28
    assert list(answer.ids) == text[29:34]
    edited = [*text[:10], 1, 2, 3]
    answer = run_fake(target, LETTERS, edited, limits=Limits(5))
    assert answer.finished.stats.reused_tokens == 10


def test_a_memory_that_cannot_go_back_starts_over() -> None:
    text = story()
    target = FakeModel(script(text, N), N, max_rewind=0)
    run_fake(target, LETTERS, text[:20], limits=Limits(10))
    answer = run_fake(target, LETTERS, text[:9], limits=Limits(5))
    assert answer.finished.stats.reused_tokens == 0
    assert list(answer.ids) == text[9:14]


@pytest.mark.parametrize("when", range(1, 12))
def test_cancel_at_any_call_keeps_the_text_and_the_books(when: int) -> None:
    text = story()
    calls = 0

    class Cancelling(FakeModel):
        def extend(self, tokens: object, rows: int = 1) -> NDArray[np.float32]:
            nonlocal calls
            calls += 1
            if calls == when:
                raise Cancelled("stopped")
            return super().extend(tokens, rows)  # type: ignore[arg-type]

    target, draft = Cancelling(script(text, N), N), Cancelling(script(text, N), N)
    drafter = model_drafter(draft)
    generation = Generation(
        target, LETTERS, [drafter], FixedController("model", 3), GREEDY, Limits(40), text[:5]
    )
    finished = list(drive(generation, target))[-1]
    assert isinstance(finished, Finished) and finished.reason == "cancelled"
    assert list(finished.tokens) == text[5 : 5 + len(finished.tokens)]
    assert target.tokens == list(generation.tokens)[: target.length]
    # The next answer on the same models is right.
    again = Generation(
        target, LETTERS, [drafter], FixedController("model", 3), GREEDY, Limits(40), text[:7]
    )
    assert list(Answer(list(drive(again, target))).ids) == text[7:47]


def test_settings_change_from_the_next_round_on() -> None:
    text = story()
    target, draft = pair(text, text)
    generation = Generation(
        target,
        LETTERS,
        [model_drafter(draft)],
        FixedController("model", 4),
        GREEDY,
        Limits(60),
        text[:5],
    )
    rounds = []
    for event in drive(generation, target):
        if hasattr(event, "round"):
            rounds.append(event.round)
            if len(rounds) == 4:
                generation.change(FixedController("none", 0), None, None)
    assert [round.verified for round in rounds[1:6]] == [4, 4, 4, 0, 0]
    assert sum(len(round.emitted) for round in rounds) == 60


def test_time_parts_cover_the_time_after_the_first_token() -> None:
    text = story()
    target, draft = pair(text, text)
    stats = run_fake(
        target, LETTERS, text[:5], draft=draft, drafter="model", limits=Limits(200)
    ).finished.stats
    parts = (
        stats.draft_seconds
        + stats.verify_seconds
        + stats.sample_seconds
        + stats.rewind_seconds
        + stats.other_seconds
    )
    assert stats.ttft_seconds is not None
    assert parts == pytest.approx(stats.wall_seconds - stats.ttft_seconds, rel=0.05)
