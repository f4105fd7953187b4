"""A model without a chat template: asked once, remembered for that file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localspec.tui.screens.page import Choose
from localspec.ui.family_templates import FAMILIES, family_template, file_key

if TYPE_CHECKING:
    from localspec.session import Session
    from localspec.tui.screens.chat import ChatScreen


def recall_template(screen: ChatScreen, session: Session) -> None:
    """Use what was chosen for this file before; else ask when the first message is sent."""
    chosen = family_template(screen.remembered_templates.get(_key(session), ""))
    screen.chat.settings.template = chosen
    if chosen is not None:
        screen.say(f"No chat template in this file; using your choice: {chosen.title}")
    elif not screen.chat.settings.raw:
        screen.say("This file has no chat template. You will be asked how to write to it.", "warning")


def choose_template(screen: ChatScreen) -> None:
    """Ask, remember, and send what was being sent."""
    choices = [(family.name, family.title) for family in FAMILIES]

    def chosen(name: str | None) -> None:
        family = family_template(name or "")
        session = screen.chat.runner.session
        if family is None or session is None:
            return
        screen.chat.settings.template = family
        screen.remember_template(_key(session), family.name)
        screen.prompt.send()

    screen.app.push_screen(
        Choose("How is this model to be written to?", choices, "Its file has no chat template."), chosen
    )


def _key(session: Session) -> str:
    try:
        return file_key(session.files.target)
    except OSError:
        return str(session.files.target)
