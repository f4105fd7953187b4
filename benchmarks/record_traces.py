"""Record what draft chains meet on real models, for `localspec simulate`.

    python benchmarks/record_traces.py TARGET.gguf DRAFT.gguf --save traces.json [--tokens 400] [--chain 16]

For each kind of text and temperature the target writes an answer; at every position of it the draft guesses a
chain, and the target is asked how likely each guess is kept. One JSON object a text: `{kind, temperature, prompt,
output, chains}`, where `chains[i]` has `[token id, draft confidence, probability of being kept]` per guess.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from gains import PROMPTS, TEMPLATE

from localspec.engine.cancel import CancelFlag
from localspec.engine.llama.context import Context, ContextSettings
from localspec.engine.llama.weights import Placement, Weights
from localspec.engine.noise import Rejection
from localspec.engine.sampling import Distribution, Sampler, confidence
from localspec.engine.settings import SamplerSettings
from localspec.machine import physical_cores


class Recorder:
    """Both models, and the samplers of one temperature."""

    def __init__(self, target: Path, draft: Path, context: int, chain: int, threads: int) -> None:
        flag = CancelFlag()
        weights = [Weights(path, Placement(), lambda _: None, flag) for path in (target, draft)]
        self.vocabulary = weights[0].vocabulary
        self._target = Context(weights[0], ContextSettings(context, chain + 1, threads), flag)
        self._draft = Context(weights[1], ContextSettings(context, 1, threads), flag)
        self._chain = chain

    def record(self, prompt: str, temperature: float, tokens: int, seed: int) -> dict[str, object]:
        """One answer and the chains along it."""
        settings = SamplerSettings(temperature)
        sampler, chance = Sampler(settings), Rejection(seed)
        sequence = self.vocabulary.tokenize(prompt, special=True, add_bos=self.vocabulary.adds_bos)
        asked = len(sequence)
        for model in (self._target, self._draft):
            model.rewind(0)
            model.extend(sequence[:-1], 0)
        chains = []
        while len(sequence) - asked < tokens:
            guesses = self._guess(sequence, sampler, chance, settings.greedy)
            ids = [guess for guess, _, _ in guesses]
            logits = self._target.extend([sequence[-1], *ids], 1 + len(ids))
            rows = [sampler.distribution(row, []) for row in logits]
            chains.append(
                [
                    [guess, round(sure, 4), round(_kept(row, q, guess), 4)]
                    for (guess, sure, q), row in zip(guesses, rows, strict=False)
                ]
            )
            for model in (self._target, self._draft):
                model.rewind(len(sequence))
            sequence.append(chance.choose(rows[0], len(sequence)))
            if self.vocabulary.is_end(sequence[-1]):
                break
        return {"prompt": sequence[:asked], "output": sequence[asked:], "chains": chains}

    def _guess(
        self, sequence: list[int], sampler: Sampler, chance: Rejection, greedy: bool
    ) -> list[tuple[int, float, Distribution]]:
        guesses: list[tuple[int, float, Distribution]] = []
        feed = sequence[self._draft.length :]
        for _ in range(self._chain):
            logits = self._draft.extend(feed, 1)[0]
            q = sampler.distribution(logits, [])
            guess = chance.choose(q, len(sequence) + len(guesses))
            guesses.append((guess, confidence(logits, guess) if greedy else q.probability(guess), q))
            feed = [guess]
        return guesses


def _kept(p: Distribution, q: Distribution, guess: int) -> float:
    return min(1.0, p.probability(guess) / q.probability(guess))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("draft", type=Path)
    parser.add_argument("--save", type=Path, required=True)
    parser.add_argument("--kinds", nargs="*", default=list(PROMPTS), choices=list(PROMPTS))
    parser.add_argument("--temperatures", nargs="*", type=float, default=[0.0, 0.8])
    parser.add_argument("--tokens", type=int, default=400, help="of each answer")
    parser.add_argument("--chain", type=int, default=16, help="guesses at each position")
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=physical_cores())
    options = parser.parse_args()
    recorder = Recorder(options.target, options.draft, options.context, options.chain, options.threads)
    traces: list[dict[str, object]] = []
    for kind in options.kinds:
        for temperature in options.temperatures:
            prompt = TEMPLATE.format(PROMPTS[kind])
            trace = recorder.record(prompt, temperature, options.tokens, seed=1)
            traces.append({"kind": kind, "temperature": temperature, **trace})
            options.save.write_text(json.dumps(traces, separators=(",", ":")))  # as they come
            print(f"{kind} {temperature:g}: {len(traces[-1]['output'])} tokens", flush=True)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
