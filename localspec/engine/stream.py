"""Token bytes to text: characters cut across tokens, stop strings across tokens, and each character's own
token."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence

from localspec.engine.records import Provenance, Token


class TextStream:
    """Joins tokens into text.

    A character made of several tokens belongs to the one that completes it. Tokens whose text may begin a
    stop string are held back until it is known; `release` gives the others, in order and once.
    """

    def __init__(self, token_bytes: Callable[[int], bytes], stops: Sequence[str] = ()) -> None:
        self._token_bytes = token_bytes
        self._stops = tuple(stops)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held: list[Token] = []
        self._text: list[str] = []
        self.stopped = False
        """Whether a stop string has completed."""

    @property
    def text(self) -> str:
        """Everything released so far."""
        return "".join(self._text)

    def push(self, token: int, provenance: Provenance) -> bool:
        """Add one token; True when it completes a stop string, which is cut from the text."""
        self._held.append(Token(token, provenance, self._decoder.decode(self._token_bytes(token))))
        if self._stops:
            self._cut_at_stop()
        return self.stopped

    def push_end(self, token: int, provenance: Provenance) -> None:
        """Add the token that ends the answer; it has no text."""
        self._held.append(Token(token, provenance, ""))

    def release(self) -> tuple[Token, ...]:
        """The tokens whose text is settled."""
        return self._take(len(self._held) if self.stopped else self._settled())

    def finish(self) -> tuple[Token, ...]:
        """All that is left. Bytes of an unfinished character become one U+FFFD, and belong to the last
        token."""
        rest = "" if self.stopped else self._decoder.decode(b"", final=True)
        if rest and self._held:
            last = self._held[-1]
            self._held[-1] = Token(last.id, last.provenance, last.text + rest)
        return self._take(len(self._held))

    def _take(self, count: int) -> tuple[Token, ...]:
        taken = tuple(self._held[:count])
        del self._held[:count]
        self._text.extend(token.text for token in taken)
        return taken

    def _cut_at_stop(self) -> None:
        text = "".join(token.text for token in self._held)
        found = [place for place in (text.find(stop) for stop in self._stops) if place >= 0]
        if not found:
            return
        self.stopped = True
        left = min(found)
        for index, token in enumerate(self._held):
            self._held[index] = Token(token.id, token.provenance, token.text[:left])
            left -= min(left, len(token.text))

    def _settled(self) -> int:
        """How many held tokens end before the longest possible beginning of a stop string."""
        text = "".join(token.text for token in self._held)
        safe = len(text) - max((_overlap(text, stop) for stop in self._stops), default=0)
        count = end = 0
        for token in self._held:
            end += len(token.text)
            if end > safe:
                break
            count += 1
        if self._decoder.getstate()[0]:
            # Inside a character: the last token waits, so that the end has one to put the rest on.
            count = min(count, len(self._held) - 1)
        return count


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-length:]):
            return length
    return 0
