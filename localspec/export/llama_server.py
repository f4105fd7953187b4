"""llama.cpp's HTTP server."""

from __future__ import annotations

from localspec.export import llama_flags
from localspec.export.records import Exported, PairSettings, commented, length_note, shell


def export(pair: PairSettings, spelling: llama_flags.Spelling = llama_flags.TODAY) -> Exported:
    """A command that serves the pair on port 8080."""
    arguments = llama_flags.arguments(pair, spelling)
    arguments += [("--parallel", "1"), ("--alias", pair.name), ("--metrics",), ("--port", "8080")]
    notes = (*llama_flags.notes(pair, spelling), *length_note(pair, spelling.draft_max))
    text = commented(notes, shell("llama-server", arguments))
    return Exported(text, "llama-server.sh", notes, "executed against a real llama-server")
