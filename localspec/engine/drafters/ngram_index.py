"""Where did these last tokens stand before? An incremental index over prompt + output.

    index = NgramIndex(prompt)
    index.append(token)                       # O(1), whatever the length
    match = index.propose(max_length=16)      # what followed the longest, most recent earlier occurrence
    index.sync(next_prompt)                   # keeps the common prefix, forgets the rest

Every n-gram of 2..8 tokens maps to the place where it was seen last; a chain through earlier places lets
tokens leave again (stop strings, edited messages) and lets long matches be compared. No text is read twice.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SHORTEST_MATCH = 2
LONGEST_GRAM = 8
"""Beyond this many tokens, matches are told apart by comparing tokens, not by their own n-gram."""

MEASURED_MATCH = 64
"""Match lengths are counted up to here; longer ones earn no more."""

CANDIDATES = 12
"""How many of the most recent 8-gram matches are compared for the longest one."""

_TOKEN_BITS = 32
_NOWHERE = -1
_SIZES = tuple(range(LONGEST_GRAM, SHORTEST_MATCH - 1, -1))
_MASKS = tuple((size, (1 << size * _TOKEN_BITS) - 1) for size in _SIZES)


@dataclass(frozen=True, slots=True)
class Match:
    """An offer to continue the text as it continued before."""

    ids: tuple[int, ...]
    """What followed then, at most as many as were asked for; empty when nothing matched."""
    length: int
    """Tokens that agree before the continuation: 0, or 2..64."""


NO_MATCH = Match((), 0)


class NgramIndex:
    """The tokens of one sequence, searchable by their ending."""

    def __init__(self, tokens: Iterable[int] = ()) -> None:
        self.clear()
        self.extend(tokens)

    def clear(self) -> None:
        """Forget everything: the next prompt has nothing to do with this one."""
        self._tokens: list[int] = []
        self._window = 0  # the last 8 tokens, 32 bits each: its low bits are the key of every n-gram
        self._last: dict[int, dict[int, int]] = {size: {} for size in _SIZES}
        self._before: dict[int, array[int]] = {size: array("q") for size in _SIZES}
        self._follow = _NOWHERE  # where the longest match continues, kept while it goes on matching
        self._follow_length = 0

    def __len__(self) -> int:
        return len(self._tokens)

    @property
    def tokens(self) -> Sequence[int]:
        """The indexed sequence; not to be changed by the caller."""
        return self._tokens

    def append(self, token: int) -> None:
        """Add one token. O(1).

        The place of an n-gram is the index of the token after it. The n-gram that ends the sequence is
        entered one token late, so that a search never finds itself.
        """
        end = len(self._tokens)
        for size, mask in _MASKS:
            places = self._before[size]
            if end < size:
                places.append(_NOWHERE)
                continue
            key = self._window & mask
            last = self._last[size]
            places.append(last.get(key, _NOWHERE))
            last[key] = end
        if self._follow != _NOWHERE:
            if self._tokens[self._follow] == token:
                self._follow += 1
                self._follow_length += 1
            else:
                self._follow = _NOWHERE
        self._tokens.append(token)
        self._window = (self._window << _TOKEN_BITS | token) & _MASKS[0][1]

    def extend(self, tokens: Iterable[int]) -> None:
        """Add tokens in order."""
        for token in tokens:
            self.append(token)

    def truncate(self, length: int) -> None:
        """Forget every token from `length` on. O(tokens that leave)."""
        if not 0 <= length <= len(self._tokens):
            raise ValueError(f"cannot truncate {len(self._tokens)} tokens to {length}")
        while len(self._tokens) > length:
            self._tokens.pop()
            self._window = self._window_before(len(self._tokens))
            for size, mask in _MASKS:
                earlier = self._before[size].pop()
                if len(self._tokens) < size:
                    continue
                key = self._window & mask
                if earlier == _NOWHERE:
                    del self._last[size][key]
                else:
                    self._last[size][key] = earlier
        self._follow = _NOWHERE

    def sync(self, tokens: Sequence[int]) -> int:
        """Make the indexed sequence equal to `tokens`; returns how many leading tokens were kept."""
        kept = 0
        for ours, theirs in zip(self._tokens, tokens, strict=False):
            if ours != theirs:
                break
            kept += 1
        if kept:
            self.truncate(kept)
        else:
            self.clear()
        self.extend(tokens[kept:])
        return kept

    def propose(self, max_length: int) -> Match:
        """What followed the longest earlier occurrence of the current ending; the most recent among equals.

        A continuation that reaches the end of the text goes on with its own beginning, so that a short period
        ("ab ab ab") is offered for as long as was asked for.
        """
        place, length = self._longest_match()
        if place == _NOWHERE or max_length <= 0:
            return NO_MATCH
        ids = self._tokens[place : place + max_length]
        period = len(ids)
        while len(ids) < max_length:
            ids.append(ids[-period])
        return Match(tuple(ids), length)

    def _longest_match(self) -> tuple[int, int]:
        # While the longest match goes on matching, no other can be longer: it would have been so before.
        if self._follow == _NOWHERE:
            self._follow, self._follow_length = self._search()
        return self._follow, min(self._follow_length, MEASURED_MATCH)

    def _search(self) -> tuple[int, int]:
        for size, mask in _MASKS:
            if size > len(self._tokens):
                continue
            place = self._last[size].get(self._window & mask, _NOWHERE)
            if place != _NOWHERE:
                return self._longest_of_chain(place) if size == LONGEST_GRAM else (place, size)
        return _NOWHERE, 0

    def _longest_of_chain(self, place: int) -> tuple[int, int]:
        best, best_length = place, 0
        for _ in range(CANDIDATES):
            length = self._agreement(place)
            if length > best_length:
                best, best_length = place, length
            place = self._before[LONGEST_GRAM][place]
            if place == _NOWHERE or best_length >= MEASURED_MATCH:
                break
        return best, best_length

    def _agreement(self, place: int) -> int:
        """How many tokens before `place` equal those at the end, up to 64."""
        tokens = self._tokens
        end = len(tokens)
        length = LONGEST_GRAM
        limit = min(MEASURED_MATCH, place)
        while length < limit and tokens[place - 1 - length] == tokens[end - 1 - length]:
            length += 1
        return length

    def _window_before(self, end: int) -> int:
        window = 0
        for token in self._tokens[max(0, end - LONGEST_GRAM) : end]:
            window = window << _TOKEN_BITS | token
        return window
