"""One model's weights in memory: loaded with progress, cancellable, freed in the right order."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from localspec.engine.llama.amx import without_amx
from localspec.engine.llama.binding import LOG_LINES_KEPT, forget_log_lines, last_log_lines, library
from localspec.engine.llama.vocabulary import Vocabulary
from localspec.engine.process.cancel import CancelFlag
from localspec.engine.process.last_words import last_words, unknown_architecture
from localspec.ground.errors import Cancelled, EngineError, LocalspecError, UnreadableFile
from localspec.ground.terminal import one_line

_SPLIT_MODES = {"none": 0, "layer": 1, "row": 2}
_EVERY_LAYER = -1


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a model's layers go."""

    gpu_layers: int = _EVERY_LAYER
    """Layers on the GPU; -1 = all, 0 = none."""
    split_mode: Literal["none", "layer", "row"] = "layer"
    main_gpu: int = 0


class Weights:
    """A loaded model file. Contexts on it must be closed before it is."""

    def __init__(
        self,
        path: Path,
        placement: Placement = Placement(),
        on_progress: Callable[[float], None] | None = None,
        cancel: CancelFlag | None = None,
    ) -> None:
        """Raises UnreadableFile, EngineError with libllama's last words, or Cancelled."""
        _check_magic(path)
        self.path = path
        self._lib = library()
        params = self._lib.llama_model_default_params()
        params.n_gpu_layers = placement.gpu_layers
        params.split_mode = _SPLIT_MODES[placement.split_mode]
        params.main_gpu = placement.main_gpu
        raised: list[BaseException] = []
        forget_log_lines()

        def progress(fraction: float, _: object) -> bool:
            try:
                if on_progress is not None:
                    on_progress(fraction)
            except BaseException as error:
                raised.append(error)
                return False
            return cancel is None or not cancel.is_set()

        params.progress_callback = callback = self._lib.llama_progress_callback(progress)
        # The path is passed as it is: a split file is found by its own name, a resolved link has another.
        with without_amx():
            self.handle: Any = self._lib.llama_model_load_from_file(os.fsencode(path), params)
        del callback
        if raised:
            raise raised[0]
        if not self.handle:
            if cancel is not None and cancel.is_set():
                raise Cancelled("loading stopped")
            raise _refusal(path)
        self.vocabulary = Vocabulary(self._lib.llama_model_get_vocab(self.handle))

    @property
    def trained_context(self) -> int:
        """Tokens of context the model was trained on."""
        return int(self._lib.llama_model_n_ctx_train(self.handle))

    @property
    def is_recurrent(self) -> bool:
        """Whether part of its memory is a running state instead of a cache (hybrids included)."""
        return bool(
            self._lib.llama_model_is_recurrent(self.handle) or self._lib.llama_model_is_hybrid(self.handle)
        )

    @property
    def can_generate(self) -> bool:
        """False for encoders and diffusion models, which this loop cannot run."""
        lib, handle = self._lib, self.handle
        return not lib.llama_model_has_encoder(handle) and not lib.llama_model_is_diffusion(handle)

    @property
    def size_bytes(self) -> int:
        """Of all tensors."""
        return int(self._lib.llama_model_size(self.handle))

    @property
    def parameters(self) -> int:
        """Their number."""
        return int(self._lib.llama_model_n_params(self.handle))

    @property
    def description(self) -> str:
        """Architecture, size and format in libllama's words, for example `qwen2 1.5B Q4_0`."""
        buffer = ctypes.create_string_buffer(256)
        self._lib.llama_model_desc(self.handle, buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    def chat_template(self) -> str | None:
        """The Jinja source in the file, None where there is none."""
        source = self._lib.llama_model_chat_template(self.handle, None)
        return source.decode("utf-8", "replace") if source else None

    def close(self) -> None:
        """Free them; safe to call twice. Contexts must be gone."""
        if self.handle:
            self._lib.llama_model_free(self.handle)
            self.handle = None


def _check_magic(path: Path) -> None:
    try:
        with open(path, "rb") as file:
            magic = file.read(4)
    except IsADirectoryError:
        raise UnreadableFile(
            f"{path} is a folder, not a GGUF file", "Name the .gguf file inside it"
        ) from None
    except OSError as error:
        raise UnreadableFile(f"cannot read {path}: {error.strerror}", "Check the path") from error
    if magic != b"GGUF":
        raise UnreadableFile(f"{path} is not a GGUF file", "Download it again, or choose another file")


def _refusal(path: Path) -> LocalspecError:
    """Why libllama did not load the file, by what it has just logged."""
    lines = last_log_lines(LOG_LINES_KEPT)
    architecture = unknown_architecture(lines)
    if architecture is not None:
        return UnreadableFile(
            f"{path.name} has the architecture '{one_line(architecture, 60)}', which this build of llama.cpp "
            "does not know",
            "Update it (pip install -U llama-cpp-python), or choose another model",
        )
    said = "; ".join(one_line(line, 300) for line in last_words(lines)) or "it did not say why"
    return EngineError(f"libllama cannot load {path.name}: {said}", "Type: localspec doctor")
