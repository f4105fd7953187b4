"""What kind of thing a GGUF file holds, and what its architecture can and cannot do in libllama."""

from __future__ import annotations

from localspec.pairs.gguf.model_info import ModelInfo

MODEL = "language model"

REWIND_SLOTS = frozenset(
    {
        "kimi-k3", "qwen35", "qwen35moe", "qwen4exp", "deepseek4", "glm5-next", "nemotron_h",
        "nemotron_h_moe", "lfm2", "lfm2moe", "bailingmoe3",
    }
)  # fmt: skip
"""Recurrent and hybrid architectures whose state libllama can take back a few tokens."""

_HEADS = {"eagle3": "EAGLE-3 head", "dflash": "DFlash head", "dspark": "DSpark head", "medusa": "Medusa head"}
_ENCODERS = frozenset(
    {
        "bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3", "modern-bert",
        "gemma-embedding", "t5encoder", "eurobert",
    }
)  # fmt: skip
_OTHERS = {
    "clip": "image or audio encoder (mmproj)",
    "t5": "encoder-decoder model",
    "dream": "diffusion model",
    "llada": "diffusion model",
    "llada-moe": "diffusion model",
    "wavtokenizer-dec": "audio decoder",
}
_TYPES = {"adapter": "LoRA adapter", "mmproj": _OTHERS["clip"], "imatrix": "importance matrix"}


def describe(info: ModelInfo) -> str:
    """MODEL for a model that makes text by itself, else what the file is instead."""
    stated = _TYPES.get(str(info.metadata.get("general.type", "")))
    if stated:
        return stated
    architecture = info.architecture
    if architecture in _HEADS:
        return _HEADS[architecture]
    if "assistant" in architecture:
        return "assistant head"
    if architecture in _ENCODERS:
        return "text encoder"
    if architecture in _OTHERS:
        return _OTHERS[architecture]
    if _is_mtp_head(info):
        return "MTP head"
    return MODEL


def _is_mtp_head(info: ModelInfo) -> bool:
    """A file that holds only the next-token-prediction layers of some model."""
    if not info.nextn_layers:
        return _named_mtp(info.architecture)
    ordinary = info.layers - info.nextn_layers
    return ordinary <= 0 or (bool(info.layer_bytes) and not any(info.layer_bytes[:ordinary]))


def _named_mtp(architecture: str) -> bool:
    """Whether the architecture's own name calls it a prediction head."""
    return "mtp" in architecture.replace("_", "-").split("-") or architecture.endswith("mtp")


def state_bytes(info: ModelInfo) -> int:
    """Bytes of recurrent state of one sequence, float32; 0 when the header does not say enough."""

    def number(key: str) -> int:
        value = info.metadata.get(f"{info.architecture}.{key}")
        return value if isinstance(value, int) and value > 0 else 0

    inner, state = number("ssm.inner_size"), number("ssm.state_size")
    kernel, groups = number("ssm.conv_kernel"), number("ssm.group_count")
    attention = sum(1 for heads in info.kv_heads if heads)
    interval = number("full_attention_interval")
    if interval:
        attention = info.layers // interval
    layers = info.layers - (attention if attention < info.layers else 0)
    convolution = max(0, kernel - 1) * (inner + 2 * groups * state)
    return 4 * layers * (inner * state + convolution)
