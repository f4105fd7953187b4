"""One walk over the bytes of a GGUF header: keys, arrays and tensors, before anybody asks what they mean.

Every count and length is checked against what is left before anything is allocated for it.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from itertools import repeat
from math import prod
from typing import NoReturn

from localspec.ground.errors import UnreadableFile
from localspec.ground.terminal import one_line
from localspec.pairs.gguf.ggml_types import BLOCKS, REMOVED
from localspec.pairs.gguf.model_info import Scalar, Tensor

MAX_HEADER = 64 << 20
"""Bytes; the largest real ones (big vocabularies with merges) are near 15 MB."""
_MAX_KEYS = 1 << 16
_MAX_TENSORS = 100_000
_MAX_STRING = 4 << 20
_MAX_STRING_TOTAL = 16 << 20
_MAX_TEXTS = 1 << 22
_MAX_DATA = 1 << 50

STRING, _ARRAY, BOOL = 8, 9, 7
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
_WIDTH = {kind: struct.calcsize("<" + code) for kind, code in SCALARS.items()}
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")

Buffer = bytes | memoryview | mmap.mmap


class NeedMoreBytes(Exception):
    """The prefix ends inside the header; at least `need` bytes from the start of the file are wanted."""

    def __init__(self, need: int) -> None:
        super().__init__(f"the header needs at least {need} bytes")
        self.need = need


@dataclass(frozen=True, slots=True)
class RawArray:
    """Where an array's elements stand; nothing is copied before somebody wants them."""

    kind: int
    count: int
    start: int
    stop: int
    source: Buffer

    def data(self) -> bytes:
        """The bytes of its elements, copied."""
        return bytes(self.source[self.start : self.stop])


class Raw:
    """The header's parts before anybody asked what they mean."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.values: dict[str, Scalar] = {}
        self.arrays: dict[str, RawArray] = {}
        self.tensors: list[Tensor] = []
        self.end = 0
        self.alignment = 32


class Reader:
    """One walk over the bytes; `at` is the next unread one."""

    def __init__(self, data: Buffer, source: str) -> None:
        self.data = bytes(data[:MAX_HEADER]) if isinstance(data, memoryview) else data
        self.end = min(len(data), MAX_HEADER)
        self.at = 0
        self.source = source
        self.string_bytes = 0
        self.texts = 0

    def bad(self, what: str) -> NoReturn:
        """Raises UnreadableFile that says what is wrong."""
        raise UnreadableFile(f"{self.source} has a damaged header: {one_line(what)}", "Download it again")

    def take(self, count: int) -> int:
        """Step over `count` bytes; returns where they begin."""
        start = self.at
        if start + count > self.end:
            if start + count > MAX_HEADER:
                self.bad(f"it asks for {start + count} bytes, more than any real one has")
            raise NeedMoreBytes(start + count)
        self.at = start + count
        return start

    def u32(self) -> int:
        """The next 4 bytes as a number."""
        return int(_U32.unpack_from(self.data, self.take(4))[0])

    def u64(self) -> int:
        """The next 8 bytes as a number."""
        return int(_U64.unpack_from(self.data, self.take(8))[0])

    def string(self, limit: int, what: str) -> str:
        """The next text; `limit` is in bytes, `what` names it in an error."""
        length = self.u64()
        self.string_bytes += length
        if length > limit or self.string_bytes > _MAX_STRING_TOTAL:
            self.bad(f"{what} of {length} bytes")
        start = self.take(length)
        return self.data[start : self.at].decode("utf-8", "replace")

    def read(self) -> Raw:
        """The whole header. Raises UnreadableFile, and NeedMoreBytes when there are too few."""
        self.at = 4
        raw = Raw(self.u32())
        tensors, keys = self.u64(), self.u64()
        if tensors > _MAX_TENSORS:
            self.bad(f"{tensors} tensors")
        if keys > _MAX_KEYS:
            self.bad(f"{keys} keys")
        for _ in range(keys):
            self.key(raw)
        alignment = raw.values.get("general.alignment", 32)
        if type(alignment) is not int or not 0 < alignment <= 1 << 20 or alignment & (alignment - 1):
            self.bad(f"an alignment of {alignment}")
        raw.alignment = alignment
        names: set[str] = set()
        for _ in range(tensors):
            tensor = self.tensor(alignment)
            if tensor.name in names:
                self.bad(f"tensor {tensor.name} twice")
            names.add(tensor.name)
            raw.tensors.append(tensor)
        raw.end = self.at
        return raw

    def key(self, raw: Raw) -> None:
        """The next key with its value, into `raw`."""
        key = self.string(65535, "a key")
        if key in raw.values or key in raw.arrays:
            self.bad(f"key {key} twice")
        kind = self.u32()
        if kind == _ARRAY:
            raw.arrays[key] = self.array(key)
        elif kind == STRING:
            raw.values[key] = self.string(_MAX_STRING, f"a text ({key})")
        elif kind in SCALARS:
            (value,) = struct.unpack_from("<" + SCALARS[kind], self.data, self.take(_WIDTH[kind]))
            raw.values[key] = bool(value) if kind == BOOL else value
        else:
            self.bad(f"value type {kind} ({key})")

    def array(self, key: str) -> RawArray:
        """The next list, stepped over; texts are counted."""
        kind, count = self.u32(), self.u64()
        start = self.at
        if kind == STRING:
            self.texts += count
            if self.texts > _MAX_TEXTS:
                self.bad(f"a list of {count} texts ({key})")
            self.skip_texts(count)
        elif kind in _WIDTH:
            self.take(_WIDTH[kind] * count)
        else:
            self.bad("a list of lists" if kind == _ARRAY else f"a list of type {kind} ({key})")
        return RawArray(kind, count, start, self.at, self.data)

    def skip_texts(self, count: int) -> None:
        """Step over so many texts."""
        # The one hot loop: 300 000 turns for a 152k vocabulary and its merges.
        data, at, length = self.data, self.at, _U64.unpack_from
        try:
            for _ in repeat(None, count):
                at += 8 + length(data, at)[0]
        except (struct.error, IndexError, OverflowError):  # `at` has left the data, or any machine's integers
            at += 8
        if at > self.end:
            self.take(at - self.at)
        self.at = at

    def tensor(self, alignment: int) -> Tensor:
        """The next description of a tensor."""
        name = self.string(1024, "a tensor name")
        dims = self.u32()
        if not 0 < dims <= 4:
            self.bad(f"tensor {name} with {dims} dimensions")
        shape = struct.unpack_from(f"<{dims}Q", self.data, self.take(8 * dims))
        kind, offset = self.u32(), self.u64()
        if kind in REMOVED:
            raise UnreadableFile(
                f"{self.source} uses tensor type {kind}, a per-architecture quant that llama.cpp removed",
                "Download another quant, for example Q4_0",
            )
        if kind not in BLOCKS:
            raise UnreadableFile(
                f"{self.source} uses tensor type {kind} ({name}), which this version does not know",
                "Update localspec, or download another quant",
            )
        _, elements, block = BLOCKS[kind]
        total = prod(shape)
        if total == 0 or total > _MAX_DATA or shape[0] % elements:
            self.bad(f"tensor {name} of shape {'x'.join(map(str, shape))}")
        size = total // elements * block
        if offset % alignment or offset > _MAX_DATA:
            self.bad(f"tensor {name} at offset {offset}")
        return Tensor(name, shape, kind, offset, size)
