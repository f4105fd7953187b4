"""The tiles of recent Intel processors stay out of reach while a model is loaded."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes
from localspec.engine.llama.amx import _SignalStack, without_amx

libc = ctypes.CDLL(None, use_errno=True)
ASK_FOR_STATE, TILES, ARCH_PRCTL = 0x1023, 18, 158

def stack():
    found = _SignalStack()
    libc.sigaltstack(None, ctypes.byref(found))
    return found.address, found.flags, found.size

before = stack()
with without_amx():
    refused = libc.syscall(ARCH_PRCTL, ASK_FOR_STATE, TILES) != 0
    inside = stack()
handed_out = libc.syscall(ARCH_PRCTL, ASK_FOR_STATE, TILES) == 0
print(refused, inside[2], stack() == before, handed_out == (" amx_tile" in open("/proc/cpuinfo").read()))
"""


@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="only there are tiles handed out"
)
def test_the_tiles_are_refused_inside_and_the_signal_stack_is_given_back() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("True 8192 True True\n", "")
