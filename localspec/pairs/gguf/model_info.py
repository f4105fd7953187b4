"""What the header of a GGUF file says about a model: the record that checks, plans and listings share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from math import prod
from struct import Struct
from typing import NamedTuple

from localspec.pairs.gguf.ggml_types import BLOCKS, FILE_TYPES

Scalar = int | float | bool | str
MetaValue = Scalar | tuple[Scalar, ...]

CONTROL = 3
"""Token type of control tokens (`tokenizer.ggml.token_type`)."""

_LENGTH = Struct("<Q").unpack_from

# Texts that llama.cpp takes for an end of generation besides the ids that the header names.
_END_TEXTS = frozenset(
    text.encode()
    for text in (
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
        "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<end_of_utterance>", "<|eom_id|>", "<EOT>",
        "_<EOT>", "[EOT]", "[EOS]", "</s>", "<eos>", "<｜end▁of▁sentence｜>", "<|fim_pad|>", "<|repo_name|>",
        "<|file_sep|>",
    )
)  # fmt: skip


class Tensor(NamedTuple):
    """One tensor as the header lists it."""

    name: str
    shape: tuple[int, ...]
    """Elements per dimension, fastest first."""
    type: int
    """Number in `ggml_types.BLOCKS`."""
    offset: int
    """Bytes from the start of the file's data."""
    size: int
    """Bytes."""

    @property
    def elements(self) -> int:
        """Numbers stored."""
        return prod(self.shape)

    @property
    def layer(self) -> int | None:
        """N of `blk.N.…`; None for embeddings, output and the like."""
        found = _LAYER.match(self.name)
        return int(found[1]) if found else None


_LAYER = re.compile(r"blk\.(\d{1,6})\.")


class TokenTable:
    """The vocabulary's texts as they stand in the file: compared as bytes, taken apart when asked for."""

    def __init__(self, raw: bytes, count: int) -> None:
        self.raw = raw
        """`count` times: length as 8 bytes, little endian, then the text."""
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenTable) and self._count == other._count and self.raw == other.raw

    def __hash__(self) -> int:
        return hash((self._count, self.raw))

    def __getitem__(self, index: int) -> bytes:
        return self.texts[index]

    def __reduce__(self) -> tuple[type, tuple[bytes, int]]:
        return (TokenTable, (self.raw, self._count))

    @cached_property
    def texts(self) -> tuple[bytes, ...]:
        """Every token's text by id, as stored (byte-level alphabets stay encoded). About 30 ms for 152k."""
        raw, at, out = self.raw, 0, []
        for _ in range(self._count):
            start = at + 8
            at = start + _LENGTH(raw, at)[0]
            out.append(raw[start:at])
        return tuple(out)


