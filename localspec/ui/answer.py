"""One answer, growing or finished, with the round that made each token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from localspec.engine.records import Finished, GenerationStats, Round, RoundFinished, Token


@dataclass(frozen=True, slots=True)
class Step:
    """One round with the text of its guesses."""

    round: Round
    guesses: tuple[str, ...]
    """One per `round.drafted`."""


Details = tuple[list[Token], list[Step]]


class Answer:
    """Tokens and rounds in the order they came.

    The engine's thread appends, the screen reads: a reader keeps its own place in `tokens` and `steps`.
    A saved answer loads both when they are first asked for.
    """

    def __init__(self, text: str | None = None, load: Callable[[], Details] | None = None) -> None:
        self.reason: str | None = None
        """Why it ended: a `FinishReason`, or `failed`; None while it grows."""
        self.stats: GenerationStats | None = None
        self.target = self.draft = ""
        """Names of the files that made it; no draft = ""."""
        self.note = ""
        """What went wrong, "" when nothing did."""
        self._tokens: list[Token] = []
        self._steps: list[Step] = []
        self._text = text
        self._load = load

    @property
    def tokens(self) -> list[Token]:
        """With their origin; read from the file when a saved answer is first asked for them."""
        self._loaded()
        return self._tokens

    @property
    def steps(self) -> list[Step]:
        """Its rounds; read from the file as `tokens` are."""
        self._loaded()
        return self._steps

    @property
    def text(self) -> str:
        """Everything said so far."""
        if self._text is not None:
            return self._text
        return "".join([token.text for token in self._tokens])

    @property
    def growing(self) -> bool:
        """Whether it is still being made."""
        return self.reason is None

    def add(self, event: RoundFinished) -> None:
        """One more round."""
        self._steps.append(Step(event.round, event.guesses))
        self._tokens.extend(event.tokens)

    def finish(self, event: Finished) -> None:
        """The engine said that it is over."""
        self._tokens.extend(event.tail)
        self._text = event.text
        self.stats = event.stats
        self.reason = event.reason

    def fail(self, note: str) -> None:
        """The engine is gone or refused; the text so far stays."""
        self._text = self.text
        self.note = note
        self.reason = "failed"

    def tokens_by_step(self) -> Iterator[tuple[Step, list[Token]]]:
        """Each round with the tokens it added, as far as their text is settled."""
        place = 0
        for step in self.steps:
            count = len(step.round.emitted)
            yield step, self._tokens[place : place + count]
            place += count

    def _loaded(self) -> None:
        if self._load is not None:
            load, self._load = self._load, None
            self._tokens, self._steps = load()
