"""Two headers side by side: which ids differ, which are padding, and how a token is written for people."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from localspec.ground.terminal import one_line
from localspec.pairs.gguf.model_info import ModelInfo

_PADDING = re.compile(rb"\[PAD\d*\]|<pad>|<\|?(?:unused|reserved|extra|dummy|placeholder)[a-z_]*[-_]?\d*\|?>")
_UNUSED = 5
TOKEN_TYPES = {1: "normal", 2: "unknown", 3: "control", 4: "user-defined", 5: "unused", 6: "byte"}


@dataclass(frozen=True, slots=True)
class Difference:
    """One id that the two vocabularies do not share."""

    id: int
    target_text: str
    """Escaped; "" when the vocabulary ends before this id."""
    target_type: str
    draft_text: str
    draft_type: str


class HeaderPair:
    """Two headers and what several rules want to know about both."""

    def __init__(self, target: ModelInfo, draft: ModelInfo) -> None:
        self.target, self.draft = target, draft
        self.rows = min(len(target.tokens), len(draft.tokens))

    def both(self, said: Callable[[ModelInfo], str]) -> tuple[str, str]:
        """The same question asked of both."""
        return said(self.target), said(self.draft)

    @property
    def gap(self) -> int:
        """Rows that one vocabulary has and the other lacks."""
        return abs(len(self.target.tokens) - len(self.draft.tokens))

    @cached_property
    def text_differs(self) -> list[int]:
        """Common ids with different texts."""
        if self.target.tokens == self.draft.tokens:
            return []
        a, b = self.target.tokens.texts, self.draft.tokens.texts
        if a[: self.rows] == b[: self.rows]:
            return []
        return [i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y]

    @cached_property
    def type_differs(self) -> list[int]:
        """Common ids with different types, where both files state types."""
        a, b = self.target.token_types[: self.rows], self.draft.token_types[: self.rows]
        if not a or not b or a == b:
            return []
        return [i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y]

    @cached_property
    def differing(self) -> list[int]:
        """Common ids whose text or type differs, in order."""
        return sorted({*self.text_differs, *self.type_differs})

    @cached_property
    def really_differs(self) -> list[int]:
        """Common ids that stand for different text, not counting rows that only fill the matrix up."""
        both = (self.target, self.draft)
        return [i for i in self.text_differs if not any(_is_padding(info, i) for info in both)]

    @cached_property
    def real_in_gap(self) -> list[int]:
        """Ids beyond the smaller vocabulary that are no padding."""
        longer = self.longer
        return [i for i in range(self.rows, len(longer.tokens)) if not _is_padding(longer, i)]

    @property
    def longer(self) -> ModelInfo:
        """The model with more rows; the target when they have as many."""
        return self.target if len(self.target.tokens) >= len(self.draft.tokens) else self.draft

    def difference(self, token: int) -> Difference:
        """One id as both models have it."""
        return Difference(token, *described(self.target, token), *described(self.draft, token))


def _is_padding(info: ModelInfo, token: int) -> bool:
    """Whether the row only fills the matrix up to a round number."""
    if token < len(info.token_types) and info.token_types[token] == _UNUSED:
        return True
    return _PADDING.fullmatch(info.tokens[token]) is not None


def described(info: ModelInfo, token: int) -> tuple[str, str]:
    """A token's text, quoted and escaped, and the name of its type; ("", "") beyond the vocabulary."""
    if token >= len(info.tokens):
        return "", ""
    text = one_line(repr(info.tokens[token].decode("utf-8", "replace")), 60)
    kind = info.token_types[token] if token < len(info.token_types) else 0
    return text, TOKEN_TYPES.get(kind, "not stated")
