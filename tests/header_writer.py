"""Headers of GGUF files, built as bytes: any vocabulary, any shape, no weights."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from localspec.pairs.gguf.header import parse_header
from localspec.pairs.gguf.model_info import ModelInfo

NORMAL, CONTROL, USER, UNUSED = 1, 3, 4, 5
F16, Q4_0, Q5_0, Q8_0, Q4_K, Q6_K = 1, 2, 6, 8, 12, 14


def vocabulary(words: int, *special: str) -> tuple[list[str], list[int]]:
    """`words` ordinary tokens and then the control tokens named."""
    return [f"w{i}" for i in range(words)] + list(special), [NORMAL] * words + [CONTROL] * len(special)


def header(
    tokens: Sequence[str],
    types: Sequence[int] | None,
    tensors: Sequence[tuple[str, tuple[int, ...], int]] = (),
    arch: str = "llama",
    model: str = "gpt2",
    pre: str = "qwen2",
    merges: Sequence[str] = ("a b",),
    scores: Sequence[float] = (),
    **keys: Any,
) -> bytes:
    """A whole header. `keys`: `bos_token_id=1`, `chat_template="…"` (tokenizer), or `arch__block_count=2`."""
    values = [("general.architecture", _text(arch)), ("tokenizer.ggml.model", _text(model))]
    if pre:
        values.append(("tokenizer.ggml.pre", _text(pre)))
    values.append(("tokenizer.ggml.tokens", _texts(tokens)))
    if types is not None:
        values.append(("tokenizer.ggml.token_type", _numbers(5, "i", types)))
    if merges:
        values.append(("tokenizer.ggml.merges", _texts(merges)))
    if scores:
        values.append(("tokenizer.ggml.scores", _numbers(6, "f", scores)))
    for name, value in keys.items():
        key = name.replace("arch__", f"{arch}.").replace("__", ".")
        if "." not in key:
            key = "tokenizer.chat_template" if key == "chat_template" else f"tokenizer.ggml.{key}"
        values.append((key, _value(value)))
    infos, offset = b"", 0
    for name, shape, kind in tensors:
        infos += _string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
        offset += -(-_size(shape, kind) // 32) * 32
    body = b"".join(_string(key) + value for key, value in values)
    return b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values)) + body + infos


def info(*args: Any, **keys: Any) -> ModelInfo:
    """The record of such a header."""
    return parse_header(header(*args, **keys), source=str(keys.get("general__name", "written by a test")))


def write(path: Path, data: bytes) -> Path:
    """A file with this header, as long as its tensors need: the weights are a hole in the file."""
    with open(path, "wb") as file:
        file.write(data)
        file.truncate(max(len(data), parse_header(data, source=str(path)).expected_size))
    return path


_BLOCKS = {
    0: (1, 4), F16: (1, 2), Q4_0: (32, 18), Q5_0: (32, 22), Q8_0: (32, 34), Q4_K: (256, 144), Q6_K: (256, 210),
}  # fmt: skip


def _size(shape: tuple[int, ...], kind: int) -> int:
    elements = 1
    for length in shape:
        elements *= length
    per, size = _BLOCKS[kind]
    return elements // per * size


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _text(text: str) -> bytes:
    return struct.pack("<I", 8) + _string(text)


def _texts(texts: Sequence[str]) -> bytes:
    return struct.pack("<IIQ", 9, 8, len(texts)) + b"".join(map(_string, texts))


def _numbers(kind: int, code: str, numbers: Sequence[float]) -> bytes:
    return struct.pack("<IIQ", 9, kind, len(numbers)) + struct.pack(f"<{len(numbers)}{code}", *numbers)


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return _text(value)
    return _numbers(4, "I", value)
