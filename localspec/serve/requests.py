"""A request's body -> what the engine is asked for. What cannot be honoured is refused by name."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from localspec.engine.drafters import table
from localspec.engine.settings import (
    MAX_DRAFT_LENGTH,
    GenerationRequest,
    SamplerSettings,
    SpeculationSettings,
)
from localspec.ground.errors import InvalidInput
from localspec.serve.fields import Fields, checked_list, checked_number, checked_object, checked_text, wrong
from localspec.serve.messages import messages, template_arguments
from localspec.serve.problems import Problem
from localspec.serve.response_format import grammar_of

MAX_STOPS = 16
MAX_STOP_CHARACTERS = 512
_BAN = -100.0
"""OpenAI's bias for "never": from here on a bias bans its token."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a server was started with; a request may say otherwise."""

    sampler: SamplerSettings
    speculation: SpeculationSettings
    max_tokens: int | None = None
    longest_draft: int = MAX_DRAFT_LENGTH
    """Most guesses a round has room for."""
    vocabulary: int | None = None
    """Token ids are below this; None = not known yet."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One request, read and checked."""

    request: GenerationRequest
    stream: bool
    include_usage: bool
    """Whether a stream ends with a chunk of token counts."""
    rounds: bool
    """Whether a stream carries what happened in each round, for a localspec on the other side."""
    user: str | None
    """Who asks, as the client says; turns are given by it."""


def chat(body: dict[str, Any], defaults: Defaults) -> Wanted:
    """`POST /v1/chat/completions`."""
    fields = Fields(body)
    said = messages(fields)
    arguments = template_arguments(fields)
    limit = fields.whole("max_completion_tokens", 1, 1 << 30)
    for name in ("functions", "function_call"):
        fields.refuse(name, "use tools")
    fields.refuse("logprobs", "log-probabilities are not made here", False)
    fields.refuse("top_logprobs", "log-probabilities are not made here", 0)
    fields.refuse("modalities", "this is a text model", ["text"])
    for name in ("audio", "prediction", "web_search_options", "reasoning_effort", "verbosity"):
        fields.refuse(name, "this model has no such thing")
    grammar = grammar_of(fields)
    if grammar is not None and any(name == "tools" for name, _ in arguments):
        raise Problem(
            400,
            "response_format and tools cannot be combined",
            param="response_format",
            code="unsupported_parameter",
        )
    return _common(fields, defaults, {"messages": said, "template_arguments": arguments, "grammar": grammar}, limit)


