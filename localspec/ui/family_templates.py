"""Chat templates for models whose file carries none.

A person chooses once; the choice is remembered for that file.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

_KEY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class FamilyTemplate:
    """A way to write down a conversation."""

    name: str
    title: str
    """One line for the choice."""
    source: str
    """Jinja; "" = the words as they are."""
    stop: tuple[str, ...] = ()
    """What ends an answer besides the model's own end tokens."""


BASE = FamilyTemplate("base", "Base mode: the text is continued as it is, nothing around it", "")

_TURNS = "{% for m in messages %}"

FAMILIES = (
    BASE,
    FamilyTemplate(
        "chatml", "ChatML: Qwen, Yi, SmolLM, many fine-tunes",
        _TURNS + "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        ("<|im_end|>",),
    ),
    FamilyTemplate(
        "llama-3", "Llama 3",
        _TURNS + "<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content }}<|eot_id|>{% endfor %}"
        "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
        ("<|eot_id|>",),
    ),
    FamilyTemplate(
        "gemma", "Gemma",
        _TURNS + "<start_of_turn>{{ 'model' if m.role == 'assistant' else 'user' }}\n{{ m.content }}"
        "<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
        ("<end_of_turn>",),
    ),
    FamilyTemplate(
        "mistral", "Mistral and Mixtral",
        _TURNS + "{% if m.role == 'assistant' %} {{ m.content }}</s>{% else %}[INST] {{ m.content }} [/INST]"
        "{% endif %}{% endfor %}",
        ("</s>",),
    ),
    FamilyTemplate(
        "dialogue", "Plain dialogue: User: ... Assistant: ...",
        _TURNS + "{{ m.role | capitalize }}: {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}Assistant:{% endif %}",
        ("\nUser:",),
    ),
)  # fmt: skip


def family_template(name: str) -> FamilyTemplate | None:
    """By name; None when there is no such one."""
    return next((family for family in FAMILIES if family.name == name), None)


def file_key(path: Path) -> str:
    """A hash that tells model files apart: size and first megabyte, where the whole header's beginning is."""
    with open(path, "rb") as file:
        digest = hashlib.sha256(file.read(_KEY_BYTES))
    digest.update(str(path.stat().st_size).encode())
    return digest.hexdigest()[:32]
