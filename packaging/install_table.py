#!/usr/bin/env python3
"""The table of docs/install.md, made from the commands that `localspec doctor` prints: run it to write it anew."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from localspec.doctor import commands
from localspec.doctor.facts import Gpu, Installer, System

PAGE = Path(__file__).resolve().parents[1] / "docs" / "install.md"
BEGIN, END = "<!-- table: packaging/install_table.py -->\n", "<!-- end of table -->\n"

LINUX = System("Linux", "x86_64", "x86_64", (3, 12, 0), compiler="cc", distribution="debian")
ARM = replace(LINUX, machine="arm64", real_machine="arm64")
MAC = System("Darwin", "arm64", "arm64", (3, 12, 0), compiler="cc")
WINDOWS = System("Windows", "x86_64", "x86_64", (3, 12, 0))
NVIDIA = Gpu("nvidia", "NVIDIA", cuda=(12, 5))
AMD, INTEL, APPLE = Gpu("amd", "AMD"), Gpu("intel", "Intel"), Gpu("apple", "Apple")

ROWS: tuple[tuple[str, str, System, Gpu | None], ...] = (
    ("Linux, x86-64", "CPU, ready-made", LINUX, None),
    ("Linux, x86-64", "CUDA 12.5 or later", LINUX, NVIDIA),
    ("Linux, x86-64", "Vulkan (AMD, Intel)", LINUX, AMD),
    ("Linux, x86-64", "ROCm (AMD)", replace(LINUX, rocm=True), AMD),
    ("Linux, ARM", "CUDA", ARM, NVIDIA),
    ("Linux, ARM", "Vulkan", ARM, INTEL),
    ("macOS, Apple silicon", "Metal", MAC, APPLE),
    ("Windows, x86-64", "CPU, ready-made", WINDOWS, None),
    ("Windows, x86-64", "CUDA 12.5 or later", WINDOWS, NVIDIA),
    ("Windows, x86-64", "Vulkan (AMD, Intel)", WINDOWS, AMD),
    ("Windows, x86-64", "ROCm (AMD)", replace(WINDOWS, rocm=True), AMD),
)
INSTALLERS: tuple[tuple[Installer, str], ...] = (
    ("pip", "In a virtual environment, with pip"),
    ("pipx", "With pipx"),
    ("uv tool", "With uv"),
)


def tables() -> str:
    """Markdown: one table for each way of installing."""
    return "\n".join(line for installer, title in INSTALLERS for line in _table(installer, title)) + "\n"


def _table(installer: Installer, title: str) -> Iterator[str]:
    yield f"### {title}\n"
    yield "| System | Backend | Command |"
    yield "|---|---|---|"
    for name, backend, system, gpu in ROWS:
        yield f"| {name} | {backend} | `{command(replace(system, installer=installer), gpu)}` |"
    yield ""


def command(system: System, gpu: Gpu | None) -> str:
    """What doctor prints there."""
    return commands.for_gpu(system, gpu) if gpu is not None else commands.cpu_wheel(system)


def with_tables(page: str) -> str:
    """The page with its table made anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{tables()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text("utf-8")), "utf-8")
    print(PAGE, file=sys.stderr)
