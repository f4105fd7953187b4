"""Who may import whom, shown in fresh interpreters and in the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "localspec"
HEAVY = ["llama_cpp", "textual", "huggingface_hub", "numpy", "gguf", "starlette", "uvicorn", "jinja2"]

DOORS = {
    "llama_cpp": ("engine/llama/",),
    "huggingface_hub": ("pairs/hub/hub.py",),
    "textual": ("tui/",),
    "psutil": ("ground/machine.py",),
    "starlette": ("serve/",),
    "uvicorn": ("serve/",),
    "prometheus_client": ("serve/statistics.py",),
}
"""Each third-party library has one door."""


def loaded_after(code: str) -> set[str]:
    """Names of the modules that a fresh interpreter has loaded after `code`."""
    start = "import sys; sys.argv = ['localspec', '--help']"
    program = "\n".join([start, code, "print(*sys.modules, file=sys.stderr)"])
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(result.stderr.split())


def test_help_loads_nothing_heavy() -> None:
    loaded = loaded_after("from localspec.cli.main import main\nassert main() == 0")
    assert "click" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_the_loop_runs_without_any_front_end_or_libllama() -> None:
    loaded = loaded_after("import localspec.engine.generate, localspec.engine.control.controller")
    assert loaded.isdisjoint({"llama_cpp", "textual", "huggingface_hub", "click", "starlette"})


def imports(path: Path) -> set[str]:
    """Every module that the file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


@pytest.mark.parametrize("library", DOORS)
def test_each_library_has_one_door(library: str) -> None:
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if any(name.split(".")[0] == library for name in imports(path))
    }
    assert [user for user in sorted(users) if not user.startswith(DOORS[library])] == []


def test_pairs_and_engine_do_not_know_each_other() -> None:
    for here, there in (("pairs", "engine"), ("engine", "pairs")):
        for path in (PACKAGE / here).rglob("*.py"):
            wrong = [name for name in imports(path) if name.startswith(f"localspec.{there}")]
            assert not wrong, (path, wrong)


def test_pairs_and_engine_do_not_know_the_session() -> None:
    for folder in ("pairs", "engine"):
        for path in (PACKAGE / folder).rglob("*.py"):
            assert not [name for name in imports(path) if name.startswith("localspec.session")], path


FRONTS = ("cli", "tui", "serve", "bench")
MAY_IMPORT_A_FRONT = {"__main__.py": "cli"}
"""The entry point."""


def test_nothing_below_the_front_ends_imports_one() -> None:
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE)
        if place.parts[0] not in FRONTS:
            wrong = [front for front in FRONTS if front != MAY_IMPORT_A_FRONT.get(place.as_posix())]
            doors = tuple(f"localspec.{front}." for front in wrong)
            assert not [name for name in imports(path) if f"{name}.".startswith(doors)], place
