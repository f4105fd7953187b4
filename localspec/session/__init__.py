"""A name in, two loaded and checked models out: where pairs and engine meet.

with open_session("target.gguf", LoadOptions(draft="draft.gguf")) as session:
    for token in session.stream("Why is the sky blue?"):
        print(token.text, end="")
"""

from localspec.session.open import (
    LoadOptions,
    LocalspecError,
    Message,
    SamplerSettings,
    Session,
    SpeculationSettings,
    open_session,
)

__all__ = [
    "LoadOptions",
    "LocalspecError",
    "Message",
    "SamplerSettings",
    "Session",
    "SpeculationSettings",
    "open_session",
]
