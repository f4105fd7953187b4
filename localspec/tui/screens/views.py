"""From the chat to the other screens and back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localspec.tui.screens.chat import ChatScreen


def show_rounds(screen: ChatScreen, index: int | None) -> None:
    """Of the answer at `index`, else of the last one."""
    from localspec.tui.screens.rounds import RoundsScreen

    turns = screen.chat.conversation.turns
    if index is None or turns[index].answer is None:
        index = next((i for i in range(len(turns) - 1, -1, -1) if turns[i].answer is not None), None)
    answer = turns[index].answer if index is not None else None
    if answer is None:
        screen.say("There is no answer yet.", "warning")
    elif not answer.steps:
        screen.say("No rounds are known of this answer.", "warning")
    else:
        screen.app.push_screen(RoundsScreen(answer))


def show_sessions(screen: ChatScreen) -> None:
    """Saved conversations; one may be opened."""
    from localspec.tui.screens.sessions import SessionsScreen

    screen.app.push_screen(SessionsScreen(screen.chat), lambda _: screen.show_conversation())


def show_pairs(screen: ChatScreen) -> None:
    """Pairs; one may be opened."""
    from localspec.tui.screens.pairs import PairsScreen

    screen.app.push_screen(PairsScreen(), lambda pair: open_pair(screen, pair))


def open_pair(screen: ChatScreen, pair: str | None) -> None:
    """In place of the one that is open."""
    from localspec.session import LoadOptions

    if pair:
        options = screen.chat.options or LoadOptions()
        screen.chat.open_pair(pair, replace(options, draft=None))
        screen.say_status(f"loading {pair}")


def show_settings(screen: ChatScreen) -> None:
    """Of the next answer, and from the next round on."""
    from localspec.tui.screens.settings import SettingsScreen

    def done(_: None) -> None:
        screen.remember_settings()
        screen.draw_numbers()

    screen.app.push_screen(SettingsScreen(screen.chat), done)


def show_drafts(screen: ChatScreen) -> None:
    """Draft models for the loaded target."""
    from localspec.tui.screens.draft import DraftScreen

    session = screen.chat.runner.session
    if session is None:
        screen.say("No model is loaded yet.", "warning")
    elif screen.chat.is_remote:
        screen.say("The draft was chosen where the server was started: localspec serve PAIR --draft D", "warning")
    else:
        screen.app.push_screen(DraftScreen(session), lambda draft: _swap(screen, draft))


def show_bench(screen: ChatScreen) -> None:
    """The quick benchmark."""
    from localspec.tui.screens.bench import BenchScreen

    screen.app.push_screen(BenchScreen(screen.chat))


def show_log(screen: ChatScreen) -> None:
    """What libllama said."""
    from localspec.tui.screens.log import LogScreen, log_screen

    if screen.chat.is_remote:
        screen.app.push_screen(LogScreen([], f"The engine and its log are where {screen.chat.pair} runs."))
        return
    session = screen.chat.runner.session
    screen.app.push_screen(log_screen(session.client if session is not None else None))


def _swap(screen: ChatScreen, draft: str | None) -> None:
    if draft:
        screen.chat.swap_draft(draft)
        waits = " after this answer" if screen.chat.runner.busy else ""
        screen.say_status(f"swapping the draft{waits}")
