"""Speculative against plain decoding, and against llama.cpp's own speculative mode: interleaved, as ratios.

    python benchmarks/gains.py TARGET.gguf --draft DRAFT.gguf [--llama llama-speculative-simple] [--save
    results.json]

Each cell is a kind of text at a temperature. A cell runs pairs (plain, auto, then auto, plain, ...) in one
engine process; its figure is the mean of log ratios of tokens/s with a 95 % interval. A cell fails when the
interval's upper end is below 0.97; one whose interval reaches below that is repeated. With `--llama`, the
same prompt, samplers, threads and context go to llama.cpp's program at its default draft length and at K =
2, 5 and 8, each run beside one of ours.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from localspec.engine.process.client import EngineClient
from localspec.engine.records import Finished, GenerationStats
from localspec.engine.settings import GenerationRequest, LoadSettings, SamplerSettings, SpeculationSettings
from localspec.ground.machine import physical_cores

FLOOR = 0.97
LLAMA_LENGTHS = (3, 2, 5, 8)
_T95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
_DECODED = re.compile(r"decoded\s+(\d+) tokens in\s+([\d.]+) seconds")

FUNCTION = '''\
class Series:
    """Numbers in the order in which they came."""

    def __init__(self, numbers):
        self.numbers = list(numbers)

    def add(self, number):
        if not isinstance(number, (int, float)):
            raise TypeError("not a number")
        self.numbers.append(number)

    def average(self):
        total = 0
        for number in self.numbers:
            total = total + number
        return total / len(self.numbers)

    def spread(self):
        middle = self.average()
        total = 0
        for number in self.numbers:
            total = total + (number - middle) ** 2
        return (total / len(self.numbers)) ** 0.5

    def largest(self):
        best = None
        for number in self.numbers:
            if best is None or number > best:
                best = number
        return best

    def smallest(self):
        best = None
        for number in self.numbers:
            if best is None or number < best:
                best = number
        return best
'''

LETTER = """\
Dear Ms Okafor, thank you for your order 48213 of 14 March. The two walnut shelves (article WS-90, 129.00
each) left our workshop in Ghent on Tuesday with the carrier Vanhoof, parcel 7719-A, and should reach you at 12
rue de la Monnaie, 59000 Lille, on 21 March. The brass hooks (article BH-4, 6 pieces at 7.50) are late; they
follow on 2 April in parcel 7745-C. The oak stool (article OS-12, 84.00) was sold out, so we send 84.00 back to
the card that ends in 4402. Your invoice number is 2031-77, payable until 30 April; the total is 303.00 with 21 %
tax. Questions? Call +32 9 555 01 44 between 9 and 17 or write to orders@ateliernord.example. Kind regards, Tom
Peeters, Atelier Nord.
"""

PROMPTS = {
    "code": "Write a Python class for a stack with push, pop, peek and size, with type hints and docstrings.",
    "edit": f"Rename the variable `number` to `value` everywhere in this code and print the whole code:\n\n{FUNCTION}",
    "extraction": f"Give every fact of this letter as one JSON object with short keys, nothing else:\n\n{LETTER}",
    "chat": "My neighbour plays loud music at night. How should I talk to him about it without starting a fight?",
    "reasoning": "A train leaves at 9:40 and arrives at 13:05 after stops of 12 and 8 minutes. It covers 246 km. "
    "What is its average speed while moving? Explain step by step.",
    "creative": "Write a short story about a lighthouse keeper who finds a letter in a bottle.",
}

TEMPLATE = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
"""ChatML, rendered once for both programs."""


class Ours:
    """One engine process for the whole run."""

    def __init__(self, target: Path, draft: Path | None, context: int, folder: Path) -> None:
        self._client = EngineClient(folder)
        self._client.load(LoadSettings(target, draft, context=context), physical_cores())

    def rate(self, prompt: str, temperature: float, seed: int, tokens: int, drafter: str) -> GenerationStats:
        """Statistics of one answer of exactly `tokens` tokens."""
        request = GenerationRequest(
            prompt=prompt,
            sampler=SamplerSettings(temperature, seed=seed, mode="rejection"),
            speculation=SpeculationSettings(drafter),
            max_tokens=tokens,
            min_tokens=tokens,
            keep_cache=False,
        )
        *_, finished = self._client.generate(request)
        assert isinstance(finished, Finished)
        return finished.stats

    def close(self) -> None:
        self._client.close()


def llama_rate(program: Path, target: Path, draft: Path, prompt: str, temperature: float, seed: int, tokens: int,
               length: int, context: int) -> float:  # fmt: skip
    """Tokens/s that llama-speculative-simple reports for its decoding."""
    command = [
        program, "-m", target, "--spec-draft-model", draft, "--spec-type", "draft-simple", "--spec-draft-n-max", length,
        "-p", prompt, "-n", tokens, "-c", context, "-t", physical_cores(), "--temp", temperature, "--seed", seed,
        "--top-k", 40, "--top-p", 0.95, "--min-p", 0.05, "--repeat-penalty", 1.0, "--ignore-eos",
    ]  # fmt: skip
    result = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, errors="replace", timeout=900
    )
    found = _DECODED.search(result.stderr + result.stdout)
    if found is None:
        sys.exit(f"{program} did not say how fast it was:\n{result.stderr[-2000:]}")
    return int(found[1]) / float(found[2])


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean and its 95 % interval."""
    logs = [math.log(ratio) for ratio in ratios]
    middle = fmean(logs)
    if len(logs) < 2:
        return math.exp(middle), 0.0, math.inf
    half = _T95.get(len(logs), 2.1) * stdev(logs) / math.sqrt(len(logs))
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def run_cell(ours: Ours, prompt: str, temperature: float, options: argparse.Namespace) -> dict[str, object]:
    """Interleaved pairs of one cell, more of them while it is in doubt."""
    rows: list[dict[str, float]] = []
    wanted = options.pairs
    while len(rows) < wanted:
        number = len(rows)
        arms = ["none", "auto"] if number % 2 == 0 else ["auto", "none"]
        stats = {arm: ours.rate(prompt, temperature, number, options.tokens, arm) for arm in arms}
        plain, auto = (stats[arm].tokens_per_second or math.nan for arm in ("none", "auto"))
        rows.append({
            "plain": plain,
            "auto": auto,
            "estimate": stats["auto"].plain_tokens_per_second or math.nan,
            "acceptance": stats["auto"].acceptance_rate or 0.0,
            "length": stats["auto"].mean_acceptance_length or 0.0,
        })  # fmt: skip
        _, low, high = interval([row["auto"] / row["plain"] for row in rows])
        if len(rows) == wanted and low < FLOOR < high and wanted < 2 * options.pairs:
            wanted += 2
    mean, low, high = interval([row["auto"] / row["plain"] for row in rows])
    return {"rows": rows, "speedup": mean, "low": low, "high": high, "failed": high < FLOOR}


