"""The pages say what the program does: generated parts are fresh, links lead somewhere, commands exist."""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest

from tests.bigram import BigramPair

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

PUBLIC = ["session/open.py", "ground/errors.py", "session/open_models.py", "engine/settings.py", "engine/records.py",
          "engine/drafters/protocol.py", "pairs/compat.py", "pairs/memory/fit_records.py"]  # fmt: skip
"""Modules that other programs may use: there every public name has a docstring."""


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_parts_are_what_the_program_says(generate: ModuleType) -> None:
    # A process of its own: click remembers the help option of a command that another test called by itself.
    checked = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"], capture_output=True, text=True, timeout=120
    )
    assert checked.returncode == 0, checked.stderr
    used = {name for page in PAGES for name in re.findall(r"<!-- generated: ([\w-]+) -->", page.read_text("utf-8"))}
    assert used == set(generate.PARTS)


def test_a_stale_page_is_noticed(generate: ModuleType) -> None:
    page = "before\n<!-- generated: exit-codes -->\nold\n<!-- end -->\nafter"
    fresh = generate.renewed(page)
    assert "\nold\n" not in fresh and "| 3 | The draft cannot serve this target |" in fresh
    assert fresh.startswith("before\n") and fresh.endswith("after") and generate.renewed(fresh) == fresh


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([\w-]*))?\)", page.read_text("utf-8")):
            path = page.parent / target if target else page
            assert path.exists(), f"{page.name}: {target}"
            if anchor:
                heads = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE)
                assert anchor in {head.lower().replace(" ", "-") for head in heads}, f"{page.name}: #{anchor}"


def commands_in(page: Path) -> Iterator[list[str]]:
    """Every `localspec ...` that a page shows, in words."""
    text = re.sub(r"<!-- generated: help -->.*?<!-- end -->", "", page.read_text("utf-8"), flags=re.DOTALL)
    shown = re.findall(r"^    (localspec .*)$", text, re.MULTILINE) + re.findall(r"`(localspec [^`]*)`", text)
    for line in shown:
        words = shlex.split(line.replace("...", ""), comments=True)
        yield words[1:]


def test_commands_and_options_that_are_shown_exist(generate: ModuleType) -> None:
    from localspec.cli.main import COMMANDS

    seen = set()
    for page in PAGES:
        for words in commands_in(page):
            name = words[0] if words else "chat"
            if name.startswith("-") or name.isupper():  # `localspec --help`, `localspec COMMAND --help`
                continue
            assert name in COMMANDS, f"{page.name}: localspec {' '.join(words)}"
            seen.add(name)
            shown = dict(generate.with_subcommands(name)).get(" ".join(words[:2]), generate.command(name))
            known = {
                option
                for parameter in shown.params
                if isinstance(parameter, click.Option)
                for option in (*parameter.opts, *parameter.secondary_opts)
            }
            given = {word.partition("=")[0].rstrip(",") for word in words[1:] if re.match(r"--?[a-z]", word)}
            assert given <= known | {"--help"}, f"{page.name}: localspec {' '.join(words)}"
    assert {"run", "chat", "bench", "check", "pull"} <= seen


def test_the_rules_of_check_are_all_explained(bigram: BigramPair) -> None:
    from localspec.pairs.compat import check
    from localspec.pairs.compat_rules import ASKED
    from localspec.pairs.gguf.header import read_header

    verdict = check(read_header(bigram.target), read_header(bigram.draft))
    assert [reason.rule for reason in verdict.rules] == list(ASKED)


def undocumented(tree: ast.Module, methods: bool) -> Iterator[str]:
    """Public classes and functions without a docstring; with `methods` those of classes too."""
    for node in named(tree.body):
        if ast.get_docstring(node) is None:
            yield node.name
        for item in named(node.body) if methods and isinstance(node, ast.ClassDef) else ():
            if ast.get_docstring(item) is None:
                yield f"{node.name}.{item.name}"


def named(body: list[ast.stmt]) -> Iterator[ast.ClassDef | ast.FunctionDef]:
    """What others may use."""
    return (
        node for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
    )


def test_public_names_have_docstrings() -> None:
    package = ROOT / "localspec"
    missing = []
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        tree = ast.parse(path.read_text("utf-8"))
        missing += [f"{name}: {what}" for what in undocumented(tree, name in PUBLIC)]
        if tree.body and ast.get_docstring(tree) is None:
            missing.append(name)
    assert missing == []
    assert [name for name in PUBLIC if not (package / name).exists()] == []


if sys.platform == "win32":  # pages are written with "\n"
    pytestmark = pytest.mark.skip(reason="line ends of a checkout differ")
