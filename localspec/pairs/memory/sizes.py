"""How many bytes a model takes once it runs, from its header alone.

Weights are as the file has them. Caches follow libllama's rules: a context is rounded up to 256 tokens,
quantized cache types pay for their scales, recurrent layers keep a state instead. Compute buffers follow a
formula that was compared with libllama's own numbers; for local files those numbers themselves are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from localspec.pairs.gguf.ggml_types import BLOCKS
from localspec.pairs.gguf.model_info import ModelInfo, Tensor
from localspec.pairs.names.kinds import state_bytes

MIB = 1 << 20
MICRO_BATCH = 512
"""Prompt tokens that the engine decodes at once."""

CACHE_BITS: Mapping[str, tuple[int, int]] = {
    "f32": (1, 4), "f16": (1, 2), "bf16": (1, 2), "q8_0": (32, 34), "q5_1": (32, 24), "q5_0": (32, 22),
    "q4_1": (32, 20), "q4_0": (32, 18), "iq4_nl": (32, 18),
}  # fmt: skip
"""Cache type -> elements a block, bytes a block."""

REPACKED_X86 = frozenset({"Q4_0", "Q4_K", "IQ4_NL"})
"""Tensor types that libllama copies into another order on a CPU with AVX2."""
REPACKED_ARM = frozenset({"Q4_0", "Q4_K", "IQ4_NL", "Q8_0"})
_LOOKED_UP = ("token_embd", "per_layer_token_embd", "position_embd", "token_types")


@dataclass(frozen=True, slots=True)
class Measured:
    """What libllama itself says about one model and context; bytes."""

    compute: int
    """Compute buffers on all devices together."""
    cache: int
    """KV caches and states."""


def padded(tokens: int) -> int:
    """A context as libllama rounds it."""
    return -(-tokens // 256) * 256


def cache_bytes(info: ModelInfo, context: int, cache_type: str = "f16") -> tuple[int, ...]:
    """KV cache by layer, for one sequence of `context` tokens; 0 for layers without attention."""
    elements, size = CACHE_BITS[cache_type]
    rows = padded(context)
    return tuple(rows * width // elements * size for width in _cache_widths(info))


def _cache_widths(info: ModelInfo) -> list[int]:
    """Cached elements a token, by layer."""
    heads = list(info.kv_heads[: info.layers])
    layers = info.layers - info.nextn_layers
    interval = info.metadata.get(f"{info.architecture}.full_attention_interval")
    rank = info.metadata.get(f"{info.architecture}.attention.kv_lora_rank")
    widths = []
    for layer in range(layers):
        per_layer = heads[layer] if layer < len(heads) else 0
        if info.recurrent and isinstance(interval, int) and interval > 0 and (layer + 1) % interval:
            per_layer = 0
        # With latent attention (MLA) one compressed row serves as key and value.
        latent = isinstance(rank, int) and rank > 0 and per_layer == 1
        widths.append(per_layer * (info.key_length if latent else info.key_length + info.value_length))
    return widths


def states_bytes(info: ModelInfo, rewind_slots: int) -> int:
    """Recurrent state of one sequence, with one copy more for each guess that may be taken back."""
    return state_bytes(info) * (1 + rewind_slots) if info.recurrent else 0


def compute_bytes(info: ModelInfo, context: int, rows: int) -> int:
    """Compute buffer for `MICRO_BATCH` prompt tokens, or for `rows` guesses with all their logits."""
    width = info.embedding_length
    inner = _inner(info)
    prompt = MICRO_BATCH * 4 * (3 * inner + 4 * width)
    logits = rows * 4 * (info.vocabulary_size + 2 * width)
    mask = MICRO_BATCH * padded(context) * 2
    return max(prompt, logits) + mask


def _inner(info: ModelInfo) -> int:
    """Width of the feed-forward part that one token runs through."""

    def number(key: str) -> int:
        value = info.metadata.get(f"{info.architecture}.{key}")
        if isinstance(value, tuple):
            value = max((v for v in value if isinstance(v, int)), default=0)
        return value if isinstance(value, int) and value > 0 else 0

    dense = number("feed_forward_length")
    if info.experts:
        return max(dense, info.experts_used * number("expert_feed_forward_length"))
    return dense


def output_bytes(info: ModelInfo, rows: int) -> int:
    """Logits of `rows` tokens, in RAM."""
    return rows * info.vocabulary_size * 4


def repacked(tensor: Tensor, types: frozenset[str]) -> bool:
    """Whether a CPU keeps a second, reordered copy of this matrix."""
    if BLOCKS[tensor.type][0] not in types or len(tensor.shape) < 2 or tensor.shape[1] % 8:
        return False
    return not tensor.name.startswith(_LOOKED_UP)


def whole(info: ModelInfo, size: int) -> ModelInfo:
    """A split model of `size` bytes, of which only the first file's header is known: its layers evenly filled."""
    if info.split_count == 1 or not info.layers:
        return info
    each = size // info.layers
    return replace(info, tensors=tuple(Tensor(f"blk.{n}.all", (each,), 24, 0, each) for n in range(info.layers)))


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes of a model's weights, by what can be placed on its own."""

    layers: tuple[int, ...]
    repacked: tuple[int, ...]
    """Bytes of the second copies that a CPU makes, by layer."""
    output: int
    """Output matrix and norm: they move with the last layer to go to a GPU first."""
    output_repacked: int
    embedding: int
    """Token embeddings: always in RAM."""
    tied: bool
    """The output matrix is the embedding table; on a GPU it is a second copy."""

    @property
    def total(self) -> int:
        """All weights in RAM, second copies not counted."""
        return sum(self.layers) + (0 if self.tied else self.output) + self.embedding


def weights(info: ModelInfo, repacked_types: frozenset[str] = REPACKED_X86) -> Weights:
    """Where a model's bytes are."""
    count = info.layers - info.nextn_layers  # prediction layers are not loaded
    layers, copies = [0] * count, [0] * count
    output = output_copy = embedding = 0
    table = next((t.size for t in info.tensors if t.name == "token_embd.weight"), 0)
    tied = not any(tensor.name == "output.weight" for tensor in info.tensors)
    for tensor in info.tensors:
        copy = tensor.size if repacked(tensor, repacked_types) else 0
        layer = tensor.layer
        if layer is not None and layer >= count:
            continue
        if layer is not None:
            layers[layer] += tensor.size
            copies[layer] += copy
        elif tensor.name.startswith(_LOOKED_UP):
            embedding += tensor.size
        else:
            output += tensor.size
            output_copy += copy
    return Weights(
        layers=tuple(layers),
        repacked=tuple(copies),
        output=table if tied else output,
        output_repacked=output_copy,
        embedding=embedding,
        tied=tied,
    )
