"""The binding over real libllama: every mistake that would end the process is an exception here."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from localspec.engine.llama.context import Context, ContextSettings
from localspec.engine.llama.weights import Placement, Weights
from localspec.engine.process.cancel import CancelFlag, new_shared_flag_file
from localspec.ground.errors import Cancelled, EngineError, InvalidInput, UnreadableFile
from tests.bigram import END, SIZE, BigramPair


@pytest.fixture(scope="module")
def weights(bigram: BigramPair) -> Iterator[Weights]:
    weights = Weights(bigram.target)
    yield weights
    weights.close()


@pytest.fixture
def context(weights: Weights) -> Iterator[Context]:
    context = Context(weights, ContextSettings(tokens=300, rows=5, threads=1), CancelFlag())
    yield context
    context.close()


def test_rows_are_the_logits_of_the_last_tokens(context: Context, bigram: BigramPair) -> None:
    logits = context.extend([50, 51, 52, 53], rows=3).astype(np.float64)
    assert logits.shape == (3, SIZE)
    weights = np.exp(logits)
    assert np.abs(weights / weights.sum(1, keepdims=True) - bigram.p[[51, 52, 53]]).max() < 1e-6


def test_length_follows_extend_and_rewind(context: Context) -> None:
    context.extend([40] * 10, rows=0)
    context.extend([41, 42], rows=2)
    assert context.length == context.cached_length() == 12
    context.rewind(4)
    assert context.length == context.cached_length() == 4
    context.extend([43], rows=1)
    assert context.length == context.cached_length() == 5
    context.rewind(0)
    assert context.length == context.cached_length() == 0


@pytest.mark.parametrize(
    ("tokens", "rows"),
    [([], 0), ([1], 2), ([1] * 9, 6), ([SIZE], 1), ([-1], 1), ([1, 2], -1)],
)
def test_mistakes_raise_instead_of_ending_the_process(context: Context, tokens: list[int], rows: int) -> None:
    with pytest.raises(EngineError):
        context.extend(tokens, rows)
    assert context.length == 0
    context.extend([50], 1)


def test_the_context_ends_where_it_was_asked_to(context: Context) -> None:
    context.extend([50] * 300, rows=1)
    with pytest.raises(InvalidInput, match="301 tokens"):
        context.extend([50], rows=1)
    context.rewind(299)
    context.extend([50], rows=1)


def test_long_prompts_go_in_slices(weights: Weights) -> None:
    context = Context(weights, ContextSettings(tokens=2000, rows=3, threads=1), CancelFlag())
    try:
        prompt = [40 + place % 60 for place in range(1500)]
        whole = context.extend(prompt, rows=3).copy()
        context.rewind(0)
        context.extend(prompt[:-3], rows=0)
        assert np.allclose(whole, context.extend(prompt[-3:], rows=3), atol=1e-4)
    finally:
        context.close()


@pytest.mark.parametrize("target", [-1, 5, 100])
def test_rewinding_forward_or_below_zero_is_refused(context: Context, target: int) -> None:
    context.extend([50] * 4, rows=0)
    with pytest.raises(EngineError):
        context.rewind(target)


def test_cancel_stops_a_prefill_and_leaves_the_books_right(weights: Weights) -> None:
    flag = CancelFlag(new_shared_flag_file())
    context = Context(weights, ContextSettings(tokens=60_000, rows=1, threads=1), flag)
    try:
        timer = threading.Timer(0.15, flag.set)
        timer.start()
        with pytest.raises(Cancelled):
            while context.length < 50_000:
                context.extend([50] * 5_000, rows=1)
        timer.join()
        assert context.length == context.cached_length() < 50_000
        flag.clear()
        context.rewind(min(context.length, 10))
        context.extend([51], rows=1)
    finally:
        context.close()


def test_text_goes_to_tokens_and_back(weights: Weights) -> None:
    vocabulary = weights.vocabulary
    text = "naïve café, 日本語 \U0001f638\n"
    ids = vocabulary.tokenize(text, special=False)
    assert b"".join(map(vocabulary.token_bytes, ids)).decode() == text
    assert vocabulary.tokenize("<|im_end|>", special=True) == [END]
    assert END not in vocabulary.tokenize("<|im_end|>", special=False)
    assert vocabulary.is_end(END) and END in vocabulary.end_tokens
    assert vocabulary.token_bytes(END) == b""
    with pytest.raises(InvalidInput):
        vocabulary.token_bytes(SIZE)


def test_loading_can_be_watched_and_stopped(bigram: BigramPair) -> None:
    seen: list[float] = []
    Weights(bigram.target, on_progress=seen.append).close()
    assert seen == sorted(seen) and seen[-1] == 1.0
    flag = CancelFlag()
    flag.set()
    with pytest.raises(Cancelled):
        Weights(bigram.target, Placement(), None, flag)


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF\x03\0\0\0" + b"\xff" * 40, b"#!/bin/sh\n"])
def test_files_that_are_no_models(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    with pytest.raises((UnreadableFile, EngineError), match=r"broken\.gguf"):
        Weights(path)


def test_folders_and_missing_files(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.gguf"):
        with pytest.raises(UnreadableFile):
            Weights(path)


def test_an_impossible_cache_type_is_an_error(weights: Weights) -> None:
    with pytest.raises(EngineError, match="cache-type"):
        Context(weights, ContextSettings(64, 1, 1, cache_type="q4_0", flash_attention="off"), CancelFlag())
