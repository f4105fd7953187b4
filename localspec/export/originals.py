"""Where the original weights of a GGUF repository are."""

from __future__ import annotations

import re

_MIRRORS_BOTH = frozenset({"unsloth"})
"""Owners that publish the original format beside the GGUF files, under the same name."""
_CONVERTERS = frozenset(
    (
        *("bartowski", "lmstudio-community", "ggml-org", "thebloke", "mradermacher", "quantfactory"),
        *("maziyarpanahi", "second-state", "mungert"),
    )
)
"""Owners that only convert other people's models: their names say nothing about the original owner."""


def original_of(repo: str) -> str:
    """`Qwen/Qwen2.5-7B-Instruct-GGUF` -> `Qwen/Qwen2.5-7B-Instruct`; "" when the name does not tell."""
    owner, _, name = repo.partition("/")
    stem = re.sub(r"[-_](GGUF|gguf)$", "", name)
    if owner.lower() in _CONVERTERS or (stem == name and owner.lower() not in _MIRRORS_BOTH):
        return ""
    return f"{owner}/{stem}"
