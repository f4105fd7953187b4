"""Questions to loaded models: what are the logits here, what would the drafter say?

For `audit`. Every question starts from empty caches and leaves empty caches behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from localspec.engine.drafters.protocol import Drafter
from localspec.engine.model import Model
from localspec.engine.noise import Rejection, new_chance
from localspec.engine.records import Draft
from localspec.engine.settings import GenerationRequest, SamplerSettings
from localspec.ground.errors import EngineError


@dataclass(frozen=True, slots=True)
class Encode:
    """Token ids of a request's prompt; answered by a tuple of ids."""

    request: GenerationRequest


@dataclass(frozen=True, slots=True)
class Facts:
    """Ids with a meaning of their own; answered by VocabularyFacts."""


@dataclass(frozen=True, slots=True)
class Passes:
    """Decode `chunks`, one pass each; answered by the logits of the last `wanted` tokens, (wanted, n_vocab)."""

    part: Literal["target", "draft"]
    chunks: tuple[tuple[int, ...], ...]
    wanted: int
    detour: tuple[int, ...] = ()
    """Tokens decoded in one pass, and rewound, before the last chunk."""


@dataclass(frozen=True, slots=True)
class Propose:
    """A draft of `length` guesses after `tokens`, under these settings; answered by a Draft."""

    tokens: tuple[int, ...]
    length: int
    sampler: SamplerSettings
    drafter: str = "model"
    """Its name in `drafters.table`."""
    round_before: int = 0
    """First make a draft after so many of the tokens, and drop it, as a round before would; 0 = do not."""


@dataclass(frozen=True, slots=True)
class VocabularyFacts:
    """Ids with a meaning of their own."""

    ends: tuple[int, ...]
    """They end an answer."""
    suppressed: tuple[int, ...]
    """The model's file says that they must never be chosen."""


Question = Encode | Facts | Passes | Propose


def passes(model: Model, question: Passes) -> NDArray[np.float32]:
    """Logits of the last tokens of a sequence that is decoded in the given steps."""
    model.rewind(0)
    left = question.wanted
    total = sum(map(len, question.chunks))
    rows: list[NDArray[np.float32]] = []
    done = 0
    for place, chunk in enumerate(question.chunks):
        if question.detour and place == len(question.chunks) - 1:
            kept = model.length
            model.extend(question.detour, 0)
            left = model.rewind(kept)
            if left < kept:  # this memory cannot go back over a whole pass
                model.extend([token for part in question.chunks[:place] for token in part][left:], 0)
        wanted = max(0, min(len(chunk), left - (total - done - len(chunk))))
        logits = model.extend(chunk, wanted)
        if wanted:
            rows.append(logits.copy())
        done += len(chunk)
    model.rewind(0)
    if not rows:
        raise EngineError("no logits were asked for")
    return np.concatenate(rows)


def propose(drafter: Drafter, question: Propose, ends: Iterable[int]) -> Draft:
    """What the drafter says after these tokens, its cache empty before."""
    drafter.forget()
    tokens = list(question.tokens)
    earlier = tokens[: question.round_before or len(tokens)]
    drafter.begin(earlier, question.sampler, frozenset(ends), False)
    drafter.catch_up()
    if len(earlier) < len(tokens):
        drafter.forecast(question.length)
        drafter.propose(question.length, _always, Rejection(0), False)
        drafter.follow(tokens, None, ())
    drafter.forecast(question.length)
    draft = drafter.propose(question.length, _always, new_chance(question.sampler), False)
    drafter.forget()
    return draft


def _always(chance: float, made: int) -> bool:
    return True
