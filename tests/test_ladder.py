"""The ladder of a draft's quantizations: made, measured and ranked."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from localspec.bench.ladder import Ladder, Measured, Rung, rungs
from localspec.cli.draft_ladder import write_ladder
from tests.bigram import BigramPair

RUNG = Rung("Q4_0", Path("a.gguf"), False)
MEASURED = Measured(RUNG, 100, 50, 40, 30, 2.0, 0.01, 24.0, 15.0)


def test_of_nearly_equal_rungs_the_smallest_is_best() -> None:
    fast, small, slow = (
        replace(MEASURED, accepted_per_second=15.0, memory_bytes=300),
        replace(MEASURED, accepted_per_second=14.8, memory_bytes=200),
        replace(MEASURED, accepted_per_second=10.0, memory_bytes=100),
    )
    assert Ladder((fast, small, slow), 20.0).best is small
    assert MEASURED.acceptance_rate == 0.75
    assert replace(MEASURED, verified=0).acceptance_rate == 0.0


def test_rungs_are_made_once(bigram: BigramPair) -> None:
    first = rungs(str(bigram.draft), ["q8_0", "q4_0"])
    assert [(rung.type, rung.made) for rung in first] == [("F32", False), ("Q8_0", True), ("Q4_0", True)]
    again = rungs("bigram-draft-q8_0", ["q8_0", "q4_0"])
    assert [(rung.type, rung.made) for rung in again] == [("Q8_0", False), ("Q4_0", False)]
    assert again[1].file == first[2].file


def test_the_command_ranks_what_it_measured(bigram: BigramPair, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("The cat\nThe dog\n")
    arguments = [str(bigram.target), str(bigram.draft), "--types", "q8_0", "--prompts", str(prompts)]
    command = [sys.executable, "-m", "localspec", "draft-ladder", *arguments, "-n", "12", "-k", "3", "--ctx", "256"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["schema"] == 1 and {rung["type"] for rung in answer["rungs"]} == {"F32", "Q8_0"}
    rates = [rung["accepted_per_second"] for rung in answer["rungs"]]
    assert rates == sorted(rates, reverse=True) and rates[-1] > 0
    for rung in answer["rungs"]:
        assert rung["accepted"] <= rung["verified"] and rung["step_seconds"] > 0 and rung["tokens"] == 24
        assert rung["acceptance_rate"] == rung["accepted"] / rung["verified"]
    sizes = {rung["type"]: rung["memory_bytes"] for rung in answer["rungs"]}
    assert sizes["Q8_0"] < sizes["F32"] and answer["plain_tokens_per_second"] > 0


def test_the_ranking_for_people() -> None:
    out = io.StringIO()
    write_ladder(out, Ladder((MEASURED, replace(MEASURED, accepted_per_second=1.0)), 30.0))
    lines = out.getvalue().splitlines()
    assert lines[0] == "draft    acceptance ms a guess accepted/s tokens/s x plain    memory"
    assert lines[1] == "Q4_0            75%       10.0      15.00    24.00    0.80     0 MiB"
    assert lines[3].startswith("plain ") and lines[5] == "best: Q4_0  --draft a.gguf"
    assert lines[6] == "none of them pays here: the target alone is as fast"
