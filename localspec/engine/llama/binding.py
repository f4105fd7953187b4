"""llama_cpp's low-level functions, loaded once, with its log lines caught and its missing names noticed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections import deque
from pathlib import Path
from typing import Any

from localspec.ground.errors import EngineError

LOG_LINES_KEPT = 400
LOG_BYTES_KEPT = 1 << 20
_DEBUG_LEVEL = 1
"""As in ggml.h. (llama-cpp-python's own comment has other numbers, by which errors would be left out.)"""

log_lines: deque[str] = deque(maxlen=LOG_LINES_KEPT)
"""The last native log lines, oldest first. Callbacks come from libllama's own threads: only append here."""

_mirror_fd: int | None = None
_load_lock = threading.Lock()
_library: Any = None
_keep_alive: list[Any] = []


def library() -> Any:
    """The module `llama_cpp.llama_cpp`, ready to use. Raises EngineError when it cannot be loaded."""
    global _library
    with _load_lock:
        if _library is None:
            _library = _load()
    return _library


def mirror_log_to(fd: int) -> None:
    """Also write every native log line to this file descriptor, so that it outlives an abort."""
    global _mirror_fd
    _mirror_fd = fd


def last_log_lines(count: int = 8) -> list[str]:
    """The newest native log lines, oldest first."""
    return list(log_lines)[-count:]


def forget_log_lines() -> None:
    """What is logged from now on is about what comes now."""
    log_lines.clear()


def _load() -> Any:
    try:
        import llama_cpp.llama_cpp as library
    except (ImportError, OSError, RuntimeError) as error:
        raise EngineError(f"llama-cpp-python cannot be loaded: {error}", "Type: localspec doctor") from error
    missing = [name for name in REQUIRED_NAMES if not hasattr(library, name)]
    if missing:
        raise EngineError(
            f"this llama-cpp-python lacks {', '.join(missing)}",
            "Install llama-cpp-python 0.3.36 or a later 0.3",
        )
    callback = library.llama_log_callback(_on_log)
    _keep_alive.append(callback)
    library.llama_log_set(callback, ctypes.c_void_p(0))
    _load_backends(library)
    library.llama_backend_init()
    return library


def ggml_function(library: Any, name: str, result: Any, *arguments: Any) -> Any:
    """A function of ggml, which llama-cpp-python loads but does not bind. AttributeError when there is none."""
    folder = Path(library.__file__).parent / "lib"
    # Elsewhere a library's handle also finds what it depends on.
    for holder in (library._lib, *(ctypes.CDLL(str(path)) for path in sorted(folder.glob("ggml*.dll")))):
        function = getattr(holder, name, None)
        if function is not None:
            function.restype, function.argtypes = result, list(arguments)
            return function
    raise AttributeError(f"this build has no {name}")


def _load_backends(library: Any) -> None:
    """A portable build keeps each backend, and the CPU's for each kind of processor, in a file of its own: load
    those that fit this machine. Nobody else does, and without them no model can be loaded."""
    if ggml_function(library, "ggml_backend_reg_count", ctypes.c_size_t)() > 0:
        return
    load = ggml_function(library, "ggml_backend_load_all_from_path", None, ctypes.c_char_p)
    package = Path(library.__file__).parent
    for folder in (package / "lib", package.parent / "bin"):  # where the wheel's build puts them
        if any("ggml-cpu" in path.name for path in folder.glob("*")):
            load(os.fsencode(folder))
            return


def _on_log(level: int, text: bytes | None, _: object) -> None:
    if level == _DEBUG_LEVEL or not text:
        return
    line = text.decode("utf-8", "replace").rstrip("\n")
    if line.strip(". "):
        log_lines.append(line)
    if _mirror_fd is not None:
        with contextlib.suppress(OSError):  # a full disk must not end an answer
            _keep_small(_mirror_fd)
            os.write(_mirror_fd, text)


def _keep_small(fd: int) -> None:
    """A log file that has grown too long begins anew with the lines that are still in memory."""
    if os.fstat(fd).st_size > LOG_BYTES_KEPT:
        os.ftruncate(fd, 0)
        os.write(fd, ("\n".join([*log_lines][:-1]) + "\n").encode())


REQUIRED_NAMES = (
    "llama_backend_init",
    "llama_batch",
    "llama_context_default_params",
    "llama_decode",
    "llama_free",
    "llama_get_logits",
    "llama_get_memory",
    "llama_init_from_model",
    "llama_log_set",
    "llama_memory_clear",
    "llama_max_parallel_sequences",
    "llama_memory_seq_cp", "llama_memory_seq_pos_max", "llama_memory_seq_pos_min", "llama_memory_seq_rm",
    "llama_model_chat_template",
    "llama_model_default_params",
    "llama_model_free",
    "llama_model_get_vocab",
    "llama_model_load_from_file",
    "llama_model_n_swa",
    "llama_n_ctx",
    "llama_n_rs_seq",
    "llama_sampler_accept", "llama_sampler_apply", "llama_sampler_free", "llama_sampler_init_grammar",
    "llama_state_seq_get_data", "llama_state_seq_get_data_ext",
    "llama_state_seq_get_size", "llama_state_seq_get_size_ext",
    "llama_state_seq_set_data", "llama_state_seq_set_data_ext",
    "llama_token_to_piece",
    "llama_tokenize",
    "llama_vocab_get_suppress_tokens",
    "llama_vocab_is_eog",
    "llama_vocab_n_tokens",
)
"""They change with llama.cpp in patch releases, so their presence is checked at start."""
