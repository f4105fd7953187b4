"""The shape of the code, in numbers: what a new drafter touches, folders, long files, import circles.

    python benchmarks/structure.py [CHECKOUT ...]

For each checkout one column. What a drafter touches is counted by the places that name the ones that exist: a file
other than the drafter's own that says `"model"` or `"lookup"` as a drafter, or imports their modules, has to be looked
at when a third one comes.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_NAMES = re.compile(r"""["']lookup["']|LookupDrafter|ModelDrafter|drafters\.(?:model|lookup)\b""")
_ABOUT_OTHERS = ("export/", "bench/peers", "audit/cases")
"""Other programs' methods have names too; and the audit picks the shapes it tries."""


def main(checkouts: list[str]) -> None:
    """Print the table."""
    shapes = [shape(Path(checkout)) for checkout in checkouts or ["."]]
    for key in shapes[0]:
        print(f"{key:48}", *(f"{made[key]:>28}" for made in shapes))


def shape(checkout: Path) -> dict[str, str]:
    """Figures of one checkout, by their names."""
    package = checkout / "localspec"
    files = {path.relative_to(package).as_posix(): path.read_text("utf-8") for path in package.rglob("*.py")}
    lengths = {name: text.count("\n") for name, text in files.items()}
    longest = max(lengths, key=lambda name: lengths[name])
    folders = Counter(name.rpartition("/")[0] or "." for name in files)
    fullest = max(folders, key=lambda folder: folders[folder])
    naming = sorted(name for name, text in files.items() if _names_a_drafter(name, text))
    circles = list(import_circles(files))
    return {
        "files that name a drafter": f"{len(naming)}",
        "  of them in engine/": f"{sum(name.startswith('engine/') for name in naming)}",
        "files": f"{len(files)}",
        "lines": f"{sum(lengths.values())}",
        "longest file": f"{longest} {lengths[longest]}",
        "fullest folder": f"{fullest} {folders[fullest]}",
        "files flat in engine/": f"{folders.get('engine', 0)}",
        "files flat in pairs/": f"{folders.get('pairs', 0)}",
        "files flat at the top": f"{folders.get('.', 0)}",
        "import circles": f"{len(circles)}",
        "  the first": " > ".join(circles[0]) if circles else "-",
    }


def _names_a_drafter(name: str, text: str) -> bool:
    own = name.startswith("engine/drafters/") or name.startswith(_ABOUT_OTHERS)
    return not own and _NAMES.search(_code_of(text)) is not None


def _code_of(text: str) -> str:
    """Without docstrings and comments."""
    return ast.unparse(_Bare().visit(ast.parse(text)))


class _Bare(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return ast.Pass() if isinstance(node.value, ast.Constant) else node


def import_circles(files: dict[str, str]) -> Iterator[list[str]]:
    """Each group of modules that import each other when they are loaded (imports inside functions do not count)."""
    graph = {name: set(_imported(text, files)) - {name} for name, text in files.items()}
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:  # Tarjan's strongly connected components
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    sys.setrecursionlimit(10_000)
    for name in graph:
        if name not in index:
            visit(name)
    yield from found


def _imported(text: str, files: dict[str, str]) -> Iterator[str]:
    for node in _top_level(ast.parse(text).body):
        for module in _modules(node):
            for candidate in (f"{module}.py", f"{module}/__init__.py"):
                if candidate in files:
                    yield candidate


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node


def _modules(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("localspec"):
        base = node.module.removeprefix("localspec").strip(".").replace(".", "/")
        yield base
        for alias in node.names:
            yield f"{base}/{alias.name}".strip("/")
    elif isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name.startswith("localspec."):
                yield alias.name.removeprefix("localspec.").replace(".", "/")


if __name__ == "__main__":
    main(sys.argv[1:])
