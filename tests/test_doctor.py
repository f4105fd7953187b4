# ruff: noqa: E501 - tables
"""Doctor on invented machines: the right finding and the exact next command; and on this one."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from localspec.doctor.commands import WHEELS
from localspec.doctor.facts import Build, Facts, Gpu, Hub, System
from localspec.doctor.gather import gather
from localspec.doctor.rules import GIB, Finding, do_this_next, examine

AVX2 = frozenset({"AVX2", "FMA", "F16C"})
HEALTHY = Facts(
    system=System(compiler="/usr/bin/cc", distribution="debian"),
    build=Build(version="0.3.36", features=AVX2),
    cpu_features=frozenset({"avx2", "fma", "f16c"}),
    cache_folder="/home/me/.cache/huggingface/hub",
    hub=Hub(seconds=0.2),
)
RTX4090 = Gpu("nvidia", "NVIDIA GeForce RTX 4090", 24 * GIB, GIB, (12, 6))
PIP = "python -m pip install --force-reinstall --no-cache-dir --no-deps"
APPLE = System("Darwin", "arm64", "arm64", (3, 12, 4), compiler="/usr/bin/cc")


def found(facts: Facts, area: str) -> Finding:
    """The gravest finding of an area."""
    order = ("problem", "warning", "note", "ok")
    return min((f for f in examine(facts) if f.area == area), key=lambda f: order.index(f.level))


def problems(facts: Facts) -> list[str]:
    return [finding.area for finding in examine(facts) if finding.level == "problem"]


def test_a_healthy_machine_has_no_problem() -> None:
    assert problems(HEALTHY) == [] and do_this_next(examine(HEALTHY)) == "localspec demo"
    assert {finding.area for finding in examine(HEALTHY)} == {
        "python", "build", "gpu", "cpu", "memory", "disk", "hub", "terminal",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("system", "command"),
    [
        (HEALTHY.system, f"{PIP} --only-binary llama-cpp-python --extra-index-url {WHEELS}cu125 llama-cpp-python"),
        (
            replace(HEALTHY.system, installer="uv"),
            f"uv pip install --python python --no-cache --reinstall-package llama-cpp-python --index {WHEELS}cu125 llama-cpp-python",
        ),
        (
            replace(HEALTHY.system, installer="uv tool"),
            f"uv tool install --reinstall --no-cache --index {WHEELS}cu125 localspec",
        ),
        (
            replace(HEALTHY.system, installer="pipx"),
            "pipx runpip localspec install --force-reinstall --no-cache-dir --no-deps "
            f"--only-binary llama-cpp-python --extra-index-url {WHEELS}cu125 llama-cpp-python",
        ),
        (
            replace(HEALTHY.system, python=(3, 13, 1)),  # no wheels for this Python
            f'CMAKE_ARGS="-DGGML_CUDA=on" {PIP} --no-binary llama-cpp-python llama-cpp-python',
        ),
        (
            replace(HEALTHY.system, machine="arm64", real_machine="arm64"),
            f'CMAKE_ARGS="-DGGML_CUDA=on" {PIP} --no-binary llama-cpp-python llama-cpp-python',
        ),
        (
            replace(HEALTHY.system, os="Windows", python=(3, 13, 0)),
            f'$env:CMAKE_ARGS="-DGGML_CUDA=on"; {PIP} --no-binary llama-cpp-python llama-cpp-python',
        ),
    ],
)
def test_an_nvidia_card_without_a_cuda_build(system: System, command: str) -> None:
    facts = replace(HEALTHY, system=system, gpus=(RTX4090,))
    finding = found(facts, "gpu")
    assert finding.level == "problem"
    assert finding.what == "NVIDIA GeForce RTX 4090, 24 GiB is there, but this build of llama.cpp cannot use it"
    assert finding.next == do_this_next(examine(facts)) == command


@pytest.mark.parametrize(
    ("cuda", "folder"),
    [((13, 3), "cu132"), ((13, 1), "cu130"), ((12, 9), "cu125"), ((12, 4), "cu124"), ((11, 8), "cu118"), ((0, 0), "cu124")],
)
def test_the_wheel_matches_the_driver(cuda: tuple[int, int], folder: str) -> None:
    command = found(replace(HEALTHY, gpus=(replace(RTX4090, cuda=cuda),)), "gpu").next
    assert f"{WHEELS}{folder} " in command


@pytest.mark.parametrize(
    ("gpu", "system", "words", "level"),
    [
        (Gpu("amd", "AMD card"), HEALTHY.system, f"{WHEELS}vulkan ", "problem"),
        (Gpu("amd", "AMD card"), replace(HEALTHY.system, rocm=True), f"{WHEELS}rocm72 ", "problem"),
        (Gpu("amd", "AMD card"), replace(HEALTHY.system, rocm=True, os="Windows"), f"{WHEELS}hip-radeon ", "problem"),
        (Gpu("intel", "Intel graphics"), HEALTHY.system, f"{WHEELS}vulkan ", "note"),
        (Gpu("apple", "Apple GPU"), APPLE, f"{WHEELS}metal ", "problem"),
    ],
)
def test_other_cards(gpu: Gpu, system: System, words: str, level: str) -> None:
    finding = found(replace(HEALTHY, gpus=(gpu,), system=system), "gpu")
    assert finding.level == level and words in finding.next


def test_apple_silicon_with_a_python_for_intel() -> None:
    facts = replace(HEALTHY, system=replace(APPLE, machine="x86_64"), gpus=(Gpu("apple", "Apple GPU"),))
    finding = found(facts, "python")
    assert finding.level == "problem" and "built for x86_64, this machine is arm64" in finding.what
    assert do_this_next(examine(facts)).startswith("arch -arm64 uv tool install --reinstall --python cpython-3.12-macos-aarch64")


def test_avx512_with_a_plain_build() -> None:
    cpu = HEALTHY.cpu_features | {"avx512f", "avx512_vnni"}
    facts = replace(HEALTHY, cpu_features=cpu)
    finding = found(facts, "cpu")
    assert finding.level == "problem" and "AVX512, AVX512_VNNI" in finding.what
    command = f'CMAKE_ARGS="-DGGML_NATIVE=on" {PIP} --no-binary llama-cpp-python llama-cpp-python'
    assert do_this_next(examine(facts)) == command
    with_cuda = replace(facts, build=replace(facts.build, backends=("cuda",), devices=(("CUDA0", "card", GIB, GIB),)))
    assert '"-DGGML_NATIVE=on -DGGML_CUDA=on"' in found(with_cuda, "cpu").next


@pytest.mark.parametrize(
    ("os", "distribution", "command"),
    [
        ("Linux", "debian", "sudo apt install build-essential cmake"),
        ("Linux", "fedora", "sudo dnf install gcc-c++ make cmake"),
        ("Linux", "arch", "sudo pacman -S --needed base-devel cmake"),
        ("Darwin", "", "xcode-select --install"),
        ("Windows", "", "winget install Microsoft.VisualStudio.2022.BuildTools Kitware.CMake"),
    ],
)
def test_no_compiler(os: str, distribution: str, command: str) -> None:
    system = System(os, distribution=distribution)
    slow = replace(HEALTHY, system=system, cpu_features=HEALTHY.cpu_features | {"avx512f"})
    assert do_this_next(examine(slow)) == command
    # Without the package, a ready wheel is nearer than a compiler.
    missing = replace(HEALTHY, system=system, build=Build("missing"))
    assert f"{WHEELS}cpu " in do_this_next(examine(missing))
    assert command in [finding.next for finding in examine(missing)]


@pytest.mark.parametrize(
    ("build", "words", "command"),
    [
        (Build("killed", "0.3.36", "libllama ended its process: killed by SIGILL"), "killed by SIGILL): it was built for another", "cu125 "),
        (Build("failed", "0.3.36", "libcudart.so.12: cannot open shared object file"), "libcudart.so.12 is missing", "cu125 "),
        (Build("failed", "0.3.36", "libcuda.so.1: cannot open shared object file"), "no NVIDIA driver", "cpu "),
        (Build("failed", "0.3.36", "Could not find module 'ggml.dll' (or one of its dependencies)"), "ggml.dll is missing", "cu125 "),
        (Build("failed", "0.3.36", "libc.musl-x86_64.so.1: cannot open"), "built for musl Linux", "cu125 "),
        (Build("failed", "0.3.36", "something else"), "something else", "cu125 "),
        (Build("ok", "0.2.9", missing_names=("llama_n_rs_seq",)), "lacks llama_n_rs_seq", "cu125 "),
    ],
)
def test_builds_that_do_not_load(build: Build, words: str, command: str) -> None:
    facts = replace(HEALTHY, build=build, gpus=(RTX4090,))
    finding = found(facts, "build")
    assert finding.level == "problem" and words in finding.what
    assert f"{WHEELS}{command}" in do_this_next(examine(facts))


def test_a_cuda_build_without_a_device_looks_at_the_driver() -> None:
    facts = replace(HEALTHY, build=replace(HEALTHY.build, backends=("cuda",)), gpus=(RTX4090,))
    assert do_this_next(examine(facts)) == "nvidia-smi"


def test_a_card_that_another_program_holds() -> None:
    held = replace(RTX4090, used=20 * GIB, holders=((4711, "llama-server", 19 * GIB),))
    build = replace(HEALTHY.build, backends=("cuda",), devices=(("CUDA0", "RTX 4090", 4 * GIB, 24 * GIB),))
    finding = found(replace(HEALTHY, build=build, gpus=(held,)), "gpu")
    assert finding.level == "warning"
    assert "20.0 of 24.0 GiB" in finding.what and "llama-server (process 4711): 19.0 GiB" in finding.what


@pytest.mark.parametrize(
    ("change", "area", "level", "words"),
    [
        ({"ram_free": GIB}, "memory", "warning", "only very small models fit"),
        ({"cache_writable": False}, "disk", "problem", "cannot be written to"),
        ({"cache_free": GIB}, "disk", "warning", "only 1 GiB free"),
        ({"cache_filesystem": "nfs4"}, "disk", "warning", "a network drive (nfs4)"),
        ({"hub": Hub(error="timed out", proxy="http://...@proxy:3128")}, "hub", "warning", "through the proxy http://...@proxy:3128 (timed out)"),
        ({"hub": Hub(offline=True)}, "hub", "note", "offline by wish"),
        ({"hub": Hub(seconds=0.1, token="bad", token_from="HF_TOKEN")}, "hub", "problem", "refuses the token in HF_TOKEN"),
        ({"hub": Hub(seconds=0.1, token="none")}, "hub", "note", "gated models need one"),
        ({"terminal": False}, "terminal", "note", "no terminal"),
        ({"columns": 60}, "terminal", "warning", "wants 80x24"),
        ({"encoding": "ascii"}, "terminal", "warning", "outside ascii cannot be shown"),
    ],
)
def test_surroundings(change: dict[str, object], area: str, level: str, words: str) -> None:
    finding = found(replace(HEALTHY, **change), area)  # type: ignore[arg-type]
    assert finding.level == level and words in finding.what


def test_a_bad_token_in_the_environment_is_unset() -> None:
    bad = Hub(seconds=0.1, token="bad", token_from="HF_TOKEN")
    assert do_this_next(examine(replace(HEALTHY, hub=bad))) == "unset HF_TOKEN"
    assert do_this_next(examine(replace(HEALTHY, hub=replace(bad, token_from="/home/me/token")))) == "hf auth login"


# --- this machine -------------------------------------------------------------------------------------


class _Hub(BaseHTTPRequestHandler):
    """whoami of a hub that knows one token."""

    def do_GET(self) -> None:
        good = self.headers.get("Authorization") == "Bearer hf_good"
        self.send_response(200 if good else 401)
        self.end_headers()
        self.wfile.write(b'{"name": "ada"}' if good else b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("token", "state"), [("hf_good", "good"), ("hf_bad", "bad"), ("", "none")], ids=["good", "bad", "none"]
)
def test_the_hub_and_the_token(monkeypatch: pytest.MonkeyPatch, token: str, state: str) -> None:
    server = HTTPServer(("127.0.0.1", 0), _Hub)
    Thread(target=server.serve_forever, daemon=True).start()
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    try:
        facts = gather()
    finally:
        server.shutdown()
        server.server_close()
    assert facts.hub.token == state and facts.hub.seconds is not None
    assert facts.hub.user == ("ada" if state == "good" else "")
    assert not token or token not in repr(facts)  # a token is never printed


def doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "localspec", "doctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_doctor_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    done = doctor("--offline", "--json", "--cache-dir", str(tmp_path / "not" / "yet"))
    answer = json.loads(done.stdout)
    assert answer["schema"] == 1 and answer["ok"] == (done.returncode == 0)
    assert answer["facts"]["build"]["version"].startswith("0.3.") and answer["next"]
    assert {finding["area"] for finding in answer["findings"]} >= {"python", "build", "gpu", "memory", "disk", "hub"}
    text = doctor("--offline").stdout
    assert "Do this next: " in text.splitlines()[-1] and "hf_secret" not in text + done.stdout


def test_a_build_that_dies_when_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "llama_cpp"
    package.mkdir()
    (package / "__init__.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGILL)\n")
    (package / "llama_cpp.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[1]}")
    done = doctor("--offline", "--json")
    assert done.returncode == 7
    build = next(f for f in json.loads(done.stdout)["findings"] if f["area"] == "build")
    assert "killed by SIGILL" in build["what"] and f"{WHEELS}cpu " in build["next"]


def test_the_first_screen_gets_the_worst_and_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    from localspec.ui import checkup

    facts = replace(HEALTHY, gpus=(RTX4090,), ram_free=GIB, cache_free=GIB, hub=Hub(offline=True))
    asked: list[bool] = []

    def gathered(offline: bool) -> Facts:
        asked.append(offline)
        return facts

    monkeypatch.setattr("localspec.doctor.gather.gather", gathered)
    shown = checkup.checkup()
    assert [what.partition(":")[0] for what, _ in shown] == ["problem", "warning", "warning"] and asked == [True]
    assert "RTX 4090" in shown[0][0] and "cu125" in shown[0][1]
    assert checkup.checkup_text().splitlines()[1] == f"  {shown[0][1]}"
    facts = HEALTHY
    assert checkup.checkup() == [("no problems found: no graphics card found; both models run on the CPU", "")]


@pytest.mark.parametrize(
    ("mark", "installer"), [("uv-receipt.toml", "uv tool"), ("pipx_metadata.json", "pipx"), ("pyvenv.cfg", "pip")]
)
def test_what_installed_us_is_known_by_its_own_mark(
    mark: str, installer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever its folders are: UV_TOOL_DIR and PIPX_HOME move them."""
    from localspec.doctor import gather as module

    (tmp_path / mark).write_text("home = /usr/bin\n")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert module._installer() == installer
