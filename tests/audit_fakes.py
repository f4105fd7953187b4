"""A pair of scripted models behind the audit's handle: the real loop and drafters, exact logits, faults on demand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.engine import inspection
from localspec.engine.control.controller import FixedController
from localspec.engine.drafters.lookup import LookupDrafter
from localspec.engine.drafters.protocol import Drafter
from localspec.engine.drive import drive
from localspec.engine.generate import Generation, Limits
from localspec.engine.inspection import Question, VocabularyFacts
from localspec.engine.records import Event
from localspec.engine.settings import GenerationRequest
from tests.engine_tools import model_drafter
from tests.fake_model import FakeModel, FakeVocabulary

VOCABULARY = 24
END = 0
PIECES = [b"", *(bytes([code]) for code in range(97, 97 + VOCABULARY - 1))]


def remembering(seed: int, strength: float = 3.0) -> Any:
    """Logits that depend on the last three tokens, so that a stale one in the cache shows."""
    tables = np.random.default_rng(seed).normal(0, strength, (3, VOCABULARY, VOCABULARY)).astype(np.float32)

    def row(tokens: Sequence[int]) -> NDArray[np.float32]:
        total = np.zeros(VOCABULARY, np.float32)
        for back, token in enumerate(reversed(tokens[-3:])):
            total += tables[back][token]
        total[END] = -6.0
        return total

    return row


def close_to(target: Any, seed: int, noise: float = 1.2) -> Any:
    """A draft that mostly agrees with the target."""
    other = remembering(seed, noise)
    return lambda tokens: target(tokens) + other(tokens)


class WideModel(FakeModel):
    """Passes of more than one row round differently, as real kernels do: by `rounding` at most."""

    rounding = 0.0

    def extend(self, tokens: Sequence[int], rows: int = 1) -> NDArray[np.float32]:
        out = super().extend(tokens, rows)
        if self.rounding and len(tokens) > 1:
            for back in range(rows):
                rng = np.random.default_rng([len(tokens), len(self.tokens) - back, tokens[-1 - back]])
                out[-1 - back] += rng.uniform(-self.rounding, self.rounding, self.n_vocab).astype(np.float32)
        return out


class RoughModel(FakeModel):
    """Its logits remember, by `rounding` at most, in passes of which widths the last tokens came into its cache."""

    rounding = 0.0

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._widths: list[int] = []

    def extend(self, tokens: Sequence[int], rows: int = 1) -> NDArray[np.float32]:
        self._widths = [*self._widths[: len(self.tokens)], *[len(tokens)] * len(tokens)]
        out = super().extend(tokens, rows)
        if self.rounding:
            for back in range(rows):
                end = len(self._widths) - back
                rng = np.random.default_rng([end, *self._widths[max(0, end - 12) : end]])
                out[-1 - back] += rng.uniform(-self.rounding, self.rounding, self.n_vocab).astype(np.float32)
        return out


class FakePair:
    """What the engine is, without libllama."""

    def __init__(self, *, rounding: float = 0.0, draft_rounding: float = 0.0, target_seed: int = 1) -> None:
        row = remembering(target_seed)
        self.target = WideModel(row, VOCABULARY)
        self.target.rounding = rounding
        self.draft = RoughModel(close_to(row, 7), VOCABULARY)
        self.draft.rounding = draft_rounding
        self.drafter = model_drafter(self.draft)
        self.drafters: dict[str, Drafter] = {"model": self.drafter, "lookup": LookupDrafter()}
        self.vocabulary = FakeVocabulary(PIECES, [END])

    def encode(self, request: GenerationRequest) -> tuple[int, ...]:
        text = request.prompt or "".join(message.content for message in request.messages)
        return tuple(1 + ord(letter) % (VOCABULARY - 1) for letter in text[:40])

    def generate(self, request: GenerationRequest) -> Iterator[Event]:
        self.target.rewind(0)
        self.drafter.forget()
        name = request.speculation.drafter
        name = "model" if name == "auto" else name
        ends = frozenset([END])
        generation = Generation(
            self.target,
            self.vocabulary,
            [self.drafters[name]] if name in self.drafters else [],
            FixedController(name, request.speculation.length or 3),
            request.sampler,
            Limits(request.max_tokens, request.min_tokens, request.stop),
            self.encode(request),
            ends=ends,
        )
        yield from drive(generation, self.target)

    def inspect(self, question: Question) -> Any:
        match question:
            case inspection.Encode(request):
                return self.encode(request)
            case inspection.Facts():
                return VocabularyFacts((END,), ())
            case inspection.Passes(part):
                return inspection.passes(self.target if part == "target" else self.draft, question)
            case inspection.Propose():
                return inspection.propose(self.drafter, question, (END,))
