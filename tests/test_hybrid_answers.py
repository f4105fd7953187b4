"""Answers of targets whose memory cannot go back everywhere: the same with a reused cache as with an empty one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine_tools import ask, open_engine
from tests.tiny_models import TINY_MODELS

PROMPT = "the quick brown fox jumps over the lazy dog, the quick brown fox jumps over the "

UNREADABLE = "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("name", ["lfm2", "qwen35", "mamba", "gemma4"])
def test_a_reused_cache_changes_no_answer(tmp_path: Path, name: str) -> None:
    """The same prompt again, a prompt that goes on from the answer, one that differs near its end, and a stop string
    inside what was kept."""
    TINY_MODELS[name](tmp_path / "tiny.gguf")
    engine = open_engine(tmp_path / "tiny.gguf", context=1024)
    drafter = "none" if name == "mamba" else "lookup"
    try:
        first = ask(engine, PROMPT, drafter=drafter, length=4, max_tokens=30, keep_cache=False)
        stop = next(letter for letter in first.text[5:] if letter.isprintable() and letter != UNREADABLE)
        # Short answers: going back over one is within what the memory says yes to.
        for prompt in (PROMPT, PROMPT + first.text[:9] + "and then ", PROMPT[:-6] + "cat"):
            for tokens in (5, 30, 9, 1):
                fresh = ask(engine, prompt, drafter="none", max_tokens=tokens, keep_cache=False)
                for again in range(3):
                    reused = ask(engine, prompt, drafter=drafter, length=4, max_tokens=tokens)
                    assert reused.ids == fresh.ids, f"answer {again} of {tokens} to {prompt!r}"
                ask(engine, prompt, drafter=drafter, length=4, max_tokens=tokens, stop=(stop,))
                assert ask(engine, prompt, drafter=drafter, length=4, max_tokens=tokens).ids == fresh.ids
    finally:
        engine.close()
