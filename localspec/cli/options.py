"""Options that several commands share, and the settings records they make.

Every option can also be given as LOCALSPEC_<NAME> in the environment; the flag wins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from localspec.engine.settings import SamplerSettings, SpeculationSettings
    from localspec.session import LoadOptions

F = TypeVar("F", bound=Callable[..., Any])


class AutoNumber(click.ParamType[Any]):
    """`auto` (None) or a whole number."""

    name = "auto|N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        if value is None or isinstance(value, int) or value == "auto":
            return None if value == "auto" else value
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is neither auto nor a whole number", param, ctx)


class KeyValue(click.ParamType[Any]):
    """`key=value`; true, false and numbers are read as such."""

    name = "k=v"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, object]:
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        if not equals or not key.isidentifier():
            self.fail(f"{value!r} is not name=value", param, ctx)
        return key, _literal(text)


class LogitBias(click.ParamType[Any]):
    """`id=number`; `-inf` bans the token."""

    name = "id=bias"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, float]:
        if isinstance(value, tuple):
            return value
        token, _, bias = str(value).partition("=")
        try:
            return int(token), float(bias)
        except ValueError:
            self.fail(f"{value!r} is not id=number", param, ctx)


def option(*names: str, **attributes: Any) -> Callable[[F], F]:
    """A click option with its LOCALSPEC_ environment variable and its default shown."""
    longest = max((name.split("/")[0] for name in names if name.startswith("-")), key=len)
    attributes.setdefault("envvar", "LOCALSPEC_" + longest.lstrip("-").replace("-", "_").upper())
    attributes.setdefault("show_default", attributes.get("default") is not None)
    return click.option(*names, **attributes)


def cache_option(command: F) -> F:
    """Where model files are kept."""
    text = "Folder of the model files (default: the Hugging Face cache)."
    return option("--cache-dir", metavar="DIR", help=text)(command)


def pair_options(command: F) -> F:
    """Which draft, and where both models go."""
    for add in reversed(
        (
            option("--draft", metavar="D", help="Draft model: a file, a name, `auto` or `none`."),
            option("--ctx", type=int, metavar="N", help="Tokens of context (default: min(8192, trained))."),
            option("--threads", type=int, metavar="N", help="Threads (default: physical cores)."),
            option(
                "--gpu-layers", type=AutoNumber(), default="auto", help="Layers of the target on the GPU."
            ),
            option(
                "--draft-gpu-layers",
                type=AutoNumber(),
                default="auto",
                help="Layers of the draft on the GPU.",
            ),
            option(
                "--split-mode",
                type=click.Choice(["none", "layer", "row"]),
                default="layer",
                help="How several GPUs share a model.",
            ),
            option("--main-gpu", type=int, default=0, help="The GPU that is used when one is."),
            option("--cache-type", metavar="T", help="Element type of the caches: f16 (default), q8_0, ..."),
            option(
                "--flash-attn",
                type=click.Choice(["auto", "on", "off"]),
                default="auto",
                help="Flash attention.",
            ),
            option("--force", is_flag=True, help="Load a pair that a check advises against."),
            option("--offline", is_flag=True, help="Never ask the network."),
            option(
                "--cache-dir",
                metavar="DIR",
                help="Folder of the model files (default: the Hugging Face cache).",
            ),
        )
    ):
        command = add(command)
    return command


def url_option(command: F) -> F:
    """A server as the engine, instead of models loaded here."""
    text = "Use a server as the engine: localspec serve, llama-server, vLLM. Its key: LOCALSPEC_API_KEY."
    return option("--url", metavar="URL", help=text)(command)


def refuse_loading_options() -> None:
    """With --url, options about loading would go unheeded. Raises InvalidInput for one that was given."""
    from localspec.errors import InvalidInput

    context = click.get_current_context()
    for name in _LOADING:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise InvalidInput(
                f"--{name.replace('_', '-')} cannot be used with --url", "Say it where the server is started"
            )


_LOADING = (
    *("draft", "ctx", "threads", "gpu_layers", "draft_gpu_layers", "split_mode", "main_gpu", "cache_type"),
    *("flash_attn", "force", "cache_dir"),
)


def sampling_options(command: F) -> F:
    """How tokens are chosen, and where an answer ends."""
    for add in reversed(
        (
            option("--temp", type=float, default=0.8, help="Temperature; 0 is greedy."),
            option("--top-k", type=int, default=40, help="Keep the K likeliest tokens; 0 = off."),
            option(
                "--top-p",
                type=float,
                default=0.95,
                help="Keep the likeliest tokens up to this mass; 1 = off.",
            ),
            option(
                "--min-p",
                type=float,
                default=0.05,
                help="Drop tokens below this share of the likeliest; 0 = off.",
            ),
            option(
                "--repeat-penalty",
                type=float,
                default=1.0,
                help="Above 1: repeated tokens become less likely.",
            ),
            option("--presence-penalty", type=float, default=0.0, help="Taken off tokens that occurred."),
            option(
                "--frequency-penalty",
                type=float,
                default=0.0,
                help="Taken off tokens for each time they occurred.",
            ),
            option(
                "--repeat-last-n", type=int, default=64, help="Tokens that penalties look back on; -1 = all."
            ),
            option(
                "--logit-bias",
                type=LogitBias(),
                multiple=True,
                help="Add to a token's logit; may be repeated.",
            ),
            option(
                "--seed",
                type=int,
                metavar="N",
                help="The same seed gives the same text, with and without drafts.",
            ),
            option(
                "--sampling",
                type=click.Choice(["rejection", "coupled"]),
                help="Default: coupled with --seed, else rejection.",
            ),
            option("--draft-temp", type=float, metavar="T", help="The draft model's own temperature."),
            option(
                "-n",
                "--max-tokens",
                type=int,
                metavar="N",
                help="Most tokens to generate (default: until the end).",
            ),
            option("--min-tokens", type=int, default=0, help="No end before this many tokens."),
            option("--stop", multiple=True, metavar="TEXT", help="End before this text; may be repeated."),
        )
    ):
        command = add(command)
    return command


def speculation_options(command: F) -> F:
    """How guesses are made."""
    for add in reversed(
        (
            option(
                "--drafter",
                type=click.Choice(["auto", "model", "lookup", "none"]),
                default="auto",
                help="What guesses. A named one is an order.",
            ),
            option("--no-draft", is_flag=True, help="Plain decoding: no guessing of any kind."),
            option(
                "-k",
                "--draft-length",
                type=AutoNumber(),
                default="auto",
                help="Guesses per round, 0 to 64. A number is an order.",
            ),
        )
    ):
        command = add(command)
    return command


def output_options(command: F) -> F:
    """What is printed."""
    for add in reversed(
        (
            option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else."),
            option("--quiet", "-q", is_flag=True, help="Only the result and errors."),
            option("--verbose", "-v", is_flag=True, help="More detail, tracebacks included."),
        )
    ):
        command = add(command)
    return command


def sampler_settings(values: dict[str, Any]) -> SamplerSettings:
    """From the values of `sampling_options`."""
    from localspec.engine.settings import SamplerSettings

    return SamplerSettings(
        temperature=values["temp"],
        top_k=values["top_k"],
        top_p=values["top_p"],
        min_p=values["min_p"],
        repeat_penalty=values["repeat_penalty"],
        presence_penalty=values["presence_penalty"],
        frequency_penalty=values["frequency_penalty"],
        penalty_window=values["repeat_last_n"],
        logit_bias=tuple(values["logit_bias"]),
        seed=values["seed"],
        mode=values["sampling"],
        draft_temperature=values["draft_temp"],
    )


def speculation_settings(values: dict[str, Any]) -> SpeculationSettings:
    """From the values of `speculation_options`."""
    from localspec.engine.settings import SpeculationSettings

    drafter = "none" if values["no_draft"] else values["drafter"]
    return SpeculationSettings(drafter, values["draft_length"])


def load_options(values: dict[str, Any]) -> LoadOptions:
    """From the values of `pair_options` and `speculation_options`."""
    from localspec.session import LoadOptions

    return LoadOptions(
        draft="none" if values["no_draft"] or values["drafter"] == "none" else values["draft"],
        context=values["ctx"],
        threads=values["threads"],
        gpu_layers=values["gpu_layers"],
        draft_gpu_layers=values["draft_gpu_layers"],
        split_mode=values["split_mode"],
        main_gpu=values["main_gpu"],
        cache_type=values["cache_type"],
        flash_attention=values["flash_attn"],
        draft_length=values["draft_length"],
        force=values["force"],
        offline=values["offline"],
        cache_folder=values["cache_dir"],
    )


def _literal(text: str) -> object:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
