"""What is known about a machine, its Python, its llama.cpp build and its way to the hub."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Loading = Literal["ok", "missing", "failed", "killed"]
Installer = Literal["pip", "uv", "uv tool", "pipx", "bundle"]
Token = Literal["none", "good", "bad", "unchecked"]


@dataclass(frozen=True, slots=True)
class System:
    """The operating system and the Python that runs."""

    os: str = "Linux"
    """`Linux`, `Darwin` or `Windows`."""
    machine: str = "x86_64"
    """Processor that this Python was built for: `x86_64` or `arm64`."""
    real_machine: str = "x86_64"
    """Processor that is really there."""
    python: tuple[int, int, int] = (3, 11, 0)
    executable: str = "python"
    installer: Installer = "pip"
    """What put localspec here, and so what must change its packages."""
    compiler: str = ""
    """C compiler that was found, "" without one."""
    cuda_toolkit: bool = False
    """Whether nvcc is there, which building for CUDA needs."""
    rocm: bool = False
    distribution: str = ""
    """Linux: `debian`, `fedora`, `arch`, ... (ID or ID_LIKE of os-release)."""


@dataclass(frozen=True, slots=True)
class Build:
    """The installed llama-cpp-python."""

    loading: Loading = "ok"
    version: str = ""
    detail: str = ""
    """What the loader said, or the signal's name."""
    missing_names: tuple[str, ...] = ()
    """Functions that localspec calls and this build has not."""
    features: frozenset[str] = frozenset()
    """Instruction sets it uses, in llama.cpp's words (`AVX2`)."""
    backends: tuple[str, ...] = ()
    """GPU parts in the package: `cuda`, `metal`, `vulkan`, ..."""
    devices: tuple[tuple[str, str, int, int], ...] = ()
    """GPUs that it sees: (name, description, free bytes, total bytes)."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A graphics card that the system knows of."""

    vendor: Literal["nvidia", "amd", "intel", "apple"]
    name: str
    total: int = 0
    """Bytes, 0 when not known."""
    used: int = 0
    """Bytes."""
    cuda: tuple[int, int] = (0, 0)
    """Newest CUDA version that the driver can run, (0, 0) when not known."""
    holders: tuple[tuple[int, str, int], ...] = ()
    """Programs that hold memory on it: (process, name, bytes)."""


@dataclass(frozen=True, slots=True)
class Hub:
    """The way to the Hugging Face hub."""

    endpoint: str = "https://huggingface.co"
    seconds: float | None = None
    """How long an answer took; None when there was none, or nobody asked."""
    error: str = ""
    """Why there was none."""
    offline: bool = False
    """Nobody asked: offline by wish."""
    token: Token = "none"
    token_from: str = ""
    """The variable or file that the token came from."""
    user: str = ""
    proxy: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that the rules judge; sizes are bytes."""

    system: System = System()
    build: Build = Build()
    cpu_features: frozenset[str] = frozenset()
    """Instruction sets of the processor in Linux' words (`avx2`)."""
    gpus: tuple[Gpu, ...] = ()
    ram_total: int = 16 << 30
    ram_free: int = 12 << 30
    cores: int = 8
    cache_folder: str = ""
    cache_free: int = 100 << 30
    cache_writable: bool = True
    cache_filesystem: str = ""
    hub: Hub = Hub()
    terminal: bool = True
    columns: int = 100
    rows: int = 30
    encoding: str = "utf-8"
    colour: bool = True
    settings_error: str = ""
    """What is wrong with config.toml, "" when nothing is."""
    settings_fix: str = ""
