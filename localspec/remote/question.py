"""A request to the engine -> a request's body for another server."""

from __future__ import annotations

import math
from typing import Any, Literal

from localspec.engine.settings import GenerationRequest, SamplerSettings, SpeculationSettings
from localspec.ground.errors import InvalidInput

Kind = Literal["localspec", "llamacpp", "vllm", "other"]
"""Which program the server is, by what it says of its model."""


def body_of(request: GenerationRequest, model: str, kind: Kind) -> dict[str, Any]:
    """Raises InvalidInput for what that program cannot be told."""
    body: dict[str, Any] = {
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
        **_prompt(request),
        **_sampler(request.sampler, kind),
        **_speculation(request.speculation, kind),
    }
    if request.max_tokens is not None:
        body["max_tokens"] = request.max_tokens
    if request.min_tokens:
        body["min_tokens"] = request.min_tokens
    if request.stop:
        body["stop"] = list(request.stop)
    if request.grammar is not None:
        if kind != "llamacpp":
            raise InvalidInput("this server takes no grammars", "Ask it for response_format yourself")
        body["grammar"] = request.grammar
    return body


def _prompt(request: GenerationRequest) -> dict[str, Any]:
    if request.prompt is not None:
        return {"prompt": request.prompt}
    messages = [{"role": m.role, "content": m.content, **dict(m.extras)} for m in request.messages]
    arguments = dict(request.template_arguments)
    found: dict[str, Any] = {"messages": messages}
    if "tools" in arguments:
        found["tools"] = arguments.pop("tools")
    if arguments:
        found["chat_template_kwargs"] = arguments
    return found


def _sampler(sampler: SamplerSettings, kind: Kind) -> dict[str, Any]:
    """OpenAI's own fields, and the others where they are known or were asked for."""
    usual = SamplerSettings()
    found: dict[str, Any] = {"temperature": sampler.temperature, "top_p": sampler.top_p}
    for name in ("top_k", "min_p"):
        if kind != "other" or getattr(sampler, name) != getattr(usual, name):
            found[name] = getattr(sampler, name)
    if kind == "vllm" and sampler.top_k == 0:
        found["top_k"] = -1
    if sampler.repeat_penalty != 1.0:
        found["repetition_penalty" if kind == "vllm" else "repeat_penalty"] = sampler.repeat_penalty
    for name in ("presence_penalty", "frequency_penalty"):
        if getattr(sampler, name):
            found[name] = getattr(sampler, name)
    if sampler.penalises and kind in ("localspec", "llamacpp"):
        found["repeat_last_n"] = sampler.penalty_window
    if sampler.logit_bias:
        found["logit_bias"] = {
            str(token): max(bias, -100.0) for token, bias in sampler.logit_bias if not math.isnan(bias)
        }
    if sampler.seed is not None:
        found["seed"] = sampler.seed
    return found


def _speculation(speculation: SpeculationSettings, kind: Kind) -> dict[str, Any]:
    if kind == "localspec":
        k = "auto" if speculation.length is None else speculation.length
        return {"speculative": {"drafter": speculation.drafter, "k": k, "rounds": True}}
    if speculation != SpeculationSettings():
        raise InvalidInput("only localspec serve can be told how to guess", "Leave out --drafter, -k and --no-draft")
    return {}
