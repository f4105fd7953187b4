"""Writes the tables of these pages that the program knows better: between `<!-- generated: NAME -->` and
`<!-- end -->` stands what it says of itself.

    .venv/bin/python docs/generate.py           # renew them
    .venv/bin/python docs/generate.py --check   # exit code 1 when a page is behind; `make test` checks too
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 100
"""Columns of a help text."""
_BLOCK = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def pages() -> list[Path]:
    """Every page that may have generated parts."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def renewed(text: str) -> str:
    """A page with its generated parts as they should be. KeyError for a part that nobody makes."""
    return _BLOCK.sub(lambda found: f"{found[1]}{PARTS[found[2]]().strip()}\n{found[3]}", text)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def code(text: str) -> str:
    """As code, if there is any."""
    return f"`{text}`" if text else ""


# --- the command line -----------------------------------------------------------------------------------


def command(name: str) -> click.Command:
    """A command of `localspec`."""
    from localspec.cli.main import COMMANDS

    module, attribute = COMMANDS[name][0].split(":")
    found = getattr(import_module(module), attribute)
    assert isinstance(found, click.Command)
    return found


def commands() -> str:
    """What there is, a line each."""
    from localspec.cli.main import COMMANDS

    rows = [(f"[`localspec {name}`](commands.md#localspec-{name})", line) for name, (_, line) in COMMANDS.items()]
    return table(("command", "what it does"), rows)


def with_subcommands(name: str) -> Iterator[tuple[str, click.Command]]:
    """A command and, of a group, those below it, by their whole names."""
    found = command(name)
    yield name, found
    if isinstance(found, click.Group):
        for below, inner in found.commands.items():
            yield f"{name} {below}", inner


def help_texts() -> str:
    """Every command's --help."""
    from localspec.cli.main import COMMANDS, cli

    parts = []
    for name, found in chain.from_iterable(map(with_subcommands, COMMANDS)):
        context = click.Context(found, info_name=f"localspec {name}", terminal_width=WIDTH, **cli.context_settings)
        parts.append(f"### localspec {name}\n\n```text\n{context.get_help()}\n```\n")
    return "\n".join(parts)


def settings() -> str:
    """Everything that config.toml may hold."""
    from localspec.cli.settings import KNOWN

    rows = [
        (code(setting.key), code(setting.variable), setting.help, code(_shown(setting.default)))
        for setting in KNOWN.values()
    ]
    return table(("key", "variable", "what it sets", "default"), rows)


def variables() -> str:
    """Options that can stand in the environment and not in config.toml."""
    from localspec.cli.main import COMMANDS
    from localspec.cli.settings import KNOWN

    in_file = {setting.variable for setting in KNOWN.values()}
    found: dict[str, tuple[click.Option, list[str]]] = {}
    for name, below in chain.from_iterable(map(with_subcommands, COMMANDS)):
        for option in below.params:
            if isinstance(option, click.Option) and isinstance(option.envvar, str) and option.envvar not in in_file:
                found.setdefault(option.envvar, (option, []))[1].append(name)
    rows = []
    for variable, (option, names) in sorted(found.items()):
        used = ", ".join(names) if len(names) < 6 else f"{', '.join(names[:3])} and {len(names) - 3} more"
        rows.append((code(variable), code(max(option.opts, key=len)), option.help or "", used))
    return table(("variable", "option", "what it sets", "commands"), rows)


def _shown(value: object) -> str:
    return "" if value is None or value is False or value == () else str(value)


def exit_codes() -> str:
    """Codes with the errors that end in them."""
    from localspec.ground import errors

    found: dict[int, list[str]] = {0: ["in order"], 1: ["a bug in localspec"]}
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.LocalspecError) and kind is not errors.LocalspecError:
            found.setdefault(kind.exit_code, []).append((kind.__doc__ or "").strip().splitlines()[0].rstrip("."))
    found.setdefault(143, ["terminated (SIGTERM)"])
    return table(("code", "meaning"), [(str(number), "; ".join(found[number])) for number in sorted(found)])


# --- the terminal UI ------------------------------------------------------------------------------------


