"""Names of formats to what makes them."""

from __future__ import annotations

from localspec.export import (
    llama_cli,
    llama_flags,
    llama_server,
    lmstudio,
    ollama,
    sglang,
    tensorrt_llm,
    vllm,
)
from localspec.export.records import Exported, PairSettings

_PLAIN = {
    "vllm": vllm.export,
    "sglang": sglang.export,
    "tensorrt-llm": tensorrt_llm.export,
    "lmstudio": lmstudio.export,
    "ollama": ollama.export,
}
_LLAMA = {"llama-server": llama_server.export, "llama-cli": llama_cli.export}

FORMATS = (*_LLAMA, *_PLAIN)


def make(name: str, pair: PairSettings, engine: str | None = None) -> Exported:
    """`pair` in the format `name`. `engine`: a llama.cpp program to ask for its flags, None = today's."""
    if name in _LLAMA:
        return _LLAMA[name](pair, llama_flags.TODAY if engine is None else llama_flags.probe(engine))
    return _PLAIN[name](pair)
