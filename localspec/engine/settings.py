"""What a caller may ask of the engine, checked when it is made: a wrong value never reaches libllama."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from localspec.engine.drafters import table
from localspec.engine.templates.chat_template import Message
from localspec.ground.errors import InvalidInput

MAX_DRAFT_LENGTH = 64
"""The longest draft that can be ordered with `-k`."""

AUTO_DRAFT_LENGTH = 16
"""The longest draft that is ever chosen automatically; sizes the verify buffers."""

DEFAULT_CONTEXT = 8192

CACHE_TYPES = ("f16", "bf16", "f32", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")

SamplingMode = Literal["rejection", "coupled"]


@dataclass(frozen=True, slots=True)
class Expectation:
    """Whether drafts may be expected to pay before anything was generated, because somebody measured it."""

    pays: bool
    why: str
    """For people: `the bench of 2026-11-30 found 0.97x plain`."""


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """Which files to load, and where to."""

    target: Path
    draft: Path | None = None
    context: int | None = None
    """Tokens of context; None = min(8192, what the target was trained on)."""
    draft_context: int | None = None
    """Tokens of the draft model's context; None = the target's."""
    threads: int | None = None
    """None = physical cores."""
    gpu_layers: int = -1
    """Layers of the target on the GPU; -1 = all that exist."""
    draft_gpu_layers: int = -1
    split_mode: Literal["none", "layer", "row"] = "layer"
    main_gpu: int = 0
    cache_type: str = "f16"
    """Element type of both KV caches."""
    flash_attention: Literal["auto", "on", "off"] = "auto"
    swa_full: bool = True
    """Keep the whole past of layers with a sliding window: more memory, and a way back to any earlier turn. False =
    only the window, so that an edited conversation may be read again from its beginning."""
    max_draft_length: int = AUTO_DRAFT_LENGTH
    """Most guesses in one verify pass; sizes the logits buffers."""
    prefix_cache_bytes: int = 512 << 20
    """Most memory for the caches of conversations that may be gone on with; used only when several take turns."""
    masked_ids: tuple[int, ...] = ()
    """Ids that mean something else in the draft than in the target: never proposed."""
    shared_rows: int | None = None
    """Ids at and above this number are not shared; None = the smaller vocabulary's size."""
    profiles: Path | None = None
    """Folder where measured times are kept from run to run; None = they are measured anew."""
    device: str = ""
    """What the pair runs on; times that were measured on another one are not used."""
    expectation: Expectation | None = None
    """What was found about this pair earlier; where `auto` starts from."""

    def __post_init__(self) -> None:
        _require(
            self.context is None or self.context >= 16,
            f"context {self.context} is too small",
            "Use --ctx 16 or more",
        )
        _require(self.threads is None or 1 <= self.threads <= 512, f"{self.threads} threads", "Use 1 to 512")
        _require(
            self.cache_type in CACHE_TYPES,
            f"no cache type named {self.cache_type!r}",
            f"Use one of {', '.join(CACHE_TYPES)}",
        )
        _require(
            0 <= self.max_draft_length <= MAX_DRAFT_LENGTH,
            f"draft length {self.max_draft_length} is outside 0..{MAX_DRAFT_LENGTH}",
            "Use -k auto or a number in that range",
        )


_RANGES = {
    "temperature": (0.0, 1e6),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repeat_penalty": (1e-3, 1e3),
    "presence_penalty": (-1e3, 1e3),
    "frequency_penalty": (-1e3, 1e3),
}


_LARGEST_BIAS = 1e9
"""Far beyond any logit, and far from where single precision becomes infinite."""


