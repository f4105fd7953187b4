"""A pair that shares most of its vocabulary really runs: what the draft may not propose never shows.

The draft here *wants* to propose ids that mean something else to the target, and ids it does not have.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from localspec.engine.engine import Engine
from localspec.engine.settings import SamplerSettings
from localspec.pairs.compat import Verdict, check
from localspec.pairs.gguf.header import read_header
from tests.bigram import FIRST_BYTE, SIZE, english_table, exact, mixed_with_uniform, vocabulary, write
from tests.chi_square import THREE_SIGMA_P, chi_square_p
from tests.engine_tools import ask, open_engine

ROWS = SIZE + 40
ODD = (FIRST_BYTE + ord("e"), FIRST_BYTE + ord("t"))
BEYOND = range(SIZE, SIZE + 4)
TOKENS, ANSWER = 8_000, 400
"""Enough to see that 15 % of the tokens are the draft's instead of the target's, and any odd id that is missing."""


class Shared:
    """Target, draft and their verdict; the target's table."""

    def __init__(self, folder: Path) -> None:
        self.p = mixed_with_uniform(english_table(), 0.02)
        q = np.full((ROWS, ROWS), 1e-9)
        q[:SIZE, :SIZE] += 0.4 * mixed_with_uniform(self.p, 0.2)
        q[:, list(ODD)] += 0.15
        q[:, list(BEYOND)] += 0.08
        texts, _, _ = vocabulary(ROWS)
        for token in ODD:
            texts[token] = f"<odd{token}>"
        self.target, self.draft = folder / "target.gguf", folder / "draft.gguf"
        write(self.target, self.p)
        write(self.draft, q / q.sum(1, keepdims=True), rows=ROWS, texts=texts)
        self.verdict: Verdict = check(read_header(self.target), read_header(self.draft))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    return Shared(tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="module")
def engine(shared: Shared) -> Iterator[Engine]:
    verdict = shared.verdict
    engine = open_engine(
        shared.target,
        shared.draft,
        context=512,
        masked_ids=verdict.masked_ids,
        shared_rows=verdict.shared_rows,
    )
    yield engine
    engine.close()


def test_the_verdict(shared: Shared) -> None:
    assert shared.verdict.kind == "shared"
    assert shared.verdict.masked_ids == ODD
    assert (shared.verdict.shared_rows, shared.verdict.masked_beyond) == (SIZE, 40)


def test_greedy_text_is_the_targets_own(engine: Engine) -> None:
    plain = ask(engine, "The ", drafter="none", max_tokens=200)
    guessed = ask(engine, "The ", drafter="model", length=4, max_tokens=200)
    assert guessed.ids == plain.ids
    assert guessed.finished.stats.accepted > 0
    assert guessed.finished.stats.out_of_vocabulary > 0  # it wanted to, and was kept from it


def test_no_masked_id_is_ever_drafted(engine: Engine) -> None:
    answer = ask(engine, "The ", drafter="model", length=4, sampler=_sampler(1), max_tokens=400)
    drafted = {token for round in answer.rounds for token in round.drafted}
    assert drafted and not drafted & set(ODD) and max(drafted) < SIZE


@pytest.mark.parametrize("mode", ["rejection", pytest.param("coupled", marks=pytest.mark.long)])
def test_sampled_text_has_the_targets_distribution(shared: Shared, engine: Engine, mode: str) -> None:
    seen = np.zeros((SIZE, SIZE))
    for seed in range(TOKENS // ANSWER):
        sampler = _sampler(seed, mode)
        answer = ask(engine, "the ", drafter="model", length=3, sampler=sampler, max_tokens=ANSWER)
        ids = (FIRST_BYTE + ord(" "), *answer.ids)
        np.add.at(seen, (ids[:-1], ids[1:]), 1)
    assert seen.sum() > TOKENS * 0.9
    assert seen[:, list(ODD)].sum() > 0.05 * seen.sum()  # the target does say what the draft may not
    assert chi_square_p(seen, seen.sum(1, keepdims=True) * exact(shared.p)) > THREE_SIGMA_P


def _sampler(seed: int, mode: str = "rejection") -> SamplerSettings:
    return SamplerSettings(1.0, top_k=0, top_p=1, min_p=0, seed=seed, mode=mode)  # type: ignore[arg-type]
