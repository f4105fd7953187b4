"""A smaller file of a model: its name, whether it fits on the disk, and its place once it is whole.

The quantizer itself is handed in: it belongs to the engine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from localspec.ground.errors import DownloadFailed, InvalidInput
from localspec.pairs.gguf.header import read_header
from localspec.pairs.gguf.model_info import ModelInfo
from localspec.pairs.gguf.quants import split_quant
from localspec.pairs.gguf.split_files import model_stem
from localspec.pairs.store.store import LockedModel, PairLock, Store, local_file

TYPES = ("q4_0", "q4_0-pure", "q4_k_m", "iq4_nl", "q8_0", "bf16", "f16")
"""What `--to` offers. `-pure`: the output matrix is in that type as well, so each guess of a draft costs less."""
MARGIN = 64 << 20
"""Bytes that stay free on the disk."""

_FLOATS = ("F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class QuantizePlan:
    """One quantization, checked before it begins."""

    source: Path
    out: Path
    to: str
    bytes: int
    """Of the file to be written."""
    warning: str
    """A sentence when information is lost for the second time, else ""."""

    @property
    def name(self) -> str:
        """The name that the new file can be used by."""
        return self.out.name.removesuffix(".gguf")


def default_name(source: Path, to: str) -> str:
    """The source's name with the new quantization in place of the old."""
    return f"{model_stem(source)}-{to}.gguf"


def check(
    source: Path,
    info: ModelInfo,
    to: str,
    out: Path,
    weight_bytes: int,
    free_bytes: int,
    force: bool = False,
) -> QuantizePlan:
    """The plan. InvalidInput when it makes no sense, DownloadFailed (disk full) when there is no room."""
    if to not in TYPES:
        raise InvalidInput(f"no type named {to!r}", f"Use one of {', '.join(TYPES)}")
    if out.exists() and os.path.samefile(out, source):
        raise InvalidInput(f"{out} is the source itself", "Give another --out")
    if out.exists() and not force:
        raise InvalidInput(f"{out} exists", "Give another --out, or --force to replace it")
    size = info.data_offset + weight_bytes
    if size + MARGIN > free_bytes:
        raise DownloadFailed(
            f"{out.parent} has {free_bytes / 1e9:.1f} GB free, {size / 1e9:.1f} GB are needed",
            "Make room, or give --out on another disk",
        )
    return QuantizePlan(source, out, to, size, _warning(info, to))


def run(plan: QuantizePlan, quantizer: Callable[[Path], None]) -> ModelInfo:
    """Quantize into a hidden file beside the result, check it, and only then give it its name.

    `quantizer` writes to the path it gets. Whatever stops it, no half file appears under the final name.
    """
    plan.out.parent.mkdir(parents=True, exist_ok=True)
    part = plan.out.with_name(f".{plan.out.name}.{os.getpid()}.part")
    try:
        quantizer(part)
        info = read_header(part)
        _flush(part)
        os.replace(part, plan.out)
    finally:
        part.unlink(missing_ok=True)
    return info


def leftovers(out: Path, alive: Callable[[int], bool]) -> list[Path]:
    """Hidden files of the same result whose process has gone (it was killed)."""
    mine = re.compile(rf"\.{re.escape(out.name)}\.(\d+)\.part")
    found = ((path, mine.fullmatch(path.name)) for path in _listed(out.parent))
    return [path for path, match in found if match and not alive(int(match[1]))]


def _listed(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def register(plan: QuantizePlan, info: ModelInfo, store: Store | None = None) -> str:
    """Make the new file known, so that it can be named as a draft or a target; returns its name."""
    model = LockedModel(
        plan.name,
        (local_file(plan.out.absolute()),),
        architecture=info.architecture,
        quant=split_quant(plan.name)[1] or info.file_type,
        parameters=info.parameters,
        tokenizer=info.tokenizer_digest,
    )
    why = "a quantized copy, without a draft of its own"
    (store or Store()).save(PairLock(model, None, why_no_draft=why, source=f"quantize {plan.source}"))
    return plan.name


def _warning(info: ModelInfo, to: str) -> str:
    if info.file_type in _FLOATS:
        return ""
    what = "brings nothing back" if to in ("bf16", "f16") else "loses precision for the second time"
    return f"the source is already quantized ({info.file_type}): {to} {what}; as a draft it only accepts less"


def _flush(path: Path) -> None:
    with open(path, "r+b") as file:
        os.fsync(file.fileno())
