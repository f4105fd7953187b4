"""The facts of the machine we run on. Every question has a time limit, and no answer is an answer too."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from localspec.doctor.facts import Build, Facts, Gpu, Hub, Installer, System, Token
from localspec.engine.process import ask_libllama
from localspec.ground import machine
from localspec.ground.errors import EngineDied, EngineError
from localspec.ground.parsing import parse_json
from localspec.ground.terminal import is_terminal, wants_colour
from localspec.pairs.hub import hf_cache

HUB_SECONDS = 5.0
COMMAND_SECONDS = 5.0
MIB = 1 << 20
_VENDORS = {"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel"}
_LLAMA_FEATURE = re.compile(r"(\w+) = 1")


def gather(offline: bool = False, cache_folder: Path | None = None) -> Facts:
    """Ask everything. A few seconds at most."""
    cache = cache_folder or hf_cache.cache_folder()
    size = shutil.get_terminal_size()
    build = _build()
    return Facts(
        system=_system(),
        build=build,
        cpu_features=machine.cpu_features(),
        gpus=_gpus(),
        ram_total=machine.total_memory(),
        ram_free=machine.available_memory(),
        cores=machine.physical_cores(),
        cache_folder=str(cache),
        cache_free=machine.free_disk(cache),
        cache_writable=_writable(cache),
        cache_filesystem=machine.filesystem(cache),
        hub=_hub(offline),
        terminal=is_terminal(sys.stdout) or is_terminal(sys.stderr),
        columns=size.columns,
        rows=size.lines,
        encoding=getattr(sys.stdout, "encoding", "") or "ascii",  # the terminal UI puts something else in its place
        colour=wants_colour(sys.stdout) or wants_colour(sys.stderr),
    )


def _system() -> System:
    return System(
        os=platform.system(),
        machine=machine.processor(),
        real_machine=_real_machine(),
        python=sys.version_info[:3],
        executable=sys.executable,
        installer=_installer(),
        compiler=next((path for name in ("cc", "gcc", "clang", "cl") if (path := shutil.which(name))), ""),
        cuda_toolkit=shutil.which("nvcc") is not None,
        rocm=Path("/opt/rocm").exists(),
        distribution=_distribution(),
    )


def _real_machine() -> str:
    """On a Mac, what Rosetta hides."""
    if platform.system() == "Darwin" and _output("sysctl", "-n", "hw.optional.arm64").strip() == "1":
        return "arm64"
    return machine.processor()


def _installer() -> Installer:
    prefix = Path(sys.prefix)
    if getattr(sys, "frozen", False):
        return "bundle"
    if (prefix / "pipx_metadata.json").exists():
        return "pipx"
    if (prefix / "uv-receipt.toml").exists():
        return "uv tool"
    try:
        made_by_uv = re.search(r"^uv = ", (prefix / "pyvenv.cfg").read_text(), re.MULTILINE) is not None
    except OSError:
        made_by_uv = False
    return "uv" if made_by_uv and importlib.util.find_spec("pip") is None else "pip"


def _distribution() -> str:
    try:
        text = Path("/etc/os-release").read_text()
    except OSError:
        return ""
    ids = " ".join(re.findall(r'^(?:ID|ID_LIKE)="?([^"\n]*)', text, re.MULTILINE))
    known = {"debian": "debian", "ubuntu": "debian", "fedora": "fedora", "rhel": "fedora", "arch": "arch"}
    known |= {"suse": "suse", "alpine": "alpine"}
    return next((name for word, name in known.items() if word in ids), "")


def _build() -> Build:
    """Load the build in a child process: one for another processor dies there."""
    try:
        version = importlib.metadata.version("llama-cpp-python")
    except importlib.metadata.PackageNotFoundError:
        return Build("missing")
    try:
        facts = ask_libllama.build()
    except EngineDied as error:
        return Build("killed", version, error.message)
    except EngineError as error:
        names = re.search(r"lacks (.+)$", error.message)
        if names:
            return Build("ok", version, missing_names=tuple(names[1].split(", ")))
        return Build("failed", version, error.message)
    gpus = [device for device in facts.devices if device.kind in ("gpu", "igpu")]
    return Build(
        "ok",
        version,
        features=frozenset(_LLAMA_FEATURE.findall(facts.system_info)),
        backends=ask_libllama.gpu_backends(),
        devices=tuple((gpu.name, gpu.description, gpu.free, gpu.total) for gpu in gpus),
    )


def _gpus() -> tuple[Gpu, ...]:
    if platform.system() == "Darwin":
        return (Gpu("apple", "Apple GPU"),) if _real_machine() == "arm64" else ()
    nvidia = _nvidia()
    return (*nvidia, *(gpu for gpu in _cards() if gpu.vendor != "nvidia" or not nvidia))


def _nvidia() -> tuple[Gpu, ...]:
    """What nvidia-smi says."""
    text = _output("nvidia-smi", "--query-gpu=name,memory.total,memory.used", "--format=csv,noheader,nounits")
    rows = [[part.strip() for part in line.split(",")] for line in text.splitlines()]
    version = re.search(r"CUDA Version:\s*(\d+)\.(\d+)", _output("nvidia-smi")) if rows else None
    cuda = (int(version[1]), int(version[2])) if version else (0, 0)
    holders = _holders() if len(rows) == 1 else ()
    return tuple(
        Gpu("nvidia", row[0], _megabytes(row[1]), _megabytes(row[2]), cuda, holders)
        for row in rows
        if len(row) == 3
    )


def _holders() -> tuple[tuple[int, str, int], ...]:
    text = _output(
        "nvidia-smi", "--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader,nounits"
    )
    rows = [[part.strip() for part in line.split(",")] for line in text.splitlines()]
    found = [(int(r[0]), Path(r[1]).name, _megabytes(r[2])) for r in rows if len(r) == 3 and r[0].isdigit()]
    return tuple(sorted(found, key=lambda holder: -holder[2]))


def _cards() -> tuple[Gpu, ...]:
    """Graphics cards by the vendor numbers that Linux shows."""
    found = []
    for vendor_file in sorted(Path("/sys/class/drm").glob("card?/device/vendor")):
        try:
            vendor = _VENDORS.get(vendor_file.read_text().strip())
        except OSError:
            continue
        if vendor == "nvidia":
            found.append(Gpu("nvidia", "NVIDIA card"))
        elif vendor == "amd":
            found.append(Gpu("amd", "AMD card", _number(vendor_file.with_name("mem_info_vram_total"))))
        elif vendor == "intel":
            found.append(Gpu("intel", "Intel graphics"))
    return tuple(found)


def _hub(offline: bool) -> Hub:
    """Does the hub answer, and does it know our token? The token goes nowhere but to the hub."""
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    token, token_from = _token()
    proxy = _proxy()
    if offline or os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON"):
        return Hub(endpoint, offline=True, token="unchecked" if token else "none", token_from=token_from)
    start = time.monotonic()
    try:
        answer = _get(f"{endpoint}/api/whoami-v2", token)
    except OSError as error:
        unchecked: Token = "unchecked" if token else "none"
        return Hub(endpoint, None, _reason(error), False, unchecked, token_from, "", proxy)
    seconds = time.monotonic() - start
    state: Token = "none" if not token else "bad" if answer is None else "good"
    user = str((answer or {}).get("name", ""))[:60]
    return Hub(endpoint, seconds, "", False, state, token_from, user, proxy)


def _proxy() -> str:
    """The proxy in use, without its password; "" without one."""
    names = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
    proxy = next((os.environ[name] for name in names if os.environ.get(name)), "")
    return re.sub(r"//[^@/]*@", "//...@", proxy)


def _get(url: str, token: str) -> dict[str, Any] | None:
    """The JSON at `url`; None when the hub answers, but does not know us. OSError when nobody answers."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=HUB_SECONDS) as answer:
            found = parse_json(answer.read(1 << 20))
    except urllib.error.HTTPError:
        return None
    except ValueError as error:
        raise OSError(f"not an answer of the hub: {error}") from None
    return found if isinstance(found, dict) else {}


def _token() -> tuple[str, str]:
    """The token the hub client would use, and where it comes from."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if value := os.environ.get(name, "").strip():
            return value, name
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    path = Path(os.environ.get("HF_TOKEN_PATH") or home / "token").expanduser()
    try:
        value = path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return "", ""
    return value, str(path) if value else ""


def _reason(error: OSError) -> str:
    reason = getattr(error, "reason", error)
    if isinstance(reason, TimeoutError):
        return "timed out"
    return str(getattr(reason, "strerror", None) or reason)[:100]


def _output(*command: str) -> str:
    """Standard output of a small program; "" when it is not there, fails or takes too long."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=COMMAND_SECONDS,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _megabytes(text: str) -> int:
    return int(float(text) * MIB) if re.fullmatch(r"[\d.]+", text) else 0


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


def _writable(folder: Path) -> bool:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return os.access(folder, os.W_OK)
