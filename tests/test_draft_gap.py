"""After a long pause the draft model reads the latest tokens alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.engine.drafters.model import LATEST, ModelDrafter, rows_to_read
from localspec.engine.noise import new_chance
from localspec.engine.records import Draft
from localspec.engine.settings import SamplerSettings
from localspec.errors import Cancelled
from tests.engine_tools import GREEDY
from tests.fake_model import FakeModel

N = 50
TEXT = np.random.default_rng(3).integers(0, N, 2000).tolist()


def counting(tokens: Sequence[int]) -> NDArray[np.float32]:
    """The last token and one is the likeliest."""
    row = np.zeros(N, np.float32)
    row[(tokens[-1] + 1) % N] = 9.0
    return row


def drafter_of(model: FakeModel, read: int) -> ModelDrafter:
    drafter = ModelDrafter(model)
    drafter.configure(SamplerSettings(temperature=0), frozenset())
    drafter.prepare(TEXT[: read + 1])
    model.passes.clear()
    return drafter


def propose(drafter: ModelDrafter, tokens: list[int], length: int = 3) -> Draft:
    return drafter.propose(tokens, length, lambda _: True, new_chance(GREEDY))


def counted_on(token: int, length: int) -> tuple[int, ...]:
    return tuple((token + step) % N for step in range(1, length + 1))


@pytest.mark.parametrize(
    ("missed", "rows"), [(1, 1), (2, 2), (2 * LATEST, 2 * LATEST), (2 * LATEST + 1, LATEST), (10**6, LATEST)]
)
def test_rows_are_bounded(missed: int, rows: int) -> None:
    assert rows_to_read(missed) == rows
    model = FakeModel(counting, N)
    drafter = drafter_of(model, 100)
    tokens = TEXT[: min(100 + missed, 2000)]
    draft = propose(drafter, tokens, 1)
    assert draft.catch_up_rows == model.passes[0] == rows
    assert draft.ids == counted_on(tokens[-1], 1)


def test_after_a_gap_one_row_a_round_and_only_guesses_are_rewound() -> None:
    model = FakeModel(counting, N)
    drafter = drafter_of(model, 100)
    tokens = TEXT[:1000]
    draft = propose(drafter, tokens)
    assert model.tokens == TEXT[:100] + TEXT[1000 - LATEST : 1000] + list(draft.ids[:2])
    tokens = [*tokens, draft.ids[0], 49]  # the second guess was rejected
    drafter.keep(tokens)
    assert model.tokens == TEXT[:100] + TEXT[1000 - LATEST : 1000] + [draft.ids[0]]
    assert drafter.missing(tokens) == 1
    assert propose(drafter, tokens).catch_up_rows == 1
    assert drafter.held() == tuple(model.tokens)


def test_a_second_pause_makes_no_second_gap() -> None:
    model = FakeModel(counting, N)
    drafter = drafter_of(model, 100)
    propose(drafter, TEXT[:1000])
    drafter.keep(TEXT[:1001])
    propose(drafter, TEXT[:1800], 1)
    assert model.tokens == TEXT[:100] + TEXT[1800 - LATEST : 1800]


def test_the_next_text_keeps_what_is_before_the_gap() -> None:
    model = FakeModel(counting, N)
    drafter = drafter_of(model, 100)
    propose(drafter, TEXT[:1000])
    drafter.prepare(TEXT[:1200])
    assert model.tokens == TEXT[:1199]
    assert sum(model.passes[-1:]) == 1199 - 100  # unless a token behind the gap happens to be the one in it
    assert drafter.missing(TEXT[:1200]) == 1


def test_a_cancelled_reading_goes_on_where_it_stopped() -> None:
    class Cancelling(FakeModel):
        cancel = True

        def extend(self, tokens: Sequence[int], rows: int = 1) -> Any:
            if self.cancel and len(tokens) > 1:
                super().extend(tokens[:10], 0)
                raise Cancelled("stopped")
            return super().extend(tokens, rows)

    model = Cancelling(counting, N)
    model.cancel = False
    drafter = drafter_of(model, 100)
    model.cancel = True
    with pytest.raises(Cancelled):
        propose(drafter, TEXT[:1000])
    drafter.keep(TEXT[:1000])
    model.cancel = False
    assert drafter.missing(TEXT[:1001]) == LATEST - 10 + 1
    assert propose(drafter, TEXT[:1001]).ids == counted_on(TEXT[1000], 3)
    assert model.tokens[:-2] == TEXT[:100] + TEXT[1000 - LATEST : 1001]


def test_a_memory_that_cannot_go_back_leaves_out_once_and_then_reads_all() -> None:
    model = FakeModel(counting, N, max_rewind=4)
    drafter = drafter_of(model, 100)
    propose(drafter, TEXT[:1000], 1)
    assert model.length == 100 + LATEST
    propose(drafter, TEXT[:1800], 1)
    assert model.tokens == TEXT[:100] + TEXT[1000 - LATEST : 1800]


def test_room_counts_what_the_cache_holds() -> None:
    model = FakeModel(counting, N, capacity=1010)
    drafter = drafter_of(model, 100)
    assert drafter.room(TEXT[:1000]) == 11
    propose(drafter, TEXT[:1000], 1)
    assert drafter.room(TEXT[:1000]) == 1010 - (100 + LATEST) + 1
