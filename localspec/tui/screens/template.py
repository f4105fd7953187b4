"""A model without a chat template: asked once, remembered for that file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localspec.tui.screens.page import Choose
from localspec.ui.family_templates import FAMILIES, file_key

if TYPE_CHECKING:
    from localspec.session import Session


class TemplateScreen(Choose):
    """How to write to it: the name of a family."""

    def __init__(self) -> None:
        choices = [(family.name, family.title) for family in FAMILIES]
        super().__init__("How is this model to be written to?", choices, "Its file has no chat template.")


def template_key(session: Session) -> str:
    """What the choice is remembered under."""
    try:
        return file_key(session.files.target)
    except OSError:
        return str(session.files.target)
