"""To the clipboard, through the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localspec.tui.screens.chat import ChatScreen


def copy(screen: ChatScreen, text: str, what: str) -> None:
    """All of `text`, as it is."""
    screen.app.copy_to_clipboard(text)
    screen.say(f"Copied the {what}: {len(text):,} characters", seconds=3.0)


def copy_code(screen: ChatScreen, text: str) -> None:
    """The last code block of `text`, whole."""
    from localspec.tui.blocks import code_blocks

    codes = code_blocks(text)
    if codes:
        copy(screen, codes[-1], "last code block" if len(codes) > 1 else "code block")
    else:
        screen.say("There is no code block in it.", "warning")
