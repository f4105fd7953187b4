#!/usr/bin/env python3
"""Makes everything that people install from, into dist/:

    packaging/build.py wheel sdist          what pip, pipx and uv take
    packaging/build.py app                  one folder with its own Python and llama.cpp, as tar.gz (zip on Windows)
    packaging/build.py deb                  the same folder for Debian and Ubuntu
    packaging/build.py docs                 man page and shell completions
    packaging/build.py formula --url U --homepage H [--sdist FILE]      Homebrew, filled in from version and hash
    packaging/build.py winget --url U --homepage H --archive FILE       winget, likewise
    packaging/build.py all                  wheel, sdist, docs, app, deb

Needs Python 3.11 with pip, and a network for the packages. `app` and `deb` work in a virtual environment of their own
(build/env) and compile llama.cpp once (ten minutes; a C++ compiler), portable: with code for every processor of
this kind, chosen when it runs. The wheel is kept in --wheels and used again. Nothing here is uploaded anywhere.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
import tomllib
import venv
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
DIST, BUILD = ROOT / "dist", ROOT / "build"
TEMPLATES = HERE / "templates"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
VERSION: str = PROJECT["version"]
PORTABLE = "-DGGML_NATIVE=OFF -DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON -DLLAVA_BUILD=OFF"
"""How llama.cpp is compiled when it leaves this machine."""
METADATA = ("localspec", "llama-cpp-python", "huggingface-hub", "textual", "click", "numpy", "psutil", "gguf")
"""Distributions whose version is asked for at run time."""
HOMEPAGE = "https://localspec.invalid/"
"""Until there is one: a name that can belong to nobody."""
SHELL_FILES = {
    "bash": "bash-completion/completions/localspec",
    "zsh": "zsh/vendor-completions/_localspec",
    "fish": "fish/vendor_completions.d/localspec.fish",
    "powershell": "powershell/completions/localspec.ps1",
}
"""Where each shell looks, below share/."""


class CannotBuild(Exception):
    """A tool or file is missing; the message says how to get it."""


def main() -> int:
    arguments = _parser().parse_args()
    wanted = list(dict.fromkeys(arguments.what))
    if "all" in wanted:
        wanted = ["wheel", "sdist", "docs", "app", "deb"]
    DIST.mkdir(exist_ok=True)
    try:
        for what in wanted:
            for path in BUILDERS[what](arguments):
                print(f"{path}  {path.stat().st_size / 1e6:.1f} MB")
    except CannotBuild as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"error: {' '.join(map(str, error.cmd))[:300]} ended with {error.returncode}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", choices=[*BUILDERS, "all"])
    parser.add_argument("--wheels", type=Path, default=BUILD / "wheels", help="folder of the portable llama.cpp wheel")
    parser.add_argument("--fresh", action="store_true", help="make the build's environment anew")
    parser.add_argument("--url", help="formula, winget: where the file will be downloaded from")
    parser.add_argument("--homepage", default=HOMEPAGE)
    parser.add_argument("--sdist", type=Path, help="formula: the sdist (default: the one in dist/)")
    parser.add_argument("--archive", type=Path, help="winget: the zip of the app folder for Windows")
    return parser


# --- Python packages -------------------------------------------------------------------------------------


def wheel(arguments: argparse.Namespace) -> list[Path]:
    return [_built("--wheel", "*.whl", arguments)]


def sdist(arguments: argparse.Namespace) -> list[Path]:
    return [_built("--sdist", "*.tar.gz", arguments)]


def _built(flag: str, pattern: str, arguments: argparse.Namespace) -> Path:
    folder = BUILD / flag.strip("-")
    shutil.rmtree(folder, ignore_errors=True)
    python = _tools(arguments, "build")
    _run(python, "-P", "-m", "build", flag, "--outdir", folder, ROOT)
    (made,) = folder.glob(pattern)
    return Path(shutil.copy2(made, DIST / made.name))


# --- the app folder --------------------------------------------------------------------------------------


def app(arguments: argparse.Namespace) -> list[Path]:
    folder = _app_folder(arguments)
    name = f"localspec-{VERSION}-{_system()}-{_machine()}"
    if os.name == "nt":
        return [Path(shutil.make_archive(str(DIST / name), "zip", folder.parent, folder.name))]
    path = DIST / f"{name}.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=6) as archive:
        archive.add(folder, "localspec", filter=_nobody)
        for source, inside in _documents(arguments).items():
            archive.add(source, f"localspec/share/{inside}", filter=_nobody)
    return [path]


def _app_folder(arguments: argparse.Namespace) -> Path:
    """Run PyInstaller on localspec as it was installed from its wheel."""
    made = DIST / "app" / "localspec"
    stamp = made / ".made-from"
    package, llama = _built("--wheel", "*.whl", arguments), _portable_wheel(arguments)
    digest = "".join(map(_sha256, (package, llama, HERE / "localspec.spec", HERE / "entry.py")))
    if stamp.exists() and stamp.read_text() == digest and not arguments.fresh:
        return made
    python = _environment("app-env", arguments.fresh)
    _run(python, "-m", "pip", "install", "--quiet", llama, f"{package}[server]", "pyinstaller>=6.16,<7", "certifi")
    _run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", package, llama)
    site = subprocess.check_output(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
    ).strip()
    settings = {"LOCALSPEC_BUILD_SITE": site, "LOCALSPEC_BUILD_METADATA": " ".join(METADATA)}
    # Away from the checkout, and with -P: what is packed has to be what the wheel installed.
    _run(
        python, "-P", "-m", "PyInstaller", "--noconfirm", "--log-level", "WARN",
        "--distpath", DIST / "app", "--workpath", BUILD / "pyinstaller", HERE / "localspec.spec",
        environment=settings, folder=BUILD,
    )  # fmt: skip
    stamp.write_text(digest)
    return made


def _portable_wheel(arguments: argparse.Namespace) -> Path:
    """llama-cpp-python, compiled for any processor of this kind."""
    tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    there = sorted(arguments.wheels.glob(f"llama_cpp_python-*{tag}.whl"))
    if there:
        return there[-1]
    if not any(map(shutil.which, ("c++", "g++", "clang++", "cl"))):
        raise CannotBuild("no C++ compiler; on Debian: sudo apt install build-essential")
    requirement = next(one for one in PROJECT["dependencies"] if one.startswith("llama-cpp-python"))
    python = _environment("wheel-env", arguments.fresh)
    arguments.wheels.mkdir(parents=True, exist_ok=True)
    print("compiling llama.cpp for every processor of this kind; this takes ten minutes", file=sys.stderr)
    _run(
        python, "-m", "pip", "wheel", "--no-deps", "--no-cache-dir", "--no-binary", "llama-cpp-python",
        "--wheel-dir", arguments.wheels, requirement, environment={"CMAKE_ARGS": PORTABLE},
    )  # fmt: skip
    return sorted(arguments.wheels.glob("llama_cpp_python-*.whl"))[-1]


# --- Debian ----------------------------------------------------------------------------------------------


def deb(arguments: argparse.Namespace) -> list[Path]:
    if shutil.which("dpkg-deb") is None:
        raise CannotBuild("no dpkg-deb here: a .deb can be made on Debian and Ubuntu (sudo apt install dpkg)")
    folder = _app_folder(arguments)
    root = BUILD / "deb"
    shutil.rmtree(root, ignore_errors=True)
    library = root / "usr" / "lib" / "localspec"
    shutil.copytree(folder, library, symlinks=True, ignore=shutil.ignore_patterns(".made-from"))
    (root / "usr" / "bin").mkdir()
    (root / "usr" / "bin" / "localspec").symlink_to("../lib/localspec/localspec")
    for source, inside in _documents(arguments).items():
        target = root / "usr" / "share" / inside
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    _debian_documents(root / "usr" / "share" / "doc" / "localspec")
    for path in root.rglob("*"):
        if not path.is_symlink():
            executable = path.is_dir() or path == library / "localspec"
            path.chmod(0o755 if executable else 0o644)
    control = root / "DEBIAN" / "control"
    control.parent.mkdir()
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    control.write_text(
        (TEMPLATES / "control").read_text("utf-8").format(
            version=VERSION, architecture=_debian_machine(), glibc=_glibc(), size=size // 1024
        ),
        "utf-8",
    )  # fmt: skip
    sums = [
        f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(root)}\n"
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink() and "DEBIAN" not in path.parts
    ]
    (root / "DEBIAN" / "md5sums").write_text("".join(sums))
    path = DIST / f"localspec_{VERSION}_{_debian_machine()}.deb"
    _run("dpkg-deb", "--root-owner-group", "-Zxz", "-z6", "--build", root, path)
    return [path]


def _debian_documents(folder: Path) -> None:
    folder.mkdir(parents=True)
    shutil.copy2(ROOT / "LICENSE", folder / "copyright")
    date = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(_date()))
    change = f"localspec ({VERSION}) unstable; urgency=medium\n\n  * See the project's history.\n\n"
    text = f"{change} -- The localspec contributors <nobody@localspec.invalid>  {date}\n"
    (folder / "changelog.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def _debian_machine() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(_machine(), _machine())


def _glibc() -> str:
    """Binaries run on this C library and later ones."""
    return platform.libc_ver()[1] or "2.31"


# --- documents of a package ------------------------------------------------------------------------------


def docs(arguments: argparse.Namespace) -> list[Path]:
    return sorted(_documents(arguments))


def _documents(arguments: argparse.Namespace) -> dict[Path, str]:
    """Files for people and desktops -> where they go below share/."""
    folder = BUILD / "share"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    python = _product(arguments)
    day = time.strftime("%Y-%m-%d", time.gmtime(_date()))
    page = subprocess.check_output([python, HERE / "manpage.py", VERSION, day], env=_our_modules())
    man = folder / "localspec.1.gz"
    man.write_bytes(gzip.compress(page, 9, mtime=0))
    found = {man: "man/man1/localspec.1.gz"}
    for shell, place in SHELL_FILES.items():
        path = folder / Path(place).name
        path.write_bytes(subprocess.check_output([python, "-m", "localspec", "completion", shell], env=_our_modules()))
        found[path] = place
    metainfo = folder / "org.localspec.localspec.metainfo.xml"
    text = (TEMPLATES / "localspec.metainfo.xml").read_text("utf-8")
    metainfo.write_text(text.format(version=VERSION, date=day, homepage=arguments.homepage), "utf-8")
    found[metainfo] = f"metainfo/{metainfo.name}"
    found[HERE / "localspec.desktop"] = "applications/localspec.desktop"
    found[HERE / "localspec.svg"] = "icons/hicolor/scalable/apps/localspec.svg"
    return found


# --- other package managers ------------------------------------------------------------------------------


def formula(arguments: argparse.Namespace) -> list[Path]:
    source = arguments.sdist or DIST / f"localspec-{VERSION}.tar.gz"
    path = DIST / "localspec.rb"
    path.write_text(_filled(TEMPLATES / "localspec.rb", source, arguments), "utf-8")
    return [path]


def winget(arguments: argparse.Namespace) -> list[Path]:
    if arguments.archive is None:
        raise CannotBuild("winget needs --archive FILE, the zip that `build.py app` makes on Windows")
    folder = DIST / "winget"
    folder.mkdir(exist_ok=True)
    made = []
    for template in sorted((TEMPLATES / "winget").glob("*.yaml")):
        path = folder / template.name
        path.write_text(_filled(template, arguments.archive, arguments), "utf-8")
        made.append(path)
    return made


def _filled(template: Path, file: Path, arguments: argparse.Namespace) -> str:
    """The template with version, address and hash in it. Its other braces stay."""
    if not file.is_file():
        raise CannotBuild(f"no file {file}: make it first, or name it")
    if not arguments.url:
        raise CannotBuild("where will the file be downloaded from? Say it with --url")
    digest = _sha256(file)
    text = template.read_text("utf-8")
    values = {
        "version": VERSION, "url": arguments.url, "homepage": arguments.homepage, "sha256": digest,
        "SHA256": digest.upper(), "date": time.strftime("%Y-%m-%d", time.gmtime(_date())),
    }  # fmt: skip
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


# --- tools -----------------------------------------------------------------------------------------------


def _environment(name: str, fresh: bool) -> Path:
    """The Python of a virtual environment in build/."""
    folder = BUILD / name
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if fresh or not python.exists():
        venv.create(folder, with_pip=True, clear=True)
        _run(python, "-m", "pip", "install", "--quiet", "--upgrade", "pip")
    return python


def _tools(arguments: argparse.Namespace, module: str) -> Path:
    """A Python that has the module: this one if it has, else one of our own."""
    # In a process of its own, and with -P: this folder and build/ would pass for the module.
    probe = [sys.executable, "-P", "-c", f"import {module}.__main__"]
    if subprocess.run(probe, capture_output=True).returncode == 0:
        return Path(sys.executable)
    python = _environment("tools-env", arguments.fresh)
    _run(python, "-m", "pip", "install", "--quiet", module)
    return python


def _product(arguments: argparse.Namespace) -> Path:
    """A Python that runs localspec's command line from this checkout: this one if it can, else the app's."""
    probe = [sys.executable, "-c", "import localspec.cli.main"]
    if subprocess.run(probe, cwd=ROOT, capture_output=True).returncode == 0:
        return Path(sys.executable)
    python = _environment("tools-env", False)
    needed = [one for one in PROJECT["dependencies"] if one.startswith(("click", "platformdirs", "psutil", "tomlkit"))]
    _run(python, "-m", "pip", "install", "--quiet", *needed)
    return python


def _our_modules() -> dict[str, str]:
    """An environment in which this checkout's package is found first."""
    return os.environ | {"PYTHONPATH": str(ROOT)}


def _run(*command: str | Path, environment: dict[str, str] | None = None, folder: Path = ROOT) -> None:
    subprocess.run(list(map(str, command)), check=True, cwd=folder, env=os.environ | (environment or {}))


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _nobody(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Archive members without the name of who made them; our own stamp stays out."""
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return None if member.name.endswith(".made-from") else member


def _date() -> int:
    """Seconds: SOURCE_DATE_EPOCH, which makes two builds alike, else now."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())


def _system() -> str:
    return {"Darwin": "macos"}.get(platform.system(), platform.system().lower())


def _machine() -> str:
    return {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())


BUILDERS: dict[str, Callable[[argparse.Namespace], list[Path]]] = {
    "wheel": wheel, "sdist": sdist, "docs": docs, "app": app, "deb": deb, "formula": formula, "winget": winget,
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
