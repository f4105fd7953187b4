"""How far back a model's memory goes, and what to do where it does not go far enough.

libllama says yes to steps back that leave a wrong state behind, so its answer is never what decides here:

- a plain cache goes back to any length;
- a sliding window has thrown away what no later token needs. Going back is exact while the window before the
  new end is whole;
- a running state (recurrent models, hybrids) holds snapshots of the last pass only: `n_rs_seq` of them, fewer
  after a shorter pass, and none once one was used.

Beyond that, copies of the part that cannot be undone (checkpoints) bring an earlier length back.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.ground.errors import EngineError

CHECKPOINTS = 4
"""Most kept: the ends of the last prompts, so that one can answer again, or edit one of the last messages."""

CHECKPOINT_BYTES = 512 << 20
"""Most that they may take together. A running state is 1 to 100 MB; a window of 1024 tokens in a large model 400."""

_PARTIAL = 1
"""LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY: the running state or the window, without the cache that can be cut."""

_UINT8 = ctypes.POINTER(ctypes.c_uint8)


@dataclass(slots=True, eq=False)
class _Checkpoint:
    length: int
    state: NDArray[np.uint8]


class Memory:
    """The memory of one context. Sequence 0 is the text; others exist only from `fork` to `adopt`.

    `held` is the number of tokens in sequence 0, which the caller knows.
    """

    def __init__(self, library: Any, context: Any, *, recurrent: bool, window: int, swa_full: bool) -> None:
        """`window`: of the layers with sliding attention, in tokens; 0 = there are none."""
        self._lib = library
        self._context = context
        self._handle = library.llama_get_memory(context)
        self.recurrent = recurrent
        self.snapshots = int(library.llama_n_rs_seq(context)) if recurrent else 0
        self._cuts = True
        self._window = window
        self._swa_full = swa_full
        self._rows = 0  # of sequence 0 in the last pass
        self._rolled_back = False  # since the last pass
        self._checkpoints: list[_Checkpoint] = []
        self._guard: _Checkpoint | None = None

    @property
    def has_window(self) -> bool:
        """Whether some layers see only the last tokens."""
        return self._window > 0

    def length(self, sequence: int = 0) -> int:
        """Tokens that libllama says a sequence holds."""
        return int(self._lib.llama_memory_seq_pos_max(self._handle, sequence)) + 1

    # --- going back ---------------------------------------------------------------------------------

    def rewinds_to(self, held: int, length: int) -> int:
        """The longest length up to `length` that `rewind` can leave."""
        if length == held or (length > 0 and self._reaches(held, length)):
            return length
        nearest = self._nearest(length)
        return 0 if nearest is None else nearest.length

    def rewind(self, held: int, length: int) -> int:
        """Go back to at most `length` tokens; how many are left."""
        if length == held:
            return held
        if length > 0 and self._reaches(held, length) and self._cut(length):
            self._rolled_back = self.recurrent
            self._forget_beyond(length)
            return length
        nearest = self._nearest(length)
        if nearest is not None and self._put_back(nearest):
            self._forget_beyond(nearest.length)
            return nearest.length
        self.clear()
        return 0

    def clear(self) -> None:
        """Forget everything, checkpoints too."""
        self._lib.llama_memory_clear(self._handle, False)
        self._rows, self._rolled_back = 0, False
        self._forget_beyond(0)

    def after_pass(self, rows: int) -> None:
        """`rows` rows were added to sequence 0 in one micro-batch."""
        self._rows = rows
        self._rolled_back = False

    def after_failure(self, held: int) -> int:
        """A pass on `held` tokens was cut short; how many are left. A running state is then half written."""
        if not self.recurrent:
            self._cut(held)  # of a tree libllama leaves rows behind
            return min(held, self.length())
        nearest = self._nearest(held)
        if nearest is not None and self._put_back(nearest):
            return nearest.length
        self.clear()
        return 0

    def _reaches(self, held: int, length: int) -> bool:
        """Whether cutting the end off is exact."""
        if not self._cuts:
            return False
        if self.recurrent and (self._rolled_back or held - length > min(self.snapshots, self._rows - 1)):
            return False
        # No pass drops what a token that it reads needs, and the snapshots are those of the last pass.
        if self._window == 0 or self.recurrent:
            return True
        # Nothing is missing behind the oldest position: with a cell that is used again, libllama drops all older ones.
        return 0 <= self._oldest() <= max(0, length - self._window + 1)

    def _oldest(self) -> int:
        return int(self._lib.llama_memory_seq_pos_min(self._handle, 0))

    def try_to_cut(self, length: int) -> bool:
        """Whether libllama removes the end of a sequence at all. To be followed by `clear`."""
        self._cuts = self._cut(length)
        return self._cuts

    def _cut(self, length: int) -> bool:
        return bool(self._lib.llama_memory_seq_rm(self._handle, 0, length, -1))

    # --- checkpoints --------------------------------------------------------------------------------

    def checkpoint(self, held: int) -> None:
        """Keep a way back to the present length, where this memory needs one."""
        if held == 0 or not self._needs_checkpoints():
            return
        self._checkpoints = [kept for kept in self._checkpoints if kept.length != held]
        if self._partial_size() > CHECKPOINT_BYTES:
            return
        self._checkpoints.append(self._copy(held))
        while len(self._checkpoints) > CHECKPOINTS or self.checkpoint_bytes > CHECKPOINT_BYTES:
            del self._checkpoints[0]

    def _needs_checkpoints(self) -> bool:
        """A window that keeps everything needs them only after `restore`: what lies behind the window is not saved."""
        return self.recurrent or (self._window > 0 and (not self._swa_full or self._oldest() > 0))

    @property
    def checkpoint_bytes(self) -> int:
        """What they take."""
        return sum(kept.state.nbytes for kept in self._checkpoints)

    def guard(self, held: int) -> None:
        """A way back to the present length that the next guard may replace. It is for a running state only."""
        if not self.recurrent or held == 0 or (self._guard is not None and self._guard.length == held):
            return
        self._guard = self._copy(held, None if self._guard is None else self._guard.state)

    def _nearest(self, length: int) -> _Checkpoint | None:
        known = [*self._checkpoints, *([self._guard] if self._guard is not None else [])]
        return max((kept for kept in known if kept.length <= length), key=lambda kept: kept.length, default=None)

    def _forget_beyond(self, length: int) -> None:
        """The sequence was cut there, so it does not pass through what was behind."""
        self._checkpoints = [kept for kept in self._checkpoints if kept.length <= length]
        if self._guard is not None and self._guard.length > length:
            self._guard = None

    def _partial_size(self) -> int:
        return int(self._lib.llama_state_seq_get_size_ext(self._context, 0, _PARTIAL))

    def _copy(self, held: int, into: NDArray[np.uint8] | None = None) -> _Checkpoint:
        """The part of sequence 0 that cannot be cut. `into`: memory to use if its size fits."""
        size = self._partial_size()
        state = into if into is not None and len(into) == size else np.empty(size, np.uint8)
        pointer = state.ctypes.data_as(_UINT8)
        if size == 0 or self._lib.llama_state_seq_get_data_ext(self._context, pointer, size, 0, _PARTIAL) != size:
            raise EngineError("libllama could not copy the model's running state")
        return _Checkpoint(held, state)

    def _put_back(self, kept: _Checkpoint) -> bool:
        """Make sequence 0 what it was at that length. False, and in an unknown state, where libllama refuses."""
        size, pointer = len(kept.state), kept.state.ctypes.data_as(_UINT8)
        if self._lib.llama_state_seq_set_data_ext(self._context, pointer, size, 0, _PARTIAL) != size:
            return False
        self._rows, self._rolled_back = 0, False
        # Its order matters: the running state is back at that length by now, only the cache is still too long.
        return self._cut(kept.length) and self.length() == kept.length

    # --- whole copies -------------------------------------------------------------------------------

    def state_size(self) -> int:
        """Bytes of `save`."""
        return int(self._lib.llama_state_seq_get_size(self._context, 0))

    def save(self) -> NDArray[np.uint8]:
        """A copy of sequence 0. Raises EngineError where libllama cannot make one."""
        state = np.empty(self.state_size(), np.uint8)
        pointer = state.ctypes.data_as(_UINT8)
        if self._lib.llama_state_seq_get_data(self._context, pointer, len(state), 0) != len(state):
            raise EngineError("libllama could not copy the cache")
        return state

    def restore(self, state: NDArray[np.uint8], length: int) -> bool:
        """Put a saved sequence in place of this one; False when it is empty instead."""
        self.clear()
        pointer = state.ctypes.data_as(_UINT8)
        done = self._lib.llama_state_seq_set_data(self._context, pointer, len(state), 0)
        if done != len(state) or self.length() != length:
            self.clear()
            return False
        return True

    # --- trees --------------------------------------------------------------------------------------

    def fork(self, held: int, leaves: int) -> None:
        """Make sequences 1 .. leaves - 1 that hold the text too, one for each further leaf of a tree."""
        if self._rolled_back:
            # A copy of a sequence does not take the pending step back with it; putting the state back does it.
            self._renew(held)
        for sequence in range(1, leaves):
            self._lib.llama_memory_seq_cp(self._handle, 0, sequence, -1, -1)

    def adopt(self, sequence: int, leaves: int, rows: int) -> None:
        """The text goes on as `sequence` does, with `rows` rows of the last pass; the others are dropped."""
        for other in range(leaves):
            if other != sequence:
                self._lib.llama_memory_seq_rm(self._handle, other, -1, -1)
        if sequence:
            self._lib.llama_memory_seq_cp(self._handle, sequence, 0, -1, -1)
            self._lib.llama_memory_seq_rm(self._handle, sequence, -1, -1)
        self.after_pass(rows)

    def drop(self, leaves: int) -> None:
        """Undo `fork`, after a pass that did not happen."""
        for sequence in range(1, leaves):
            self._lib.llama_memory_seq_rm(self._handle, sequence, -1, -1)

    def compact(self, held: int) -> None:
        """Free the cells of a window that no token needs any more: they cannot be used again while several sequences
        share them."""
        self._renew(held)

    def _renew(self, held: int) -> None:
        if held and not self._put_back(self._copy(held)):
            self.clear()
            raise EngineError("libllama could not put the model's running state back")
