"""`localspec replay`: a saved conversation, without a model."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from localspec.ground.terminal import is_terminal, one_line, visible

if TYPE_CHECKING:
    from localspec.ui.session_file import SavedSession


@click.command()
@click.argument("file")
@click.option("--plain", is_flag=True, help="Print it instead of opening the terminal UI.")
def replay(file: str, plain: bool) -> int:
    """Show the conversation in FILE (a path, a session's name, or `last`) with the origin of every word.

    On a terminal it opens in the UI, where its rounds can be stepped through; elsewhere it is printed.
    """
    from localspec.ui.session_file import read_session
    from localspec.ui.session_store import SessionStore

    path = SessionStore().find(file)
    session = read_session(path)
    if plain or not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        _print(session)
        return 0
    from localspec.tui.app import Start, run_app

    return run_app(Start(session=str(path), replay=True))


def _print(session: SavedSession) -> None:
    from localspec.reports.answer import summary_line
    from localspec.ui.provenance import marked_text

    print(f"# {one_line(session.conversation.shown_title)}\n")
    for turn in session.conversation.turns:
        if turn.answer is None:
            print(f"You:\n{visible(turn.text)}\n")
            continue
        print(f"Answer:\n{visible(marked_text(turn.answer) if turn.answer.steps else turn.answer.text)}\n")
        if turn.answer.stats is not None:
            print(f"({one_line(summary_line(turn.answer.stats))})\n")
    print("[accepted guesses] ~corrected by the target +bonus token ‹rejected guesses›")
