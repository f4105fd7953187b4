"""What the chat does when the engine's thread has something to say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localspec.engine.records import LoadProgress, PrefillProgress
from localspec.tui import numbers
from localspec.tui.screens.template import choose_template, recall_template
from localspec.tui.screens.trouble import show_context_full, show_trouble
from localspec.ui import runner as news_of
from localspec.ui.chat import NeedsTemplate
from localspec.ui.memory import memory_use

if TYPE_CHECKING:
    from localspec.session import Session
    from localspec.tui.screens.chat import ChatScreen

_SLOW_LOAD_SECONDS = 5.0


def take_news(screen: ChatScreen, news: news_of.News) -> None:
    """Show it."""
    match news:
        case LoadProgress(part, fraction):
            waiting = " · your message waits" if screen.chat.runner.busy else ""
            what = f"loading the {part} {numbers.bar(fraction, 20)} {fraction:4.0%}"
            if fraction >= 1.0:
                what = f"the {part} is read; getting ready (the first time its speed is measured)"
            screen.say_status(what + waiting)
        case PrefillProgress(done, total) if total > 0:
            screen.say_status(f"reading the prompt {numbers.bar(done / total, 20)} {done}/{total}")
        case news_of.Opened(session):
            _opened(screen, session)
        case news_of.OpenFailed(pair, error):
            screen.say_status(f"{pair}: not loaded")
            show_trouble(screen, error)
        case news_of.AnswerBegan():
            screen.say_status("")
        case news_of.AnswerEnded() as ended:
            _answer_ended(screen, ended)
        case news_of.DraftSwapped(session):
            screen.memory = None if screen.chat.is_remote else memory_use(session)
            screen.say_status("")
            draft = session.files.draft.name if session.files.draft else "no draft model"
            screen.say(f"Draft: {draft}. The target kept its cache.")
            screen.remember_pair()
        case news_of.Unforeseen(error):
            screen.say(f"{type(error).__name__}: {error}. This is a bug in localspec", "error", 30.0)
        case news_of.SwapFailed(_, error):
            screen.say_status("")
            show_trouble(screen, error)


def _opened(screen: ChatScreen, session: Session) -> None:
    screen.say_status("")
    screen.memory = None if screen.chat.is_remote else memory_use(session)
    for note in session.notes:
        screen.say(note, "warning", 12.0)
    if session.info.load_seconds > _SLOW_LOAD_SECONDS:
        screen.say(f"Ready after {session.info.load_seconds:.0f} s")
    if session.files.draft is None and not session.info.speculation_off:
        how = "" if screen.chat.is_remote else " (F9 loads one)"
        screen.say_status(f"no draft model: guesses come from prompt lookup{how}")
    if not session.info.has_template:
        recall_template(screen, session)
    screen.remember_pair()


def _answer_ended(screen: ChatScreen, ended: news_of.AnswerEnded) -> None:
    screen.transcript.grow()
    text = screen.chat.ended(ended)
    if text:
        screen.prompt.offer(text)
        screen.show_conversation()
    screen.say_status(screen.chat.save_fault)
    if isinstance(ended.error, NeedsTemplate):
        choose_template(screen)
    elif ended.error is not None:
        show_trouble(screen, ended.error)
    elif ended.answer.reason == "length" and screen.chat.settings.max_tokens is None:
        show_context_full(screen, "the answer reached the context's end")
