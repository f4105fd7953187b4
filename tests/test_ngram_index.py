"""The n-gram index against a brute-force search, and its cost per token."""

from __future__ import annotations

import random
import time

import pytest

from localspec.engine.drafters.ngram_index import LONGEST_GRAM, MEASURED_MATCH, NgramIndex


def longest_earlier_match(tokens: list[int]) -> tuple[int, int]:
    """(place after the match, its length) by comparing everything; most recent among the longest."""
    best = (-1, 1)
    for place in range(len(tokens) - 1, 0, -1):
        length = 0
        while length < place and tokens[place - 1 - length] == tokens[-1 - length]:
            length += 1
        if length > best[1]:
            best = (place, length)
    return best if best[0] > 0 else (-1, 0)


def continuation(tokens: list[int], place: int, count: int) -> tuple[int, ...]:
    out = list(tokens)
    for step in range(count):
        out.append(out[place + step])
    return tuple(out[len(tokens) :])


@pytest.mark.parametrize("vocabulary", [2, 4, 20])
def test_finds_the_longest_and_most_recent_match(vocabulary: int) -> None:
    rng = random.Random(vocabulary)
    tokens: list[int] = []
    index = NgramIndex()
    for _ in range(300):
        token = rng.randrange(vocabulary)
        tokens.append(token)
        index.append(token)
        place, length = longest_earlier_match(tokens)
        match = index.propose(5)
        if length <= LONGEST_GRAM:
            assert match.length == length
            assert match.ids == (continuation(tokens, place, 5) if length else ())
        else:
            assert match.length >= LONGEST_GRAM


def test_follows_a_long_copy_though_a_shorter_match_is_more_recent() -> None:
    source = list(range(100, 140))
    decoy = [*source[20:29], 7]
    index = NgramIndex([*source, 1, *decoy, 2])
    index.extend(source[:29])
    assert index.propose(3).ids == tuple(source[29:32])
    assert index.propose(3).length == 29


def test_a_period_is_continued_beyond_the_end() -> None:
    assert NgramIndex([1, 2, 3, 1, 2, 3]).propose(7).ids == (1, 2, 3, 1, 2, 3, 1)
    assert NgramIndex([5, 5, 5]).propose(4).ids == (5, 5, 5, 5)


@pytest.mark.parametrize("tokens", [[], [1], [1, 2], [1, 1], [1, 2, 3, 4]])
def test_no_match_offers_nothing(tokens: list[int]) -> None:
    match = NgramIndex(tokens).propose(4)
    assert (match.ids, match.length) == ((), 0)


def test_match_length_is_capped() -> None:
    assert NgramIndex([9] * 500).propose(1).length == MEASURED_MATCH


def test_truncation_equals_never_having_seen_the_tokens() -> None:
    rng = random.Random(5)
    index = NgramIndex()
    tokens: list[int] = []
    for _ in range(400):
        if tokens and rng.random() < 0.1:
            keep = rng.randrange(max(0, len(tokens) - 12), len(tokens) + 1)
            tokens = tokens[:keep]
            index.truncate(keep)
        tokens.append(rng.randrange(3))
        index.append(tokens[-1])
        fresh = NgramIndex(tokens)
        assert index._last == fresh._last
        assert index._before == fresh._before
        assert index._window == fresh._window
        if len(tokens) < 9:
            assert index.propose(3) == fresh.propose(3)


def test_truncation_beyond_the_length_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot truncate 2 tokens to 3"):
        NgramIndex([1, 2]).truncate(3)


def test_sync_keeps_the_common_prefix_and_clears_the_rest() -> None:
    index = NgramIndex([1, 2, 3, 4, 5, 1, 2])
    assert index.sync([1, 2, 3, 9, 1, 2]) == 3
    assert index.propose(2).ids == (3, 9)
    assert index.sync([7, 8]) == 0
    assert list(index.tokens) == [7, 8]
    index.clear()
    assert len(index) == 0


def test_cost_per_token_does_not_grow_with_the_text() -> None:
    rng = random.Random(1)
    index = NgramIndex()

    def seconds(count: int) -> float:
        tokens = [int(rng.paretovariate(0.7)) % 50_000 for _ in range(count)]
        start = time.process_time()
        for token in tokens:
            index.append(token)
            index.propose(16)
        return time.process_time() - start

    early = min(seconds(2_000) for _ in range(3))
    seconds(94_000)
    late = min(seconds(2_000) for _ in range(3))
    assert len(index) == 106_000
    assert late < 4 * early
    assert late / 2_000 < 200e-6
