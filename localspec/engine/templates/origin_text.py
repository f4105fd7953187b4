"""Strings that remember which of their characters people wrote.

A chat template mixes its own text with the messages' text. `Marked` is a `str` that carries one flag a
character, so that after any mixture the two can still be told apart: control tokens count only where the
template wrote them. Every operation here returns what the same operation on plain strings does, plus flags.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, SupportsIndex

TEMPLATE = 0
USER = 1


class Marked(str):
    """A string with one byte of origin a character: TEMPLATE or USER."""

    __slots__ = ("flags",)
    flags: bytes

    def __new__(cls, text: str, flags: bytes) -> Marked:
        assert len(text) == len(flags)
        self = super().__new__(cls, text)
        self.flags = flags
        return self

    def __str__(self) -> str:
        return self

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        flags = self.flags[key if isinstance(key, slice) else int(key)]
        return Marked(super().__getitem__(key), bytes([flags]) if isinstance(flags, int) else flags)

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))

    def __add__(self, other: str) -> str:
        return join("", (self, other))

    def __radd__(self, other: str) -> str:
        return join("", (other, self))


def user(text: str) -> Marked:
    """Text that a person wrote, or that came from outside the template in any other way."""
    return Marked(str.__str__(text), bytes([USER]) * len(text))


def flags_of(text: str) -> bytes:
    """One byte a character; a plain string is the template's own."""
    return text.flags if isinstance(text, Marked) else bytes(len(text))


def like(result: str, *sources: str) -> str:
    """`result`, all of it user text if any of `sources` holds some: for operations without a map."""
    return user(result) if any(USER in flags_of(source) for source in sources) else result


def join(separator: str, parts: Iterable[str]) -> str:
    """`separator.join(parts)`."""
    listed = list(parts)
    text = str.join(separator, listed)
    if not any(isinstance(part, Marked) for part in (separator, *listed)):
        return text
    return Marked(text, flags_of(separator).join(map(flags_of, listed)))


def runs(text: str) -> Iterator[tuple[str, bool]]:
    """The pieces of `text` in order, each wholly from one origin: (piece, whether the template wrote it)."""
    flags, start = flags_of(text), 0
    plain = "".join((text,))  # a join of one exact str is that str; of a subclass, a plain copy
    while start < len(flags):
        end = flags.find(bytes([1 - flags[start]]), start)
        end = len(flags) if end < 0 else end
        yield str.__getitem__(plain, slice(start, end)), flags[start] == TEMPLATE
        start = end


def strip(text: str, characters: str | None = None) -> str:
    """`text.strip(characters)`."""
    return lstrip(rstrip(text, characters), characters)


def lstrip(text: str, characters: str | None = None) -> str:
    """`text.lstrip(characters)`."""
    return _from(text, len(text) - len(str.lstrip(text, characters)))


def rstrip(text: str, characters: str | None = None) -> str:
    """`text.rstrip(characters)`."""
    return _upto(text, len(str.rstrip(text, characters)))


def removeprefix(text: str, prefix: str) -> str:
    """`text.removeprefix(prefix)`."""
    return _from(text, len(prefix)) if str.startswith(text, prefix) else text


def removesuffix(text: str, suffix: str) -> str:
    """`text.removesuffix(suffix)`."""
    return _upto(text, len(text) - len(suffix)) if suffix and str.endswith(text, suffix) else text


def split(text: str, separator: str | None = None, maxsplit: int = -1) -> list[str]:
    """`text.split(separator, maxsplit)`."""
    return _located(text, str.split(text, separator, maxsplit), separator)


def rsplit(text: str, separator: str | None = None, maxsplit: int = -1) -> list[str]:
    """`text.rsplit(separator, maxsplit)`."""
    return _located(text, str.rsplit(text, separator, maxsplit), separator)


def splitlines(text: str, keepends: bool = False) -> list[str]:
    """`text.splitlines(keepends)`."""
    lines, start = [], 0
    kept = str.splitlines(text, True)
    for whole, line in zip(kept, kept if keepends else str.splitlines(text), strict=True):
        lines.append(_cut(text, start, start + len(line)))
        start += len(whole)
    return lines


def partition(text: str, separator: str) -> tuple[str, str, str]:
    """`text.partition(separator)`."""
    return _three(text, str.partition(text, separator))


def rpartition(text: str, separator: str) -> tuple[str, str, str]:
    """`text.rpartition(separator)`."""
    return _three(text, str.rpartition(text, separator))


def replace(text: str, old: str, new: str, count: int = -1) -> str:
    """`text.replace(old, new, count)`."""
    if old:
        return join(new, split(text, old, count))
    return like(str.replace(text, old, new, count), text, new)


def upper(text: str) -> str:
    """`text.upper()`."""
    return _same_places(text, str.upper(text))


def lower(text: str) -> str:
    """`text.lower()`."""
    return _same_places(text, str.lower(text))


def title(text: str) -> str:
    """`text.title()`."""
    return _same_places(text, str.title(text))


def capitalize(text: str) -> str:
    """`text.capitalize()`."""
    return _same_places(text, str.capitalize(text))


def _same_places(text: str, changed: str) -> str:
    """Characters changed one for one keep their flags; where lengths differ (ß -> SS) all is user text."""
    if isinstance(text, Marked) and len(changed) == len(text):
        return Marked(changed, text.flags)
    return like(changed, text)


def _located(text: str, parts: list[str], separator: str | None) -> list[str]:
    """`parts` of a split, each with the flags of the place it was cut from."""
    if not isinstance(text, Marked):
        return parts
    located, start = [], 0
    for part in parts:
        # Without a separator, parts are separated by runs of white space: the next match is the place.
        start = str.find(text, part, start) if separator is None else start
        located.append(_cut(text, start, start + len(part)))
        start += len(part) + len(separator or "")
    return located


def _three(text: str, parts: tuple[str, str, str]) -> tuple[str, str, str]:
    first, second = len(parts[0]), len(parts[0]) + len(parts[1])
    return _cut(text, 0, first), _cut(text, first, second), _cut(text, second, len(text))


def _cut(text: str, start: int, end: int) -> str:
    return text[start:end]


def _from(text: str, start: int) -> str:
    return text[start:] if start else text


def _upto(text: str, end: int) -> str:
    return text[:end] if end < len(text) else text


METHODS: dict[str, Any] = {
    function.__name__: function
    for function in (
        strip, lstrip, rstrip, removeprefix, removesuffix, split, rsplit, splitlines, partition, rpartition,
        replace, upper, lower, title, capitalize, join,
    )
}  # fmt: skip
"""The methods of `str` that return text, each as a function with the string first."""

QUESTIONS = frozenset(
    (
        "startswith", "endswith", "find", "rfind", "index", "count",
        "isdigit", "isalpha", "isalnum", "isspace", "isupper", "islower", "isnumeric",
    )
)  # fmt: skip
"""The methods of `str` that return a number or a truth value: they need no flags."""
