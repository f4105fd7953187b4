"""LM Studio: the same GGUF files, the draft named in each request."""

from __future__ import annotations

import json
import re
import shlex

from localspec.export.records import Exported, PairSettings, commented, shell


def export(pair: PairSettings) -> Exported:
    """A script: link the files in, load the target, ask with the draft."""
    lines = [shell("lms import", _linked(pair.target.name, str(pair.target)))]
    if pair.guesses == "model":
        assert pair.draft is not None
        lines.append(shell("lms import", _linked(pair.draft.name, str(pair.draft))))
    context = ("--context-length", str(pair.context))
    lines.append(shell("lms load", [(_key(pair.target.name),), context, ("--gpu", _share(pair))]))
    body = shlex.quote(json.dumps(_request(pair), ensure_ascii=False))
    lines.append(
        "curl http://localhost:1234/v1/chat/completions -H 'Content-Type: application/json' \\\n  -d " + body + "\n"
    )
    notes = [
        "The files stay where they are; LM Studio gets links to them.",
        "LM Studio chooses the names of models itself: where one below is not found, `lms ls` shows it.",
    ]
    if pair.guesses == "model":
        notes.append("In a chat window the draft is chosen under Speculative Decoding; its length is LM Studio's own.")
    if pair.guesses == "lookup":
        notes.append("Guessing from the text itself is not there: the target runs alone.")
    text = commented(notes, "".join(lines))
    return Exported(text, "lmstudio.sh", tuple(notes), "checked for syntax only; not run")


def _linked(name: str, path: str) -> list[tuple[str, ...]]:
    return [("--symbolic-link", "-y"), ("--user-repo", f"localspec/{_key(name)}"), (path,)]


def _key(name: str) -> str:
    """How LM Studio is likely to call a file: lower case, without the ending and the quant."""
    stem = re.sub(r"(-\d{5}-of-\d{5})?\.gguf$", "", name, flags=re.I)
    return re.sub(r"[-.](i?q\d\w*|f16|bf16|f32)$", "", stem, flags=re.I).lower()


def _share(pair: PairSettings) -> str:
    return {None: "max", 0: "off"}.get(pair.gpu_layers, "max")


def _request(pair: PairSettings) -> dict[str, object]:
    sampler = pair.sampler
    request: dict[str, object] = {
        "model": _key(pair.target.name),
        "messages": [{"role": "user", "content": "Hello"}],
        "temperature": sampler.temperature,
        "top_p": sampler.top_p,
        "top_k": sampler.top_k,
        "min_p": sampler.min_p,
        "repeat_penalty": sampler.repeat_penalty,
    }
    if pair.guesses == "model" and pair.draft is not None:
        request["draft_model"] = _key(pair.draft.name)
    if sampler.seed is not None:
        request["seed"] = sampler.seed
    if pair.max_tokens is not None:
        request["max_tokens"] = pair.max_tokens
    return request
