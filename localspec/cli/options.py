"""Options that several commands share, and the settings records they make.

Every option can also be given as LOCALSPEC_<NAME> in the environment; the flag wins. Those of `settings.KNOWN` can
be lines of config.toml as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from localspec.cli.completing import model_names, pair_names
from localspec.cli.settings import KNOWN
from localspec.cli.value_types import LogitBias

if TYPE_CHECKING:
    from localspec.engine.settings import SamplerSettings, SpeculationSettings
    from localspec.session import LoadOptions, Session

F = TypeVar("F", bound=Callable[..., Any])


def option(*names: str, **attributes: Any) -> Callable[[F], F]:
    """A click option with its LOCALSPEC_ environment variable and its default shown."""
    longest = max((name.split("/")[0] for name in names if name.startswith("-")), key=len)
    attributes.setdefault("envvar", "LOCALSPEC_" + longest.lstrip("-").replace("-", "_").upper())
    attributes.setdefault("show_default", attributes.get("default") is not None)
    return click.option(*names, **attributes)


def setting(key: str) -> Callable[[F], F]:
    """The option of a setting. Type, default and help come from the table; `config.toml` may hold it too."""
    known = KNOWN[key]
    kind: dict[str, Any] = {"is_flag": True} if known.type is click.BOOL else {"type": known.type}
    if known.metavar:
        kind["metavar"] = known.metavar
    if key in _COMPLETED:
        kind["shell_complete"] = _COMPLETED[key]
    return option(*known.flags, f"--{known.name}", default=known.default, help=known.help, **kind)


def _settings(*keys: str) -> Callable[[F], F]:
    def add(command: F) -> F:
        for key in reversed(keys):
            command = setting(key)(command)
        return command

    return add


_COMPLETED = {"draft": model_names, "pair": pair_names}


def pair_argument(command: F) -> F:
    """PAIR; without one, the setting `pair`."""
    return click.argument("pair", envvar=KNOWN["pair"].variable, shell_complete=pair_names)(command)


def optional_pair_argument(command: F) -> F:
    """PAIR, which may be missing; then the setting `pair` if there is one."""
    name = KNOWN["pair"].variable
    return click.argument("pair", required=False, envvar=name, shell_complete=pair_names)(command)


def was_typed(parameter: str) -> bool:
    """Whether the command line holds it; if not, it comes from the environment, the file or the defaults."""
    source = click.get_current_context().get_parameter_source(parameter)
    return source is click.core.ParameterSource.COMMANDLINE


cache_option = setting("cache-dir")
"""Where model files are kept."""


def pair_options(command: F) -> F:
    """Which draft, and where both models go."""
    command = _settings("offline", "cache-dir")(command)
    command = option("--force", is_flag=True, help="Load a pair that a check advises against.")(command)
    return _settings(
        *("draft", "ctx", "threads", "gpu-layers", "draft-gpu-layers", "split-mode", "main-gpu", "cache-type"),
        "flash-attn",
    )(command)


def url_option(command: F) -> F:
    """A server as the engine, instead of models loaded here."""
    text = "Use a server as the engine: localspec serve, llama-server, vLLM. Its key: LOCALSPEC_API_KEY."
    return option("--url", metavar="URL", help=text)(command)


def refuse(names: Sequence[str], beside: str, hint: str) -> None:
    """Raises InvalidInput for an option of `names` that was given, because it would go unheeded `beside` another.

    One that stands in the environment gives way without a word: the command line comes first.
    """
    from localspec.ground.errors import InvalidInput

    for name in filter(was_typed, names):
        raise InvalidInput(f"{_flag(name)} cannot be used with {beside}", hint)


def _flag(name: str) -> str:
    return {"draft_length": "-k", "max_tokens": "-n"}.get(name, f"--{name.replace('_', '-')}")


def refuse_template_options() -> None:
    """With --raw, what is meant for the chat template would go unheeded. Raises InvalidInput."""
    refuse(("system", "template_arg"), "--raw", "There is no chat template that it could go into")


def refuse_loading_options() -> None:
    """With --url, options about loading would go unheeded. Raises InvalidInput for one that was given."""
    refuse(_LOADING, "--url", "Say it where the server is started")


_LOADING = (
    *("draft", "ctx", "threads", "gpu_layers", "draft_gpu_layers", "split_mode", "main_gpu", "cache_type"),
    *("flash_attn", "force", "cache_dir"),
)


def sampling_options(command: F) -> F:
    """How tokens are chosen, and where an answer ends."""
    command = option("--stop", multiple=True, metavar="TEXT", help="End before this text; may be repeated.")(command)
    command = option("--min-tokens", type=int, default=0, help="No end before this many tokens.")(command)
    command = _settings("seed", "sampling", "draft-temp", "max-tokens")(command)
    command = option(
        "--logit-bias", type=LogitBias(), multiple=True, help="Add to a token's logit; may be repeated."
    )(command)
    return _settings(
        *("temp", "top-k", "top-p", "min-p", "repeat-penalty", "presence-penalty", "frequency-penalty"),
        "repeat-last-n",
    )(command)


def speculation_options(command: F) -> F:
    """How guesses are made."""
    command = setting("draft-length")(command)
    command = option("--no-draft", is_flag=True, help="Plain decoding: no guessing of any kind.")(command)
    return setting("drafter")(command)


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
    if values["no_draft"] and values["drafter"] != "none":
        refuse(("drafter",), "--no-draft", "Leave one of them out")
    if drafter == "none" and values["draft_length"]:
        refuse(("draft_length",), "--no-draft" if values["no_draft"] else "--drafter none", "Leave one of them out")
    return SpeculationSettings(drafter, values["draft_length"])


_OF_DRAFTS = ("draft_temp", "draft_gpu_layers")
_OF_GPUS = ("gpu_layers", "draft_gpu_layers", "split_mode", "main_gpu")


def given() -> dict[str, Any]:
    """The options that stand on the command line, with their values."""
    return {name: value for name, value in click.get_current_context().params.items() if was_typed(name)}


def unheeded(said: dict[str, Any], session: Session, sampler: SamplerSettings) -> list[str]:
    """Which of the `given` options have nothing to act on here, one sentence each."""
    from localspec.engine.process.ask_libllama import gpu_backends
    from localspec.remote import is_url

    if is_url(session.files.name):
        return []
    context = session.info.context
    idle = {name: "there is no draft model" for name in _OF_DRAFTS if session.info.draft is None}
    if not gpu_backends():
        idle |= dict.fromkeys(_OF_GPUS, "this build of llama.cpp uses no GPU. See: localspec doctor")
    obeyed = {name for name in ("gpu_layers", "draft_gpu_layers") if said.get(name) == 0}
    found = [f"{_flag(name)} has no effect: {why}" for name, why in idle.items() if name in said.keys() - obeyed]
    found += [
        f"--template-arg {name} has no effect: the chat template does not use it"
        for name in _unknown_to_the_template(session, [name for name, _ in said.get("template_arg", ())])
    ]
    if "repeat_last_n" in said and not sampler.penalises:
        found.append("--repeat-last-n has no effect: no penalty is set")
    elif sampler.penalty_window > context:
        found.append(f"--repeat-last-n {sampler.penalty_window} is more than the context: all {context} are looked at")
    return found


def _unknown_to_the_template(session: Session, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    import re

    from localspec.session.open import read

    source = read(session.files)[0].chat_template
    return [name for name in names if not re.search(rf"\b{re.escape(name)}\b", source)]


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