def completion(body: dict[str, Any], defaults: Defaults) -> Wanted:
    """`POST /v1/completions`."""
    fields = Fields(body)
    prompt = fields.take("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if isinstance(prompt, list):
        wrong("prompt", "must be one string (lists of prompts or of token ids are not supported)", prompt)
    prompt = checked_text(prompt, "prompt", 1 << 20)
    if not prompt:
        raise Problem(400, "prompt is empty", param="prompt", code="invalid_value")
    fields.refuse("echo", "the prompt is not repeated", False)
    fields.refuse("suffix", "text cannot be inserted", "")
    fields.refuse("best_of", "one answer is made per request", 1)
    fields.refuse("logprobs", "log-probabilities are not made here", 0, False)
    return _common(fields, defaults, {"prompt": prompt, "grammar": grammar_of(fields)}, None)


def _common(fields: Fields, defaults: Defaults, parts: dict[str, Any], limit: int | None) -> Wanted:
    """What both kinds of request share."""
    fields.text("model", limit=4096)
    fields.refuse("n", "one answer is made per request", 1)
    fields.refuse("store", "answers are not stored here", False)
    fields.refuse("service_tier", "there is only one", "auto", "default")
    stream = fields.flag("stream") or False
    include_usage = _stream_options(fields, stream)
    user = fields.text("user", limit=256)
    old_limit = fields.whole("max_tokens", 1, 1 << 30)
    min_tokens = fields.whole("min_tokens", 0, 1 << 30) or 0
    if parts.get("grammar") is not None and min_tokens:
        raise Problem(
            400,
            "min_tokens and response_format cannot be combined",
            param="min_tokens",
            code="unsupported_parameter",
        )
    stop = _stop(fields)
    sampler = _sampler(fields, defaults)
    speculation, rounds = _speculation(fields, defaults)
    fields.finish()
    try:
        request = GenerationRequest(
            **parts,
            sampler=sampler,
            speculation=speculation,
            max_tokens=next((n for n in (limit, old_limit, defaults.max_tokens) if n is not None), None),
            min_tokens=min_tokens,
            stop=stop,
        )
    except InvalidInput as error:
        raise Problem(400, error.message, code="invalid_value") from None
    return Wanted(request, stream, include_usage, rounds, user)


def _stream_options(fields: Fields, stream: bool) -> bool:
    options = fields.fields("stream_options")
    if options is None:
        return False
    if not stream:
        raise Problem(400, "stream_options needs stream: true", param="stream_options", code="invalid_value")
    usage = options.flag("include_usage") or False
    options.refuse("include_obfuscation", "nothing is padded here", False)
    options.finish()
    return usage


def _stop(fields: Fields) -> tuple[str, ...]:
    value = fields.take("stop")
    if value is None:
        return ()
    stops = [value] if isinstance(value, str) else checked_list(value, "stop", MAX_STOPS)
    for stop in stops:
        if checked_text(stop, "stop", MAX_STOP_CHARACTERS) == "":
            raise Problem(400, "an empty stop string would stop at once", param="stop", code="invalid_value")
    return tuple(dict.fromkeys(stops))


def _sampler(fields: Fields, defaults: Defaults) -> SamplerSettings:
    top_k = fields.whole("top_k", -1, 1 << 30)
    asked: dict[str, Any] = {
        "temperature": fields.number("temperature", 0, 100),
        "top_p": fields.number("top_p", 0, 1),
        "min_p": fields.number("min_p", 0, 1),
        "top_k": None if top_k is None else max(top_k, 0),  # some servers write "off" as -1
        "presence_penalty": fields.number("presence_penalty", -2, 2),
        "frequency_penalty": fields.number("frequency_penalty", -2, 2),
        "repeat_penalty": _repeat_penalty(fields),
        "penalty_window": fields.whole("repeat_last_n", -1, 1 << 30),
        "seed": _seed(fields),
        "logit_bias": _logit_bias(fields, defaults.vocabulary),
    }
    return replace(defaults.sampler, **{name: value for name, value in asked.items() if value is not None})


def _seed(fields: Fields) -> int | None:
    """Negative seeds are 64-bit numbers to OpenAI's clients, except -1, which means none to llama.cpp's."""
    seed = fields.whole("seed", -(2**63), 2**63 - 1)
    return None if seed is None or seed == -1 else seed % 2**63


def _repeat_penalty(fields: Fields) -> float | None:
    """llama.cpp's and vLLM's names for the same thing."""
    ours, theirs = (fields.number(name, 0.001, 1000) for name in ("repeat_penalty", "repetition_penalty"))
    return ours if ours is not None else theirs


def _logit_bias(fields: Fields, vocabulary: int | None) -> tuple[tuple[int, float], ...] | None:
    value = fields.take("logit_bias")
    if value is None:
        return None
    biases = []
    for key, bias in checked_object(value, "logit_bias").items():
        name = f"logit_bias.{key[:20]}"
        if not (key.isascii() and key.isdigit() and len(key) < 10):
            wrong("logit_bias", "must map token ids to numbers", key)
        if vocabulary is not None and int(key) >= vocabulary:
            wrong(name, f"names no token: ids go up to {vocabulary - 1}", int(key))
        number = checked_number(bias, name, -100, 100)
        biases.append((int(key), -math.inf if number <= _BAN else number))
    return tuple(biases)


def _speculation(fields: Fields, defaults: Defaults) -> tuple[SpeculationSettings, bool]:
    """`speculative: {"enabled": false, "k": 4, "drafter": "lookup", "rounds": true}`, all optional."""
    asked = fields.fields("speculative")
    if asked is None:
        return defaults.speculation, False
    rounds = asked.flag("rounds") or False
    enabled = asked.flag("enabled")
    k = asked.take("k")
    drafter = asked.choice("drafter", table.NAMES)
    asked.finish()
    if enabled is False:
        return SpeculationSettings("none", None), rounds
    length = defaults.speculation.length
    if k == "auto":
        length = None
    elif k is not None:
        length = _draft_length(k, defaults.longest_draft)
    chosen = drafter or defaults.speculation.drafter
    if enabled and not drafter and chosen == "none":
        chosen = "auto"
    return SpeculationSettings(chosen, length), rounds


def _draft_length(k: Any, longest: int) -> int:
    if isinstance(k, bool) or not isinstance(k, int):
        wrong("speculative.k", "must be a whole number or auto", k)
    if not 0 <= k <= longest:
        wrong("speculative.k", f"must be between 0 and {longest} (more needs localspec serve -k N)", k)
    return k
