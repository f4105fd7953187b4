"""Questions to a person when something went wrong; the answer is what to do."""

from __future__ import annotations

from localspec.ground.errors import EngineDied
from localspec.ground.terminal import visible
from localspec.tui.screens.page import Choose


class EngineDiedScreen(Choose):
    """The engine's process is gone: `no-draft` or `again`."""

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
    """The conversation does not fit into the context any more: `skip`, `new` or `edit`."""

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