def keys() -> str:
    """Keys by screen, as F1 shows them."""
    from localspec.tui.app import LocalspecApp
    from localspec.tui.screens import help as help_screen
    from localspec.tui.screens.chat import ChatScreen
    from localspec.tui.widgets.transcript import Transcript

    parts = [
        ("In the prompt", help_screen.PROMPT),
        ("In the chat", help_screen.keys_of(ChatScreen.BINDINGS)),
        ("In the conversation (Tab)", help_screen.keys_of(Transcript.BINDINGS)),
        ("Everywhere", help_screen.EVERYWHERE),
    ]
    for heading, screen in _screens():
        parts.append((heading, help_screen.keys_of(screen.BINDINGS)))
    assert LocalspecApp.BINDINGS
    sections = []
    for heading, bindings in parts:
        rows = [(code(names), meaning) for names, meaning in bindings]
        sections.append(f"**{heading}**\n\n{table(('keys', 'what they do'), rows)}\n")
    return "\n".join(sections)


def _screens() -> Iterator[tuple[str, Any]]:
    from localspec.tui.screens.bench import BenchScreen
    from localspec.tui.screens.draft import DraftScreen
    from localspec.tui.screens.pairs import PairsScreen
    from localspec.tui.screens.rounds import RoundsScreen
    from localspec.tui.screens.sessions import SessionsScreen
    from localspec.tui.screens.settings import SettingsScreen

    yield "Rounds of an answer (Ctrl+G)", RoundsScreen
    yield "Pairs (F2)", PairsScreen
    yield "Saved conversations (Ctrl+O)", SessionsScreen
    yield "Settings (F4)", SettingsScreen
    yield "Draft model (F9)", DraftScreen
    yield "Benchmark (F12)", BenchScreen


def origins() -> str:
    """How words are marked by who made them."""
    from localspec.tui.screens.help import MEANINGS
    from localspec.ui.provenance import MARKS

    rows = [(name, code(f"{before}word{after}"), MEANINGS[name]) for name, (before, after) in MARKS.items()]
    return table(("origin", "without colour", "meaning"), rows)


# --- pairs, server --------------------------------------------------------------------------------------


def check_rules() -> str:
    """What `localspec check` looks at."""
    from localspec.pairs.compat_rules import ASKED

    return table(("rule", "what is asked", "at worst"), [(code(rule), *asked) for rule, asked in ASKED.items()])


def pairs() -> str:
    """Models of the catalog with their recommended drafts."""
    from localspec.pairs.names.catalog import load_catalog

    rows = [
        (code(model.name), ", ".join(map(code, model.drafts)), model.why)
        for model in load_catalog().search()
        if model.drafts
    ]
    return table(("model", "drafts", "why"), rows)


def endpoints() -> str:
    """What the server answers."""
    from localspec.serve.app import ROUTES

    return table(
        ("request", "answer"), [(code(f"{method} {path}"), line) for (method, path), (_, line) in ROUTES.items()]
    )


def metrics() -> str:
    """Everything on /metrics."""
    from localspec.serve.statistics import Statistics

    rows = [
        (code(metric.name), metric.kind, ", ".join(map(code, metric.labels)), metric.help)
        for metric in Statistics(lambda: (0, 0), lambda: [(("server",), 0.0)]).described()
    ]
    return table(("metric", "kind", "labels", "meaning"), rows)


PARTS: dict[str, Callable[[], str]] = {
    "commands": commands, "help": help_texts, "settings": settings, "variables": variables,
    "exit-codes": exit_codes, "keys": keys, "origins": origins, "check-rules": check_rules, "pairs": pairs,
    "endpoints": endpoints, "metrics": metrics,
}  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Renew or check every page; the exit code."""
    behind = [page for page in pages() if renewed(page.read_text("utf-8")) != page.read_text("utf-8")]
    for page in behind:
        if "--check" in arguments:
            print(f"{page.relative_to(ROOT)} is behind: python docs/generate.py renews it", file=sys.stderr)
        else:
            page.write_text(renewed(page.read_text("utf-8")), "utf-8")
            print(f"renewed {page.relative_to(ROOT)}")
    return 1 if behind and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
