"""One model's running state: tokens in, rows of logits out, and back to any earlier length.

libllama ends the process on several mistakes. Each call here is checked first, so that a mistake of ours is
an exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from localspec.engine.llama.batch import Batch
from localspec.engine.llama.binding import last_log_lines, library
from localspec.engine.llama.memory import Memory
from localspec.engine.llama.trees import Tree, is_chain, most_path_rows
from localspec.engine.llama.weights import Weights
from localspec.engine.process.cancel import CancelFlag, strlen_address
from localspec.engine.process.last_words import last_words
from localspec.engine.settings import CACHE_TYPES
from localspec.ground.errors import Cancelled, ContextFull, EngineError

_GGML_TYPES = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20, "bf16": 30,
}  # fmt: skip
_FLASH = {"auto": -1, "off": 0, "on": 1}
_NO_ROOM = 1
_UNTOUCHED = (_NO_ROOM, -1)
"""Codes of libllama that come before anything was decoded."""
_MOST_SNAPSHOTS = 16
"""Of a running state. Each adds nodes to the compute graph, whose size is fixed: with 20 in LFM2-2.6B's shape (30
layers) or 24 in LFM2-350M's libllama ends the process. llama.cpp's own programs use up to 16."""
_SLICE = 512
"""Rows per libllama call while reading a prompt: between slices a GPU run can be cancelled."""

assert set(_GGML_TYPES) == set(CACHE_TYPES)


@dataclass(frozen=True, slots=True)
class ContextSettings:
    """How one context is made."""

    tokens: int
    """Context length; libllama rounds its own up to 256, the limit kept here is this one."""
    rows: int
    """Most rows of logits in one pass: guesses + 1. Sizes the compute buffers."""
    threads: int
    cache_type: str = "f16"
    flash_attention: Literal["auto", "on", "off"] = "auto"
    leaves: int = 1
    """Most leaves of a tree of guesses."""
    swa_full: bool = True
    """Keep sliding-window layers' whole past: more memory, and a way back to any earlier turn."""


@dataclass(frozen=True, slots=True)
class _Scored:
    """The pass that `keep` chooses from."""

    base: int
    """Tokens before it."""
    last: int
    ids: Sequence[int]
    tree: Tree | None = None
    """None = a chain."""
    paths: Sequence[Sequence[int]] = ()
    """Of a tree, one for each sequence."""


