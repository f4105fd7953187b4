"""The flags that llama.cpp's server and its command line share, in today's and in older spellings."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from localspec.export.records import PairSettings
from localspec.ground.errors import InvalidInput
from localspec.ground.terminal import one_line

_PROBE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Spelling:
    """How one build of llama.cpp names what drafts need."""

    build: str
    """In words, for notes."""
    chooses_type: bool
    """Whether `--spec-type` exists; without it a draft model is used as soon as it is named."""
    draft_model: str
    draft_max: str
    draft_layers: str
    draft_cache: tuple[str, str] | None
    """Names for the draft's K and V types; None = there are none."""
    lookup: bool
    """Whether guessing from the text itself exists."""


TODAY = Spelling(
    build="llama.cpp of 2026 (--spec-type)",
    chooses_type=True,
    draft_model="--spec-draft-model",
    draft_max="--spec-draft-n-max",
    draft_layers="--spec-draft-ngl",
    draft_cache=("--spec-draft-type-k", "--spec-draft-type-v"),
    lookup=True,
)
OLDER = Spelling(
    build="llama.cpp of 2024 and 2025 (--draft-max)",
    chooses_type=False,
    draft_model="--model-draft",
    draft_max="--draft-max",
    draft_layers="--gpu-layers-draft",
    draft_cache=None,
    lookup=False,
)


def spelling_of(help_text: str, program: str) -> Spelling:
    """What the engine's own help says. Raises InvalidInput when it knows no drafts at all."""
    words = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", help_text))
    removed = set(re.findall(r"(--[\w-]+)(?:, --[\w-]+)*\s+N?\s+the argument has been removed", help_text))
    if {"--spec-type", "--spec-draft-n-max", "--spec-draft-model"} <= words:
        return TODAY
    if {"--draft-max", "--model-draft"} <= words - removed:
        return OLDER
    if "--ctx-size" not in words:
        raise InvalidInput(
            f"{one_line(program)} --help does not look like llama.cpp's", "Name llama-server or llama-cli"
        )
    raise InvalidInput(f"this build of {one_line(program)} lacks draft models", "Build llama.cpp 2024-12 or later")


def probe(program: str) -> Spelling:
    """Ask an engine on this machine. Raises InvalidInput when it cannot be run."""
    try:
        done = subprocess.run([program, "--help"], capture_output=True, timeout=_PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InvalidInput(f"cannot run {one_line(program)} --help: {error}", "Check --engine") from None
    return spelling_of((done.stdout + done.stderr).decode("utf-8", "replace"), program)


def arguments(pair: PairSettings, spelling: Spelling) -> list[tuple[str, ...]]:
    """Models, drafts, placement and sampler."""
    found: list[tuple[str, ...]] = [("--model", str(pair.target)), *_drafts(pair, spelling)]
    found.append(("--ctx-size", str(pair.context)))
    if pair.threads is not None:
        found.append(("--threads", str(pair.threads)))
    found.append(("--gpu-layers", "999" if pair.gpu_layers is None else str(pair.gpu_layers)))
    if (pair.split_mode, pair.main_gpu) != ("layer", 0):
        found.append(("--split-mode", pair.split_mode, "--main-gpu", str(pair.main_gpu)))
    if pair.cache_type != "f16":
        found.append(("--cache-type-k", pair.cache_type, "--cache-type-v", pair.cache_type))
    if pair.flash_attention != "auto":
        found.append(("--flash-attn", pair.flash_attention))
    return found + _sampler(pair)


def notes(pair: PairSettings, spelling: Spelling) -> tuple[str, ...]:
    """What differs in llama.cpp."""
    found = [f"Written for {spelling.build}."]
    if pair.guesses == "model":
        found.append("It keeps a guess only if the target samples the same token: fewer above temperature 0.")
    if pair.drafter == "auto" and pair.draft is not None:
        found.append("Guessing from the prompt beside the draft model is left out.")
    if pair.sampler.seed is not None:
        found.append("A seed gives another text there, and another one with drafts than without.")
    return tuple(found)


def _drafts(pair: PairSettings, spelling: Spelling) -> Sequence[tuple[str, ...]]:
    length = str(pair.length)
    if pair.guesses == "model":
        assert pair.draft is not None
        found: list[tuple[str, ...]] = [("--spec-type", "draft-simple")] if spelling.chooses_type else []
        found += [(spelling.draft_model, str(pair.draft)), (spelling.draft_max, length)]
        layers = "999" if pair.draft_gpu_layers is None else str(pair.draft_gpu_layers)
        found.append((spelling.draft_layers, layers))
        if spelling.draft_cache is not None and pair.cache_type != "f16":
            k, v = spelling.draft_cache
            found.append((k, pair.cache_type, v, pair.cache_type))
        return found
    if pair.guesses == "lookup":
        if not spelling.lookup:
            raise InvalidInput("this build of llama.cpp cannot guess from the text itself", "Export with --no-draft")
        sizes = ("--spec-ngram-simple-size-n", "3", "--spec-ngram-simple-size-m", length)
        return [("--spec-type", "ngram-simple"), sizes]
    return []


def _sampler(pair: PairSettings) -> list[tuple[str, ...]]:
    sampler = pair.sampler
    found: list[tuple[str, ...]] = [
        ("--temp", f"{sampler.temperature:g}", "--top-k", str(sampler.top_k)),
        ("--top-p", f"{sampler.top_p:g}", "--min-p", f"{sampler.min_p:g}"),
    ]
    if sampler.penalises:
        found += [
            (
                "--repeat-penalty",
                f"{sampler.repeat_penalty:g}",
                "--repeat-last-n",
                str(sampler.penalty_window),
            ),
            ("--presence-penalty", f"{sampler.presence_penalty:g}"),
            ("--frequency-penalty", f"{sampler.frequency_penalty:g}"),
        ]
    for token, bias in sampler.logit_bias:
        found.append(("--logit-bias", f"{token}{max(bias, -1e4):+g}"))
    if sampler.seed is not None:
        found.append(("--seed", str(sampler.seed % 2**32)))
    if pair.max_tokens is not None:
        found.append(("--predict", str(pair.max_tokens)))
    return found
