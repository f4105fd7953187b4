"""Answers of targets whose memory cannot go back everywhere: the same with a reused cache as with an empty one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine_tools import ask, open_engine
from tests.tiny_models import TINY_MODELS

PROMPT = "the quick brown fox jumps over the lazy dog, the quick brown fox jumps over the "


@pytest.mark.parametrize("name", ["lfm2", "qwen35", "mamba", "gemma4"])
def test_a_reused_cache_changes_no_answer(tmp_path: Path, name: str) -> None:
    """The same prompt again, a prompt that goes on from the answer, one that differs near its end, a stop string
    inside what was kept, and no tokens at all."""
    TINY_MODELS[name](tmp_path / "tiny.gguf")
    engine = open_engine(tmp_path / "tiny.gguf", context=1024)
    drafter = "none" if name == "mamba" else "lookup"
    try:
        first = ask(engine, PROMPT, drafter=drafter, length=4, max_tokens=30, keep_cache=False)
        stop = first.text[10:11]
        for prompt in (PROMPT, PROMPT, PROMPT + first.text[:9] + "and then ", PROMPT[:-6] + "cat"):
            fresh = ask(engine, prompt, drafter="none", max_tokens=30, keep_cache=False)
            for again in range(3):
                reused = ask(engine, prompt, drafter=drafter, length=4, max_tokens=30)
                assert reused.ids == fresh.ids, f"answer {again} to {prompt!r}"
            if stop.isprintable() and stop != "\N{REPLACEMENT CHARACTER}":
                ask(engine, prompt, drafter=drafter, length=4, max_tokens=30, stop=(stop,))
            assert ask(engine, prompt, drafter=drafter, length=4, max_tokens=30).ids == fresh.ids
    finally:
        engine.close()
