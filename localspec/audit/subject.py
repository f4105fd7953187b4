"""What is audited: anything that answers requests and questions as the engine does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.engine.inspection import Encode, Facts, Passes, Propose, Question, VocabularyFacts
from localspec.engine.records import Draft, Event, Finished, Round, RoundFinished, Token
from localspec.engine.settings import GenerationRequest, SamplerSettings
from localspec.ground.errors import EngineError


class Handle(Protocol):
    """The engine itself, or the client of its process."""

    def generate(self, request: GenerationRequest) -> Iterator[Event]:
        """Events of one answer."""

    def inspect(self, question: Question) -> Any:
        """The answer to a question of `engine.inspection`."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer and the rounds that made it."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    text: str
    reason: str
    rounds: tuple[Round, ...]
    pieces: dict[int, str]
    """Token id -> a text that it once completed; for people."""

    def round_at(self, index: int) -> tuple[Round, int]:
        """The round that made generated token `index`, and how many tokens of it came before."""
        done = 0
        for round_ in self.rounds:
            if done + len(round_.emitted) > index:
                return round_, index - done
            done += len(round_.emitted)
        raise EngineError("the rounds do not cover the answer")


class Subject:
    """Asks the handle; adds no judgement."""

    def __init__(self, handle: Handle, masked_ids: tuple[int, ...] = (), shared_rows: int | None = None) -> None:
        self._handle = handle
        self.masked_ids = masked_ids
        self.shared_rows = shared_rows
        facts: VocabularyFacts = handle.inspect(Facts())
        self.ends, self.suppressed = facts.ends, facts.suppressed
        self._rows_after: dict[tuple[tuple[int, ...], tuple[int, ...]], NDArray[np.float32]] = {}

    def answer(self, request: GenerationRequest) -> Answer:
        """Raises EngineError."""
        prompt: tuple[int, ...] = self._handle.inspect(Encode(request))
        rounds: list[Round] = []
        tokens: list[Token] = []
        finished: Finished | None = None
        for event in self._handle.generate(request):
            if isinstance(event, RoundFinished):
                rounds.append(event.round)
                tokens.extend(event.tokens)
            elif isinstance(event, Finished):
                finished = event
                tokens.extend(event.tail)
        if finished is None:
            raise EngineError("the engine gave no answer")
        pieces = {token.id: token.text for token in tokens}
        return Answer(prompt, finished.tokens, finished.text, finished.reason, tuple(rounds), pieces)

    def rows(
        self, part: str, chunks: list[list[int]], wanted: int, detour: tuple[int, ...] = ()
    ) -> NDArray[np.float32]:
        """Logits of the last `wanted` tokens, decoded in these chunks."""
        steps = tuple(tuple(chunk) for chunk in chunks if chunk)
        found: NDArray[np.float32] = self._handle.inspect(
            Passes("draft" if part == "draft" else "target", steps, wanted, detour)
        )
        return found

    def row_after(self, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> NDArray[np.float32]:
        """The target's logits after a prompt and these tokens, decoded one by one. Kept: many drafts fork there."""
        key = (prompt, tokens)
        if key not in self._rows_after:
            history = [*prompt, *tokens]
            first = len(prompt) - 1
            chunks = [history[:first], *([token] for token in history[first:])]
            self._rows_after[key] = self.rows("target", chunks, 1)[0]
        return self._rows_after[key]

    def propose(self, tokens: list[int], length: int, sampler: SamplerSettings, round_before: int = 0) -> Draft:
        """A draft after these tokens."""
        draft: Draft = self._handle.inspect(Propose(tuple(tokens), length, sampler, round_before=round_before))
        return draft
