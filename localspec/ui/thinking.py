"""Reasoning models wrap their thoughts in tags; people usually want the answer."""

from __future__ import annotations

from dataclasses import dataclass

OPEN, CLOSE = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Split:
    """An answer in two parts."""

    thoughts: str
    answer: str
    open: bool
    """Whether the thoughts have not ended yet."""


def split_thoughts(text: str) -> Split:
    """Thoughts and answer. Where the template writes the opening tag, only the closing one is seen."""
    body = text.lstrip()
    if body.startswith(OPEN):
        thoughts, closed, answer = body[len(OPEN) :].partition(CLOSE)
        return Split(thoughts.strip("\n"), answer.lstrip("\n"), not closed)
    if len(body) < len(OPEN) and body and OPEN.startswith(body):
        return Split("", "", True)  # the tag itself is still arriving
    thoughts, closed, answer = text.partition(CLOSE)
    if closed and OPEN not in thoughts:
        return Split(thoughts.strip("\n"), answer.lstrip("\n"), False)
    return Split("", text, False)
