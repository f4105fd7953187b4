"""When something went wrong that a person has to decide about."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from localspec.engine.settings import SpeculationSettings
from localspec.ground.errors import Cancelled, ContextFull, EngineDied
from localspec.ground.terminal import visible
from localspec.tui.screens.page import Choose

if TYPE_CHECKING:
    from localspec.tui.screens.chat import ChatScreen


class EngineDiedScreen(Choose):
    """The engine's process is gone: what happened, and how to go on."""

    def __init__(self, error: EngineDied) -> None:
        super().__init__(
            "The engine's process ended. The text so far is kept.",
            [
                ("no-draft", "Start it again without speculation (safest)"),
                ("again", "Start it again as it was"),
            ],
            visible(f"{error.message}\n{error.hint}"),
        )


class ContextFullScreen(Choose):
    """The conversation does not fit into the context any more."""

    def __init__(self, what: str) -> None:
        super().__init__(
            "The context is full.",
            [
                ("skip", "Send only the newer half of the conversation from now on"),
                ("new", "New chat"),
                ("edit", "Edit my last message"),
            ],
            visible(f"{what}\nA larger context: quit, then start with --ctx N"),
        )


def show_trouble(screen: ChatScreen, error: Exception) -> None:
    """Whatever the engine's thread ran into."""
    if isinstance(error, EngineDied):
        screen.app.push_screen(EngineDiedScreen(error), lambda choice: _restart(screen, choice))
    elif isinstance(error, ContextFull):
        show_context_full(screen, error.message)
    elif not isinstance(error, Cancelled):
        screen.complain(error)


def show_context_full(screen: ChatScreen, what: str) -> None:
    """Offer ways to go on."""
    screen.app.push_screen(ContextFullScreen(what), lambda choice: _make_room(screen, choice))


def _restart(screen: ChatScreen, choice: str | None) -> None:
    chat = screen.chat
    if choice is None or chat.options is None:
        return
    options = chat.options
    if choice == "no-draft":
        options = replace(options, draft="none")
        chat.speculate(SpeculationSettings("none"))
    chat.open_pair(chat.pair, options)
    screen.say_status("starting the engine again")


def _make_room(screen: ChatScreen, choice: str | None) -> None:
    if choice == "skip":
        count = screen.chat.skip_oldest()
        screen.say(
            f"{count} older messages stay on file and are no longer sent."
            if count
            else "There is nothing older that could be left out."
        )
    elif choice == "new":
        screen.action_new_chat()
    elif choice == "edit" and screen.chat.conversation.turns:
        screen.edit(len(screen.chat.conversation.turns) - 1)
