"""Small random models of several architectures, in 32-bit floats, with the byte vocabulary of `tests.bigram`.

Real forward passes with every kind of memory: plain, sliding window, running state, and both together. They say
nonsense, but varied nonsense: next to what the layers compute, each token prefers one other token, so that greedy text
wanders about. Shapes are written as ggml writes them: `matrix(name, inputs, outputs)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter
from numpy.typing import NDArray

from tests.bigram import END, FIRST_BYTE, SIZE, TEMPLATE, vocabulary

WIDTH, HEADS, KV_HEADS, INNER = 64, 4, 2, 96
HEAD = WIDTH // HEADS
WINDOW = 32
"""Tokens that the sliding layers of `gemma4` see."""
CONTEXT = 4096

Float32 = NDArray[np.float32]


class TinyModel:
    """One file being written: metadata by `set`, tensors by the other methods, then `write`."""

    def __init__(self, path: Path, architecture: str, seed: int, *, layers: int, kv_heads: int | Sequence[int]) -> None:
        self.architecture = architecture
        self.random = np.random.default_rng(seed)
        self.tensors: dict[str, Float32] = {}
        """What was written, by name: shape (outputs, inputs)."""
        self._writer = writer = GGUFWriter(path, architecture)
        writer.add_name(path.stem)
        writer.add_context_length(CONTEXT)
        writer.add_embedding_length(WIDTH)
        writer.add_block_count(layers)
        writer.add_feed_forward_length(INNER)
        writer.add_head_count(HEADS)
        writer.add_head_count_kv(kv_heads if isinstance(kv_heads, int) else list(kv_heads))
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_freq_base(10000.0)
        writer.add_key_length(HEAD)
        writer.add_value_length(HEAD)
        writer.add_rope_dimension_count(HEAD)
        writer.add_vocab_size(SIZE)
        writer.add_file_type(0)
        self._vocabulary()

    def set(self, **keys: int | float | bool | list[int] | list[bool]) -> None:
        """Metadata of the architecture; `a__b` stands for the key `architecture.a.b`."""
        for name, value in keys.items():
            key = f"{self.architecture}.{name.replace('__', '.')}"
            if isinstance(value, bool):
                self._writer.add_bool(key, value)
            elif isinstance(value, int):
                self._writer.add_uint32(key, value)
            elif isinstance(value, float):
                self._writer.add_float32(key, value)
            else:
                self._writer.add_array(key, value)

    def matrix(self, name: str, inputs: int, outputs: int, scale: float = 1.0) -> Float32:
        """Random weights that keep the size of what goes through them, times `scale`."""
        values = self.random.standard_normal((outputs, inputs)) * scale / np.sqrt(inputs)
        return self.put(name, values.astype(np.float32))

    def vector(self, name: str, size: int, middle: float = 1.0) -> Float32:
        """Random values around `middle`."""
        return self.put(name, (middle + 0.1 * self.random.standard_normal(size)).astype(np.float32))

    def put(self, name: str, values: Float32) -> Float32:
        """These very values."""
        self.tensors[name] = values
        self._writer.add_tensor(name, values)
        return values

    def ends(self, embedding_scale: float = 1.0, preference: float = 1.5, norm: str = "output_norm.weight") -> None:
        """Embedding, last norm and output. `preference`: how much each token's own favourite is preferred."""
        embedding = self.matrix("token_embd.weight", WIDTH, SIZE, embedding_scale * np.sqrt(WIDTH))
        self.vector(norm, WIDTH)
        output = self.random.standard_normal((SIZE, WIDTH)) / np.sqrt(WIDTH)
        favourites = np.roll(self.random.permutation(SIZE), 1)
        output[favourites] += preference * embedding / embedding_scale / np.sqrt(WIDTH)
        output[:FIRST_BYTE] = 0  # no control token is ever the favourite
        self.put("output.weight", output.astype(np.float32))

    def attention(self, block: str, *, queries: int = 1, norms: bool = False) -> None:
        """Weights of one attention; `queries`: 2 where a gate lies beside them."""
        self.matrix(f"{block}attn_q.weight", WIDTH, HEADS * HEAD * queries)
        self.matrix(f"{block}attn_k.weight", WIDTH, KV_HEADS * HEAD)
        self.matrix(f"{block}attn_v.weight", WIDTH, KV_HEADS * HEAD)
        self.matrix(f"{block}attn_output.weight", HEADS * HEAD, WIDTH)
        if norms:
            self.vector(f"{block}attn_q_norm.weight", HEAD)
            self.vector(f"{block}attn_k_norm.weight", HEAD)

    def feed_forward(self, block: str) -> None:
        """Weights of one gated feed-forward layer."""
        self.matrix(f"{block}ffn_gate.weight", WIDTH, INNER)
        self.matrix(f"{block}ffn_up.weight", WIDTH, INNER)
        self.matrix(f"{block}ffn_down.weight", INNER, WIDTH)

    def write(self) -> dict[str, Float32]:
        """Close the file; its tensors."""
        self._writer.write_header_to_file()
        self._writer.write_kv_data_to_file()
        self._writer.write_tensors_to_file()
        self._writer.close()
        return self.tensors

    def _vocabulary(self) -> None:
        names, types, merges = vocabulary()
        writer: Any = self._writer
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(names)
        writer.add_token_types(types)
        writer.add_token_merges(merges)
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(END)
        writer.add_add_bos_token(False)
        writer.add_chat_template(TEMPLATE)


