"""From facts to findings: what is in order, what is not, and what to type next. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from localspec.doctor import commands
from localspec.doctor.facts import Facts, Gpu

Level = Literal["ok", "note", "warning", "problem"]
GIB = 1 << 30

OLDEST, NEWEST = (0, 3, 36), (0, 4, 0)
"""Versions of llama-cpp-python that localspec works with: from, and below."""

_SAME_FEATURE = {
    # the system's word: llama.cpp's word, in order of what they bring
    "avx2": "AVX2", "fma": "FMA", "f16c": "F16C", "avx512f": "AVX512", "avx512_vnni": "AVX512_VNNI",
    "avx_vnni": "AVX_VNNI", "avx512_bf16": "AVX512_BF16", "amx_int8": "AMX_INT8",
    "asimddp": "DOTPROD", "i8mm": "MATMUL_INT8", "sve": "SVE",
}  # fmt: skip
_NETWORK_DISKS = ("nfs", "nfs4", "cifs", "smbfs", "smb3", "fuse.sshfs", "9p", "afpfs", "webdav")
_ANOTHER_FOLDER = "export HF_HUB_CACHE=/a/local/folder"
_LIBRARY = re.compile(r"(lib[\w.+-]+\.so[\w.]*|[\w+-]+\.(?:dll|dylib))")


@dataclass(frozen=True, slots=True)
class Finding:
    """What one rule found."""

    area: str
    """`python`, `build`, `cpu`, `gpu`, `memory`, `disk`, `hub`, `terminal`, `settings`."""
    level: Level
    what: str
    """One sentence."""
    next: str = ""
    """The command to type, "" when nothing needs to be done."""


def examine(facts: Facts) -> list[Finding]:
    """Every finding, in the order in which the areas build on each other."""
    return [finding for rule in _RULES for finding in rule(facts)]


def do_this_next(findings: list[Finding]) -> str:
    """The one command that helps most: the first problem's, else the first warning's, else the first step."""
    for level in ("problem", "warning"):
        for finding in findings:
            if finding.level == level and finding.next:
                return finding.next
    return "localspec demo"


def _python(facts: Facts) -> Iterator[Finding]:
    system = facts.system
    version = ".".join(map(str, system.python))
    if system.machine != system.real_machine:
        what = f"Python {version} is built for {system.machine}, this machine is {system.real_machine}"
        fix = commands.native_python()
        yield Finding("python", "problem", f"{what}: no GPU, and a fraction of the speed", fix)
    else:
        what = f"Python {version} for {system.machine} ({system.os}, {system.installer})"
        yield Finding("python", "ok", what)


def _build(facts: Facts) -> Iterator[Finding]:
    build, system = facts.build, facts.system
    name = f"llama-cpp-python {build.version}".strip()
    if build.loading == "missing":
        yield Finding("build", "problem", "llama-cpp-python is not installed", _ready_made(facts))
        if not system.compiler:
            what = "no C compiler: llama-cpp-python can only be installed ready-made here"
            yield Finding("build", "note", what, commands.compiler(system))
    elif build.loading == "killed":
        what = f"{name} dies when it is loaded ({build.detail}): it was built for another processor"
        yield Finding("build", "problem", what, _ready_made(facts))
    elif build.loading == "failed":
        yield _failed(facts, name)
    elif build.missing_names:
        what = f"{name} lacks {', '.join(build.missing_names[:3])}: it is too old or too new for localspec"
        yield Finding("build", "problem", what, _ready_made(facts))
    else:
        backends = ", ".join(build.backends) or "CPU only"
        level: Level = "ok" if OLDEST <= _version(build.version) < NEWEST else "warning"
        yield Finding("build", level, f"{name}: {backends}")


def _failed(facts: Facts, name: str) -> Finding:
    """The loader's message, and what it means."""
    library = _LIBRARY.search(facts.build.detail)
    if library is None:
        what = f"{name} cannot be loaded: {facts.build.detail}"
        return Finding("build", "problem", what, _ready_made(facts))
    what = f"{name} cannot be loaded: {library[1]} is missing"
    if library[1].startswith(("libcuda.so", "nvcuda")):
        return Finding("build", "problem", f"{what}: no NVIDIA driver here", commands.cpu_wheel(facts.system))
    if library[1].startswith(("libcudart", "libcublas", "cudart", "cublas")):
        return Finding("build", "problem", f"{what}: its CUDA version is not installed", _ready_made(facts))
    if "musl" in library[1]:
        return Finding("build", "problem", f"{what}: it was built for musl Linux", _ready_made(facts))
    if library[1].startswith("libgomp"):
        return Finding("build", "problem", what, "sudo apt install libgomp1")
    return Finding("build", "problem", what, _ready_made(facts))


def _ready_made(facts: Facts) -> str:
    """How to get a build that was made for a machine like this, its graphics card included."""
    card = next((gpu for gpu in facts.gpus if gpu.vendor != "intel"), None)
    return commands.for_gpu(facts.system, card) if card else commands.cpu_wheel(facts.system)


def _cpu(facts: Facts) -> Iterator[Finding]:
    if facts.build.loading != "ok" or not facts.build.features:
        return
    unused = [
        theirs for ours, theirs in _SAME_FEATURE.items()
        if ours in facts.cpu_features and theirs not in facts.build.features
    ]  # fmt: skip
    cores = f"{facts.cores} core{'s' if facts.cores != 1 else ''}"
    if not unused:
        yield Finding("cpu", "ok", f"{cores}; the build uses what the processor has")
        return
    what = f"the processor has {', '.join(unused)}, and this build does not use it"
    system = facts.system
    if not system.compiler:
        what = f"{what}; a compiler is needed to change that"
        yield Finding("cpu", "warning", what, commands.compiler(system))
        return
    level: Level = "problem" if {"AVX2", "AVX512", "DOTPROD"} & set(unused) else "note"
    keep = [f"-D{commands.CMAKE[name]}=on" for name in facts.build.backends if name in commands.CMAKE]
    fix = commands.from_source(system, " ".join(["-DGGML_NATIVE=on", *keep]))
    yield Finding("cpu", level, f"{what}: it is slower than it could be", fix)


