"""The prompt sets: our own as package data, a person's own from a file."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from localspec.bench.records import Prompt
from localspec.ground.errors import InvalidInput, UnreadableFile
from localspec.ground.parsing import parse_json, parse_toml
from localspec.ground.terminal import one_line

_CHARACTERS_PER_TOKEN = 4.2
_TEMPLATE_TOKENS = 25


def load_prompts(path: Path | None = None) -> tuple[Prompt, ...]:
    """Our own prompts, or a file's: TOML like ours, a JSON list of the same tables, or one prompt a line.

    Raises UnreadableFile, InvalidInput with the entry that is wrong.
    """
    if path is None:
        text = files("localspec.bench").joinpath("data/prompts.toml").read_text("utf-8")
        return _prompts(parse_toml(text)["prompt"])
    try:
        text = path.read_text("utf-8")
        tables = _tables(path, text)
    except (OSError, ValueError) as error:
        raise UnreadableFile(f"cannot read the prompts in {path}: {one_line(str(error))}") from error
    if not tables:
        raise InvalidInput(f"{path} has no prompts", "Write [[prompt]] tables, a JSON list, or one prompt a line")
    return _prompts(tables)


def filler(tokens: int) -> str:
    """Text of about so many tokens, to put before a question."""
    source = files("localspec.bench").joinpath("data/filler.txt").read_text("utf-8")
    wanted = int(tokens * _CHARACTERS_PER_TOKEN)
    pages: list[str] = []
    while sum(map(len, pages)) < wanted:
        # Numbered, so that no page is a copy of another: copies would flatter prompt lookup.
        pages.append(f"Book {len(pages) + 1}.\n{source}")
    return "".join(pages)[:wanted]


def estimated_tokens(prompt: Prompt, depth: int = 0) -> int:
    """Prompt tokens, about."""
    return int(len(prompt.text) / _CHARACTERS_PER_TOKEN) + _TEMPLATE_TOKENS + depth


def _tables(path: Path, text: str) -> list[dict[str, Any]]:
    if path.suffix == ".toml":
        return list(parse_toml(text).get("prompt", ()))
    if path.suffix == ".json":
        found = parse_json(text)
        return list(found["prompt"] if isinstance(found, dict) else found)
    return [{"kind": "own", "text": line} for line in text.splitlines() if line.strip()]


def _prompts(tables: list[dict[str, Any]]) -> tuple[Prompt, ...]:
    prompts = tuple(_prompt(index, table) for index, table in enumerate(tables))
    ids = [prompt.id for prompt in prompts]
    twice = next((name for name in ids if ids.count(name) > 1), None)
    if twice is not None:
        raise InvalidInput(f"two prompts have the id {one_line(twice, 60)!r}", "Give each its own")
    return prompts


def _prompt(index: int, table: Any) -> Prompt:
    if isinstance(table, str):
        table = {"text": table}
    if not isinstance(table, dict) or not str(table.get("text", "")).strip():
        raise InvalidInput(f"prompt {index + 1} has no text", "Each prompt needs `text`")
    try:
        limit = int(table.get("max_tokens", 256))
        expected = int(table.get("expected", min(limit, 100)))
    except (TypeError, ValueError):
        raise InvalidInput(f"prompt {index + 1} has a max_tokens or expected that is no number") from None
    if limit < 2:
        raise InvalidInput(f"prompt {index + 1} has max_tokens {limit}", "Use 2 or more")
    return Prompt(
        str(table.get("id", f"prompt-{index + 1}")),
        str(table.get("kind", "own")),
        str(table["text"]).strip("\n"),
        limit,
        min(expected, limit),
        bool(table.get("quick", False)),
    )