def llama(path: Path, seed: int = 1, layers: int = 4) -> dict[str, Float32]:
    """A plain cache."""
    model = TinyModel(path, "llama", seed, layers=layers, kv_heads=KV_HEADS)
    model.ends()
    for layer in range(layers):
        block = f"blk.{layer}."
        model.vector(f"{block}attn_norm.weight", WIDTH)
        model.attention(block)
        model.vector(f"{block}ffn_norm.weight", WIDTH)
        model.feed_forward(block)
    return model.write()


def lfm2(path: Path, seed: int = 6, layers: str = "CCACCA", kernel: int = 3) -> dict[str, Float32]:
    """A hybrid with snapshots. C = short convolution over `kernel` tokens, A = attention."""
    kv_heads = [KV_HEADS if kind == "A" else 0 for kind in layers]
    model = TinyModel(path, "lfm2", seed, layers=len(layers), kv_heads=kv_heads)
    model.set(shortconv__l_cache=kernel)
    model.ends(norm="token_embd_norm.weight")  # its name for the last norm
    for layer, kind in enumerate(layers):
        block = f"blk.{layer}."
        model.vector(f"{block}attn_norm.weight", WIDTH)
        model.vector(f"{block}ffn_norm.weight", WIDTH)
        model.feed_forward(block)
        if kind == "A":
            model.attention(block, norms=True)
        else:
            model.matrix(f"{block}shortconv.conv.weight", kernel, WIDTH)
            model.matrix(f"{block}shortconv.in_proj.weight", WIDTH, 3 * WIDTH, 2.0)
            model.matrix(f"{block}shortconv.out_proj.weight", WIDTH, WIDTH)
    return model.write()


