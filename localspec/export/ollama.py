"""Ollama: the same GGUF files in a Modelfile."""

from __future__ import annotations

import json
import re

from localspec.export.records import Exported, PairSettings, commented, length_note


def export(pair: PairSettings) -> Exported:
    """A Modelfile."""
    sampler = pair.sampler
    name = re.sub(r"[^a-z0-9._-]+", "-", pair.name.lower()).strip("-") or "pair"
    lines = [f"FROM {_quoted(str(pair.target))}"]
    values: dict[str, object] = {
        "num_ctx": pair.context,
        "temperature": sampler.temperature,
        "top_k": sampler.top_k or pair.context,
        "top_p": sampler.top_p,
        "min_p": sampler.min_p,
        "repeat_penalty": sampler.repeat_penalty,
        "repeat_last_n": sampler.penalty_window,
    }
    if pair.guesses == "model":
        lines.append(f"DRAFT {_quoted(str(pair.draft))}")
        values["draft_num_predict"] = pair.length
    else:
        values["draft_num_predict"] = 0
    if sampler.seed is not None:
        values["seed"] = sampler.seed % 2**31
    if pair.max_tokens is not None:
        values["num_predict"] = pair.max_tokens
    lines += [
        f"PARAMETER {key} {value:g}" if isinstance(value, float) else f"PARAMETER {key} {value}"
        for key, value in values.items()
    ]
    notes = [
        f"Save as Modelfile, then: ollama create {name} -f Modelfile && ollama run {name}",
        "Ollama copies the files into its own store, and uses a template of its own if it knows the model.",
    ]
    if pair.guesses == "model":
        notes += ["DRAFT needs an Ollama of 2026.", *length_note(pair, "draft_num_predict")]
    if pair.guesses == "lookup":
        notes.append("Guessing from the text itself is not there: the target runs alone.")
    return Exported(
        commented(notes, "\n".join(lines) + "\n"),
        "Modelfile",
        tuple(notes),
        "checked for syntax only; not run",
    )


def _quoted(path: str) -> str:
    return json.dumps(path, ensure_ascii=False) if re.search(r"[\s\"']", path) else path
