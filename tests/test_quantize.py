
"""Quantizing: real small models through libllama, and nothing half-done under the final name, whatever happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.ground.errors import DownloadFailed, EngineError, InvalidInput
from localspec.ground.machine import is_alive
from localspec.pairs import quantize
from localspec.pairs.gguf.header import read_header
from localspec.pairs.names.resolve import find_pair
from localspec.session import quantizing
from tests.bigram import BigramPair
from tests.engine_tools import ask, open_engine
from tests.header_writer import F16, header, vocabulary, write

LOCALSPEC = [sys.executable, "-m", "localspec"]


def no_progress(fraction: float) -> None:
    pass


@pytest.mark.parametrize("to", quantize.TYPES)
def test_each_type_is_made_and_loads(bigram: BigramPair, tmp_path: Path, to: str) -> None:
    out = tmp_path / "out" / f"small-{to}.gguf"
    plan = quantizing.prepare(str(bigram.draft), to, out)
    seen: list[float] = []
    name = quantizing.run(plan, seen.append, threads=1)
    info = read_header(out)
    assert name == f"small-{to}" and info.file_type == to.removesuffix("-pure").upper()
    assert out.stat().st_size < bigram.draft.stat().st_size
    assert abs(out.stat().st_size - plan.bytes) < 100_000
    assert seen == sorted(seen) and seen[-1] == 1.0
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_the_result_drafts_under_its_name(bigram: BigramPair) -> None:
    plan = quantizing.prepare(str(bigram.draft), "q8_0")
    name = quantizing.run(plan, no_progress, threads=1)
    assert name == "bigram-draft-q8_0"
    files = find_pair(str(bigram.target), name)
    assert files.draft == plan.out
    engine = open_engine(bigram.target, files.draft, context=512)
    try:
        plain = ask(engine, "The ", drafter="none", max_tokens=40)
        guessed = ask(engine, "The ", drafter="model", length=3, max_tokens=40)
        assert guessed.ids == plain.ids and guessed.finished.stats.accepted > 0
    finally:
        engine.close()


def test_losing_precision_twice_is_a_warning(bigram: BigramPair, tmp_path: Path) -> None:
    first = quantizing.prepare(str(bigram.draft), "q8_0", tmp_path / "a-q8_0.gguf")
    assert first.warning == ""
    quantizing.run(first, no_progress, threads=1)
    again = quantizing.prepare(str(first.out), "q4_0", tmp_path / "a-q4_0.gguf")
    assert "already quantized (Q8_0): q4_0 loses precision for the second time" in again.warning


def test_what_makes_no_sense_is_refused_before_the_work(bigram: BigramPair, tmp_path: Path) -> None:
    source = tmp_path / "a.gguf"
    source.write_bytes(bigram.draft.read_bytes())
    info = read_header(source)
    with pytest.raises(InvalidInput, match="no type named 'q9'"):
        quantizing.prepare(str(source), "q9")
    with pytest.raises(InvalidInput, match="the source itself"):
        quantize.check(source, info, "q8_0", source, 1, 1 << 40, force=True)
    (tmp_path / "b.gguf").touch()
    with pytest.raises(InvalidInput, match=r"b\.gguf exists"):
        quantize.check(source, info, "q8_0", tmp_path / "b.gguf", 1, 1 << 40)
    assert quantize.check(source, info, "q8_0", tmp_path / "b.gguf", 1, 1 << 40, force=True).out.name == "b.gguf"
    with pytest.raises(DownloadFailed, match=r"0\.3 GB free, 5\.0 GB are needed"):
        quantize.check(source, info, "q8_0", tmp_path / "c.gguf", 5 * 10**9, 3 * 10**8)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, EngineError("libllama said no"), OSError(28, "disk full")])
def test_an_interruption_leaves_nothing(bigram: BigramPair, tmp_path: Path, stop: BaseException) -> None:
    plan = quantizing.prepare(str(bigram.draft), "q8_0", tmp_path / "out.gguf")

    def interrupted(part: Path) -> None:
        part.write_bytes(b"GGUF half")
        raise stop

    before = set(tmp_path.iterdir())
    with pytest.raises(type(stop) if isinstance(stop, BaseException) else stop):
        quantize.run(plan, interrupted)
    assert set(tmp_path.iterdir()) == before


def test_a_cut_short_result_does_not_get_the_name(bigram: BigramPair, tmp_path: Path) -> None:
    plan = quantizing.prepare(str(bigram.draft), "q8_0", tmp_path / "out.gguf")
    with pytest.raises(InvalidInput, match="cut short"):
        quantize.run(plan, lambda part: part.write_bytes(bigram.draft.read_bytes()[:-5000]) and None)
    assert not plan.out.exists()


def test_what_a_killed_process_left_is_found(bigram: BigramPair, tmp_path: Path) -> None:
    plan = replace(quantizing.prepare(str(bigram.draft), "q8_0", tmp_path / "out.gguf"))
    dead, alive = tmp_path / ".out.gguf.999999999.part", tmp_path / f".out.gguf.{os.getpid()}.part"
    for path in (dead, alive, tmp_path / ".out.gguf.x.part", tmp_path / ".other.gguf.1.part"):
        path.touch()
    assert quantize.leftovers(plan.out, is_alive) == [dead]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that takes a while: 700 MB of zeros, which take no room."""
    tokens, types = vocabulary(999, "<|im_end|>")
    width, inner, layers = 1024, 4096, 20
    tensors = [(f"{name}.weight", (width, 1000), F16) for name in ("token_embd", "output")]
    for n in range(layers):
        tensors += [(f"blk.{n}.{part}_norm.weight", (width,), 0) for part in ("attn", "ffn")]
        tensors += [(f"blk.{n}.attn_{part}.weight", (width, width), F16) for part in ("q", "k", "v", "output")]
        tensors += [(f"blk.{n}.ffn_{part}.weight", (width, inner), F16) for part in ("gate", "up")]
        tensors.append((f"blk.{n}.ffn_down.weight", (inner, width), F16))
    tensors.append(("output_norm.weight", (width,), 0))
    data = header(
        tokens, types, tensors, "llama", bos_token_id=0, eos_token_id=999, general__file_type=1,
        arch__context_length=512, arch__block_count=layers, arch__embedding_length=width,
        arch__feed_forward_length=inner, arch__attention__head_count=16, arch__attention__head_count_kv=16,
        arch__attention__layer_norm_rms_epsilon=1e-6, arch__rope__dimension_count=64,
    )  # fmt: skip
    return write(tmp_path_factory.mktemp("large") / "large-f16.gguf", data)


