"""Questions to libllama, answered in a process of its own: `python -m localspec.engine.llama.questions REQUEST`.

A build for another CPU dies by a signal when it is loaded, and a bad file may abort the process. So nobody
asks libllama anything in the process that talks to the person. REQUEST and the answer are JSON; the caller's
side is `localspec.engine.process.ask_libllama`.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

_KINDS = {0: "cpu", 1: "gpu", 2: "igpu", 3: "accelerator", 4: "meta"}
_BUFFER = re.compile(r"(\S+)\s+compute buffer size =\s*([\d.]+) MiB")
_CACHE = re.compile(r"\b[KVRS] \([\w ]+\):\s*([\d.]+) MiB")
_MIB = 1 << 20


def main() -> None:
    """Answer on what was standard output; whatever else is written there goes to standard error."""
    answer_to = os.dup(1)
    os.dup2(2, 1)
    request = json.loads(sys.argv[1])
    try:
        answer = _QUESTIONS[request["ask"]](request)
    except Exception as error:
        answer = {"error": f"{error}", "type": type(error).__name__}
    with os.fdopen(answer_to, "w") as file:
        json.dump(answer, file)
    os._exit(0)  # libllama's own clean-up has nothing to add


def _build(request: dict[str, Any]) -> dict[str, Any]:
    """Which build this is and what it can do."""
    from localspec.engine.llama.binding import library

    lib = library()
    return {
        "system_info": lib.llama_print_system_info().decode("utf-8", "replace"),
        "gpu_offload": bool(lib.llama_supports_gpu_offload()),
        "mmap": bool(lib.llama_supports_mmap()),
        "folder": str(Path(lib.__file__).parent),
        "devices": _devices(request)["devices"],
    }


def _devices(request: dict[str, Any]) -> dict[str, Any]:
    """Every device of ggml's own list."""
    from localspec.engine.llama.binding import library

    device_list = _DeviceList(library())
    return {"devices": [device_list.describe(i) for i in range(device_list.count())]}


class _DeviceList:
    """ggml's list of devices."""

    def __init__(self, lib: Any) -> None:
        self._lib = lib

    def function(self, name: str, result: Any, *arguments: Any) -> Any:
        from localspec.engine.llama.binding import ggml_function

        return ggml_function(self._lib, name, result, *arguments)

    def count(self) -> int:
        return int(self.function("ggml_backend_dev_count", ctypes.c_size_t)())

    def describe(self, index: int) -> dict[str, Any]:
        device = self.function("ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t)(index)

        def text(name: str) -> str:
            value = self.function(name, ctypes.c_char_p, ctypes.c_void_p)(device)
            return value.decode("utf-8", "replace") if value else ""

        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        memory = self.function("ggml_backend_dev_memory", None, *[ctypes.c_void_p] * 3)
        memory(device, ctypes.byref(free), ctypes.byref(total))
        kind = self.function("ggml_backend_dev_type", ctypes.c_int, ctypes.c_void_p)(device)
        return {
            "name": text("ggml_backend_dev_name"),
            "description": text("ggml_backend_dev_description").strip(),
            "kind": _KINDS.get(kind, str(kind)),
            "free": free.value,
            "total": total.value,
        }


def _sizes(request: dict[str, Any]) -> dict[str, Any]:
    """What each model's contexts would take, without reading weights (`no_alloc`)."""
    return {"sizes": [_model_sizes(model) for model in request["models"]]}


def _model_sizes(model: dict[str, Any]) -> list[dict[str, Any]]:
    from localspec.engine.llama.binding import library

    lib = library()
    params = lib.llama_model_default_params()
    params.no_alloc, params.load_mode = True, 0
    params.n_gpu_layers = model.get("gpu_layers", 0)
    handle = lib.llama_model_load_from_file(os.fsencode(model["path"]), params)
    if not handle:
        return [{"error": "libllama cannot load it"} for _ in model["contexts"]]
    try:
        return [_context_sizes(lib, handle, context) for context in model["contexts"]]
    finally:
        lib.llama_model_free(handle)


_kept: list[Any] = []
"""Callbacks that libllama may still call."""


def _context_sizes(lib: Any, model: Any, asked: dict[str, Any]) -> dict[str, Any]:
    from localspec.engine.llama.context import ContextSettings, context_parameters

    settings = ContextSettings(asked["context"], asked["rows"], 1, asked.get("cache_type", "f16"))
    recurrent = lib.llama_model_is_recurrent(model) or lib.llama_model_is_hybrid(model)
    lines: list[str] = []
    # Of thousands of lines only those with sizes matter, and they are not to be had in any other way.
    keep = lib.llama_log_callback(lambda level, text, _: lines.append(text.decode("utf-8", "replace")))
    lib.llama_log_set(keep, ctypes.c_void_p(0))
    handle = lib.llama_init_from_model(model, context_parameters(lib, settings, bool(recurrent)))
    text = "".join(lines)
    if not handle:
        return {"error": "libllama cannot make this context"}
    lib.llama_free(handle)
    _kept.append(keep)
    compute = {name: int(float(size) * _MIB) for name, size in _BUFFER.findall(text)}
    return {"compute": compute, "cache": int(sum(map(float, _CACHE.findall(text))) * _MIB)}


_QUESTIONS = {"build": _build, "devices": _devices, "sizes": _sizes}


if __name__ == "__main__":
    main()
