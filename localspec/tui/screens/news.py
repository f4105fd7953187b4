"""The engine's news in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from localspec.engine.records import LoadProgress, PrefillProgress
from localspec.tui import numbers
from localspec.ui import runner as news_of

if TYPE_CHECKING:
    from localspec.session import Session

_SLOW_LOAD_SECONDS = 5.0


class Remark(NamedTuple):
    """Something to be notified of."""

    text: str
    severity: str = "information"
    seconds: float = 6.0


def status_of(news: news_of.News, message_waits: bool) -> str | None:
    """What the status line says of it; None = what it said before."""
    match news:
        case LoadProgress(part, fraction):
            waiting = " · your message waits" if message_waits else ""
            if fraction >= 1.0:
                return f"the {part} is read; getting ready (the first time its speed is measured){waiting}"
            return f"loading the {part} {numbers.bar(fraction, 20)} {fraction:4.0%}{waiting}"
        case PrefillProgress(done, total):
            return f"reading the prompt {numbers.bar(done / total, 20)} {done}/{total}" if total > 0 else None
        case news_of.Opened(session):
            if session.files.draft is None and not session.info.speculation_off:
                how = "" if session.client.pid is None else " (F9 loads one)"
                return f"no draft model: guesses come from prompt lookup{how}"
            return ""
        case news_of.OpenFailed(pair, _):
            return f"{pair}: not loaded"
        case news_of.AnswerBegan() | news_of.DraftSwapped() | news_of.SwapFailed():
            return ""
    return None


def remarks_on(session: Session) -> Iterator[Remark]:
    """What a person should know of a pair that was opened."""
    for note in session.notes:
        yield Remark(note, "warning", 12.0)
    if session.info.load_seconds > _SLOW_LOAD_SECONDS:
        yield Remark(f"Ready after {session.info.load_seconds:.0f} s")
