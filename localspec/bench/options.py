"""What a person asked of a bench: which arms, on which texts, for how long."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from localspec.session import LoadOptions


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """The command line of `bench`, read. `plan.make_plan` decides how much of it fits into the time."""

    pair: str | None = None
    """None = only the servers at `urls`."""
    load: LoadOptions = field(default_factory=LoadOptions)
    drafters: tuple[str, ...] = ()
    """Further arms by drafter: model, lookup."""
    lengths: tuple[int, ...] | None = None
    """Draft lengths of the sweep; None = the usual ones."""
    drafts: tuple[str, ...] = ()
    """Further arms by draft model, named as for `--draft`."""
    peers: tuple[tuple[str, Path], ...] = ()
    """Further arms by another program: (name, program)."""
    urls: tuple[str, ...] = ()
    """Further arms by server: `ADDRESS` or `NAME=ADDRESS`."""
    model: str = ""
    """Name to ask the servers at `urls` for; "" = the first that they list."""
    api_key: str = ""
    temperatures: tuple[float, ...] = (0.0,)
    depths: tuple[int, ...] = (0,)
    """Tokens of other text before each question."""
    kinds: tuple[str, ...] = ()
    """Kinds of text; () = all."""
    starts: int = 3
    """Starts of the engine."""
    budget: float = 1800.0
    """Seconds, loading included."""
    quick: bool = False
    """Few prompts, and no sweep unless `lengths` says so."""
    cooldown: float = 0.0
    """Seconds of rest before every answer."""
    seed: int = 1
    """Of the random order, and of the sampling above temperature 0."""
    max_tokens: int | None = None
    """Instead of each prompt's own limit."""