class Context:
    """A sequence in one model. One thread at a time.

    `tokens` are in the cache, at positions 0 .. length - 1. A round of speculation is one `score` and one `keep`;
    everything else may come between rounds.
    """

    def __init__(self, weights: Weights, settings: ContextSettings, cancel: CancelFlag) -> None:
        """Raises EngineError when libllama cannot make the context (memory, cache type, number of leaves)."""
        self._lib = library()
        self._weights = weights
        self._cancel = cancel
        self.n_vocab = weights.vocabulary.size
        self.capacity = settings.tokens
        """Most tokens that `length` may reach."""
        self.max_rows = settings.rows
        self.max_leaves = settings.leaves
        self._handle = self._open(settings)
        self._memory = Memory(
            self._lib,
            self._handle,
            recurrent=weights.is_recurrent,
            window=max(0, int(self._lib.llama_model_n_swa(weights.handle))),
            swa_full=settings.swa_full,
        )
        self._tokens: list[int] = []
        self._scored: _Scored | None = None
        widest = _widest_pass(settings, weights.is_recurrent)
        self._batch_size = min(max(_SLICE, widest), int(self._lib.llama_n_batch(self._handle)))
        self._batch = Batch(self._lib, self._batch_size, settings.leaves)
        self.max_rewind = self._find_max_rewind()
        """Most tokens that a pass can be cut back by without reading any again; None = any number."""

    @property
    def tokens(self) -> Sequence[int]:
        """What is in the cache. Not to be changed, and not to be kept: it is the list itself."""
        return self._tokens

    @property
    def length(self) -> int:
        """Tokens in the cache."""
        return len(self._tokens)

    # --- reading ------------------------------------------------------------------------------------

    def extend(self, tokens: Sequence[int], rows: int = 1) -> NDArray[np.float32]:
        """Decode `tokens` at the end of the sequence; logits of the last `rows` of them, shape (rows,
        n_vocab).

        The array is libllama's own memory: valid, and free to be written to, until the next call.
        Raises ContextFull before anything is read, and Cancelled; `tokens` then tells what stayed.
        """
        self._close_round()
        self._check(tokens, rows)
        if rows == 0:  # a slice of a prompt: one that is cut short must not take those before it along
            self._memory.guard(self.length)
        head = len(tokens) - rows
        done = 0
        while head - done > 0 and len(tokens) - done > self._batch_size:
            count = min(self._batch_size, head - done)
            self._read(tokens[done : done + count], 0)
            done += count
            self._memory.guard(self.length)
        self._read(tokens[done:], rows)
        return self._logits(rows)

    def score(self, last: int, ids: Sequence[int], parents: Sequence[int] | None = None) -> NDArray[np.float32]:
        """One pass over `last` and the guesses after it: row 0 is what follows `last`, row i + 1 what follows
        guess i. Shape (1 + len(ids), n_vocab), valid as `extend` says.

        `parents[i]` is the guess that guess i follows, -1 = `last`; None = each follows the one before. Until
        `keep`, `tokens` has the whole chain, or the first path of the tree. Raises as `extend`, and EngineError for
        more rows or leaves than the context was made for.
        """
        if parents is not None and not is_chain(parents, len(ids)):
            return self._score_tree(last, Tree(ids, parents))
        base = self.length
        if self._memory.recurrent and len(ids) > self._memory.snapshots:  # else `keep` can cut back to every length
            self._close_round()
            self._memory.guard(base)
        logits = self.extend([last, *ids], 1 + len(ids))
        self._scored = _Scored(base, last, ids)
        return logits

    def keep(self, path: Sequence[int]) -> None:
        """Keep `last` and these guesses of the last `score`, from the root down; every other row goes.

        Where the memory cannot be cut there, what is kept is read again. Raises EngineError when nothing was scored
        or `path` does not lead down from the root, and Cancelled.
        """
        scored = self._scored
        if scored is None:
            raise EngineError("nothing was scored that could be kept")
        if scored.tree is not None:
            leaf = scored.tree.leaf_of(path, scored.paths)
            whole = scored.paths[leaf]
            self._memory.adopt(leaf, len(scored.paths), 1 + len(whole))
            self._tokens[scored.base :] = [scored.last, *(scored.ids[node] for node in whole)]
        elif len(path) > len(scored.ids) or list(path) != list(range(len(path))):
            raise EngineError(f"the guesses {list(path)} are not the first of a chain of {len(scored.ids)}")
        self._scored = None
        self._go_to(scored.base + 1 + len(path))

    # --- going back ---------------------------------------------------------------------------------

    def rewind(self, length: int) -> int:
        """Forget every token at position `length` and later; how many tokens are left.

        They are fewer than `length` where this memory cannot go back so far: then read `tokens[left:length]` again.
        Raises EngineError when there are not so many tokens.
        """
        self._close_round()
        self._check_length(length)
        left = self._memory.rewind(self.length, length)
        del self._tokens[left:]
        return left

    def rewinds_to(self, length: int) -> int:
        """What `rewind(length)` would leave."""
        self._close_round()
        self._check_length(length)
        return self._memory.rewinds_to(self.length, length)

    def checkpoint(self) -> None:
        """Make the present length one that `rewind` reaches from any later one, where this memory needs help."""
        self._close_round()
        self._memory.checkpoint(self.length)

    # --- whole copies -------------------------------------------------------------------------------

    def state_size(self) -> int:
        """Bytes that `save` would take."""
        self._close_round()
        return self._memory.state_size()

    def save(self) -> NDArray[np.uint8]:
        """A copy of the cache, for `restore`. Raises EngineError where libllama cannot make one."""
        self._close_round()
        return self._memory.save()

    def restore(self, state: NDArray[np.uint8], tokens: Sequence[int]) -> bool:
        """Put a saved cache, which holds `tokens`, in place of this one; False when it is empty instead."""
        self._close_round()
        done = len(tokens) <= self.capacity and self._memory.restore(state, len(tokens))
        if not done:
            self._memory.clear()
        self._tokens = list(tokens) if done else []
        return done

    @property
    def checkpoint_bytes(self) -> int:
        """What all checkpoints take."""
        return self._memory.checkpoint_bytes

    def cached_length(self) -> int:
        """What libllama itself says the sequence holds; equals `length` unless something is wrong."""
        return self._memory.length()

    def warm_up(self) -> None:
        """Pay for page faults, repacking and kernel set-up now instead of in the first answer."""
        token = self._weights.vocabulary.bos or 0
        for rows in {1, min(self.max_rows, self.capacity, self._batch_size)}:
            self.extend([token] * rows, rows)
            self.rewind(0)

    def close(self) -> None:
        """Free it; safe to call twice. Its weights must still be there."""
        if self._handle:
            self._lib.llama_free(self._handle)
            self._handle = None

    def _open(self, settings: ContextSettings) -> Any:
        most = int(self._lib.llama_max_parallel_sequences())
        if not 1 <= settings.leaves <= most or settings.rows < 1 or settings.tokens < 1:
            raise EngineError(
                f"no context has {settings.tokens} tokens, {settings.rows} rows and {settings.leaves} leaves "
                f"(at most {most})"
            )
        params = context_parameters(self._lib, settings, self._weights.is_recurrent)
        self._abort = self._lib.ggml_abort_callback(strlen_address())
        params.abort_callback = self._abort
        params.abort_callback_data = self._cancel.address
        handle = self._lib.llama_init_from_model(self._weights.handle, params)
        if not handle:
            raise EngineError(
                f"libllama cannot make a context of {settings.tokens} tokens for {self._weights.path.name} "
                f"({'; '.join(last_words(last_log_lines(20))) or 'it did not say why'})",
                "Try a smaller --ctx, or another --cache-type",
            )
        return handle

    # --- parts --------------------------------------------------------------------------------------

    def _check(self, tokens: Sequence[int], rows: int) -> None:
        if not tokens or not 0 <= rows <= min(len(tokens), self.max_rows):
            raise EngineError(
                f"{rows} rows of logits asked for {len(tokens)} tokens (at most {self.max_rows})"
            )
        self._check_room(len(tokens))
        if min(tokens) < 0 or max(tokens) >= self.n_vocab:
            raise EngineError(f"a token id is outside this model's vocabulary of {self.n_vocab}")

    def _check_room(self, rows: int) -> None:
        if self.length + rows > self.capacity:
            raise ContextFull(self.length + rows, self.capacity)

    def _check_length(self, length: int) -> None:
        if not 0 <= length <= self.length:
            raise EngineError(f"cannot rewind from {self.length} to {length} tokens")

    def _read(self, tokens: Sequence[int], rows: int) -> None:
        count = len(tokens)
        code = self._decode(self._batch.chain(tokens, self.length, rows))
        if code:
            self._fail(code, count)
        self._tokens += tokens
        self._memory.after_pass(count)

    def _decode(self, batch: Any) -> int:
        """libllama's code; 0 = done."""
        if self._cancel.is_set():  # GPU backends do not poll the flag
            raise Cancelled("stopped")
        return int(self._lib.llama_decode(self._handle, batch))

    def _fail(self, code: int, count: int) -> NoReturn:
        """A call did not end well: start again from what is really there."""
        if code not in _UNTOUCHED:
            del self._tokens[self._memory.after_failure(self.length) :]
        if code == 2:
            raise Cancelled("stopped")
        reason = {1: "no room in the cache", -1: "invalid batch", -2: "out of memory"}.get(
            code, f"code {code}"
        )
        raise EngineError(f"libllama could not decode {count} tokens at position {self.length}: {reason}")

    def _score_tree(self, last: int, tree: Tree) -> NDArray[np.float32]:
        self._close_round()
        self._check([last, *tree.ids], 1 + len(tree.ids))
        leaves, base = len(tree.paths), self.length
        if leaves > self.max_leaves:
            raise EngineError(f"a tree of {leaves} leaves in a context made for {self.max_leaves}")
        paths: Sequence[Sequence[int]] = tree.paths
        rows = 1 + len(tree.ids)
        if self._memory.recurrent:
            # A running state cannot be shared by rows that part later: each path is read on its own, all in one
            # call. libllama takes those of one length together, so they stand side by side.
            paths = sorted(paths, key=len)
            rows = sum(1 + len(path) for path in paths)
            if max(map(len, paths)) > self._memory.snapshots:
                self._memory.guard(base)
        order = self._read_tree(last, tree, paths, rows)
        self._tokens += [last, *(tree.ids[node] for node in paths[0])]
        self._scored = _Scored(base, last, tree.ids, tree, paths)
        logits = self._logits(1 + len(tree.ids))
        return logits if order is None else logits[np.argsort(order)]

    def _read_tree(self, last: int, tree: Tree, paths: Sequence[Sequence[int]], rows: int) -> list[int] | None:
        """Decode a tree; the nodes in the order of the logits, None where that is their own."""
        base, leaves, order = self.length, len(paths), None
        code = 0
        for attempt in range(2):
            self._prepare_fork(leaves, compact=attempt > 0)
            if self._memory.recurrent:
                batch, order = self._batch.paths(last, tree, paths, base)
            else:
                batch = self._batch.tree(last, tree, base)
            try:
                code = self._decode(batch)
            except Cancelled:
                self._memory.drop(leaves)
                raise
            if code == 0:
                self._memory.after_pass(1 + len(paths[0]))
                return order
            self._memory.drop(leaves)
            # Cells of a small window are used again, but not while the sequences of a tree share them.
            if code != _NO_ROOM or not self._memory.has_window:
                break
        self._fail(code, rows)

    def _prepare_fork(self, leaves: int, *, compact: bool) -> None:
        try:
            if compact:
                self._memory.compact(self.length)
            self._memory.fork(self.length, leaves)
        except EngineError:
            self._tokens.clear()
            raise

    def _close_round(self) -> None:
        """Of a tree that nobody kept anything of, its first path stays."""
        scored, self._scored = self._scored, None
        if scored is not None and scored.tree is not None:
            self._memory.adopt(0, len(scored.paths), 1 + len(scored.paths[0]))

    def _go_to(self, length: int) -> None:
        """Cut the sequence to exactly `length`, reading again what is lost on the way."""
        left = self._memory.rewind(self.length, length)
        lost = self._tokens[left:length]
        del self._tokens[left:]
        if lost:
            self.extend(lost, 0)

    def _logits(self, rows: int) -> NDArray[np.float32]:
        if rows == 0:
            return np.empty((0, self.n_vocab), np.float32)
        pointer = self._lib.llama_get_logits(self._handle)
        if not pointer:
            raise EngineError("libllama returned no logits")
        flat: NDArray[np.float32] = np.ctypeslib.as_array(pointer, (rows * self.n_vocab,))
        return flat.reshape(rows, self.n_vocab)

    def _find_max_rewind(self) -> int | None:
        """Try it: two tokens in, one back. Known at load, never at the first request."""
        if self._weights.is_recurrent:
            return self._memory.snapshots
        if self.capacity < 2:
            return 0
        self.extend([self._weights.vocabulary.bos or 0] * 2, 0)
        works = self._memory.try_to_cut(1)
        self.rewind(0)
        return None if works else 0


