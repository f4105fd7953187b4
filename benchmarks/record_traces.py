"""Record what draft chains meet on real models, for `localspec simulate`.

    python benchmarks/record_traces.py TARGET.gguf DRAFT.gguf --save traces.json [--tokens 800] [--chain 16]

For each kind of text and temperature the target writes an answer; at every position of it the draft guesses a
chain, and the target is asked how likely each guess is kept. One JSON object a text: `{kind, temperature, prompt,
output, chains}`, where `chains[i]` has `[token id, draft confidence, probability of being kept]` per guess.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

from gains import TEMPLATE
from long_prompts import JUDGE_PROMPTS, LONG_PROMPTS

from localspec.engine.llama.context import Context, ContextSettings
from localspec.engine.llama.weights import Placement, Weights
from localspec.engine.noise import Rejection
from localspec.engine.process.cancel import CancelFlag
from localspec.engine.sampling import Distribution, Sampler, confidence
from localspec.engine.settings import SamplerSettings
from localspec.ground.machine import physical_cores


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
        walk = _Walk(self._target, self._draft, Sampler(settings), Rejection(seed), settings.greedy)
        sequence = self.vocabulary.tokenize(prompt, special=True, add_bos=self.vocabulary.adds_bos)
        asked = len(sequence)
        walk.begin(sequence, self._chain)
        chains = []
        while len(sequence) - asked < tokens:
            chains.append(
                [[guess.token, round(guess.sure, 4), round(chance, 4)] for guess, chance in walk.chances()]
            )
            sequence.append(walk.next_token(len(sequence)))
            if self.vocabulary.is_end(sequence[-1]):
                break
            walk.step(sequence, self._chain)
        return {"prompt": sequence[:asked], "output": sequence[asked:], "chains": chains}


@dataclass(frozen=True, slots=True)
class Guess:
    """A token of a chain, how sure the draft was, and what it was drawn from."""

    token: int
    sure: float
    q: Distribution


class _Walk:
    """The chain at one position of the text after the other.

    Where the target's token is the chain's first guess, the rest of the chain is the next position's: one more
    guess is made and judged, instead of all of them.
    """

    def __init__(self, target: Context, draft: Context, sampler: Sampler, chance: Rejection, greedy: bool) -> None:
        self._target, self._draft, self._sampler = target, draft, sampler
        self._chance, self._greedy = chance, greedy
        self._guesses: list[Guess] = []
        self._rows: list[Distribution] = []
        """The target's distribution before each guess and after the last one."""

    def begin(self, prompt: list[int], chain: int) -> None:
        """Read the prompt and make its chain."""
        for model in (self._target, self._draft):
            model.rewind(0)
            model.extend(prompt[:-1], 0)
        self._start_chain(prompt, chain)

    def chances(self) -> list[tuple[Guess, float]]:
        """Each guess with its probability of being kept, given that those before it were."""
        judged = [
            (guess, min(1.0, row.probability(guess.token) / guess.q.probability(guess.token)))
            for guess, row in zip(self._guesses, self._rows, strict=False)
        ]
        return judged + [(guess, 0.0) for guess in self._guesses[len(judged) :]]  # behind a miss

    def next_token(self, position: int) -> int:
        """The target's own choice here."""
        return self._chance.choose(self._rows[0], position)

    def step(self, sequence: list[int], chain: int) -> None:
        """Move on by the last token of `sequence`."""
        if self._guesses[0].token != sequence[-1]:
            for model in (self._target, self._draft):
                model.rewind(len(sequence) - 1)
            self._start_chain(sequence, chain)
            return
        self._guesses, self._rows = self._guesses[1:], self._rows[1:]
        self._guess([self._guesses[-1].token], len(sequence) + len(self._guesses))
        self._judge([self._guesses[-1].token] if not self._greedy else [])

    def _start_chain(self, sequence: list[int], chain: int) -> None:
        self._guesses, self._rows = [], []
        feed = sequence[self._draft.length :]
        for place in range(chain):
            self._guess(feed, len(sequence) + place)
            feed = [self._guesses[-1].token]
        self._judge([sequence[-1], *(guess.token for guess in self._guesses if not self._greedy)])

    def _guess(self, feed: list[int], position: int) -> None:
        logits = self._draft.extend(feed, 1)[0]
        q = self._sampler.distribution(logits, [])
        token = self._chance.choose(q, position)
        self._guesses.append(Guess(token, confidence(logits, token) if self._greedy else q.probability(token), q))

    def _judge(self, tokens: list[int]) -> None:
        if tokens:
            self._rows += [self._sampler.distribution(row, []) for row in self._target.extend(tokens, len(tokens))]
        if not self._greedy:
            return
        # What stands behind a miss is never asked for: one row at a time, each a token of the text.
        while len(self._rows) <= len(self._guesses) and self._rows[-1].top == self._guesses[len(self._rows) - 1].token:
            row = self._target.extend([self._rows[-1].top], 1)[0]
            self._rows.append(self._sampler.distribution(row, []))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("draft", type=Path)
    parser.add_argument("--save", type=Path, required=True)
    parser.add_argument("--judge", action="store_true", help="the prompts that nothing is tuned on")
    parser.add_argument("--kinds", nargs="*", help="of the set of prompts; all by default")
    parser.add_argument("--temperatures", nargs="*", type=float, default=[0.0, 0.8])
    parser.add_argument("--tokens", type=int, default=800, help="of each answer, at most")
    parser.add_argument("--chain", type=int, default=16, help="guesses at each position")
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=physical_cores())
    options = parser.parse_args()
    recorder = Recorder(options.target, options.draft, options.context, options.chain, options.threads)
    traces: list[dict[str, object]] = []
    prompts = JUDGE_PROMPTS if options.judge else LONG_PROMPTS
    for kind in options.kinds or prompts:
        for temperature in options.temperatures:
            prompt = TEMPLATE.format(prompts[kind])
            trace = recorder.record(prompt, temperature, options.tokens, seed=1)
            traces.append({"kind": kind, "temperature": temperature, **trace})
            options.save.write_text(json.dumps(traces, separators=(",", ":")))  # as they come
            print(f"{kind} {temperature:g}: {len(traces[-1]['output'])} tokens", flush=True)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
