"""Cut a GGUF file into a split model, as llama.cpp's gguf-split does it."""

from __future__ import annotations

import struct
from pathlib import Path

from localspec.pairs.gguf.header import read_header
from localspec.pairs.gguf.model_info import Tensor

_ALIGNMENT = 32


def split_model(source: Path, folder: Path, stem: str, parts: int) -> list[Path]:
    """Write `{stem}-00001-of-0000N.gguf` and its siblings into `folder`; returns their paths."""
    info = read_header(source)
    share = -(-len(info.tensors) // parts)
    paths = []
    with open(source, "rb") as file:
        head = file.read(info.data_offset)
        keys_end = head.index(_named(info.tensors[0].name) + struct.pack("<I", len(info.tensors[0].shape)))
        key_count = struct.unpack_from("<Q", head, 16)[0]
        for part in range(parts):
            tensors = info.tensors[part * share : (part + 1) * share]
            split = _key("split.no", 2, struct.pack("<H", part))
            split += _key("split.count", 2, struct.pack("<H", parts))
            split += _key("split.tensors.count", 5, struct.pack("<i", len(info.tensors)))
            keys, count = (head[24:keys_end], key_count) if part == 0 else (b"", 0)
            start = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), count + 3) + keys + split + _infos(tensors)
            path = folder / f"{stem}-{part + 1:05}-of-{parts:05}.gguf"
            with open(path, "wb") as out:
                out.write(_padded(start))
                for tensor in tensors:
                    file.seek(info.data_offset + tensor.offset)
                    out.write(_padded(file.read(tensor.size)))
            paths.append(path)
    return paths


def _infos(tensors: tuple[Tensor, ...]) -> bytes:
    infos, offset = b"", 0
    for tensor in tensors:
        dims = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
        infos += _named(tensor.name) + dims + struct.pack("<IQ", tensor.type, offset)
        offset += -(-tensor.size // _ALIGNMENT) * _ALIGNMENT
    return infos


def _named(name: str) -> bytes:
    return struct.pack("<Q", len(name)) + name.encode()


def _key(name: str, kind: int, value: bytes) -> bytes:
    return _named(name) + struct.pack("<I", kind) + value


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % _ALIGNMENT)