@dataclass(frozen=True, slots=True)
class SamplerSettings:
    """How a token is chosen from logits. Filters act in llama.cpp's order: penalties, top-k, top-p, min-p,
    temperature."""

    temperature: float = 0.8
    """0 = greedy."""
    top_k: int = 40
    """0 = off."""
    top_p: float = 0.95
    """1 = off."""
    min_p: float = 0.05
    """0 = off."""
    repeat_penalty: float = 1.0
    """1 = off."""
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_window: int = 64
    """Tokens, prompt included, that the penalties look back on; -1 = all."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token id, added to its logit); -inf bans the token."""
    seed: int | None = None
    mode: SamplingMode | None = None
    """None = coupled when a seed is given, rejection otherwise."""
    draft_temperature: float | None = None
    """The draft model's own temperature; None = the target's. Any value is lossless. A draft 0.2 cooler was measured to
    keep 0.4 to 0.8 points more on chat and 0.2 to 0.4 less on code, where guesses pay most, so not the default."""

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            _require(
                isinstance(value, int | float) and math.isfinite(value) and low <= value <= high,
                f"{name.replace('_', '-')} {value} is outside {low:g}..{high:g}",
                "Give a number in that range",
            )
        cooler = self.draft_temperature
        _require(
            cooler is None or 0 <= cooler < math.inf,
            f"draft temperature {cooler} is negative or not finite",
            "Give 0 or more",
        )
        _require(self.top_k >= 0, f"top-k {self.top_k} is negative", "Use 0 to switch it off")
        _require(self.penalty_window >= -1, f"penalty window {self.penalty_window}", "Use -1 (all) or more")
        _require(
            self.seed is None or 0 <= self.seed < 2**63,
            f"seed {self.seed} is outside 0..2^63",
            "Choose another",
        )
        for token, bias in self.logit_bias:
            _require(
                bias == -math.inf or abs(bias) <= _LARGEST_BIAS,
                f"the logit bias {bias} of token {token} is outside -{_LARGEST_BIAS:g}..{_LARGEST_BIAS:g}",
                "Give a number in that range, or -inf to ban the token",
            )

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is always taken."""
        return self.temperature == 0

    @property
    def coupled(self) -> bool:
        """Whether the noise is a function of (seed, position, token id)."""
        return self.mode == "coupled" or (self.mode is None and self.seed is not None)

    @property
    def truncates(self) -> bool:
        """Whether any filter cuts the distribution's tail."""
        return self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0

    @property
    def penalises(self) -> bool:
        """Whether earlier tokens change the distribution."""
        return self.repeat_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0


@dataclass(frozen=True, slots=True)
class SpeculationSettings:
    """How guesses are made. A fixed length or a named drafter is an order, never overruled."""

    drafter: str = table.AUTO
    """One of `drafters.table.NAMES`."""
    length: int | None = None
    """Fixed draft length K; None = auto."""

    def __post_init__(self) -> None:
        _require(
            self.drafter in table.NAMES,
            f"no drafter named {self.drafter!r}",
            f"Use one of {', '.join(table.NAMES)}",
        )
        _require(
            self.length is None or 0 <= self.length <= MAX_DRAFT_LENGTH,
            f"draft length {self.length} is outside 0..{MAX_DRAFT_LENGTH}",
            "Use -k auto or a number in that range",
        )


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One answer. Either `messages` (through the chat template) or `prompt` (as it is) is given."""

    messages: tuple[Message, ...] = ()
    prompt: str | None = None
    sampler: SamplerSettings = field(default_factory=SamplerSettings)
    speculation: SpeculationSettings = field(default_factory=SpeculationSettings)
    max_tokens: int | None = None
    """Most tokens to generate; None = until the end or the context's end."""
    min_tokens: int = 0
    """End tokens are not allowed before this many tokens."""
    stop: tuple[str, ...] = ()
    template_arguments: tuple[tuple[str, object], ...] = ()
    template: str | None = None
    """Jinja source to use instead of the model's own chat template."""
    grammar: str | None = None
    """GBNF that the answer has to follow; made without drafts."""
    keep_cache: bool = True
    """Reuse the common prefix with the request before."""

    def __post_init__(self) -> None:
        _require((self.prompt is None) == bool(self.messages), "give either messages or a prompt", "")
        _require(
            self.max_tokens is None or self.max_tokens >= 0,
            f"-n {self.max_tokens} is negative",
            "Use 0 or more",
        )
        _require(self.min_tokens >= 0, f"min tokens {self.min_tokens} is negative", "Use 0 or more")
        _require(
            self.max_tokens is None or self.min_tokens <= self.max_tokens,
            f"min tokens {self.min_tokens} is more than -n {self.max_tokens}",
            "Make one of them fit the other",
        )
        _require(
            not (self.grammar and self.min_tokens), "a grammar and min tokens cannot be combined", "Leave one out"
        )
        for name, _ in self.template_arguments:
            _require(
                name not in ("messages", "add_generation_prompt"),
                f"{name!r} is given to the chat template by localspec itself",
                "Leave it out of --template-arg",
            )
        _require(all(self.stop), "an empty stop string would stop at once", "Give at least one character")


def _require(condition: bool, message: str, hint: str) -> None:
    if not condition:
        raise InvalidInput(message, hint)
