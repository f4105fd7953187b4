"""What the loop itself costs: rounds on two models that take no time, at a vocabulary of 152 064 tokens.

    python benchmarks/host_work.py [--vocabulary 152064] [--tokens 600]

Logits come from a table of realistic rows; the draft's differ a little from the target's, so that most guesses are
kept. For each sampler and each fixed draft length the table shows the median host time of a round (everything but
the two models' passes), and the fit `round + rows * row`. A row is a row of logits that was turned into a token or
judged: K of the draft's and K + 1 of the target's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray

from localspec.engine.control.adaptive import AdaptiveController
from localspec.engine.control.controller import Controller, FixedController
from localspec.engine.control.costs import Costs
from localspec.engine.drafters.lookup import LookupDrafter
from localspec.engine.drafters.model import ModelDrafter
from localspec.engine.drafters.model_belief import ModelBelief
from localspec.engine.drive import drive
from localspec.engine.generate import Generation, Limits
from localspec.engine.records import Round, RoundFinished
from localspec.engine.settings import SamplerSettings

LENGTHS = (0, 1, 2, 4, 8)
TABLE_ROWS = 64

SAMPLERS = {
    "greedy": SamplerSettings(0.0),
    "sampled, rejection": SamplerSettings(0.8, seed=1, mode="rejection"),
    "sampled, coupled": SamplerSettings(0.8, seed=1, mode="coupled"),
    "greedy, penalties": SamplerSettings(0.0, repeat_penalty=1.1),
    "sampled, no filter": SamplerSettings(0.8, seed=1, mode="rejection", top_k=0, top_p=1.0, min_p=0.0),
}


class InstantModel:
    """A model whose logits are looked up by position: as many rows as asked, without a copy."""

    max_rewind = None
    max_rows = 65
    capacity = 1 << 20

    def __init__(self, table: NDArray[np.float32]) -> None:
        """`table`, shape (TABLE_ROWS + max_rows, n_vocab)."""
        self._table = table
        self.n_vocab = table.shape[1]
        self.tokens: list[int] = []
        self._base = 0

    @property
    def length(self) -> int:
        return len(self.tokens)

    def extend(self, tokens: Sequence[int], rows: int = 1) -> NDArray[np.float32]:
        self.tokens += tokens
        first = (len(self.tokens) - rows) % TABLE_ROWS
        return self._table[first : first + rows]

    def score(self, last: int, ids: Sequence[int], parents: Sequence[int] | None = None) -> NDArray[np.float32]:
        self._base = len(self.tokens)
        return self.extend([last, *ids], 1 + len(ids))

    def keep(self, path: Sequence[int]) -> None:
        del self.tokens[self._base + 1 + len(path) :]

    def rewind(self, length: int) -> int:
        del self.tokens[length:]
        return length

    def rewinds_to(self, length: int) -> int:
        return length

    def checkpoint(self) -> None:
        pass


class Pieces:
    """Every token is a short word; none ends the answer."""

    def __init__(self, size: int) -> None:
        self.size = size

    def token_bytes(self, token: int) -> bytes:
        return b" word"

    def is_end(self, token: int) -> bool:
        return False


def tables(vocabulary: int, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The target's and the draft's logits: a wide body and a few leaders, as language models have them."""
    rng = np.random.default_rng(seed)
    target = rng.normal(0.0, 2.0, (TABLE_ROWS, vocabulary)).astype(np.float32)
    leaders = rng.integers(0, vocabulary, (TABLE_ROWS, 12))
    np.put_along_axis(target, leaders, rng.normal(14.0, 1.5, leaders.shape).astype(np.float32), axis=1)
    draft = target + rng.normal(0.0, 0.05, target.shape).astype(np.float32)
    rows = np.arange(TABLE_ROWS + InstantModel.max_rows) % TABLE_ROWS
    return target[rows], draft[rows]


def rounds(
    models: tuple[InstantModel, InstantModel], settings: SamplerSettings, controller: Controller, tokens: int
) -> list[Round]:
    """The rounds of one answer, without the first one."""
    target, draft = models
    target.rewind(0)
    draft.rewind(0)
    drafters = [ModelDrafter(draft, ModelBelief("model")), LookupDrafter()]
    prompt = list(range(100, 400))
    generation = Generation(
        target, Pieces(target.n_vocab), drafters, controller, settings, Limits(max_tokens=tokens), prompt
    )
    return [event.round for event in drive(generation, target) if isinstance(event, RoundFinished)][1:]


def host_seconds(round_: Round) -> float:
    """All but the passes."""
    return round_.wall_seconds - round_.draft_seconds - round_.verify_seconds


def fit(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """(per round, per row) by least squares over (rows, seconds)."""
    rows, seconds = np.array([p[0] for p in points]), np.array([p[1] for p in points])
    slope, constant = np.polyfit(rows, seconds, 1)
    return float(constant), float(slope)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=152_064)
    parser.add_argument("--tokens", type=int, default=600)
    options = parser.parse_args()
    models = tuple(InstantModel(table) for table in tables(options.vocabulary))
    assert len(models) == 2
    heads = "".join(f"{f'K={length}':>9s}" for length in LENGTHS)
    print(f"median host ms per round{heads}     auto    = round + rows x row")
    for name, settings in SAMPLERS.items():
        points = []
        for length in LENGTHS:
            made = rounds(models, settings, FixedController("model", length), options.tokens)
            points += [(r.verified + 1, host_seconds(r)) for r in made if r.verified == length]
        by_length = {k: [s for rows, s in points if rows == k + 1] for k in LENGTHS}
        medians = {k: median(times) for k, times in by_length.items() if times}
        begin = time.perf_counter()
        made = rounds(models, settings, AdaptiveController(Costs()), options.tokens)
        spent = time.perf_counter() - begin
        per_round, per_row = fit([(2 * k + 1, value) for k, value in medians.items()])
        cells = "".join(f"{medians[k] * 1e3:9.3f}" if k in medians else f"{'-':>9s}" for k in LENGTHS)
        print(
            f"{name:24s}{cells}{spent / max(len(made), 1) * 1e3:9.3f}    "
            f"= {max(per_round, 0) * 1e3:.3f} + rows x {per_row * 1e3:.3f}"
        )


if __name__ == "__main__":
    main()
