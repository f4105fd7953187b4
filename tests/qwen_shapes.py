"""Headers in the shape of Qwen2.5's published Q4_K_M files: their layers, sizes and types, invented words."""

from __future__ import annotations

from dataclasses import dataclass

from tests.header_writer import Q4_K, Q5_0, Q6_K, Q8_0, header, vocabulary

F32 = 0


@dataclass(frozen=True)
class Shape:
    layers: int
    width: int
    inner: int
    heads: int
    kv_heads: int
    rows: int
    published: int
    """Bytes of the published Q4_K_M file."""


SHAPES = {
    "0.5B": Shape(24, 896, 4864, 14, 2, 151936, 491_400_032),
    "1.5B": Shape(28, 1536, 8960, 12, 2, 151936, 1_117_320_736),
    "7B": Shape(28, 3584, 18944, 28, 4, 152064, 4_683_073_632),
    "14B": Shape(48, 5120, 13824, 40, 8, 152064, 8_988_110_496),
    "32B": Shape(64, 5120, 27648, 40, 8, 152064, 19_851_336_384),
}


def qwen(size: str, rows: int | None = None) -> bytes:
    """A header of that size, with a vocabulary of `rows` tokens instead of the real number."""
    shape = SHAPES[size]
    width, inner = shape.width, shape.inner
    kv = width // shape.heads * shape.kv_heads
    row_count = rows or shape.rows
    # Rows of 896 are no multiple of 256, so the 0.5B's matrices have other types than the k-quants.
    small, large, table, output = (Q4_K, Q6_K, Q4_K, Q6_K) if width % 256 == 0 else (Q5_0, Q8_0, Q5_0, Q8_0)
    down = Q4_K if inner % 256 == 0 else small
    ends = (width, row_count)
    tensors = [("token_embd.weight", ends, table), ("output.weight", ends, output)]
    for n in range(shape.layers):
        better = n % 2 == 0
        tensors += [
            (f"blk.{n}.attn_norm.weight", (width,), F32),
            (f"blk.{n}.ffn_norm.weight", (width,), F32),
            (f"blk.{n}.attn_q.weight", (width, width), small),
            (f"blk.{n}.attn_q.bias", (width,), F32),
            (f"blk.{n}.attn_k.weight", (width, kv), small),
            (f"blk.{n}.attn_k.bias", (kv,), F32),
            (f"blk.{n}.attn_v.weight", (width, kv), large if better else small),
            (f"blk.{n}.attn_v.bias", (kv,), F32),
            (f"blk.{n}.attn_output.weight", (width, width), small),
            (f"blk.{n}.ffn_gate.weight", (width, inner), small),
            (f"blk.{n}.ffn_up.weight", (width, inner), small),
            (f"blk.{n}.ffn_down.weight", (inner, width), Q6_K if better else down),
        ]
    tensors.append(("output_norm.weight", (width,), F32))
    tokens, types = vocabulary(row_count - 1, "<|im_end|>")
    return header(
        tokens, types, tensors, "qwen2",
        bos_token_id=0, eos_token_id=row_count - 1, add_bos_token=False,
        arch__context_length=32768, arch__block_count=shape.layers, arch__embedding_length=width,
        arch__feed_forward_length=inner, arch__attention__head_count=shape.heads,
        arch__attention__head_count_kv=shape.kv_heads, arch__attention__layer_norm_rms_epsilon=1e-6,
        arch__rope__freq_base=1e6,
    )  # fmt: skip
