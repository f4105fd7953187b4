"""The table of known failures: each one once, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
ROW = re.compile(r"\| ([A-Z]+-\d\d) \| (.+?) \| (.+?) \|")
IDS = {
    "VOC": (1, 2, 3, 4, 6, 8, 10),
    "KV": (1, 4, 6, 7, 8, 9),
    "SMP": (3, 4, 5, 6, 7, 8, 10, 12, 13),
    "SLOW": (1, 2, 3, 4, 6, 7, 10, 11, 13, 15),
    "MEM": (1, 2, 3, 4, 8),
    "DL": (2, 5, 6, 8, 9, 10, 11, 12, 13),
    "FILE": (1, 2, 5, 6),
    "TPL": (1, 2, 5, 7, 8),
    "UTF": (1, 3),
    "TUI": (2, 6, 7, 8, 9, 10, 11),
    "BEN": (1, 2, 4, 6, 7, 8, 10),
    "SRV": (1, 2, 3, 4),
    "CON": (1, 3, 5),
}


def rows() -> list[tuple[str, str, str]]:
    lines = (TESTS / "known_failures.md").read_text("utf-8").splitlines()
    return [found.groups() for line in lines if (found := ROW.fullmatch(line))]  # type: ignore[misc]


@cache
def names_in(file: str) -> frozenset[str]:
    """Names of all test functions of a file, those in classes included."""
    tree = ast.parse((TESTS / file).read_text("utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in functions if node.name.startswith("test_"))


def test_every_known_failure_is_listed_once() -> None:
    wanted = [f"{kind}-{number:02}" for kind, numbers in IDS.items() for number in numbers]
    assert [name for name, _, _ in rows()] == wanted
    assert len(wanted) == 78


def test_every_test_that_is_named_exists() -> None:
    for name, _, shown in rows():
        named = re.findall(r"`tests/(test_\w+\.py)::(test_\w+)`", shown)
        assert named, f"{name} names no test"
        assert not [f"{file}::{test}" for file, test in named if test not in names_in(file)], name
