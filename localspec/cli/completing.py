"""Names that a shell completes: pairs and models on this disk, names of the catalog.

This runs at each press of Tab, so it reads small files only, and a file that cannot be read means fewer names.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from click.shell_completion import CompletionItem

from localspec.ground.errors import LocalspecError

if TYPE_CHECKING:
    import click

_PLAIN = re.compile(r"[\w.+:/@-]+")
"""What shells take as one word. A name from a file could hold anything."""


def pair_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Pulled pairs, and files: any command that takes a pair takes a path."""
    return _with_files([name for name in _pairs() if name.startswith(incomplete)], incomplete)


def only_pair_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Pulled pairs, where a path means nothing."""
    return [CompletionItem(name) for name in _pairs() if name.startswith(incomplete)]


def model_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """What `--draft` may be."""
    names = ["auto", "none", *_catalog()]
    return _with_files([name for name in names if name.startswith(incomplete)], incomplete)


def catalog_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """What can be pulled."""
    return _with_files([name for name in _catalog() if name.startswith(incomplete)], incomplete)


def setting_keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Keys of config.toml."""
    from localspec.cli.settings import KNOWN

    return [CompletionItem(key, help=known.help) for key, known in KNOWN.items() if key.startswith(incomplete)]


def _with_files(names: list[str], incomplete: str) -> list[CompletionItem[str]]:
    # Files first: bash's script empties its list at this mark, and asks for files when the list stays empty.
    return [CompletionItem(incomplete, "file"), *map(CompletionItem, names)]


def _pairs() -> list[str]:
    from localspec.pairs.store.store import Store

    with suppress(OSError, LocalspecError):
        return sorted({name for name, _ in Store().names() if _PLAIN.fullmatch(name)})
    return []


def _catalog() -> list[str]:
    from localspec.pairs.names.catalog import load_catalog

    with suppress(OSError, LocalspecError):
        return sorted(model.name for model in load_catalog().search())
    return []
