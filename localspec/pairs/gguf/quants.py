"""Quantizations as people write them, as file names spell them, and the order in which to look for them."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Literal

from localspec.ground.errors import UnknownName

Role = Literal["target", "draft"]

_DEFAULT = {
    "target": ("Q4_K_M", "UD-Q4_K_M", "Q4_K", "MXFP4", "Q8_0"),
    "draft": ("Q4_0", "Q4_K_M", "Q8_0"),
}

_Q4 = ("Q4_K_M", "UD-Q4_K_M", "Q4_K", "Q4_0", "MXFP4")
_SHORTHANDS: dict[str, tuple[str, ...]] = {
    "q4": _Q4,
    "int4": _Q4,
    "q4_k_m": ("Q4_K_M", "Q4_K"),
    "q4km": ("Q4_K_M", "Q4_K"),
    "q4k": ("Q4_K_M", "Q4_K"),
    "q4_k": ("Q4_K", "Q4_K_M"),
    "q2": ("Q2_K",),
    "q3": ("Q3_K_M",),
    "q5": ("Q5_K_M",),
    "q5km": ("Q5_K_M",),
    "q6": ("Q6_K",),
    "q6k": ("Q6_K",),
    "q8": ("Q8_0",),
    "int8": ("Q8_0",),
    "f16": ("F16",),
    "fp16": ("F16",),
    "half": ("F16",),
    "bf16": ("BF16",),
    "f32": ("F32",),
    "fp32": ("F32",),
    "mxfp4": ("MXFP4", "MXFP4_MOE"),
}

_ENCODING = (
    r"(?:UD-)?(?:I?Q\d(?:_[0-9A-Z]{1,4}){0,3}|TQ\d_\d|BF16|F(?:P)?16|F(?:P)?32|MXFP4(?:_MOE)?|NVFP4)"
)
_EXACT = re.compile(_ENCODING, re.IGNORECASE)
_AT_END = re.compile(rf"[-._]({_ENCODING})$", re.IGNORECASE)
_INSIDE = re.compile(rf"[-._]({_ENCODING})(?=[-._])", re.IGNORECASE)

REMOVED_QUANTS = frozenset({"Q4_0_4_4", "Q4_0_4_8", "Q4_0_8_8", "IQ4_NL_4_4"})
"""Made for one processor each, no longer read by llama.cpp, still lying in older repositories."""


def canonical(quant: str) -> str:
    """One spelling for each quantization: capitals, F16 for fp16, F32 for fp32."""
    return quant.upper().replace("FP16", "F16").replace("FP32", "F32")


def is_quant(text: str) -> bool:
    """Whether `text` is a shorthand or an encoding's full name."""
    return text.lower() in _SHORTHANDS or bool(_EXACT.fullmatch(text))


def search_order(text: str | None, role: Role) -> tuple[str, ...]:
    """Canonical quantizations to look for, best first. `text` is what a person wrote, None for nothing.

    UnknownName for what is no quantization, or for one that llama.cpp removed.
    """
    if text is None:
        return _DEFAULT[role]
    short = text.lower()
    if short in _SHORTHANDS:
        # A draft's quant hardly matters: where its repository has no 4-bit file, 8 bits serve.
        return _SHORTHANDS[short] + (("Q8_0",) if role == "draft" and _SHORTHANDS[short] is _Q4 else ())
    if not _EXACT.fullmatch(text):
        close = get_close_matches(short, _SHORTHANDS, n=3)
        known = ", ".join(close or ("q4", "q5", "q6", "q8", "f16", "bf16"))
        raise UnknownName(f"no quantization named {text!r}", f"Close: {known}")
    if canonical(text) in REMOVED_QUANTS:
        raise UnknownName(f"llama.cpp no longer reads {canonical(text)} files", "Use q4_0 instead")
    return (canonical(text),)


def split_quant(stem: str) -> tuple[str, str]:
    """A file name without its ending -> (the model's part, canonical quantization or "").

    `Foo-UD-Q4_K_XL` -> (`Foo`, `UD-Q4_K_XL`); the quant may stand inside (`gemma-4-E2B_q4_0-it`).
    """
    if found := _AT_END.search(stem):
        return stem[: found.start()], canonical(found[1])
    if found := _INSIDE.search(stem):
        return stem[: found.start()] + stem[found.end() :], canonical(found[1])
    return stem, ""
