"""The one table of settings: each can be an option, a variable LOCALSPEC_<NAME> and a line of config.toml.

Options are made from this table, so that their types, defaults and help are said once. A setting of the file acts as
the default of the option with its name, in the commands that the table names; option and environment come first.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import click

from localspec.cli.setting import ANSWERING, EVERYWHERE, Setting
from localspec.cli.value_types import AutoNumber
from localspec.engine.drafters import table
from localspec.ground.errors import InvalidInput
from localspec.ground.terminal import one_line

THEMES = (
    *("textual-dark", "textual-light", "nord", "gruvbox", "catppuccin-mocha", "catppuccin-frappe"),
    *("catppuccin-macchiato", "catppuccin-latte", "dracula", "tokyo-night", "monokai", "flexoki", "solarized-light"),
    *("solarized-dark", "rose-pine", "rose-pine-moon", "rose-pine-dawn", "atom-one-dark", "atom-one-light"),
    *("ansi-dark", "ansi-light"),
)
"""Textual's, by name: reading a setting must not import the terminal UI."""


def _sampler(field: str) -> Callable[[Any], object]:
    def check(value: Any) -> object:
        from localspec.engine.settings import SamplerSettings

        return SamplerSettings(**{field: value})

    return check


def _load(field: str) -> Callable[[Any], object]:
    def check(value: Any) -> object:
        from localspec.session import LoadOptions

        return LoadOptions(**{field: value})

    return check


def _length(value: int) -> object:
    from localspec.engine.settings import SpeculationSettings

    return SpeculationSettings(length=value)


def _max_tokens(value: int) -> object:
    from localspec.engine.settings import GenerationRequest

    return GenerationRequest(prompt="", max_tokens=value)


_DRAFTERS = "What guesses. A named one is an order. " + "".join(
    f"{name[0].upper()}{name[1:]}: {entry.summary}. " for name, entry in table.DRAFTERS.items()
)

_TEXT, _FLOAT, _INT = click.STRING, click.FLOAT, click.INT