def _gpus(facts: Facts) -> Iterator[Finding]:
    build = facts.build
    for name, description, free, total in build.devices:
        size = f"{free / GIB:.1f} of {total / GIB:.1f} GiB free"
        yield Finding("gpu", "ok", f"{name} ({description}): {size}")
    if not build.devices:
        yield from _idle_gpus(facts)
    for gpu in facts.gpus:
        yield from _held(gpu)
    if not build.devices and not facts.gpus:
        yield Finding("gpu", "note", "no graphics card found; both models run on the CPU")


def _idle_gpus(facts: Facts) -> Iterator[Finding]:
    """Cards that the system has and the build does not see."""
    build, system = facts.build, facts.system
    if build.loading not in ("ok", "missing"):
        return  # its own finding comes first
    for gpu in facts.gpus:
        backend = commands.backend_for(system, gpu)
        size = f", {gpu.total / GIB:.0f} GiB" if gpu.total else ""
        card = f"{gpu.name}{size}"
        if backend in build.backends or (backend == "rocm" and "hip" in build.backends):
            what = f"{card} is there and the build has {backend}, but finds no device: look at the driver"
            look = "nvidia-smi" if gpu.vendor == "nvidia" else "vulkaninfo --summary"
            yield Finding("gpu", "problem", what, look)
            continue
        level: Level = "note" if gpu.vendor == "intel" else "problem"
        what = f"{card} is there, but this build of llama.cpp cannot use it"
        yield Finding("gpu", level, what, commands.for_gpu(system, gpu))


def _held(gpu: Gpu) -> Iterator[Finding]:
    """Memory of a card that other programs hold."""
    if not gpu.total or gpu.used < gpu.total // 4:
        return
    held = ", ".join(f"{name} (process {pid}): {size / GIB:.1f} GiB" for pid, name, size in gpu.holders[:3])
    what = f"{gpu.used / GIB:.1f} of {gpu.total / GIB:.1f} GiB of {gpu.name} are in use"
    yield Finding("gpu", "warning", f"{what} by {held}" if held else f"{what} by other programs")


def _memory(facts: Facts) -> Iterator[Finding]:
    what = f"{facts.ram_free / GIB:.1f} of {facts.ram_total / GIB:.1f} GiB of RAM free"
    if facts.ram_free < 2 * GIB:
        yield Finding("memory", "warning", f"{what}: only very small models fit", "localspec catalog")
    else:
        yield Finding("memory", "ok", what)


def _disk(facts: Facts) -> Iterator[Finding]:
    where = facts.cache_folder
    what = f"{facts.cache_free / GIB:.0f} GiB free in {where}"
    if not facts.cache_writable:
        yield Finding("disk", "problem", f"{where} cannot be written to", _ANOTHER_FOLDER)
    elif facts.cache_free < 8 * GIB:
        yield Finding("disk", "warning", f"only {what}", "localspec prune")
    elif facts.cache_filesystem.lower() in _NETWORK_DISKS:
        what = f"{what}, a network drive ({facts.cache_filesystem}): models load slowly from it"
        yield Finding("disk", "warning", what, _ANOTHER_FOLDER)
    else:
        yield Finding("disk", "ok", what)


def _hub(facts: Facts) -> Iterator[Finding]:
    hub = facts.hub
    if hub.offline:
        yield Finding("hub", "note", "offline by wish: what was pulled works, nothing can be pulled")
        return
    if hub.seconds is None:
        through = f" through the proxy {hub.proxy}" if hub.proxy else ""
        what = f"no answer from {hub.endpoint}{through} ({hub.error}): what was pulled works all the same"
        yield Finding("hub", "warning", what, "localspec list")
        return
    yield Finding("hub", "ok", f"{hub.endpoint} answers in {hub.seconds:.1f} s")
    if hub.token == "bad":
        what = f"the hub refuses the token in {hub.token_from}, and with it even public models"
        named = hub.token_from in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
        fix = f"unset {hub.token_from}" if named else "hf auth login"
        yield Finding("hub", "problem", what, fix)
    elif hub.token == "good":
        yield Finding("hub", "ok", f"logged in as {hub.user} ({hub.token_from})")
    elif hub.token == "none":
        yield Finding("hub", "note", "no token: gated models need one (hf auth login)")


def _terminal(facts: Facts) -> Iterator[Finding]:
    if not facts.terminal:
        yield Finding("terminal", "note", "no terminal: the terminal UI needs one")
        return
    what = f"{facts.columns}x{facts.rows}, {facts.encoding}, {'colour' if facts.colour else 'no colour'}"
    if facts.encoding.lower().replace("-", "") != "utf8":
        fix = "chcp 65001" if facts.system.os == "Windows" else "export LC_ALL=C.UTF-8"
        yield Finding("terminal", "warning", f"{what}: signs outside {facts.encoding} cannot be shown", fix)
    elif facts.columns < 80 or facts.rows < 24:
        yield Finding("terminal", "warning", f"{what}: the terminal UI wants 80x24")
    else:
        yield Finding("terminal", "ok", what)


def _settings(facts: Facts) -> Iterator[Finding]:
    if facts.settings_error:
        yield Finding("settings", "problem", facts.settings_error, facts.settings_fix)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])


_RULES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    _python,
    _build,
    _gpus,
    _cpu,
    _memory,
    _disk,
    _hub,
    _terminal,
    _settings,
)
