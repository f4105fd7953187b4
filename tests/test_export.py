"""Exports: every format for every way to guess, spellings of llama.cpp's flags, a real llama-server."""

from __future__ import annotations

import http.client
import json
import math
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.cli import export as cli_export
from localspec.engine.settings import SamplerSettings
from localspec.export import llama_flags
from localspec.export.formats import FORMATS, make
from localspec.export.originals import original_of
from localspec.export.records import PairSettings
from localspec.ground.errors import InvalidInput
from tests.bigram import BigramPair
from tests.serve_tools import WAIT, until

SERVER = os.environ.get("LOCALSPEC_TEST_LLAMA_SERVER", "")
PAIR = PairSettings(
    name="qwen2.5-7b", target=Path("/models/it's a 7b-Q4_K_M.gguf"), draft=Path("/models/0.5b-q4_0.gguf"),
    target_repo="Qwen/Qwen2.5-7B-Instruct", draft_repo="Qwen/Qwen2.5-0.5B-Instruct", drafter="auto",
    draft_length=None, sampler=SamplerSettings(), context=8192,
)  # fmt: skip


def words(text: str) -> list[str]:
    """The command in an exported script, taken apart as a shell does."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return shlex.split("\n".join(lines).replace("\\\n", " "))


def after(text: str, flag: str) -> str:
    found = words(text)
    return found[found.index(flag) + 1]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("drafter", ["auto", "model", "lookup", "none"])
def test_every_format_is_complete_for_every_way_to_guess(name: str, drafter: str) -> None:
    found = make(name, replace(PAIR, drafter=drafter))
    assert found.text.endswith("\n") and found.notes and found.checked and found.file_name
    for note in found.notes:
        assert f"# {note}" in found.text, "notes travel with the text"
    assert ("0.5" in found.text) == (drafter in ("auto", "model")), "the draft is named when it guesses"
    if found.file_name.endswith(".sh"):
        assert subprocess.run(["sh", "-n"], input=found.text, text=True, check=False).returncode == 0


def test_llama_server_says_what_is_run_here() -> None:
    sampler = SamplerSettings(0.0, 10, 0.8, 0.1, 1.1, 0.5, 0.25, 32, ((7, -math.inf), (8, 1.5)), seed=2**40 + 3)
    pair = replace(
        PAIR, sampler=sampler, draft_length=6, threads=4, gpu_layers=0, draft_gpu_layers=12, cache_type="q8_0",
        flash_attention="on", split_mode="row", main_gpu=1, max_tokens=50,
    )  # fmt: skip
    text = make("llama-server", pair).text
    command = words(text)
    assert command[:3] == ["llama-server", "--model", str(PAIR.target)]
    assert after(text, "--spec-type") == "draft-simple"
    assert after(text, "--spec-draft-model") == str(PAIR.draft)
    expected = {
        "--spec-draft-n-max": "6", "--spec-draft-ngl": "12", "--spec-draft-type-k": "q8_0", "--ctx-size": "8192",
        "--threads": "4", "--gpu-layers": "0", "--cache-type-v": "q8_0", "--flash-attn": "on", "--split-mode": "row",
        "--main-gpu": "1", "--temp": "0", "--top-k": "10", "--top-p": "0.8", "--min-p": "0.1", "--seed": "3",
        "--repeat-penalty": "1.1", "--repeat-last-n": "32", "--presence-penalty": "0.5",
        "--frequency-penalty": "0.25", "--predict": "50", "--alias": "qwen2.5-7b", "--parallel": "1",
    }  # fmt: skip
    assert {flag: after(text, flag) for flag in expected} == expected
    biases = [command[i + 1] for i, word in enumerate(command) if word == "--logit-bias"]
    assert biases == ["7-10000", "8+1.5"]
    lookup = make("llama-server", replace(PAIR, drafter="lookup", draft_length=5)).text
    assert after(lookup, "--spec-type") == "ngram-simple" and "--spec-draft-model" not in lookup
    assert "--spec-type" not in words(make("llama-server", replace(PAIR, draft_length=0)).text)


def test_engines_of_safetensors_get_the_original_repositories() -> None:
    text = make("vllm", replace(PAIR, draft_length=5)).text
    assert words(text)[:3] == ["vllm", "serve", "Qwen/Qwen2.5-7B-Instruct"]
    assert json.loads(after(text, "--speculative-config")) == {
        "method": "draft_model",
        "model": "Qwen/Qwen2.5-0.5B-Instruct",
        "num_speculative_tokens": 5,
    }
    assert json.loads(after(text, "--override-generation-config"))["top_k"] == 40
    sglang = make("sglang", replace(PAIR, draft_length=5)).text
    assert after(sglang, "--speculative-num-draft-tokens") == "6" and after(sglang, "--speculative-num-steps") == "5"
    yaml = [line for line in make("tensorrt-llm", PAIR).text.splitlines() if not line.startswith("#")]
    assert yaml == [
        "speculative_config:", '  decoding_type: "Draft_Target"', "  max_draft_len: 4",
        '  speculative_model: "Qwen/Qwen2.5-0.5B-Instruct"',
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["vllm", "sglang", "tensorrt-llm"])
def test_an_unknown_original_is_asked_for(name: str) -> None:
    with pytest.raises(InvalidInput, match="--target-repo"):
        make(name, replace(PAIR, target_repo=""))
    with pytest.raises(InvalidInput, match="--draft-repo"):
        make(name, replace(PAIR, draft_repo=""))
    make(name, replace(PAIR, draft_repo="", drafter="lookup"))


def test_lm_studio_and_ollama_take_the_files() -> None:
    lmstudio = make("lmstudio", PAIR).text
    assert "localspec/it's a 7b" in words(lmstudio)
    request = json.loads(words(lmstudio)[-1])
    assert request["draft_model"] == "0.5b" and request["model"] == "it's a 7b"
    ollama = make("ollama", replace(PAIR, draft_length=6)).text.splitlines()
    assert 'FROM "/models/it\'s a 7b-Q4_K_M.gguf"' in ollama
    assert "DRAFT /models/0.5b-q4_0.gguf" in ollama and "PARAMETER draft_num_predict 6" in ollama
    assert "PARAMETER temperature 0.8" in ollama and "PARAMETER num_ctx 8192" in ollama


@pytest.mark.parametrize(
    ("repo", "original"),
    [
        ("Qwen/Qwen2.5-7B-Instruct-GGUF", "Qwen/Qwen2.5-7B-Instruct"), ("unsloth/Qwen3-8B-GGUF", "unsloth/Qwen3-8B"),
        ("bartowski/Llama-3.2-1B-Instruct-GGUF", ""), ("someone/model", ""), ("", ""),
        ("ggml-org/gemma-3-4b-it-GGUF", ""),
    ],
)  # fmt: skip
def test_originals_are_told_from_names_only_where_they_can(repo: str, original: str) -> None:
    assert original_of(repo) == original


NEW_HELP = """
-c,    --ctx-size N                     size of the prompt context
--spec-draft-n-max N                    number of tokens to draft
--spec-draft-model, -md, --model-draft FNAME
--spec-type none,draft-simple,ngram-simple
--draft, --draft-n, --draft-max N       the argument has been removed. use --spec-draft-n-max or
"""
OLD_HELP = """
-c,    --ctx-size N                     size of the prompt context
--draft-max, --draft, --draft-n N       number of tokens to draft for speculative decoding (default: 16)
-md,   --model-draft FNAME              draft model for speculative decoding (default: unused)
"""
NONE_HELP = "-c,    --ctx-size N                     size of the prompt context\n"


def test_the_engines_own_help_decides_the_spelling() -> None:
    assert llama_flags.spelling_of(NEW_HELP, "llama-server") is llama_flags.TODAY
    assert llama_flags.spelling_of(OLD_HELP, "llama-server") is llama_flags.OLDER
    for text, words in ((NONE_HELP, "lacks draft models"), ("\x1b[31mgarbage", "does not look")):
        with pytest.raises(InvalidInput, match=words):
            llama_flags.spelling_of(text, "llama-server")


@pytest.mark.parametrize(("help_text", "flag"), [(NEW_HELP, "--spec-draft-n-max"), (OLD_HELP, "--draft-max")])
def test_a_fake_engine_is_asked(tmp_path: Path, help_text: str, flag: str) -> None:
    program = tmp_path / "llama-server"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{help_text}\nEND\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    found = make("llama-server", PAIR, str(program))
    assert after(found.text, flag) == "4"
    assert ("--spec-type" in words(found.text)) == (help_text is NEW_HELP)
    if help_text is OLD_HELP:
        with pytest.raises(InvalidInput, match="cannot guess from the text"):
            make("llama-server", replace(PAIR, drafter="lookup"), str(program))
    with pytest.raises(InvalidInput, match="cannot run"):
        make("llama-server", PAIR, str(tmp_path / "absent"))


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "localspec", "export", *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )


def test_the_command_prints_the_text_and_nothing_else_on_stdout(bigram: BigramPair, tmp_path: Path) -> None:
    base = [str(bigram.target), "--draft", str(bigram.draft), "--to", "llama-server"]
    done = command(*base, "-k", "3", "--ctx", "256")
    assert done.returncode == 0 and done.stderr == "note: llama-server: executed against a real llama-server\n"
    assert after(done.stdout, "--spec-draft-n-max") == "3" and after(done.stdout, "--ctx-size") == "256"
    assert after(done.stdout, "--model") == str(bigram.target)
    facts = json.loads(command(*base, "--json").stdout)
    assert facts["schema"] == 1 and facts["file_name"] == "llama-server.sh" and facts["notes"]
    out = tmp_path / "run.sh"
    assert command(*base, "--out", str(out), "-q").stdout == "" and out.read_text().startswith("# ")
    assert command(*base, "--out", str(tmp_path / "no" / "run.sh")).returncode == 2
    assert command(str(bigram.target), "--to", "vllm").returncode == 2
    assert command(str(bigram.target), "--to", "word").returncode == 2


def test_the_command_lists_every_format() -> None:
    assert cli_export.FORMATS == FORMATS


@pytest.mark.skipif(not SERVER, reason="LOCALSPEC_TEST_LLAMA_SERVER does not point at a llama-server")
def test_a_real_llama_server_runs_the_export(bigram: BigramPair, tmp_path: Path) -> None:
    """Loaded, answering, and really drafting."""
    help_text = subprocess.run([SERVER, "--help"], capture_output=True, text=True, check=False, timeout=WAIT)
    known = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", help_text.stdout + help_text.stderr))
    pair = replace(
        PAIR, name="bigram", target=bigram.target, draft=bigram.draft, context=512, draft_length=3, threads=1
    )
    text = make("llama-server", pair, SERVER).text.replace("8080", "0")
    assert {word for word in words(text) if word.startswith("--")} <= known
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "llama-server").symlink_to(shutil.which(SERVER) or SERVER)
    script = tmp_path / "run.sh"
    script.write_text(text.replace("--port 0", "--port 18713"))
    environment = os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen(["sh", "-c", f"exec sh {script}"], env=environment, stdout=log, stderr=log)
    try:
        until(lambda: _status(18713) == 200)
        connection = http.client.HTTPConnection("127.0.0.1", 18713, timeout=WAIT)
        body = json.dumps({"prompt": "the ", "max_tokens": 60, "temperature": 0})
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        assert answer["usage"]["completion_tokens"] == 60
        assert answer["timings"]["draft_n"] > 0, "the draft is used"
    finally:
        subprocess.run(["pkill", "-P", str(process.pid)], check=False)
        process.terminate()
        process.wait(WAIT)


def _status(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()