KNOWN: dict[str, Setting] = {
    setting.key: setting
    for setting in (
        Setting("pair", _TEXT, "The pair to use when none is named.", metavar="PAIR", is_path=True),
        Setting("draft", _TEXT, "Draft model: a file, a name, `auto` or `none`.", metavar="D", is_path=True),
        Setting(
            "drafter",
            click.Choice(table.NAMES),
            _DRAFTERS,
            "auto",
            ANSWERING,
        ),
        Setting(
            "draft-length",
            AutoNumber(),
            "Guesses per round, 0 to 64. A number is an order.",
            "auto",
            ANSWERING,
            ("-k",),
            check=_length,
        ),
        Setting("ctx", _INT, "Tokens of context (default: min(8192, trained)).", metavar="N", check=_load("context")),
        Setting("threads", _INT, "Threads (default: physical cores).", metavar="N", check=_load("threads")),
        Setting("gpu-layers", AutoNumber(), "Layers of the target on the GPU.", "auto"),
        Setting("draft-gpu-layers", AutoNumber(), "Layers of the draft on the GPU.", "auto"),
        Setting("split-mode", click.Choice(["none", "layer", "row"]), "How several GPUs share a model.", "layer"),
        Setting("main-gpu", _INT, "The GPU that is used when one is.", 0),
        Setting(
            "cache-type",
            _TEXT,
            "Element type of the caches: f16 (default), q8_0, ...",
            metavar="T",
            check=_load("cache_type"),
        ),
        Setting("flash-attn", click.Choice(["auto", "on", "off"]), "Flash attention.", "auto"),
        Setting("offline", click.BOOL, "Never ask the network.", False, EVERYWHERE),
        Setting(
            "cache-dir",
            _TEXT,
            "Folder of the model files (default: the Hugging Face cache).",
            None,
            EVERYWHERE,
            metavar="DIR",
            is_path=True,
        ),
        Setting("temp", _FLOAT, "Temperature; 0 is greedy.", 0.8, ANSWERING, check=_sampler("temperature")),
        Setting("top-k", _INT, "Keep the K likeliest tokens; 0 = off.", 40, ANSWERING, check=_sampler("top_k")),
        Setting(
            "top-p",
            _FLOAT,
            "Keep the likeliest tokens up to this mass; 1 = off.",
            0.95,
            ANSWERING,
            check=_sampler("top_p"),
        ),
        Setting(
            "min-p",
            _FLOAT,
            "Drop tokens below this share of the likeliest; 0 = off.",
            0.05,
            ANSWERING,
            check=_sampler("min_p"),
        ),
        Setting(
            "repeat-penalty",
            _FLOAT,
            "Above 1: repeated tokens become less likely.",
            1.0,
            ANSWERING,
            check=_sampler("repeat_penalty"),
        ),
        Setting(
            "presence-penalty",
            _FLOAT,
            "Taken off tokens that occurred.",
            0.0,
            ANSWERING,
            check=_sampler("presence_penalty"),
        ),
        Setting(
            "frequency-penalty",
            _FLOAT,
            "Taken off tokens for each time they occurred.",
            0.0,
            ANSWERING,
            check=_sampler("frequency_penalty"),
        ),
        Setting(
            "repeat-last-n",
            _INT,
            "Tokens that penalties look back on; -1 = all.",
            64,
            ANSWERING,
            check=_sampler("penalty_window"),
        ),
        Setting(
            "seed",
            _INT,
            "The same seed gives the same text, with and without drafts.",
            None,
            ANSWERING,
            metavar="N",
            check=_sampler("seed"),
        ),
        Setting(
            "sampling",
            click.Choice(["rejection", "coupled"]),
            "Default: coupled with --seed, else rejection.",
            None,
            ANSWERING,
        ),
        Setting(
            "draft-temp",
            _FLOAT,
            "The draft model's own temperature.",
            None,
            ANSWERING,
            metavar="T",
            check=_sampler("draft_temperature"),
        ),
        Setting(
            "max-tokens",
            _INT,
            "Most tokens to generate (default: until the end).",
            None,
            ANSWERING,
            ("-n",),
            "N",
            _max_tokens,
        ),
        Setting("system", _TEXT, "System prompt.", None, frozenset({"run", "chat"}), metavar="TEXT"),
        Setting(
            "theme",
            click.Choice(THEMES),
            "Colours of the terminal UI (default: the ones used last).",
            None,
            frozenset({"chat"}),
            metavar="NAME",
        ),
        Setting(
            "serve.host",
            _TEXT,
            "Address to listen on; 127.0.0.1 is this machine only.",
            "127.0.0.1",
            frozenset({"serve"}),
            metavar="ADDRESS",
        ),
        Setting("serve.port", click.IntRange(0, 65535), "Port; 0 = any free one.", 8713, frozenset({"serve"})),
        Setting(
            "serve.queue",
            click.IntRange(0, 10000),
            "Requests that may wait; more get status 429.",
            32,
            frozenset({"serve"}),
        ),
        Setting(
            "serve.answer-seconds",
            click.FloatRange(1, 86400),
            "Longest time for one answer, waiting included.",
            600.0,
            frozenset({"serve"}),
        ),
        Setting(
            "serve.api-key-file",
            click.Path(dir_okay=False),
            "File of keys, one a line.",
            None,
            frozenset({"serve"}),
            is_path=True,
        ),
    )
}
"""By key, in the order in which people look for them."""

_OTHER_NAMES = {"k": "draft-length", "n": "max-tokens", "temperature": "temp", "context": "ctx", "ngl": "gpu-layers"}


def known(key: str) -> Setting:
    """The setting of that key. Raises InvalidInput with the nearest ones."""
    tidy = key.strip().lower().replace("_", "-")
    setting = KNOWN.get(tidy)
    if setting is not None:
        return setting
    close = [_OTHER_NAMES[tidy]] if tidy in _OTHER_NAMES else get_close_matches(tidy, KNOWN, n=3, cutoff=0.5)
    near = f"Close: {', '.join(close)}. " if close else ""
    raise InvalidInput(f"no setting named {one_line(key)!r}", f"{near}See all: localspec config show")
