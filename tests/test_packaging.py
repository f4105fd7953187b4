"""What people install from: contents of the wheel, the man page, desktop files, templates, the app folder's entry."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from localspec.cli.main import COMMANDS, cli
from localspec.engine.process import subprocesses

ROOT = Path(__file__).resolve().parents[1]
PACKAGING = ROOT / "packaging"


def module(name: str) -> ModuleType:
    """A file of packaging/, which is no package."""
    spec = importlib.util.spec_from_file_location(f"packaging_{name}", PACKAGING / f"{name}.py")
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def test_the_wheel_holds_every_file_that_is_read_at_run_time() -> None:
    builders = pytest.importorskip("hatchling.builders.wheel")
    held = {one.distribution_path for one in builders.WheelBuilder(str(ROOT)).recurse_included_files()}
    data = sorted(path for path in held if not path.endswith(".py"))
    assert data == [
        "localspec/bench/data/filler.txt",
        "localspec/bench/data/prompts.toml",
        "localspec/bench/data/report.css",
        "localspec/models.toml",
        "localspec/py.typed",
        "localspec/tui/app.tcss",
    ]
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "localspec").rglob("*") if path.is_file()}
    assert {path for path in sources if "__pycache__" not in path} | {"localspec/models.toml"} == held


def test_the_table_of_commands_is_what_doctor_prints() -> None:
    table = module("install_table")
    page = table.PAGE.read_text("utf-8")
    assert table.with_tables(page) == page, "run: python packaging/install_table.py"
    for installer in ("pip", "pipx", "uv tool"):
        for _, _, system, gpu in table.ROWS:
            assert f"`{table.command(table.replace(system, installer=installer), gpu)}`" in page


@pytest.fixture(scope="module")
def page() -> str:
    return str(module("manpage").manual(cli, "0.1.0", "2026-11-30"))


def test_the_manual_has_every_command_and_option(page: str) -> None:
    plain = page.replace("\\-", "-")
    for name in COMMANDS:
        assert f".SS localspec {name}\n" in plain
    for option in ("--draft-length AUTO|N", "-n, --max-tokens N", "--origin", "--json", "--api-key-file"):
        assert option in plain
    assert ".SS localspec config set\n" in plain and "\b" not in page
    assert all(len(line) < 200 for line in page.splitlines())


def test_mandoc_has_nothing_to_say(page: str, tmp_path: Path) -> None:
    checker = shutil.which("mandoc")
    if checker is None:
        pytest.skip("no mandoc here")
    (tmp_path / "localspec.1").write_text(page)
    check = [checker, "-T", "lint", "-W", "style", tmp_path / "localspec.1"]
    done = subprocess.run(check, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_desktop_files_are_valid(tmp_path: Path) -> None:
    metainfo = (PACKAGING / "templates" / "localspec.metainfo.xml").read_text()
    path = tmp_path / "org.localspec.localspec.metainfo.xml"
    path.write_text(metainfo.format(version="0.1.0", date="2026-11-30", homepage="https://localspec.invalid/"))
    checks = (
        ["desktop-file-validate", PACKAGING / "localspec.desktop"],
        ["appstreamcli", "validate", "--no-net", path],
    )
    found = [check for check in checks if shutil.which(str(check[0]))]
    if not found:
        pytest.skip("neither desktop-file-validate nor appstreamcli here")
    for check in found:
        done = subprocess.run(check, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def build(monkeypatch: pytest.MonkeyPatch, dist: Path, *words: object) -> int:
    """packaging/build.py with another dist/."""
    program = module("build")
    monkeypatch.setattr(program, "DIST", dist)
    monkeypatch.setattr(sys, "argv", ["build.py", *map(str, words)])
    return int(program.main())


def test_formula_and_manifest_carry_version_address_and_hash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "localspec-0.1.0.tar.gz"
    file.write_bytes(b"an archive")
    digest = hashlib.sha256(b"an archive").hexdigest()
    url = "https://example.org/localspec-0.1.0.tar.gz"
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert build(monkeypatch, tmp_path, "formula", "--sdist", file, "--url", url) == 0
    formula = (tmp_path / "localspec.rb").read_text()
    assert f'url "{url}"\n  sha256 "{digest}"\n  version "{version}"' in formula
    assert '#{buildpath}[server]"' in formula and "{homepage}" not in formula
    assert build(monkeypatch, tmp_path, "winget", "--archive", file, "--url", url) == 0
    installer = (tmp_path / "winget" / "Localspec.Localspec.installer.yaml").read_text()
    assert f"InstallerUrl: {url}" in installer and f"InstallerSha256: {digest.upper()}" in installer
    manifests = [path.read_text() for path in (tmp_path / "winget").glob("*.yaml")]
    assert len(manifests) == 3 and all(f"PackageVersion: {version}" in text for text in manifests)
    assert not any("{" in text for text in manifests)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["formula", "--url", "https://example.org/x"], "make it first, or name it"),
        (["winget"], "winget needs --archive FILE"),
        (["deb"], "no dpkg-deb here"),
    ],
)
def test_what_is_missing_is_said(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build(monkeypatch, tmp_path, *words) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and said in error


def test_an_app_folder_starts_its_own_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert subprocesses.command("localspec.engine.process.worker", "x") == [
        sys.executable, "--localspec-module", "localspec.engine.process.worker", "x",
    ]  # fmt: skip
    request = json.dumps({"ask": "build"})
    entry = [sys.executable, str(PACKAGING / "entry.py"), subprocesses.MODULE_FLAG]
    done = subprocess.run(
        [*entry, "localspec.engine.llama.questions", request], capture_output=True, env=subprocesses.environment()
    )
    assert "system_info" in json.loads(done.stdout), done.stderr
    refused = subprocess.run(
        [*entry, "http.server", "x"], capture_output=True, text=True, env=subprocesses.environment()
    )
    assert refused.returncode == 2 and "--localspec-module" in refused.stderr


@pytest.mark.long
def test_an_installed_wheel_works_without_the_checkout(tmp_path: Path) -> None:
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*install, "--target", tmp_path, ROOT], check=True)
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from localspec.cli.main import main; sys.exit(main())"
    program = [sys.executable, "-P", "-c", code, tmp_path, "catalog", "qwen2.5-7b"]
    done = subprocess.run(program, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and "qwen2.5-7b" in done.stdout, done.stderr


class Native:
    """Stands for libllama's handle: counts backends, and notes the folder they are loaded from."""

    def __init__(self, backends: int) -> None:
        self.loaded_from: list[bytes] = []

        def count() -> int:
            return backends

        def load(folder: bytes) -> None:
            self.loaded_from.append(folder)

        self.ggml_backend_reg_count, self.ggml_backend_load_all_from_path = count, load


@pytest.mark.parametrize("place", ["site/llama_cpp/lib", "site/bin"])
@pytest.mark.parametrize("backends", [0, 1])
def test_backends_in_files_of_their_own_are_loaded(place: str, backends: int, tmp_path: Path) -> None:
    from localspec.engine.llama import binding

    package = tmp_path / "site" / "llama_cpp"
    package.mkdir(parents=True)
    (tmp_path / place).mkdir(exist_ok=True)
    (tmp_path / place / "libggml-cpu-haswell.so").touch()
    library = ModuleType("llama_cpp")
    library.__file__ = str(package / "llama_cpp.py")
    native = library._lib = Native(backends)  # type: ignore[attr-defined]
    binding._load_backends(library)
    assert native.loaded_from == ([] if backends else [str(tmp_path / place).encode()])
