"""Trees of guesses change nothing but the number of passes: on exact models, on hybrids, on a real one."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from localspec.engine.drafters import table
from localspec.engine.engine import Engine
from localspec.engine.noise import Coupled, Rejection
from localspec.engine.records import Draft, Provenance
from localspec.engine.sampling import Distribution
from localspec.engine.settings import GenerationRequest, SamplerSettings
from localspec.engine.verify import verify
from tests import tree_drafter
from tests.bigram import make_pair
from tests.engine_tools import GREEDY, ask, open_engine

SMOLLM2 = os.environ.get("LOCALSPEC_SMOLLM2", "")
SEEDED = SamplerSettings(temperature=1.0, seed=11)


@pytest.fixture
def tree_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(table.DRAFTERS, "tree", table.Entry("tests.tree_drafter", "a script"))
    monkeypatch.setattr(table, "NAMES", (*table.NAMES, "tree"))


@pytest.fixture
def exact_engine(tmp_path: Path, tree_table: None) -> Engine:
    return open_engine(make_pair(tmp_path).target, context=2304)


def same_with_trees(engine: Engine, prompt: str, sampler: SamplerSettings, tokens: int) -> float:
    """Asserts that a tree's text is plain's; returns tokens per pass."""
    plain = ask(engine, prompt, sampler=sampler, drafter="none", max_tokens=tokens, keep_cache=False)
    encoded = engine.encode(GenerationRequest(prompt=prompt))
    tree_drafter.expect([*encoded, *plain.ids])
    tree = ask(engine, prompt, sampler=sampler, drafter="tree", max_tokens=tokens, keep_cache=False)
    assert tree.ids == plain.ids and tree.text == plain.text
    lengths = {round_.accepted for round_ in tree.rounds[1:-16]}
    assert lengths == {0, 1, 2, 3}, "not every length of path was met"
    assert all(round_.depth == 3 for round_ in tree.rounds[1:-16])
    return len(tree.ids) / len(tree.rounds)


@pytest.mark.parametrize("sampler", [GREEDY, SEEDED, SamplerSettings(temperature=1.0, seed=11, mode="rejection")])
def test_the_text_of_a_tree_is_plain_on_an_exact_model(exact_engine: Engine, sampler: SamplerSettings) -> None:
    assert same_with_trees(exact_engine, "the quick ", sampler, 2000) > 1.8


def test_a_penalised_path_is_judged_by_its_own_history(exact_engine: Engine) -> None:
    sampler = SamplerSettings(temperature=1.0, seed=3, repeat_penalty=1.2, frequency_penalty=0.3, penalty_window=16)
    assert same_with_trees(exact_engine, "the quick ", sampler, 400) > 1.5


@pytest.mark.long
@pytest.mark.model
@pytest.mark.skipif(not SMOLLM2, reason="needs LOCALSPEC_SMOLLM2")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("sampler", [GREEDY, SamplerSettings(temperature=0.8, seed=5)])
def test_the_text_of_a_tree_is_plain_on_a_real_model(tree_table: None, sampler: SamplerSettings) -> None:
    engine = open_engine(Path(SMOLLM2), context=2304)
    try:
        assert same_with_trees(engine, "Once upon a time there was a small", sampler, 2000) > 1.5
    finally:
        engine.close()


# --- the walk, by itself ------------------------------------------------------------------------------------


def table_row(probabilities: list[float]) -> Distribution:
    return Distribution(np.arange(len(probabilities)), np.array(probabilities))


def test_the_walk_follows_the_child_that_guessed_the_targets_token() -> None:
    draft = Draft("tree", (1, 2, 0, 1), (-1, -1, 1, 1), None, (1.0,) * 4)
    says = [2, 9, 1, 9, 3]  # by row: at the root 2, after node 1 (id 2) 1, after node 3 (id 1) 3
    asked: list[int] = []

    def row(index: int) -> Distribution:
        asked.append(index)
        return Distribution.certain(says[index])

    result = verify(draft, row, Rejection(0), 0)
    assert (result.path, result.token, result.provenance) == ((1, 3), 3, Provenance.BONUS)
    assert asked == [0, 2, 4]


def test_rows_of_the_drafters_own_are_never_kept() -> None:
    draft = Draft("tree", (1, 2, 3), (-1, 0, -1), None, (1.0,) * 3, judged=1)
    result = verify(draft, lambda index: Distribution.certain((1, 2, 3, 3)[index]), Rejection(0), 0)
    assert (result.path, result.token, result.provenance) == ((0,), 2, Provenance.BONUS)


@pytest.mark.parametrize("shape", [(-1, -1, 0, 0, 1, 1), (-1, 0, 0, 1), (-1, -1, -1)])
@pytest.mark.parametrize("coupled", [False, True])
def test_a_tree_of_any_guesses_leaves_the_targets_distribution(shape: tuple[int, ...], coupled: bool) -> None:
    """Counted on a small table: two tokens in a row, whatever was guessed."""
    rng = np.random.default_rng(7)
    first = rng.dirichlet(np.ones(3))
    second = rng.dirichlet(np.ones(3), 3)
    ids = tuple(int(rng.integers(0, 3)) for _ in shape)
    draft = Draft("tree", ids, shape, None, (1.0,) * len(ids))

    def row_for(index: int) -> Distribution:
        path = draft.path_to(index - 1)
        return table_row(list(first if not path else second[ids[path[-1]]]))

    count, runs = np.zeros((3, 3)), 20_000
    for seed in range(runs):
        chance: Coupled | Rejection = Coupled(seed) if coupled else Rejection(seed)
        result = verify(draft, row_for, chance, 0)
        said = [*(ids[node] for node in result.path), result.token]
        if len(said) < 2:
            said.append(chance.choose(table_row(list(second[said[0]])), 1))
        count[said[0], said[1]] += 1
    for one, two in product(range(3), range(3)):
        expected = runs * first[one] * second[one, two]
        assert abs(count[one, two] - expected) < 5 * np.sqrt(expected) + 5