def _widest_pass(settings: ContextSettings, recurrent: bool) -> int:
    """Most rows in one pass that is no slice of a prompt: running states read the paths of a tree one by one."""
    return most_path_rows(settings.rows, settings.leaves) if recurrent and settings.leaves > 1 else settings.rows


def context_parameters(lib: Any, settings: ContextSettings, recurrent: bool) -> Any:
    """libllama's own parameters for these settings."""
    params = lib.llama_context_default_params()
    widest = _widest_pass(settings, recurrent)
    # A tree that fits by its nodes must not fail for the rows that it repeats.
    params.n_ctx = settings.tokens + widest - settings.rows
    # n_ubatch has to exceed n_rs_seq + 1, or libllama ends the process.
    params.n_batch = params.n_ubatch = max(_SLICE, widest + 2)
    params.n_seq_max = settings.leaves
    params.kv_unified = settings.leaves > 1
    params.n_outputs_max = max(settings.rows, settings.leaves)
    params.n_threads = params.n_threads_batch = settings.threads
    params.type_k = params.type_v = _GGML_TYPES[settings.cache_type]
    params.flash_attn_type = _FLASH[settings.flash_attention]
    params.swa_full = settings.swa_full
    if recurrent:
        # Two less than the context, which bounds n_ubatch.
        params.n_rs_seq = max(min(settings.rows - 1, settings.tokens - 2, _MOST_SNAPSHOTS), 0)
    return params
