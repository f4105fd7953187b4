"""A conversation: its turns, and what the model is sent of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from localspec.engine.templates.chat_template import Message
from localspec.ui.answer import Answer


@dataclass(slots=True)
class Turn:
    """One message of a person, or one answer."""

    role: str
    """`user` or `assistant`."""
    text: str = ""
    """What was said; of an answer see `answer`."""
    answer: Answer | None = None

    @property
    def said(self) -> str:
        """The text, wherever it is kept."""
        return self.answer.text if self.answer is not None else self.text


@dataclass(slots=True)
class Conversation:
    """Turns in order. Only the last answer can be growing."""

    system: str = ""
    """The system prompt; "" = none."""
    turns: list[Turn] = field(default_factory=list)
    skipped: int = 0
    """Leading turns that are kept on file but no longer sent: they made the context overflow."""
    title: str = ""

    @property
    def last_answer(self) -> Answer | None:
        """The newest one; None before the first."""
        return next((turn.answer for turn in reversed(self.turns) if turn.answer is not None), None)

    @property
    def shown_title(self) -> str:
        """The given title, else the first words of the first message."""
        if self.title:
            return self.title
        first = next((turn.text for turn in self.turns if turn.role == "user"), "")
        line = " ".join(first.split())
        return line if len(line) <= 60 else line[:59] + "…"

    def messages(self) -> tuple[Message, ...]:
        """What the chat template gets. An answer without a word is left out."""
        system = [Message("system", self.system)] if self.system else []
        said = [Message(turn.role, turn.said) for turn in self.turns[self.skipped :] if turn.said]
        return (*system, *said)

    def as_plain_text(self) -> str:
        """For models without a chat template, in base mode: the words, nothing around them."""
        parts = [self.system] if self.system else []
        parts += [turn.said for turn in self.turns[self.skipped :] if turn.said]
        return "\n\n".join(parts)

    def skip_oldest(self) -> int:
        """Stop sending the oldest half of the turns, whole exchanges only; how many more are left out."""
        sent = self._user_turns(self.turns[self.skipped :])
        if len(sent) < 2:
            return 0
        before = self.skipped
        self.skipped += sent[(len(sent) + 1) // 2]
        return self.skipped - before

    @staticmethod
    def _user_turns(turns: Sequence[Turn]) -> list[int]:
        return [index for index, turn in enumerate(turns) if turn.role == "user"]
