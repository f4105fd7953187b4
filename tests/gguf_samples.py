"""Small GGUF models for tests of what happens to files: real headers, made-up weights."""

from __future__ import annotations

import random

from localspec.pairs.gguf.header import parse_header
from tests.header_writer import Q8_0, header, vocabulary

WORDS = 400


def model_bytes(
    seed: int = 1, *, width: int = 64, layers: int = 2, words: int = WORDS, name: str = "", **keys: object
) -> bytes:
    """A whole file: a vocabulary, some layers, weights from `seed`; 43 kB as it stands."""
    tokens, types = vocabulary(words, "<bos>", "<eos>")
    tensors = [("token_embd.weight", (width, len(tokens)), Q8_0)]
    tensors += [(f"blk.{layer}.attn_q.weight", (width, width), Q8_0) for layer in range(layers)]
    settings = {
        "bos_token_id": words,
        "eos_token_id": words + 1,
        "arch__block_count": layers,
        "arch__context_length": 512,
        "arch__embedding_length": width,
        "arch__attention__head_count": 2,
        "general__file_type": 7,
    }
    if name:
        settings["general__name"] = name
    data = header(tokens, types, tensors, **(settings | keys))
    size = parse_header(data, source="a test's own").expected_size
    return data + random.Random(seed).randbytes(size - len(data))


def split_bytes(seed: int, parts: int) -> list[bytes]:
    """The files of a split model: the vocabulary in the first, layers in all."""
    tokens, types = vocabulary(WORDS, "<bos>", "<eos>")
    files = []
    for part in range(parts):
        split = {"split__no": part, "split__count": parts, "split__tensors__count": parts}
        layer = [(f"blk.{part}.attn_q.weight", (256, 256), Q8_0)]
        if part == 0:
            data = header(tokens, types, layer, arch__block_count=parts, general__file_type=7, **split)
        else:
            data = header([], None, layer, arch="", pre="", model="", merges=(), **split)
        size = parse_header(data, source="a test's own").expected_size
        files.append(data + random.Random(seed + part).randbytes(size - len(data)))
    return files
