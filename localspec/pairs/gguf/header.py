"""Bytes of a GGUF header -> ModelInfo: fast, bounded, and safe with files that lie.

Works on a file and on any prefix of one (an HTTP range): `NeedMoreBytes` says how many are wanted.
"""

from __future__ import annotations

import hashlib
import mmap
import stat
import struct
from array import array
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from localspec.ground.errors import UnreadableFile
from localspec.pairs.gguf.model_info import MetaValue, ModelInfo, Scalar, TokenTable, quant_name
from localspec.pairs.gguf.walk import (
    BOOL,
    MAX_HEADER,
    SCALARS,
    STRING,
    Buffer,
    NeedMoreBytes,
    Raw,
    RawArray,
    Reader,
)
from localspec.pairs.names.other_formats import refuse_other_formats

__all__ = ["NeedMoreBytes", "join_split", "parse_header", "read_header"]

_SHORT_ARRAY, _SHORT_ARRAYS = 512, 1 << 16
_MAX_VOCABULARY = 1 << 21


def read_header(path: Path | str) -> ModelInfo:
    """The header of the file at `path`; UnreadableFile when it is no whole, sane GGUF file."""
    path = Path(path)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise UnreadableFile(f"{path} is a folder, not a model file", "Name a .gguf file in it")
        if not stat.S_ISREG(mode):  # opening a pipe would wait for a writer
            raise UnreadableFile(f"{path} is not an ordinary file", "Name a .gguf file")
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            if size == 0:
                raise UnreadableFile(f"{path} is empty", "Download it again")
            with mmap.mmap(file.fileno(), min(size, MAX_HEADER), access=mmap.ACCESS_READ) as data:
                return parse_header(data, source=str(path), file_size=size)
    except FileNotFoundError:
        raise UnreadableFile(f"no file at {path}", "Check the path") from None
    except NeedMoreBytes as need:
        raise _truncated(str(path), need.need, size) from None
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL in it
        reason = getattr(error, "strerror", None) or str(error)
        raise UnreadableFile(f"cannot read {path}: {reason}", "Check the file and its permissions") from None


def parse_header(data: Buffer, *, source: str, file_size: int = 0) -> ModelInfo:
    """The header that `data`, the first bytes of a GGUF file, begins with.

    `file_size` (bytes, 0 = not known) is compared with what the tensors need. Raises NeedMoreBytes while
    `data` ends inside the header, UnreadableFile when no number of further bytes would help.
    """
    if len(data) < 8 and b"GGUF".startswith(data[:4]):
        raise NeedMoreBytes(24)
    refuse_other_formats(bytes(data[:64]), source)
    raw = Reader(data, source).read()
    info = _model_info(raw, source, file_size)
    if file_size and info.expected_size > file_size:
        raise _truncated(source, info.expected_size, file_size)
    return info


def join_split(parts: Sequence[ModelInfo]) -> ModelInfo:
    """One ModelInfo for a split model: the first file's header with the tensors and sizes of all.

    UnreadableFile when the files are not exactly one whole set.
    """
    parts = sorted(parts, key=lambda part: part.split_no)
    first = parts[0]
    for index, part in enumerate(parts):
        if part.split_count != len(parts) or part.split_no != index:
            raise UnreadableFile(
                f"{part.source} says it is file {part.split_no + 1} of {part.split_count}, "
                f"found as file {index + 1} of {len(parts)}",
                "The set mixes different splits: download it again",
            )
    tensors = tuple(tensor for part in parts for tensor in part.tensors)
    if first.split_tensors and first.split_tensors != len(tensors):
        raise UnreadableFile(
            f"{first.source} announces {first.split_tensors} tensors, its files hold {len(tensors)}",
            "Download it again",
        )
    return replace(
        first,
        tensors=tensors,
        size=sum(part.size for part in parts),
        expected_size=sum(part.expected_size for part in parts),
    )


def _truncated(source: str, need: int, have: int) -> UnreadableFile:
    return UnreadableFile(
        f"{source} is cut short: its header asks for at least {need:,} bytes, the file has {have:,}",
        "Download it again",
    )


