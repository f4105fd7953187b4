"""The exact command that changes this installation, for the tool and the shell that it was made with."""

from __future__ import annotations

from localspec.doctor.facts import Gpu, System

PACKAGE = "llama-cpp-python"
WHEELS = "https://abetlen.github.io/llama-cpp-python/whl/"
"""The project's own wheels: one folder a backend (its README lists them)."""

_CUDA_WHEELS = ((13, 2), (13, 0), (12, 5), (12, 4), (12, 3), (12, 2), (12, 1), (11, 8))
_WHEEL_PYTHONS = ((3, 10), (3, 11), (3, 12))
CMAKE = {"cuda": "GGML_CUDA", "metal": "GGML_METAL", "vulkan": "GGML_VULKAN", "rocm": "GGML_HIP"}


def for_gpu(system: System, gpu: Gpu) -> str:
    """How to get a build that can use this card."""
    backend = backend_for(system, gpu)
    folder = _folder(system, backend, gpu.cuda)
    if folder and system.python[:2] in _WHEEL_PYTHONS:
        return wheel(system, folder)
    return from_source(system, f"-D{CMAKE[backend]}=on")


def backend_for(system: System, gpu: Gpu) -> str:
    """The backend that serves a card best."""
    if gpu.vendor == "nvidia":
        return "cuda"
    if gpu.vendor == "apple":
        return "metal"
    return "rocm" if gpu.vendor == "amd" and system.rocm else "vulkan"


def _folder(system: System, backend: str, cuda: tuple[int, int]) -> str:
    """Folder of the wheel index, "" when there is no wheel for this system."""
    if backend == "metal":
        return "metal"
    if system.machine != "x86_64":
        return ""
    if backend == "cuda":
        newest = next((version for version in _CUDA_WHEELS if version <= cuda), None)
        return f"cu{newest[0]}{newest[1]}" if newest else ("cu124" if cuda == (0, 0) else "")
    if backend == "rocm":
        return "hip-radeon" if system.os == "Windows" else "rocm72"
    return "vulkan"


def cpu_wheel(system: System) -> str:
    """A ready build that every processor of this kind can run."""
    return wheel(system, "cpu")


def wheel(system: System, folder: str) -> str:
    """Install the wheel of one backend. Caches are passed by: they hand the old build out again."""
    index = f"{WHEELS}{folder}"
    if system.installer in ("uv tool", "bundle"):  # an app folder stays as it is: install beside it
        return f"uv tool install --reinstall --no-cache --index {index} localspec"
    if system.installer == "uv":
        return f"{_uv(system)} --index {index} {PACKAGE}"
    # pip takes the newest version of all indexes, so a source package must not be in the running.
    return f"{_pip(system)} --only-binary {PACKAGE} --extra-index-url {index} {PACKAGE}"


def from_source(system: System, cmake_arguments: str) -> str:
    """Build it here, for exactly this machine."""
    if system.installer in ("uv tool", "bundle"):
        install = f"uv tool install --reinstall --no-cache --no-binary-package {PACKAGE} localspec"
    elif system.installer == "uv":
        install = f"{_uv(system)} --no-binary-package {PACKAGE} {PACKAGE}"
    else:
        install = f"{_pip(system)} --no-binary {PACKAGE} {PACKAGE}"
    if system.os == "Windows":  # PowerShell
        return f'$env:CMAKE_ARGS="{cmake_arguments}"; {install}'
    return f'CMAKE_ARGS="{cmake_arguments}" {install}'


def _uv(system: System) -> str:
    return f"uv pip install --python {system.executable} --no-cache --reinstall-package {PACKAGE}"


def _pip(system: System) -> str:
    pip = "pipx runpip localspec" if system.installer == "pipx" else f"{system.executable} -m pip"
    return f"{pip} install --force-reinstall --no-cache-dir --no-deps"


def compiler(system: System) -> str:
    """How to get a C compiler and CMake."""
    if system.os == "Darwin":
        return "xcode-select --install"
    if system.os == "Windows":
        return "winget install Microsoft.VisualStudio.2022.BuildTools Kitware.CMake"
    packages = {
        "debian": "sudo apt install build-essential cmake",
        "fedora": "sudo dnf install gcc-c++ make cmake",
        "arch": "sudo pacman -S --needed base-devel cmake",
        "suse": "sudo zypper install gcc-c++ make cmake",
        "alpine": "sudo apk add build-base cmake",
    }
    return packages.get(system.distribution, packages["debian"])


def native_python() -> str:
    """Apple silicon: a Python for the processor that is really there."""
    return "arch -arm64 uv tool install --reinstall --python cpython-3.12-macos-aarch64 localspec"
