"""`localspec check` and `localspec fit` as real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bigram import SIZE, BigramPair, english_table, write
from tests.header_writer import header
from tests.header_writer import vocabulary as words

LOCALSPEC = [sys.executable, "-m", "localspec"]


def localspec(*arguments: object, code: int = 0) -> str:
    done = subprocess.run([*LOCALSPEC, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    return done.stdout + (done.stderr if code == 2 else "")


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A model whose tokens are all others, with something hostile among them."""
    path = tmp_path / "foreign.gguf"
    write(path, english_table(), texts=[f"\x1b[31m{i}" for i in range(SIZE)])
    return path


def test_a_good_pair(bigram: BigramPair) -> None:
    text = localspec("check", bigram.target, bigram.draft)
    assert "verdict  identical: every token id means the same in both" in text
    assert "ok       rows             as many tokens: 260" in text
    answer = json.loads(localspec("check", bigram.target, "--draft", bigram.draft, "--json"))
    assert answer["schema"] == 1 and answer["verdict"] == "identical" and answer["masked_ids"] == 0
    assert {"rule", "severity", "target", "draft", "detail"} == set(answer["reasons"][0])
    assert len(answer["rules"]) == 20 and answer["first_differences"] == [] and answer["would_work"] == []


def test_a_refused_pair_names_what_would_work(bigram: BigramPair, foreign: Path) -> None:
    text = localspec("check", bigram.target, foreign, code=3)
    assert "refused  token_texts" in text and "first ids that differ:" in text
    assert "'<|endoftext|>' (control)" in text and r"'\x1b[31m0'" in text and "\x1b" not in text
    smaller = foreign.parent / "smaller.gguf"
    write(smaller, english_table(), rows=SIZE)
    answer = json.loads(localspec("check", bigram.target, foreign, "--json", code=3))
    assert answer["verdict"] == "refused" and answer["first_differences"][0]["id"] == 0
    assert answer["would_work"] == []  # as large as the target: no draft for it


def test_a_swapped_pair_stops(tmp_path: Path, bigram: BigramPair) -> None:
    large = tmp_path / "large.gguf"
    write(large, english_table(), rows=SIZE + 100)
    answer = json.loads(localspec("check", bigram.target, large, "--json", code=3))
    assert answer["swapped"] and "swap them" in str(answer["reasons"])
    assert json.loads(localspec("check", bigram.target, large, "--json", "--force"))["verdict"] == "identical"
    good = json.loads(localspec("check", large, bigram.target, "--json"))
    assert good["verdict"] == "identical" and not good["swapped"]


def test_every_model_on_this_disk_has_a_reason(bigram: BigramPair, foreign: Path) -> None:
    (foreign.parent / "broken.gguf").write_bytes(b"GGUF")
    large, small = foreign.parent / "large.gguf", foreign.parent / "target.gguf"
    write(large, english_table(), rows=SIZE + 100)
    write(small, english_table())
    answer = json.loads(localspec("check", small, "--all", "--json"))
    verdicts = {Path(row["name"]).name: (row["verdict"], row["reason"]) for row in answer["drafts"]}
    assert verdicts.keys() == {"foreign.gguf", "large.gguf"}
    assert verdicts["large.gguf"] == ("swapped", "draft is larger than target; swap them")
    assert verdicts["foreign.gguf"][0] == "refused" and "differ in text" in verdicts["foreign.gguf"][1]
    assert "refused   " in localspec("check", small, "--all")


def test_bad_files_are_usage_errors(bigram: BigramPair, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"PK\x03\x04 a zip archive, really")
    assert "zip archive" in localspec("check", bigram.target, tmp_path / "x.gguf", code=2)
    assert "no file at" in localspec("check", tmp_path / "none.gguf", bigram.draft, code=2)


def fit(*arguments: object, code: int = 0) -> Any:
    return json.loads(localspec("fit", *arguments, "--json", code=code))


def test_fit_on_this_machine(bigram: BigramPair) -> None:
    answer = fit(bigram.target, "--draft", bigram.draft, "--ctx", 512, "-k", 4)
    assert answer["fits"] and answer["context"] == 512 and answer["draft_length"] == 4
    sums = {place["name"]: place["used"] for place in answer["places"]}
    assert sum(part["bytes"] for part in answer["parts"]) == sum(sums.values()) == answer["used"]
    caches = [part["bytes"] for part in answer["parts"] if part["what"] == "KV cache"]
    assert caches == [512 * 2 * 288 * 2] * 2
    text = localspec("fit", bigram.target, "--draft", bigram.draft)
    assert "RAM " in text and text.rstrip().endswith("fits")


def test_fit_on_an_imagined_machine(bigram: BigramPair) -> None:
    answer = fit(bigram.target, "--draft", bigram.draft, "--device", "2GB", "--device", "1GB", "--ram", "8GB")
    assert [place["name"] for place in answer["places"]] == ["RAM", "GPU0", "GPU1"]
    assert answer["placement"]["draft"]["gpu_layers"] == 2 == answer["placement"]["target"]["gpu_layers"]
    text = localspec("fit", bigram.target, "--draft", bigram.draft, "--device", "2GB", "--ram", "8GB")
    assert "layers   draft: 2 on GPU0 of 2 (output included)" in text


def test_what_fits_nowhere_exits_4(bigram: BigramPair) -> None:
    answer = fit(bigram.target, "--ram", "100MB", code=4)
    assert not answer["fits"] and answer["lacking"].startswith("RAM needs ")
    assert "does not fit: RAM needs" in localspec("fit", bigram.target, "--ram", "100MB", code=4)
    for wrong in (["--ram", "much"], ["--ctx", "3"], ["--cache-type", "q9"], ["-k", "65"]):
        localspec("fit", bigram.target, *wrong, code=2)


def test_a_header_without_weights_is_cut_short(tmp_path: Path, bigram: BigramPair) -> None:
    tokens, types = words(9, "x")
    path = tmp_path / "short.gguf"
    path.write_bytes(header(tokens, types, [("blk.0.x", (32, 32), 1)]))
    assert "cut short" in localspec("check", bigram.target, path, code=2)


def test_run_refuses_what_does_not_fit_before_loading(bigram: BigramPair) -> None:
    arguments = ["run", bigram.target, "The", "--draft", bigram.draft, "--ctx", 2_000_000_000, "-n", "2"]
    done = subprocess.run([*LOCALSPEC, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 4 and done.stdout == ""
    assert done.stderr.startswith("error: RAM needs ") and "localspec fit" in done.stderr


def test_run_refuses_a_foreign_draft(bigram: BigramPair, foreign: Path) -> None:
    arguments = ["run", bigram.target, "The", "--draft", foreign, "-n", "2"]
    done = subprocess.run([*LOCALSPEC, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 3 and "cannot draft for" in done.stderr
    assert "localspec check" in done.stderr and "\x1b" not in done.stderr
