"""Two checkouts of localspec against each other on real models: interleaved, as ratios.

    python benchmarks/versions.py OLD NEW TARGET.gguf --draft DRAFT.gguf [--kinds code,chat] [--temps 0,0.8] [--pairs 3]

Each checkout loads the pair in an engine of its own, and both stay loaded. A cell is a kind of text at a temperature;
its figure is the geometric mean of NEW's tokens/s over OLD's on the same prompt and seed, the two taking turns.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from gains import PROMPTS, TEMPLATE, interval

_CHILD = """\
import json, sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/benchmarks"]
import gains
ours = gains.Ours(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
for line in sys.stdin:
    stats = ours.rate(*json.loads(line))
    print(json.dumps(stats.tokens_per_second), flush=True)
ours.close()
"""
"""`gains.Ours` is what both checkouts have in common."""


class Version:
    """One checkout's engine, in a Python of its own."""

    def __init__(self, checkout: Path, options: argparse.Namespace, folder: str) -> None:
        (logs := Path(folder) / str(len(list(Path(folder).iterdir())))).mkdir()
        command = [sys.executable, "-P", "-c", _CHILD, checkout.resolve(), options.target, options.draft]
        self._child = subprocess.Popen(
            [*map(str, command), str(options.context), str(logs)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def rate(self, prompt: str, temperature: float, seed: int, tokens: int, drafter: str = "auto") -> float:
        """Tokens/s of one answer."""
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.write(json.dumps([prompt, temperature, seed, tokens, drafter]) + "\n")
        self._child.stdin.flush()
        return float(self._child.stdout.readline())

    def close(self) -> None:
        """End it."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--draft", type=Path, required=True)
    parser.add_argument("--kinds", default="code,edit,chat,creative")
    parser.add_argument("--temps", default="0,0.8")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--context", type=int, default=2048)
    options = parser.parse_args()
    cells: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        versions = [Version(checkout, options, folder) for checkout in (options.old, options.new)]
        for kind in options.kinds.split(","):
            for temperature in map(float, options.temps.split(",")):
                prompt = TEMPLATE.format(PROMPTS[kind])
                for version in versions:
                    version.rate(prompt, temperature, 99, 24)  # warm up
                ratios = []
                for seed in range(options.pairs):
                    order = versions if seed % 2 == 0 else versions[::-1]
                    rates = {id(v): v.rate(prompt, temperature, seed, options.tokens) for v in order}
                    ratios.append(rates[id(versions[1])] / rates[id(versions[0])])
                mean, low, high = interval(ratios)
                cells.append(mean)
                each = " ".join(f"{ratio:.3f}" for ratio in ratios)
                print(f"{kind:11s} T={temperature:<4g} {mean:.3f}x [{low:.2f}, {high:.2f}]  {each}", flush=True)
        for version in versions:
            version.close()
    print(f"new over old: {interval(cells)[0]:.3f}x (geometric mean of {len(cells)} cells)")


if __name__ == "__main__":
    main()
