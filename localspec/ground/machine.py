"""What this machine has: cores, memory, processor features. The only import of psutil."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")


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


def total_memory() -> int:
    """Bytes of RAM, or of this container's share of it."""
    total = int(psutil.virtual_memory().total)
    limit = _number(_CGROUP / "memory.max")
    return min(total, limit) if limit else total


def available_memory() -> int:
    """Bytes of RAM that can be had without swapping, in this container if it is one."""
    available = int(psutil.virtual_memory().available)
    limit, used = _number(_CGROUP / "memory.max"), _number(_CGROUP / "memory.current")
    if not limit or used is None:
        return available
    # Cached file pages count as used, but are given up when they are needed.
    cached = _stat("inactive_file") + _stat("active_file")
    return max(0, min(available, limit - used + cached))


def is_alive(pid: int) -> bool:
    """Whether a process of that number exists."""
    return bool(psutil.pid_exists(pid))


def free_disk(folder: Path) -> int:
    """Bytes that can still be written in `folder` or in the nearest parent that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return int(psutil.disk_usage(str(folder)).free)


def filesystem(folder: Path) -> str:
    """Kind of file system that `folder` is, or will be, on (`ext4`, `nfs`); "" if nobody says."""
    place = folder.absolute()
    try:
        mounts = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    except OSError:
        return ""
    return next((mounts[parent] for parent in (place, *place.parents) if parent in mounts), "")


def processor() -> str:
    """`x86_64` or `arm64`, or what the system calls itself."""
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "aarch64": "arm64"}.get(machine, machine)


def cpu_features() -> frozenset[str]:
    """Instruction sets of the processor in the system's words (`avx2`, `avx512f`); empty if it is silent."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    found = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    return frozenset(found[1].split()) if found else frozenset()


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _stat(name: str) -> int:
    try:
        text = (_CGROUP / "memory.stat").read_text()
    except OSError:
        return 0
    found = re.search(rf"^{name} (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else 0


def resident_bytes(pid: int | None = None) -> int:
    """Bytes that a process has in RAM, mapped files included; 0 when it is gone. None = this process."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def cpu_name() -> str:
    """The processor's own name, "" when the system does not tell."""
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.lower().startswith(("model name", "hardware")):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    if platform.system() == "Darwin":
        return _apple_name()
    return os.environ.get("PROCESSOR_IDENTIFIER", "") or platform.processor()


def _apple_name() -> str:
    try:
        done = subprocess.run(
            ["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.TimeoutExpired):
        return "Apple"
    return done.stdout.strip()
