"""vLLM: the original weights on GPUs."""

from __future__ import annotations

import json

from localspec.export.records import (
    WEIGHTS_NOTE,
    Exported,
    PairSettings,
    commented,
    length_note,
    original_repos,
    shell,
)


def export(pair: PairSettings) -> Exported:
    """`vllm serve` with a draft model, or with guesses from the prompt."""
    target, draft = original_repos(pair, "vLLM")
    arguments: list[tuple[str, ...]] = [(target,)]
    if pair.guesses != "none":
        arguments.append(("--speculative-config", json.dumps(_speculation(pair, draft))))
    arguments.append(("--max-model-len", str(pair.context)))
    arguments.append(("--override-generation-config", json.dumps(_sampler(pair))))
    if pair.sampler.seed is not None:
        arguments.append(("--seed", str(pair.sampler.seed % 2**32)))
    arguments += [("--served-model-name", pair.name), ("--port", "8000")]
    notes = [WEIGHTS_NOTE, *length_note(pair, "num_speculative_tokens")]
    if pair.guesses != "none":
        notes.append("min_p, logit_bias and min_tokens are left out: vLLM does not take them beside guesses.")
    text = commented(notes, shell("vllm serve", arguments))
    return Exported(text, "vllm.sh", tuple(notes), "checked for syntax only; not run")


def _speculation(pair: PairSettings, draft: str) -> dict[str, object]:
    if pair.guesses == "model":
        return {"method": "draft_model", "model": draft, "num_speculative_tokens": pair.length}
    return {
        "method": "ngram",
        "num_speculative_tokens": pair.length,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 4,
    }


def _sampler(pair: PairSettings) -> dict[str, object]:
    """Generation defaults, in the names of Transformers."""
    sampler = pair.sampler
    values: dict[str, object] = {
        "temperature": sampler.temperature,
        "top_p": sampler.top_p,
        "top_k": sampler.top_k or -1,
        "repetition_penalty": sampler.repeat_penalty,
    }
    if pair.guesses == "none":
        values["min_p"] = sampler.min_p
    if pair.max_tokens is not None:
        values["max_new_tokens"] = pair.max_tokens
    return values
