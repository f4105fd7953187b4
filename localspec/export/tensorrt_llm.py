"""TensorRT-LLM: the original weights on NVIDIA GPUs."""

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

FILE = "localspec-pair.yaml"


def export(pair: PairSettings) -> Exported:
    """A file of options, under the command that uses it. JSON values are YAML."""
    target, draft = original_repos(pair, "TensorRT-LLM")
    command = shell("trtllm-serve", [(target,), ("--max_seq_len", str(pair.context)), ("--config", FILE)])
    sampler = pair.sampler
    notes = [
        f"Save as {FILE}, then run:",
        *command.splitlines(),
        WEIGHTS_NOTE,
        *length_note(pair, "max_draft_len"),
        "Older releases: --extra_llm_api_options instead of --config, speculative_model_dir for the draft.",
        f"Sampling is set by each request: temperature {sampler.temperature:g}, top_p {sampler.top_p:g}, "
        f"top_k {sampler.top_k}.",
    ]
    text = commented(notes, _yaml(pair, draft))
    return Exported(text, FILE, tuple(notes), "checked for syntax only; not run")


def _yaml(pair: PairSettings, draft: str) -> str:
    if pair.guesses == "none":
        return "speculative_config: null\n"
    fields: dict[str, object] = {"decoding_type": "NGram", "max_draft_len": pair.length}
    if pair.guesses == "model":
        fields = {"decoding_type": "Draft_Target", "max_draft_len": pair.length, "speculative_model": draft}
    else:
        fields["max_matching_ngram_size"] = 4
    lines = [f"  {name}: {json.dumps(value)}" for name, value in fields.items()]
    return "speculative_config:\n" + "\n".join(lines) + "\n"
