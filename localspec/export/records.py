"""What an export is made of, and what it is."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.engine.settings import SamplerSettings
from localspec.ground.errors import InvalidInput

AUTO_DRAFT_LENGTH = 4
"""Guesses per round where the other engine wants a fixed number and the pair has `auto`."""


@dataclass(frozen=True, slots=True)
class PairSettings:
    """One pair and how it is run here."""

    name: str
    target: Path
    """GGUF file; of a split model the first."""
    draft: Path | None
    target_repo: str
    """`owner/name` of the original weights (safetensors); "" = unknown."""
    draft_repo: str
    drafter: str
    """auto, model, lookup or none."""
    draft_length: int | None
    """None = auto."""
    sampler: SamplerSettings
    context: int
    """Tokens."""
    max_tokens: int | None = None
    threads: int | None = None
    gpu_layers: int | None = None
    """None = as many as fit."""
    draft_gpu_layers: int | None = None
    split_mode: str = "layer"
    main_gpu: int = 0
    cache_type: str = "f16"
    flash_attention: str = "auto"

    @property
    def length(self) -> int:
        """Guesses per round, as a number."""
        return AUTO_DRAFT_LENGTH if self.draft_length is None else self.draft_length

    @property
    def guesses(self) -> str:
        """What guesses where only one thing can: `model`, `lookup` or `none`."""
        if self.drafter == "none" or self.draft_length == 0:
            return "none"
        if self.drafter == "auto":
            return "model" if self.draft is not None else "lookup"
        return self.drafter


@dataclass(frozen=True, slots=True)
class Exported:
    """A command line or a file for another engine."""

    text: str
    """What to run or to save; comments in it say what changes."""
    file_name: str
    """A name for it."""
    notes: tuple[str, ...]
    """What is different there, one sentence each."""
    checked: str
    """How far this was tried when this version of localspec was made."""


def shell(program: str, arguments: Sequence[tuple[str, ...]]) -> str:
    """A command in POSIX shell, one option a line."""
    lines = [program, *(" ".join(shlex.quote(part) for part in argument) for argument in arguments)]
    return " \\\n  ".join(lines) + "\n"


def commented(notes: Sequence[str], text: str) -> str:
    """`text` under its notes, in languages where `#` begins a comment."""
    return "".join(f"# {line}\n" for note in notes for line in note.splitlines()) + text


def length_note(pair: PairSettings, name: str) -> tuple[str, ...]:
    """Said where a number had to be made up."""
    if pair.draft_length is not None or pair.guesses == "none":
        return ()
    return (
        "localspec chooses the draft length by time in every round, and goes plain where that is faster; "
        f"here it is fixed ({name} = {pair.length}). Measure 2 to 8.",
    )


def original_repos(pair: PairSettings, engine: str) -> tuple[str, str]:
    """Repositories of the original weights. Raises InvalidInput when one is not known."""
    if not pair.target_repo:
        raise InvalidInput(
            f"{engine} loads the original weights, and their repository is not known for {pair.target.name}",
            "Say it: --target-repo OWNER/NAME",
        )
    if pair.guesses == "model" and not pair.draft_repo:
        raise InvalidInput(
            f"{engine} loads the original weights, and their repository is not known for the draft",
            "Say it: --draft-repo OWNER/NAME, or export with --drafter lookup",
        )
    return pair.target_repo, pair.draft_repo


WEIGHTS_NOTE = "It loads the original 16-bit weights, not the GGUF files: more memory, and other texts for a seed."