@dataclass(frozen=True)
class ModelInfo:
    """A model's header. Numbers that the file does not state are 0 or None, texts are ""."""

    source: str
    """The path or address it was read from, for messages."""
    architecture: str
    """`general.architecture`; "" in the second and later files of a split model."""
    name: str
    """`general.name`."""
    file_type: str
    """The quantization, for example `Q4_K_M`: the stated file type, else the type most bytes have."""
    tensors: tuple[Tensor, ...]
    metadata: Mapping[str, MetaValue] = field(repr=False)
    """Every scalar, string and short array (up to 512 elements) of the header by its full key."""

    # --- tokenizer
    tokenizer_model: str
    """`gpt2`, `llama`, `bert`, ...; "" when the file carries no tokenizer."""
    tokenizer_pre: str
    """Pre-tokenizer name, "" when not stated."""
    tokens: TokenTable = field(repr=False)
    token_types: bytes = field(repr=False)
    """One byte an id: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte; b"" if not stated."""
    merges_digest: str
    """Hash of the merges (BPE) as stored, "" without any."""
    scores_digest: str
    """Hash of the scores (SentencePiece, unigram) as stored, "" without any."""
    bos_id: int | None
    eos_id: int | None
    eot_id: int | None
    eom_id: int | None
    pad_id: int | None
    unk_id: int | None
    add_bos: bool | None
    """None when the file does not say."""
    add_eos: bool | None
    chat_template: str = field(repr=False)
    """Jinja text, "" without one."""

    # --- shape
    context_length: int
    """Trained context in tokens."""
    layers: int
    """`block_count`, next-token-prediction layers included."""
    embedding_length: int
    heads: int
    """Attention heads (the largest, where layers differ)."""
    kv_heads: tuple[int, ...]
    """Key/value heads by layer; 0 where a layer has no attention cache."""
    key_length: int
    """Elements of one head's key."""
    value_length: int
    """Elements of one head's value."""
    sliding_window: int
    """Tokens that windowed layers look back; 0 when no layer is windowed."""
    recurrent: bool
    """Whether some layers keep a recurrent state instead of a cache (Mamba, RWKV, hybrid models)."""
    experts: int
    """Experts per mixture layer, 0 for dense models."""
    experts_used: int
    """Experts that run per token."""
    nextn_layers: int
    """Embedded multi-token-prediction layers."""

    # --- file
    split_no: int
    """Which file of a split model this is, from 0."""
    split_count: int
    """Files of the split model; 1 for an unsplit one."""
    split_tensors: int
    """Tensors of the whole split model; 0 when not stated."""
    data_offset: int
    """Bytes before the first tensor's data."""
    size: int
    """Bytes of the file; 0 when only a prefix was seen and nobody said."""
    expected_size: int
    """Bytes that the file must at least have for all its tensors to be in it."""
    version: int
    """GGUF version, 2 or 3."""

    @property
    def vocabulary_size(self) -> int:
        """Token ids with a text; the padding rows that the converter named are among them."""
        return len(self.tokens)

    @cached_property
    def tokenizer_digest(self) -> str:
        """Equal for equal tokenizers: kind, texts, types and merges. About 5 ms for 152k tokens."""
        kind = repr((self.tokenizer_model, self.tokenizer_pre, self.merges_digest))
        hasher = blake2b(kind.encode(), digest_size=16)
        hasher.update(self.tokens.raw)
        hasher.update(self.token_types)
        return hasher.hexdigest() if len(self.tokens) else ""

    @cached_property
    def parameters(self) -> int:
        """Numbers in all tensors of this file (of all files after `join_split`)."""
        return sum(tensor.elements for tensor in self.tensors)

    @cached_property
    def active_parameters(self) -> int:
        """Numbers that one token's pass uses: of the experts only those that run."""
        if not self.experts:
            return self.parameters
        idle = sum(t.elements for t in self.tensors if "_exps." in t.name)
        return self.parameters - idle + idle * min(self.experts_used, self.experts) // self.experts

    @cached_property
    def weight_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.size for tensor in self.tensors)

    @cached_property
    def layer_bytes(self) -> tuple[int, ...]:
        """Bytes of each layer's tensors."""
        sums: dict[int, int] = {}
        for tensor in self.tensors:
            if (layer := tensor.layer) is not None:
                sums[layer] = sums.get(layer, 0) + tensor.size
        return tuple(sums.get(n, 0) for n in range(max(sums) + 1)) if sums and max(sums) < 4096 else ()

    @cached_property
    def eog_ids(self) -> frozenset[int]:
        """Ids that end a generation: those named by the header and those whose text says so."""
        named = {i for i in (self.eos_id, self.eot_id, self.eom_id) if i is not None}
        if self.token_types:
            texts = self.tokens.texts
            special = (i for i, kind in enumerate(self.token_types) if kind in (CONTROL, 4))
            named.update(i for i in special if i < len(texts) and texts[i] in _END_TEXTS)
        return frozenset(named)


def quant_name(file_type: int | None, tensors: tuple[Tensor, ...]) -> str:
    """The quantization by its usual name: as stated, else the tensor type that most bytes have, else ""."""
    if file_type is not None and file_type & 1023 in FILE_TYPES:  # bit 10 means "guessed"
        return FILE_TYPES[file_type & 1023]
    sums: dict[int, int] = {}
    for tensor in tensors:
        sums[tensor.type] = sums.get(tensor.type, 0) + tensor.size
    return BLOCKS[max(sums, key=lambda kind: sums[kind])][0] if sums else ""