@pytest.mark.parametrize(("how", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_kill_in_the_middle_leaves_no_half_file(large: Path, tmp_path: Path, how: int, code: int) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    process = subprocess.Popen(
        [*LOCALSPEC, "quantize", str(large), "--to", "q4_k_m", "--out", str(folder / "q.gguf"), "--threads", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: any(path.stat().st_size > 100_000 for path in folder.iterdir()), "it to write")
    assert not (folder / "q.gguf").exists()
    process.send_signal(how)
    assert process.wait(60) == code
    wait_until(lambda: not list(folder.iterdir()), "the half file to go")


def wait_until(condition: object, what: str, seconds: float = 60.0) -> None:
    """Wait for something another process does."""
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.01)


def test_the_command(bigram: BigramPair, tmp_path: Path) -> None:
    out = tmp_path / "x.gguf"
    arguments = ["quantize", str(bigram.draft), "--to", "Q4_0", "--out", str(out)]
    done = subprocess.run([*LOCALSPEC, *arguments, "--json"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["name"], answer["type"], answer["bytes"]) == ("x", "q4_0", out.stat().st_size)
    again = subprocess.run([*LOCALSPEC, *arguments], capture_output=True, text=True, timeout=60)
    assert again.returncode == 2 and "exists" in again.stderr and again.stdout == ""
    plain = subprocess.run([*LOCALSPEC, *arguments, "--force"], capture_output=True, text=True, timeout=60)
    assert plain.returncode == 0 and plain.stdout == f"{out}\n"
    assert "Use it: --draft x" in plain.stderr
