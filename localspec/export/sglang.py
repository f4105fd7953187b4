"""SGLang: the original weights on GPUs."""

from __future__ import annotations

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
    """`sglang.launch_server` with a draft model, or with guesses from n-grams."""
    target, draft = original_repos(pair, "SGLang")
    arguments: list[tuple[str, ...]] = [("--model-path", target)]
    if pair.guesses == "model":
        arguments += [
            ("--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path", draft),
            ("--speculative-num-steps", str(pair.length), "--speculative-eagle-topk", "1"),
            ("--speculative-num-draft-tokens", str(pair.length + 1)),
        ]
    elif pair.guesses == "lookup":
        arguments.append(("--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", str(pair.length)))
    arguments += [
        ("--context-length", str(pair.context)),
        ("--served-model-name", pair.name),
        ("--port", "30000"),
    ]
    sampler = pair.sampler
    notes = (
        WEIGHTS_NOTE,
        *length_note(pair, "--speculative-num-steps"),
        "--speculative-num-draft-tokens counts the target's own token too.",
        f"Sampling is set by each request: temperature {sampler.temperature:g}, top_p {sampler.top_p:g}, "
        f"top_k {sampler.top_k or -1}, min_p {sampler.min_p:g}.",
    )
    text = commented(notes, shell("python -m sglang.launch_server", arguments))
    return Exported(text, "sglang.sh", notes, "checked for syntax only; not run")
