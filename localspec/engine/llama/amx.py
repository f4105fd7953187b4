"""llama.cpp kept from using AMX, the matrix unit of recent Intel server processors.

GCC 12, and maybe others, compile llama.cpp's set-up of the tiles wrongly: it is read before all of it is written,
and the first pass of a quantized model (seen: Q4_K_M) kills the process. The other kernels of the same build are right.
libggml asks Linux for the unit once, while the first model is loaded, and does without it when the answer is no.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_STACK_BYTES = 8192
"""Room for a signal handler's frame with AVX-512 registers (about 3.5 kB), not with the tiles as well (11 kB)."""


class _SignalStack(ctypes.Structure):
    """`stack_t` of Linux."""

    _fields_ = [("address", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]


@contextmanager
def without_amx() -> Iterator[None]:
    """Inside, Linux refuses this process the tiles, unless it has them already.

    It refuses while a thread has an alternate signal stack too small for them (arch_prctl(2), `ENOSPC`).
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        yield
        return
    memory = ctypes.create_string_buffer(_STACK_BYTES)
    small = _SignalStack(ctypes.addressof(memory), 0, _STACK_BYTES)
    before = _SignalStack()
    sigaltstack = ctypes.CDLL(None).sigaltstack
    held = sigaltstack(ctypes.byref(small), ctypes.byref(before)) == 0
    try:
        yield
    finally:
        if held:
            sigaltstack(ctypes.byref(before), None)
