"""llama.cpp's chat on the command line."""

from __future__ import annotations

from localspec.export import llama_flags
from localspec.export.records import Exported, PairSettings, commented, length_note, shell


def export(pair: PairSettings, spelling: llama_flags.Spelling = llama_flags.TODAY) -> Exported:
    """A command that chats with the pair."""
    notes = (*llama_flags.notes(pair, spelling), *length_note(pair, spelling.draft_max))
    text = commented(notes, shell("llama-cli", llama_flags.arguments(pair, spelling)))
    return Exported(text, "llama-cli.sh", notes, "checked for syntax; the flags are llama-server's, which was executed")
