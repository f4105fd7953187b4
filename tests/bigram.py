"""GGUF files whose next-token distribution is known exactly: byte-level bigram models in the llama
architecture.

One block whose attention and feed-forward outputs are zero, so the residual stream is the token's
embedding. The embedding of token t is the one-hot e_t; RMSNorm turns it into e_t * sqrt(n), the norm's
weight 1/sqrt(n) undoes that, and output row v gives logit[v] = log P(v | t). Two such files with one
vocabulary are a pair whose acceptance rate is known: sum over v of min(p(v|t), q(v|t)).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, TokenType
from numpy.typing import NDArray

Table = NDArray[np.float64]
"""P(next | previous), shape (size, size), rows sum to 1."""

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END = 2
FIRST_BYTE = len(CONTROL)
BYTES = bytes(range(256))
LETTERS = b"\n abcdefghijklmnopqrstuvwxyz"
"""A small alphabet: its models are so small that a pass costs little more than the call."""
SIZE = FIRST_BYTE + len(BYTES) + 1
"""Control tokens, the 256 bytes, and one merge that a byte-level BPE must have."""
SMALL = FIRST_BYTE + len(LETTERS) + 1

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class BigramPair:
    """Two files and the tables behind them."""

    target: Path
    draft: Path
    p: Table
    q: Table


def make_pair(folder: Path, *, noise: float = 0.3) -> BigramPair:
    """A target that has read English, and a draft that is the target mixed with `noise` of uniform."""
    p = english_table()
    return _written(folder, p, mixed_with_uniform(p, noise))


def make_small_pair(folder: Path) -> BigramPair:
    """Random tables over the small alphabet: tokens that only one of the two may say, and all shades
    between."""
    rng = np.random.default_rng(5)
    p, q = np.full((SMALL, SMALL), 1e-9), np.full((SMALL, SMALL), 1e-9)
    letters = slice(FIRST_BYTE, FIRST_BYTE + len(LETTERS))
    for table, rarity in ((p, 0.25), (q, 0.35)):
        rows = rng.dirichlet(np.full(len(LETTERS), 0.4), SMALL)
        rows[rng.random(rows.shape) < rarity] = 0.0
        table[:, letters] += rows
    q[:, letters] += 0.8 * p[:, letters] * (rng.random((SMALL, len(LETTERS))) < 0.8)
    return _written(folder, p / p.sum(1, keepdims=True), q / q.sum(1, keepdims=True))


def _written(folder: Path, p: Table, q: Table) -> BigramPair:
    target, draft = folder / "bigram-target.gguf", folder / "bigram-draft.gguf"
    write(target, p, rows=len(p))
    write(draft, q, rows=len(q))
    return BigramPair(target, draft, exact(p), exact(q))


def english_table(end_probability: float = 0.0) -> Table:
    """Byte bigrams of a small text; every letter that occurs can follow every other."""
    text = (TEXT * 3).encode()
    counts = np.full((SIZE, SIZE), 1e-9)
    ids = np.frombuffer(text, np.uint8).astype(np.int64) + FIRST_BYTE
    np.add.at(counts, (ids[:-1], ids[1:]), 1.0)
    used = np.unique(ids)
    counts[:, used] += 0.05
    table = counts / counts.sum(1, keepdims=True)
    if end_probability:
        table *= 1 - end_probability
        table[:, END] += end_probability
    return table


def mixed_with_uniform(p: Table, noise: float) -> Table:
    """(1 - noise) * p + noise * uniform over what p uses."""
    used = p.max(0) > 1e-6
    uniform = used / used.sum()
    return (1 - noise) * p + noise * uniform


def exact(table: Table) -> Table:
    """What the model really computes: logits are 32-bit, then a softmax."""
    logits = np.log(np.maximum(table, 1e-9)).astype(np.float32).astype(np.float64)
    weights = np.exp(logits)
    return weights / weights.sum(1, keepdims=True)


def tempered(table: Table, temperature: float) -> Table:
    """The distribution at this temperature."""
    weights = np.exp(np.log(table) / temperature)
    return weights / weights.sum(1, keepdims=True)


def vocabulary(rows: int = SIZE) -> tuple[list[str], list[int], list[str]]:
    """Texts, types and merges of a byte-level BPE in which one token is one byte; rows beyond it are
    padding."""
    alphabet = LETTERS if rows < SIZE else BYTES
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in visible}
    spare = 256
    for byte in range(256):
        if byte not in letters:
            letters[byte] = chr(spare)
            spare += 1
    twin = letters[alphabet[-1]]
    texts = [*CONTROL, *(letters[byte] for byte in alphabet), twin * 2]
    types = [int(TokenType.CONTROL)] * len(CONTROL) + [int(TokenType.NORMAL)] * (len(alphabet) + 1)
    texts += [f"[PAD{row}]" for row in range(len(texts), rows)]
    types += [int(TokenType.UNUSED)] * (rows - len(types))
    return texts, types, [f"{twin} {twin}"]


def write(
    path: Path,
    table: Table,
    *,
    rows: int = SIZE,
    context: int = 4096,
    template: str | None = TEMPLATE,
    texts: list[str] | None = None,
) -> None:
    """Write the model of `table`, its vocabulary padded to `rows`; padding is very unlikely, but not
    impossible."""
    width = (rows + 31) // 32 * 32
    names, types, merges = vocabulary(rows)
    writer = GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-12)
    writer.add_rope_dimension_count(width)
    writer.add_vocab_size(rows)
    writer.add_file_type(0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(texts or names)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(END)
    writer.add_add_bos_token(False)
    if template is not None:
        writer.add_chat_template(template)
    for name, tensor in _tensors(table, rows, width).items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensors(table: Table, rows: int, width: int) -> dict[str, NDArray[np.float32]]:
    def zeros(*shape: int) -> NDArray[np.float32]:
        return np.zeros(shape, np.float32)

    size = len(table)
    embedding = zeros(rows, width)
    embedding[np.arange(rows), np.arange(rows)] = 1
    output = zeros(rows, width)
    output[:size, :size] = np.log(np.maximum(table, 1e-9)).T
    output[size:, :size] = np.log(1e-9)
    return {
        "token_embd.weight": embedding,
        "output.weight": output,
        "output_norm.weight": np.full(width, width**-0.5, np.float32),
        "blk.0.attn_norm.weight": np.ones(width, np.float32),
        "blk.0.ffn_norm.weight": np.ones(width, np.float32),
        **{f"blk.0.attn_{part}.weight": zeros(width, width) for part in ("q", "k", "v", "output")},
        "blk.0.ffn_gate.weight": zeros(32, width),
        "blk.0.ffn_up.weight": zeros(32, width),
        "blk.0.ffn_down.weight": zeros(width, 32),
    }


TEXT = (
    "The small model guesses a few words ahead and the big model reads them all at once. What it would have "
    "said itself it keeps; at the first word that it would not have said it puts its own and throws the rest "
    "away. So the text is the big model's text, and it comes sooner whenever the guesses were good. A list "
    "of names, a table of numbers or a page of code is easy to guess; a poem is hard. "
)
