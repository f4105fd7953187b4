"""Statistics as people and programs read them: every number is formatted here."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from localspec.engine.records import Finished, GenerationStats
    from localspec.engine.settings import GenerationRequest, LoadSettings
    from localspec.session import Session

SCHEMA = 1

STATS_FIELDS = (
    "emitted",
    "target_passes",
    "drafted",
    "verified",
    "accepted",
    "discarded_unverified",
    "bonus",
    "acceptance_rate",
    "mean_acceptance_length",
    "tokens_per_second",
    "prompt_tokens_per_second",
    "ttft_seconds",
    "wall_seconds",
    "draft_seconds",
    "verify_seconds",
    "sample_seconds",
    "rewind_seconds",
    "other_seconds",
    "plain_tokens_per_second",
    "speedup",
    "accepted_per_position",
    "rounds_by_drafter",
    "draft_lengths",
    "state",
    "reason",
    "changes",
    "trouble",
)
"""The contract of `run --json`."""


def summary_line(stats: GenerationStats) -> str:
    """One line for stderr after an answer."""
    parts = [f"{stats.emitted} tokens in {stats.wall_seconds:.1f} s"]
    if stats.tokens_per_second is not None:
        parts.append(f"{stats.tokens_per_second:.1f} tokens/s")
    if stats.speedup is not None and stats.verified:
        parts.append(f"{stats.speedup:.2f}x plain")
    if stats.acceptance_rate is not None:
        parts.append(f"acceptance {stats.acceptance_rate:.0%} ({stats.accepted} of {stats.verified})")
        parts.append(f"{stats.mean_acceptance_length:.2f} tokens per target pass")
    if stats.state == "off":
        parts.append(f"speculation off: {stats.reason.removeprefix('off: ')}")
    if stats.trouble and stats.trouble not in parts[-1]:
        parts.append(f"a drafter is off: {stats.trouble}")
    return " · ".join(parts)


def run_json(
    text: str,
    finish_reason: str,
    tokens: tuple[int, ...],
    stats: GenerationStats | None,
    session: Session | None,
    request: GenerationRequest | None,
) -> dict[str, Any]:
    """The object that `run --json` prints; what is not known, because it was stopped before, is null."""
    return {
        "schema": SCHEMA,
        "text": text,
        "finish_reason": finish_reason,
        "prompt_tokens": stats.prompt_tokens if stats is not None else None,
        "tokens": list(tokens),
        "stats": stats_json(stats) if stats is not None else None,
        "settings": settings_json(request, session.settings) if session and request else None,
        "engine": engine_json(session) if session else None,
    }


def finished_json(finished: Finished, session: Session, request: GenerationRequest) -> dict[str, Any]:
    """`run_json` of a whole answer."""
    return run_json(finished.text, finished.reason, finished.tokens, finished.stats, session, request)


def stats_json(stats: GenerationStats) -> dict[str, Any]:
    """Plain values; rates that are undefined are null."""
    values = asdict(stats)
    return _finite_object({name: values[name] for name in STATS_FIELDS})


def settings_json(request: GenerationRequest, load: LoadSettings) -> dict[str, Any]:
    """Everything that was in force, defaults included."""
    return _finite_object({
        "sampler": asdict(request.sampler) | {"coupled": request.sampler.coupled},
        "speculation": {"drafter": request.speculation.drafter, "k": request.speculation.length},
        "max_tokens": request.max_tokens,
        "min_tokens": request.min_tokens,
        "stop": list(request.stop),
        "raw": request.prompt is not None,
        "context": load.context,
        "cache_type": load.cache_type,
        "flash_attention": load.flash_attention,
        "gpu_layers": load.gpu_layers,
        "draft_gpu_layers": load.draft_gpu_layers,
        "max_draft_length": load.max_draft_length,
    })  # fmt: skip


def engine_json(session: Session) -> dict[str, Any]:
    """What was loaded."""
    values = asdict(session.info)
    for part in ("target", "draft"):
        if values[part] is not None:
            values[part]["path"] = str(values[part]["path"])
    values["verdict"] = session.verdict.kind if session.verdict is not None else None
    return _finite_object(values)


def _finite_object(values: dict[str, Any]) -> dict[str, Any]:
    return {key: _finite(value) for key, value in values.items()}


def _finite(value: Any) -> Any:
    """JSON has no infinities: they become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return _finite_object(value)
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
