"""What the loop asks of anything that guesses: one file, one line in `drafters.table`, and it runs everywhere.

A drafter follows one sequence. Its calls come in this order: `begin`, then for each round `forecast`, perhaps
`propose`, `follow`, `learn`. It believes something about its own guesses (what is kept how often, what they cost);
whether they are worth their time is decided elsewhere, by `worth`, for every drafter alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from localspec.engine.control.costs import Costs
    from localspec.engine.model import Model, TextVocabulary
    from localspec.engine.noise import Chance
    from localspec.engine.records import Draft, Pass, Round
    from localspec.engine.settings import SamplerSettings

Worth = Callable[[float, int], bool]
"""worth(chance, made): is one more guess worth its time, when `made` are made, and with this chance it and all
before it will be kept? Must not be told which token was sampled: only then is any way to stop lossless."""


@dataclass(frozen=True, slots=True)
class Wants:
    """What a drafter needs of the target, read at load: it sizes buffers and sequences."""

    hidden: tuple[int, ...] = ()
    """Layers of the target whose input is read."""
    leaves: int = 1
    """Leaves of its widest tree; 1 = chains only."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What there is to build a drafter from."""

    target: Model
    vocabulary: TextVocabulary
    """The target's."""
    costs: Costs
    """Measured times of the target's passes."""
    longest: int
    """Most guesses that are chosen automatically in one draft."""
    draft: Model | None = None
    """The small model's context, where the pair has one."""
    draft_path: Path | None = None
    masked_ids: tuple[int, ...] = ()
    """Ids that mean something else to the small model than to the target."""
    shared_rows: int | None = None
    """Ids from here on are not shared; None = all rows that both have are."""
    stand_in: int = 0
    """An id that the small model reads in place of one that it does not share."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a draft is expected to bring and to take, by its number of guesses 0, 1, ... n."""

    kept: Sequence[float]
    """Guesses that the target is expected to keep; `kept[0]` is 0."""
    seconds: Sequence[float]
    """The drafter's own time, debts left out; `seconds[0]` is 0."""
    rows: Sequence[int]
    """Rows of the target's pass; `rows[0]` is 1."""
    onward: float = 0.0
    """Chance that a guess beyond those seen so far is kept, given that the one before it was."""
    debt: float = 0.0
    """Seconds to read what the drafter lacks of the text before its first guess."""
    glance: float = 0.0
    """Seconds to read as much of it as a probe needs; at most `debt`."""
    is_free: bool = False
    """Whether guessing costs no time of its own: such a drafter needs no probes."""

    @property
    def longest(self) -> int:
        """Most guesses that it is about."""
        return len(self.kept) - 1


class Drafter(Protocol):
    """Guesses what the target will say next."""

    @property
    def name(self) -> str:
        """Its name in the table, `model` for example."""

    @property
    def trouble(self) -> str:
        """Why it cannot guess any more, for people; "" while it can. The rest of the answer is made without it; the
        next `begin` may try again."""

    def begin(self, tokens: Sequence[int], sampler: SamplerSettings, ends: frozenset[int], related: bool) -> None:
        """The sequence is `tokens` now, to be answered under these settings.

        What they share with the sequence before is kept; nothing that takes time is read yet. `ends`: tokens after
        which nothing need be guessed. `related`: they go on with the last sequence's text, so what was learned of
        that text still holds.
        """

    def forecast(self, room: int) -> Forecast | None:
        """What up to `room` guesses after the sequence would bring; None = no guess can be made now."""

    def catch_up(self) -> None:
        """Read what it lacks of the sequence now, before the first draft does."""

    def propose(self, limit: int, worth: Worth, chance: Chance, probe: bool) -> Draft:
        """At most `limit` guesses for what follows, perhaps none; asked right after `forecast`.

        Stopping may depend on confidences, never on which token was sampled: a sample once taken is returned.
        `probe`: it is only about whether guesses are kept; a debt need not be paid for it.
        """

    def follow(self, tokens: Sequence[int], seen: Pass | None, path: Sequence[int]) -> None:
        """The sequence is now `tokens`, of which the target has read all but the last.

        `seen`: the target's pass that it comes from, valid until this returns; `path`: the nodes of its draft that
        were kept. A slice of the prompt has path (), and is shorter than what `begin` was told.
        """

    def learn(self, round_: Round) -> None:
        """A round is over, whoever guessed in it."""

    def measure(self) -> None:
        """Time its own passes, once, where no stored beliefs say what they take; caches are empty."""

    def forget(self) -> None:
        """Empty every cache; beliefs stay."""

    def save(self) -> object:
        """What it holds of this sequence, for `restore` when the conversation is taken up again; None = nothing."""

    def saved_bytes(self) -> int:
        """How much memory `save` would take."""

    def restore(self, saved: object) -> bool:
        """Hold a saved sequence in place of this one; False = nothing is held now."""

    def beliefs(self) -> Mapping[str, Any] | None:
        """What it has learned of this pair, as plain JSON for the disk; None = nothing worth keeping."""

    def believe(self, stored: Mapping[str, Any]) -> None:
        """Take up stored beliefs. Raises ValueError when they are anything else."""

    def close(self) -> None:
        """Free what it opened itself."""
