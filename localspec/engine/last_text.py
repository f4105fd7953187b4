"""Which text did the last answer belong to, and does a request go on with it?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localspec.engine.model import common_length

if TYPE_CHECKING:
    from localspec.engine.settings import GenerationRequest
    from localspec.engine.templates.chat_template import Message


@dataclass(frozen=True, slots=True)
class LastText:
    """What the last answer was made of."""

    messages: tuple[Message, ...]
    """() after a raw prompt."""
    tokens: Sequence[int]
    """Prompt and answer."""
    prompt: int
    """Tokens of the prompt."""

    def goes_on_in(self, request: GenerationRequest, prompt: Sequence[int]) -> bool:
        """Whether a request, with these tokens as its prompt, is of the same conversation.

        A chat is known by how it began: a system prompt that many chats share says nothing, and templates may drop
        thoughts from earlier answers. A raw prompt must hold the whole last prompt, or half of the last text.
        """
        if self.messages or request.messages:
            return bool(self.messages) and _beginning(self.messages) == _beginning(request.messages)
        shared = common_length(self.tokens, prompt)
        return shared > 0 and (shared >= self.prompt - 1 or 2 * shared >= len(self.tokens))


NO_TEXT = LastText((), (), 0)
"""Nothing was answered yet."""


def _beginning(messages: Sequence[Message]) -> Sequence[Message]:
    """Up to the first that a person said."""
    return messages[: next((at + 1 for at, message in enumerate(messages) if message.role == "user"), None)]