def run_llama(ours: Ours, prompt: str, temperature: float, options: argparse.Namespace) -> dict[int, float]:
    """Ours over llama.cpp's, by its draft length."""
    ratios = {}
    for length in LLAMA_LENGTHS:
        pairs = []
        for number in range(options.llama_pairs):
            mine = (
                ours.rate(prompt, temperature, number, options.tokens, "auto").tokens_per_second or math.nan
            )
            theirs = llama_rate(
                options.llama, options.target, options.draft, prompt, temperature, number, options.tokens, length,
                options.context,
            )  # fmt: skip
            pairs.append(mine / theirs)
        ratios[length] = interval(pairs)[0]
    return ratios


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", type=Path)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--llama", type=Path, help="path of llama-speculative-simple")
    parser.add_argument("--llama-pairs", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--kinds", default=",".join(PROMPTS))
    parser.add_argument("--temps", default="0,0.8")
    parser.add_argument("--skip-plain", action="store_true", help="only the comparison with llama.cpp")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    results: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory() as folder:
        ours = Ours(options.target, options.draft, options.context, Path(folder))
        try:
            for kind in options.kinds.split(","):
                for temperature in map(float, options.temps.split(",")):
                    prompt = TEMPLATE.format(PROMPTS[kind])
                    ours.rate(prompt, temperature, 99, 24, "auto")  # warm up
                    cell: dict[str, object] = {}
                    if not options.skip_plain:
                        cell |= run_cell(ours, prompt, temperature, options)
                    if options.llama:
                        cell["llama"] = run_llama(ours, prompt, temperature, options)
                    results[f"{kind} {temperature:g}"] = cell
                    print(_line(kind, temperature, cell), flush=True)
                    if options.save:
                        options.save.write_text(json.dumps(results, indent=1))
        finally:
            ours.close()
    return _summary(results)


def _line(kind: str, temperature: float, cell: dict[str, object]) -> str:
    text = f"{kind:11s} T={temperature:<4g}"
    if "speedup" in cell:
        rows = cell["rows"]
        assert isinstance(rows, list)
        columns = [
            fmean(row[name] for row in rows) for name in ("plain", "auto", "estimate", "acceptance", "length")
        ]
        text += " plain {:5.1f}  auto {:5.1f}  (plain estimated {:5.1f})  acceptance {:4.0%}  length {:.2f}".format(
            *columns
        )
        text += f"  {cell['speedup']:.2f}x [{cell['low']:.2f}, {cell['high']:.2f}]{' FAILED' if cell['failed'] else ''}"
    if "llama" in cell:
        llama = cell["llama"]
        assert isinstance(llama, dict)
        text += "  over llama.cpp: " + ", ".join(
            f"K={length} {ratio:.2f}x" for length, ratio in llama.items()
        )
    return text


def _summary(results: dict[str, dict[str, object]]) -> int:
    def over(name: str, values: list[float]) -> None:
        if values:
            print(
                f"{name}: {math.exp(fmean(map(math.log, values))):.2f}x (geometric mean of {len(values)} cells)"
            )

    speedups = {cell: float(str(found["speedup"])) for cell, found in results.items() if "speedup" in found}
    over("over plain", list(speedups.values()))
    over(
        "over plain, code and edit",
        [value for cell, value in speedups.items() if cell.split()[0] in ("code", "edit")],
    )
    llama = [found["llama"] for found in results.values() if "llama" in found]
    over(
        "over llama.cpp at its default K",
        [cell[LLAMA_LENGTHS[0]] for cell in llama if isinstance(cell, dict)],
    )
    over("over llama.cpp at its best K", [min(cell.values()) for cell in llama if isinstance(cell, dict)])
    failed = [cell for cell, found in results.items() if found.get("failed")]
    print(f"slower than plain: {', '.join(failed) or 'no cell'}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
