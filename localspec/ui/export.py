"""A conversation for other programs (JSON) and for people (Markdown)."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from localspec.ground.errors import InvalidInput
from localspec.ground.terminal import visible
from localspec.reports.answer import summary_line
from localspec.ui.answer import Answer
from localspec.ui.session_file import SavedSession

SCHEMA = 1


def export(session: SavedSession, path: Path) -> None:
    """Write `path`; its ending, `.md` or `.json`, says how. An existing file is never overwritten."""
    if path.suffix not in (".md", ".json"):
        raise InvalidInput(f"{path.name}: an export is .md or .json", "Choose one of these endings")
    text = to_markdown(session) if path.suffix == ".md" else to_json(session)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InvalidInput(f"{path} exists", "Choose another name") from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}", "Choose another place") from None


def to_markdown(session: SavedSession) -> str:
    """What was said, with one line of numbers under each answer. Control characters are escaped."""
    conversation = session.conversation
    parts = [f"# {conversation.shown_title or 'Chat'}", f"{session.meta.pair} · {session.meta.created}"]
    if conversation.system:
        parts += ["## System", conversation.system]
    for turn in conversation.turns:
        parts += ["## You" if turn.role == "user" else "## Answer", turn.said]
        if turn.answer is not None and turn.answer.stats is not None:
            parts.append(f"*{summary_line(turn.answer.stats)}*")
        if turn.answer is not None and turn.answer.note:
            parts.append(f"*{turn.answer.note}*")
    return visible("\n\n".join(parts)) + "\n"


def to_json(session: SavedSession) -> str:
    """Everything, provenance and rounds included; every unusual character is escaped."""
    conversation = session.conversation
    value = {
        "schema": SCHEMA,
        "session": asdict(session.meta),
        "title": conversation.shown_title,
        "system": conversation.system,
        "skipped": conversation.skipped,
        "turns": [
            {"role": turn.role, "text": turn.said} | (_answer(turn.answer) if turn.answer is not None else {})
            for turn in conversation.turns
        ],
    }
    return json.dumps(value, indent=1) + "\n"


def _answer(answer: Answer) -> dict[str, Any]:
    return {
        "finish_reason": answer.reason,
        "target": answer.target,
        "draft": answer.draft or None,
        "note": answer.note,
        "stats": asdict(answer.stats) if answer.stats is not None else None,
        "tokens": [{"id": t.id, "provenance": t.provenance.value, "text": t.text} for t in answer.tokens],
        "rounds": [asdict(step.round) | {"guesses": list(step.guesses)} for step in answer.steps],
    }
