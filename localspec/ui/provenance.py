"""An answer by origin: what was guessed and kept, what the target wrote, which guesses it threw away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from localspec.engine.records import Token
from localspec.ui.answer import Answer, Step

Origin = Literal["accepted", "corrected", "bonus", "plain", "ghost"]

MARKS: dict[Origin, tuple[str, str]] = {
    "accepted": ("[", "]"),
    "corrected": ("~", ""),
    "bonus": ("+", ""),
    "plain": ("", ""),
    "ghost": ("‹", "›"),
}
"""What stands around a piece where colours cannot tell."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text of one origin."""

    text: str
    origin: Origin
    """`ghost`: guessed, and not what the target wanted."""
    step: int
    """Index of the round."""


def pieces_of(step: Step, tokens: Sequence[Token], index: int) -> Iterator[Piece]:
    """One round: what was kept of the draft, what was not, and the target's own token."""
    ghosts = "".join(step.guesses[step.round.accepted : step.round.verified])
    written = False
    for token in tokens:
        if token.provenance != "accepted" and ghosts and not written:
            yield Piece(ghosts, "ghost", index)
            written = True
        if token.text:
            yield Piece(token.text, token.provenance.value, index)
    if ghosts and not written and len(tokens) == len(step.round.emitted):
        yield Piece(ghosts, "ghost", index)


class PieceReader:
    """Reads a growing answer: each call gives what is new since the last one."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._step = 0
        self._token = 0

    def read(self) -> list[Piece]:
        """Pieces of the rounds whose tokens are all settled; at the end also of those that were cut."""
        answer = self._answer
        pieces: list[Piece] = []
        steps, tokens = answer.steps, answer.tokens
        ended = not answer.growing
        while self._step < len(steps):
            step = steps[self._step]
            stop = self._token + len(step.round.emitted)
            if stop > len(tokens) and not ended:
                break
            pieces += pieces_of(step, tokens[self._token : stop], self._step)
            self._step += 1
            self._token = stop
        return pieces


def marked_text(answer: Answer) -> str:
    """The whole answer with its marks, for places without colour."""
    parts: list[str] = []
    before: Origin = "plain"
    for piece in PieceReader(answer).read():
        if piece.origin != before or piece.origin not in ("accepted", "plain"):
            parts.append(MARKS[before][1] if before != "plain" else "")
            parts.append(MARKS[piece.origin][0])
        parts.append(piece.text.replace("\n", "↵") if piece.origin == "ghost" else piece.text)
        before = piece.origin
    parts.append(MARKS[before][1])
    return "".join(parts)