def _model_info(raw: Raw, source: str, file_size: int) -> ModelInfo:
    meta = _metadata(raw)
    arch = _text(meta, "general.architecture")
    if not arch and not meta.get("split.no"):
        raise UnreadableFile(f"{source} names no architecture: it is no language model", "Name another file")
    tensors = tuple(raw.tensors)
    data_offset = -(-raw.end // raw.alignment) * raw.alignment
    shape = _Shape(meta, arch)
    merges, scores = raw.arrays.get("tokenizer.ggml.merges"), raw.arrays.get("tokenizer.ggml.scores")
    return ModelInfo(
        source=source,
        architecture=arch,
        name=_text(meta, "general.name"),
        file_type=quant_name(_id(meta, "general.file_type"), tensors),
        tensors=tensors,
        metadata=meta,
        tokenizer_model=_text(meta, "tokenizer.ggml.model"),
        tokenizer_pre=_text(meta, "tokenizer.ggml.pre"),
        tokens=_tokens(raw, source),
        token_types=_token_types(raw),
        merges_digest=_digest(merges),
        scores_digest=_digest(scores),
        bos_id=_id(meta, "tokenizer.ggml.bos_token_id"),
        eos_id=_id(meta, "tokenizer.ggml.eos_token_id"),
        eot_id=_id(meta, "tokenizer.ggml.eot_token_id"),
        eom_id=_id(meta, "tokenizer.ggml.eom_token_id"),
        pad_id=_id(meta, "tokenizer.ggml.padding_token_id"),
        unk_id=_id(meta, "tokenizer.ggml.unknown_token_id"),
        add_bos=_flag(meta, "tokenizer.ggml.add_bos_token"),
        add_eos=_flag(meta, "tokenizer.ggml.add_eos_token"),
        chat_template=_text(meta, "tokenizer.chat_template"),
        context_length=shape.number("context_length"),
        layers=shape.layers,
        embedding_length=shape.number("embedding_length"),
        heads=max(shape.by_layer("attention.head_count"), default=0),
        kv_heads=shape.kv_heads,
        key_length=shape.number("attention.key_length") or shape.head_size,
        value_length=shape.number("attention.value_length") or shape.head_size,
        sliding_window=shape.number("attention.sliding_window"),
        recurrent=shape.recurrent,
        experts=shape.number("expert_count"),
        experts_used=shape.number("expert_used_count"),
        nextn_layers=shape.number("nextn_predict_layers"),
        split_no=_id(meta, "split.no") or 0,
        split_count=_id(meta, "split.count") or 1,
        split_tensors=_id(meta, "split.tensors.count") or 0,
        data_offset=data_offset,
        size=file_size,
        expected_size=max((data_offset + t.offset + t.size for t in tensors), default=raw.end),
        version=raw.version,
    )


class _Shape:
    """Reads the keys that begin with the architecture's name."""

    def __init__(self, meta: dict[str, MetaValue], arch: str) -> None:
        self.meta, self.arch = meta, arch
        self.layers = self.number("block_count")

    def number(self, key: str) -> int:
        value = self.meta.get(f"{self.arch}.{key}")
        if isinstance(value, tuple):
            value = max((v for v in value if isinstance(v, int)), default=0)
        return int(value) if isinstance(value, int) and 0 <= value < 1 << 40 else 0

    def by_layer(self, key: str) -> tuple[int, ...]:
        value = self.meta.get(f"{self.arch}.{key}", 0)
        if isinstance(value, tuple):
            return tuple(v if isinstance(v, int) else 0 for v in value)
        return (value,) * min(self.layers, 4096) if isinstance(value, int) else ()

    @property
    def kv_heads(self) -> tuple[int, ...]:
        stated = self.by_layer("attention.head_count_kv")
        return stated if any(stated) else self.by_layer("attention.head_count")

    @property
    def head_size(self) -> int:
        heads = max(self.by_layer("attention.head_count"), default=0)
        return self.number("embedding_length") // heads if heads else 0

    @property
    def recurrent(self) -> bool:
        marks = (".ssm.", ".wkv.", ".shortconv.", ".kda.")
        return any(key.startswith(self.arch + mark) for key in self.meta for mark in marks)


def _metadata(raw: Raw) -> dict[str, MetaValue]:
    """Scalars and short arrays by key; long arrays (the vocabulary) have fields of their own."""
    meta: dict[str, MetaValue] = dict(raw.values)
    left = _SHORT_ARRAYS
    for key, value in raw.arrays.items():
        if value.count <= min(_SHORT_ARRAY, left):
            left -= value.count
            meta[key] = _decode(value)
    return meta


def _decode(value: RawArray) -> tuple[Scalar, ...]:
    if value.kind == STRING:
        texts = TokenTable(value.data(), value.count).texts
        return tuple(text.decode("utf-8", "replace") for text in texts)
    numbers = struct.unpack(f"<{value.count}{SCALARS[value.kind]}", value.data())
    return tuple(map(bool, numbers)) if value.kind == BOOL else numbers


def _tokens(raw: Raw, source: str) -> TokenTable:
    value = raw.arrays.get("tokenizer.ggml.tokens")
    if value is None:
        return TokenTable(b"", 0)
    if value.kind != STRING or value.count > _MAX_VOCABULARY:
        raise UnreadableFile(f"{source} has a damaged vocabulary ({value.count} tokens)", "Download it again")
    return TokenTable(value.data(), value.count)


def _token_types(raw: Raw) -> bytes:
    value = raw.arrays.get("tokenizer.ggml.token_type")
    if value is None or value.kind not in (4, 5) or value.count > _MAX_VOCABULARY:
        return b""
    data = value.data()
    if any(any(data[byte::4]) for byte in (1, 2, 3)):
        return bytes(number if 0 <= number < 256 else 0 for number in array("i", data))
    return data[::4]  # small numbers: their low bytes say it all


def _digest(value: RawArray | None) -> str:
    if value is None or not value.count:
        return ""
    hasher = hashlib.blake2b(digest_size=16)
    for start in range(value.start, value.stop, 1 << 20):
        hasher.update(value.source[start : min(start + (1 << 20), value.stop)])
    return hasher.hexdigest()


def _text(meta: dict[str, MetaValue], key: str) -> str:
    value = meta.get(key)
    return value if isinstance(value, str) else ""


def _id(meta: dict[str, MetaValue], key: str) -> int | None:
    value = meta.get(key)
    return value if type(value) is int and 0 <= value < 1 << 31 else None


def _flag(meta: dict[str, MetaValue], key: str) -> bool | None:
    value = meta.get(key)
    return value if isinstance(value, bool) else None
