"""Does the draft model find back after a pause? Acceptance behind a stretch without drafts, and without the pause.

    python benchmarks/pause.py TARGET.gguf DRAFT.gguf [--pause 100] [--tokens 100] [--length 3] [--threads N]

Greedy, so that both answers to a prompt are the same text (near-ties apart). One answer drafts all along; the other
is told after its first tokens to stop drafting for `--pause` tokens and then to go on. The acceptance of the
`--tokens` tokens after that place is pooled over all prompts, for both.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from gains import PROMPTS, TEMPLATE

from localspec.engine.process.client import EngineClient
from localspec.engine.records import Round, RoundFinished
from localspec.engine.settings import GenerationRequest, LoadSettings, SamplerSettings, SpeculationSettings
from localspec.ground.machine import physical_cores

MORE_PROMPTS = (
    "Write a SQL query that lists customers without an order in the last year, and explain it.",
    "List the planets of the solar system with their diameter and number of moons, as a Markdown table.",
    "Explain to a child why the sky is blue.",
    "Write a bash script that renames every .jpeg file in a folder to .jpg and says what it did.",
    "Translate into French: The meeting was moved to Thursday because the room is being painted.",
    "Compare bread baked with yeast and with sourdough.",
)


BEFORE = 8
"""Tokens before the pause."""


def rounds(client: EngineClient, prompt: str, tokens: int, length: int, pause: int) -> list[Round]:
    """The rounds of one greedy answer of `tokens` tokens; drafts are off for `pause` of them."""
    on, off = SpeculationSettings("model", length), SpeculationSettings("none")
    changes = [(BEFORE, off), (BEFORE + pause, on)] if pause else []
    request = GenerationRequest(
        prompt=prompt,
        sampler=SamplerSettings(0.0),
        speculation=on,
        max_tokens=tokens,
        min_tokens=tokens,
        keep_cache=False,
    )
    made, emitted = [], 0
    for event in client.generate(request):
        if isinstance(event, RoundFinished):
            made.append(event.round)
            emitted += len(event.round.emitted)
            if changes and emitted >= changes[0][0]:
                client.change(changes.pop(0)[1])
    return made


def behind(made: list[Round], place: int) -> tuple[int, int]:
    """(accepted, verified) of the rounds that begin at or after `place` tokens of the answer."""
    first = made[0].position
    late = [round_ for round_ in made if round_.position - first >= place]
    return sum(round_.accepted for round_ in late), sum(round_.verified for round_ in late)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("draft", type=Path)
    parser.add_argument("--length", type=int, default=3)
    parser.add_argument("--pause", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--threads", type=int, default=physical_cores())
    options = parser.parse_args()
    totals = {"without": (0, 0), "after": (0, 0)}
    with tempfile.TemporaryDirectory() as folder, EngineClient(Path(folder)) as client:
        client.load(LoadSettings(options.target, options.draft, context=2048), options.threads)
        for text in (*PROMPTS.values(), *MORE_PROMPTS):
            line = []
            place = BEFORE + options.pause + 8  # a round may end a few tokens later than asked
            for name, pause in (("without", 0), ("after", options.pause)):
                whole = rounds(client, TEMPLATE.format(text), place + options.tokens, options.length, pause)
                kept, seen = behind(whole, place)
                totals[name] = (totals[name][0] + kept, totals[name][1] + seen)
                line.append(f"{name} a pause {kept}/{seen}")
            print(f"{', '.join(line)}  {text[:50]!r}", flush=True)
    for name, (kept, seen) in totals.items():
        print(f"acceptance {name} a pause: {kept / max(seen, 1):.3f} ({kept} of {seen})")


if __name__ == "__main__":
    main()
