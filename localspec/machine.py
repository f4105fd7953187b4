"""What this machine has: cores and memory. The only import of psutil."""

from __future__ import annotations

import os

import psutil


def physical_cores() -> int:
    """Cores this process may use, hyper-threads not counted; at least 1.

    Decoding is bound by memory traffic, so a second thread on the same core only gets in the way.
    """
    physical = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    return max(1, min(int(physical), usable_cpus()))


def usable_cpus() -> int:
    """Logical processors this process is allowed to run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory() -> int:
    """Bytes of RAM that can be had without swapping."""
    return int(psutil.virtual_memory().available)


def resident_bytes(pid: int | None = None) -> int:
    """Bytes of RAM that a process holds, mapped model files included; None = this process."""
    return int(psutil.Process(pid).memory_info().rss)
