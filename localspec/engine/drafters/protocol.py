"""What the loop asks of anything that guesses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from localspec.engine.noise import Chance
from localspec.engine.records import Draft

GoOn = Callable[[Sequence[float]], bool]
"""Asked after each guess, with the confidences so far: guess once more? Must not depend on anything else
about a guess."""


class Drafter(Protocol):
    """Guesses what the target will say next. Follows the sequence by the calls below and by nothing else."""

    @property
    def name(self) -> str:
        """`model`, `lookup`, ..."""

    def prepare(self, tokens: Sequence[int]) -> None:
        """A new prompt: `tokens` replace the sequence; what they share with it is kept."""

    def propose(self, tokens: Sequence[int], length: int, go_on: GoOn, chance: Chance) -> Draft:
        """At most `length` guesses for what follows `tokens`, perhaps none.

        Stopping may depend on confidences, never on which token was sampled: a sample once taken is returned.
        """

    def keep(self, tokens: Sequence[int]) -> None:
        """The sequence is now `tokens`: forget guesses that are not in it."""