def qwen35(path: Path, seed: int = 11, layers: int = 4) -> dict[str, Float32]:
    """A hybrid with snapshots: gated delta nets, every fourth layer attention (M-RoPE), one MTP block at the end."""
    model = TinyModel(path, "qwen35", seed, layers=layers + 1, kv_heads=KV_HEADS)
    state, groups, heads, kernel = 16, 2, 2, 4
    mixed = 2 * state * groups + state * heads
    model.set(
        rope__dimension_sections=[HEAD // 2, 0, 0, 0], ssm__conv_kernel=kernel, ssm__inner_size=state * heads,
        ssm__state_size=state, ssm__time_step_rank=heads, ssm__group_count=groups, full_attention_interval=4,
        nextn_predict_layers=1,
    )  # fmt: skip
    model.ends()
    for layer in range(layers + 1):
        block, predicts = f"blk.{layer}.", layer == layers
        model.vector(f"{block}attn_norm.weight", WIDTH)
        model.vector(f"{block}post_attention_norm.weight", WIDTH)
        model.feed_forward(block)
        if predicts or (layer + 1) % 4 == 0:
            model.attention(block, queries=2, norms=True)
        else:
            model.matrix(f"{block}attn_qkv.weight", WIDTH, mixed)
            model.matrix(f"{block}attn_gate.weight", WIDTH, state * heads)
            model.matrix(f"{block}ssm_conv1d.weight", kernel, mixed)
            model.vector(f"{block}ssm_dt.bias", heads, 0.0)
            model.put(f"{block}ssm_a", -0.2 * np.abs(model.random.standard_normal(heads)).astype(np.float32))
            model.matrix(f"{block}ssm_beta.weight", WIDTH, heads)
            model.matrix(f"{block}ssm_alpha.weight", WIDTH, heads)
            model.vector(f"{block}ssm_norm.weight", state)
            model.matrix(f"{block}ssm_out.weight", state * heads, WIDTH)
        if predicts:
            model.matrix(f"{block}nextn.eh_proj.weight", 2 * WIDTH, WIDTH)
            for norm in ("enorm", "hnorm", "shared_head_norm"):
                model.vector(f"{block}nextn.{norm}.weight", WIDTH)
    return model.write()


def gemma4(path: Path, seed: int = 8, layers: int = 4) -> dict[str, Float32]:
    """Sliding window and full attention in turn."""
    model = TinyModel(path, "gemma4", seed, layers=layers, kv_heads=KV_HEADS)
    model.set(
        attention__sliding_window=WINDOW, attention__sliding_window_pattern=[layer % 2 == 0 for layer in range(layers)],
        attention__shared_kv_layers=0, attention__key_length_swa=HEAD, attention__value_length_swa=HEAD,
        rope__dimension_count_swa=HEAD, rope__freq_base_swa=10000.0, embedding_length_per_layer_input=0,
    )  # fmt: skip
    # This architecture multiplies embeddings by the root of their width.
    model.ends(embedding_scale=0.15)
    model.put("rope_freqs.weight", np.ones(HEAD // 2, np.float32))
    for layer in range(layers):
        block = f"blk.{layer}."
        model.vector(f"{block}attn_norm.weight", WIDTH)
        model.attention(block, norms=True)
        model.vector(f"{block}post_attention_norm.weight", WIDTH, 0.5)
        model.vector(f"{block}ffn_norm.weight", WIDTH)
        model.feed_forward(block)
        model.vector(f"{block}post_ffw_norm.weight", WIDTH, 0.5)
    return model.write()


def mamba(path: Path, seed: int = 14, layers: int = 3) -> dict[str, Float32]:
    """A running state alone, without snapshots."""
    model = TinyModel(path, "mamba", seed, layers=layers, kv_heads=0)
    inner, state, kernel, rank = 2 * WIDTH, 8, 4, 4
    model.set(ssm__conv_kernel=kernel, ssm__inner_size=inner, ssm__state_size=state, ssm__time_step_rank=rank)
    model.ends()
    for layer in range(layers):
        block = f"blk.{layer}."
        model.vector(f"{block}attn_norm.weight", WIDTH)
        model.matrix(f"{block}ssm_in.weight", WIDTH, 2 * inner)
        model.matrix(f"{block}ssm_conv1d.weight", kernel, inner)
        model.vector(f"{block}ssm_conv1d.bias", inner, 0.0)
        model.matrix(f"{block}ssm_x.weight", inner, rank + 2 * state)
        model.matrix(f"{block}ssm_dt.weight", rank, inner)
        model.vector(f"{block}ssm_dt.bias", inner, 0.0)
        model.put(f"{block}ssm_a", -np.abs(model.random.standard_normal((inner, state))).astype(np.float32))
        model.vector(f"{block}ssm_d", inner)
        model.matrix(f"{block}ssm_out.weight", inner, WIDTH)
    return model.write()


TINY_MODELS: dict[str, Callable[[Path], dict[str, Float32]]] = {
    "llama": llama,
    "lfm2": lfm2,
    "qwen35": qwen35,
    "gemma4": gemma4,
    "mamba": mamba,
}
"""Writers by architecture."""
