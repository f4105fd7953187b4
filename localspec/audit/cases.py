"""What is asked in an audit: texts, settings that a draft could get wrong, drafters and lengths."""

from __future__ import annotations

from dataclasses import dataclass, replace

from localspec.engine.settings import GenerationRequest, SamplerSettings, SpeculationSettings
from localspec.engine.templates.chat_template import Message

GREEDY = SamplerSettings(temperature=0)

TEXTS = {
    "code": "Write a Python function that returns the second largest number of a list, and two assertions.",
    "edit": "Return this text with the name Anna replaced by Berta and nothing else changed: Anna wrote to "
    "Tom. Tom wrote back to Anna, and Anna read the letter twice before Anna went to bed.",
    "counting": "Count from 1 to 25, one number a line, nothing else.",
    "chat": "Explain to a child of eight why the moon seems to follow us when we walk home.",
    "extraction": "Give a JSON object with the keys name, year and city: Olga Brandt moved to Porto in 1987.",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One request, without its speculation settings."""

    check: str
    name: str
    request: GenerationRequest


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to guess."""

    name: str
    speculation: SpeculationSettings


def variants(has_draft: bool, quick: bool, speculates: bool = True) -> list[Variant]:
    """Every drafter, with short and long drafts: another length is another shape of the verifying pass.

    `speculates`: whether the target can have drafts at all; if not, only that `auto` leaves it alone is checked.
    """
    if not speculates:
        return [Variant("auto", SpeculationSettings("auto"))]
    lengths = (2, 5) if quick else (1, 2, 4, 8)
    found = [Variant(f"model K={k}", SpeculationSettings("model", k)) for k in lengths] if has_draft else []
    found.append(Variant("lookup K=6", SpeculationSettings("lookup", 6)))
    if not quick:
        found.append(Variant("auto", SpeculationSettings("auto")))
    return found


def cases(raw: bool, quick: bool) -> list[Case]:
    """`raw`: the model has no chat template."""
    limit = 24 if quick else 96
    names = ("code", "edit") if quick else tuple(TEXTS)
    found = [Case("greedy", name, _request(name, raw, GREEDY, limit)) for name in names]
    found += _settings_cases(raw, quick)
    seeds = (1,) if quick else (1, 2, 3)
    for seed in seeds:
        sampler = SamplerSettings(temperature=0.8, seed=seed)
        found.append(Case("coupled", f"chat, temperature 0.8, seed {seed}", _request("chat", raw, sampler, limit)))
    if not quick:
        hot = SamplerSettings(temperature=1.2, top_k=0, top_p=1.0, min_p=0.0, seed=4)
        found.append(Case("coupled", "code, temperature 1.2, no filters, seed 4", _request("code", raw, hot, limit)))
    return found


def _settings_cases(raw: bool, quick: bool) -> list[Case]:
    """Penalties look at what was accepted, stops and limits cut inside a block."""
    limit = 20 if quick else 64
    repeat = replace(GREEDY, repeat_penalty=1.15)
    frequency = replace(GREEDY, frequency_penalty=0.6, presence_penalty=0.3)
    counting = _request("counting", raw, GREEDY, 64)
    found = [
        Case("penalties", "edit, repeat penalty 1.15", _request("edit", raw, repeat, limit)),
        Case("stops", "counting, stop at 7", replace(counting, stop=("7",))),
        Case("stops", "counting, 13 tokens", replace(counting, max_tokens=13)),
    ]
    if not quick:
        extraction = _request("extraction", raw, GREEDY, 96)
        biased = replace(GREEDY, logit_bias=((11, -4.0), (13, 2.0)), repeat_penalty=1.05)
        found += [
            Case("penalties", "code, frequency and presence", _request("code", raw, frequency, limit)),
            Case("penalties", "edit, logit bias", _request("edit", raw, biased, limit)),
            Case("stops", "extraction, at least 60 tokens", replace(extraction, min_tokens=60)),
            Case("stops", "counting, stop across tokens", replace(counting, stop=("1\n12", "5\n6"))),
        ]
    return found


def _request(name: str, raw: bool, sampler: SamplerSettings, limit: int) -> GenerationRequest:
    text = TEXTS[name]
    return GenerationRequest(
        messages=() if raw else (Message("user", text),),
        prompt=text if raw else None,
        sampler=sampler,
        max_tokens=limit,
        keep_cache=False,
    )
