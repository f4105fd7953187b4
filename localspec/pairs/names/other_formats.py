"""Files that are no GGUF model of a readable version, each named for what it is."""

from __future__ import annotations

from localspec.ground.errors import UnreadableFile

_NEWER = "Download a newer conversion"
_OLD_MAGICS = (b"lmgg", b"fmgg", b"tjgg", b"algg")  # "ggml", "ggmf", "ggjt", "ggla" as little-endian numbers


def _other_format(start: bytes) -> tuple[str, str]:
    if start[:4] == b"GGUF":
        return "", ""
    if start[:4] in _OLD_MAGICS:
        return "an old GGML file", _NEWER
    if start[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return "a zip archive (a PyTorch checkpoint, perhaps)", "Unpack or convert it to GGUF first"
    if len(start) > 9 and start[8:9] == b"{" and int.from_bytes(start[:8], "little") < 1 << 32:
        return "a safetensors file", "Convert it to GGUF with llama.cpp's convert_hf_to_gguf.py"
    if start.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer", "Download the file itself: git lfs pull, or localspec pull"
    text = start.lstrip()[:15].lower()
    if text.startswith((b"<!doctype html", b"<html")):
        return "a web page", "The download went to a page instead of the file; download it again"
    if all(byte in b"\t\n\r" or byte >= 32 for byte in start):
        return "a text file", "Name a .gguf file"
    return f"an unknown format (it begins {start[:4].hex(' ')})", "Name a .gguf file"


def refuse_other_formats(start: bytes, source: str) -> None:
    """Say what the file is instead, when it is no little-endian GGUF version 2 or 3."""
    what, hint = _other_format(start)
    if what:
        raise UnreadableFile(f"{source} is {what}, not a GGUF model", hint)
    version = int.from_bytes(start[4:8], "little")
    if version in (2, 3):
        return
    if version == 1:
        raise UnreadableFile(f"{source} is GGUF version 1, which llama.cpp no longer reads", _NEWER)
    if version & 0xFFFF == 0:
        raise UnreadableFile(f"{source} is a big-endian GGUF file", "Get the little-endian one")
    raise UnreadableFile(f"{source} is GGUF version {version}; only 2 and 3 are known", "Update localspec")
