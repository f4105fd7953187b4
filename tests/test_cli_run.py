"""`localspec run` and the command line around it, as real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from localspec.cli.main import COMMANDS
from localspec.reports.answer import STATS_FIELDS
from tests.bigram import BigramPair, english_table, vocabulary, write
from tests.engine_tools import ask, open_engine

LOCALSPEC = [sys.executable, "-m", "localspec"]
SMALL_RUN = ["--ctx", "512", "--threads", "1", "-n", "40"]


def localspec(
    *arguments: object, stdin: bytes | None = b"", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run the command to its end."""
    return subprocess.run(
        [*LOCALSPEC, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=60,
        env=os.environ | (env or {}),
    )


def run(pair: BigramPair, *arguments: object, **kwargs: object) -> subprocess.CompletedProcess[bytes]:
    return localspec("run", pair.target, "The ", "--draft", pair.draft, *SMALL_RUN, *arguments, **kwargs)  # type: ignore[arg-type]


def error_of(result: subprocess.CompletedProcess[bytes], code: int) -> str:
    """The one error line of a failed command."""
    text = result.stderr.decode()
    assert result.returncode == code, text
    assert "Traceback" not in text
    lines = [line for line in text.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, text
    return lines[0]


def test_a_pipe_gets_the_answer_and_nothing_else(bigram: BigramPair) -> None:
    result = run(bigram, "--seed", "3", "--drafter", "model")
    assert result.returncode == 0
    assert b"\x1b" not in result.stdout and len(result.stdout.decode().strip()) > 20
    assert b"tokens/s" in result.stderr and b"acceptance" in result.stderr
    quiet = run(bigram, "--seed", "3", "--drafter", "model", "--quiet")
    assert quiet.stdout == result.stdout and quiet.stderr == b""


def test_json_has_exactly_the_promised_fields(bigram: BigramPair) -> None:
    result = run(bigram, "--seed", "3", "--json", "--drafter", "model", "-k", "4")
    answer = json.loads(result.stdout)
    assert list(answer) == [
        "schema",
        "text",
        "finish_reason",
        "prompt_tokens",
        "tokens",
        "stats",
        "settings",
        "engine",
    ]
    stats = answer["stats"]
    assert tuple(stats) == STATS_FIELDS
    assert answer["schema"] == 1 and answer["finish_reason"] == "length"
    assert stats["emitted"] == len(answer["tokens"]) == 40
    assert stats["acceptance_rate"] == pytest.approx(stats["accepted"] / stats["verified"])
    assert stats["mean_acceptance_length"] == pytest.approx(stats["emitted"] / stats["target_passes"])
    assert stats["drafted"] == stats["verified"] + stats["discarded_unverified"]
    assert sum(stats["rounds_by_drafter"].values()) == stats["target_passes"]
    parts = sum(stats[f"{part}_seconds"] for part in ("draft", "verify", "sample", "rewind", "other"))
    assert parts == pytest.approx(stats["wall_seconds"] - stats["ttft_seconds"], rel=0.05)
    rate = (stats["emitted"] - 1) / (stats["wall_seconds"] - stats["ttft_seconds"])
    assert stats["tokens_per_second"] == pytest.approx(rate)
    assert answer["settings"]["sampler"]["seed"] == 3 and answer["settings"]["speculation"]["k"] == 4
    assert answer["engine"]["verdict"] == "identical"


def test_rates_that_are_undefined_are_null(bigram: BigramPair) -> None:
    stats = json.loads(run(bigram, "--json", "--no-draft").stdout)["stats"]
    assert stats["acceptance_rate"] is None
    assert stats["mean_acceptance_length"] == 1.0
    assert stats["state"] == "off" and stats["reason"]


def test_a_seed_gives_the_same_text_with_and_without_drafts(bigram: BigramPair) -> None:
    ways = (["--no-draft"], ["-k", "1"], ["-k", "8"], ["--drafter", "lookup", "-k", "4"])
    texts = {run(bigram, "--seed", "11", "--temp", "1", *way).stdout for way in ways}
    assert len(texts) == 1


def test_prompt_from_stdin(bigram: BigramPair) -> None:
    by_argument = localspec("run", bigram.target, "The ", "--temp", "0", *SMALL_RUN)
    for arguments in (["-"], []):
        by_stdin = localspec("run", bigram.target, *arguments, "--temp", "0", *SMALL_RUN, stdin=b"The ")
        assert by_stdin.stdout == by_argument.stdout


def test_marks_show_what_was_guessed_without_colour(bigram: BigramPair) -> None:
    show = ("--seed", "3", "-k", "3", "--drafter", "model", "--show-draft")
    marked = run(bigram, *show).stdout.decode()
    plain = run(bigram, "--seed", "3").stdout.decode()
    assert marked.replace("[", "").replace("]", "").replace("~", "").replace("+", "") == plain
    assert marked.count("[") == marked.count("]") > 2
    coloured = run(bigram, *show, env={"FORCE_COLOR": "1"}).stdout.decode()
    assert "\x1b[32m" in coloured


def test_stop_strings_system_prompt_and_raw(bigram: BigramPair) -> None:
    whole = json.loads(run(bigram, "--seed", "3", "--json").stdout)["text"]
    stop = whole[12:14]
    answer = json.loads(run(bigram, "--seed", "3", "--json", "--stop", stop).stdout)
    assert answer["text"] == whole[: whole.index(stop)]
    assert answer["finish_reason"] == "stop_string"
    raw = json.loads(run(bigram, "--raw", "--json").stdout)
    chat = json.loads(run(bigram, "--system", "Be brief.", "--json").stdout)
    assert raw["prompt_tokens"] == 4 < chat["prompt_tokens"]


def test_a_file_without_template_is_sent_the_prompt_as_it_is(tmp_path: Path) -> None:
    bare = tmp_path / "bare.gguf"
    write(bare, english_table(), template=None)
    result = localspec("run", bare, "The ", *SMALL_RUN, "--json")
    assert json.loads(result.stdout)["settings"]["raw"] is True
    assert b"no chat template" in result.stderr


def test_hostile_metadata_is_shown_not_obeyed(bigram: BigramPair, tmp_path: Path) -> None:
    name = tmp_path / "evil\x1b]52;c;aGk=\x07.gguf"
    name.write_bytes(b"no model")
    result = localspec("run", name, "hi")
    assert b"\x1b" not in result.stderr and b"\\x1b]52" in result.stderr


# --- bad input ---------------------------------------------------------------------------------------


def test_files_that_are_no_models(bigram: BigramPair, tmp_path: Path) -> None:
    cases = {
        "empty.gguf": b"",
        "text.gguf": b"hello there, this is a text\n" * 9,
        "cut.gguf": bigram.target.read_bytes()[:70_000],
    }
    messages = set()
    for name, content in cases.items():
        path = tmp_path / name
        path.write_bytes(content)
        for arguments in ((path, "hi"), (bigram.target, "hi", "--draft", path)):
            messages.add(error_of(localspec("run", *arguments), 2).replace(name, ""))
    for path in (tmp_path, tmp_path / "missing.gguf"):
        messages.add(error_of(localspec("run", path, "hi"), 2))
    assert len(messages) >= 5


@pytest.mark.parametrize(
    "arguments",
    [
        ["-k", "10000"],
        ["-k", "-1"],
        ["-k", "many"],
        ["-n", "-1"],
        ["--temp", "nan"],
        ["--temp", "-1"],
        ["--top-p", "inf"],
        ["--ctx", "3"],
        ["--threads", "0"],
        ["--cache-type", "q9"],
        ["--seed", "-4"],
        ["--drafter", "magic"],
        ["--logit-bias", "5"],
        ["--template-arg", "x"],
        ["--stop", ""],
        ["--repeat-penalty", "0"],
    ],
)
def test_values_that_cannot_work_are_usage_errors(bigram: BigramPair, arguments: list[str]) -> None:
    error_of(localspec("run", bigram.target, "hi", *arguments), 2)


def test_no_tokens_and_no_guesses_are_fine(bigram: BigramPair) -> None:
    nothing = localspec("run", bigram.target, "The ", "-n", "0", "--json")
    assert nothing.returncode == 0
    assert json.loads(nothing.stdout)["text"] == ""
    assert run(bigram, "-k", "0").returncode == 0


def test_a_prompt_longer_than_the_context_names_both_numbers(bigram: BigramPair) -> None:
    line = error_of(localspec("run", bigram.target, "x" * 900, "--ctx", "256", "--raw"), 2)
    assert "900 tokens" in line and "256" in line


def test_stdin_that_is_no_text(bigram: BigramPair) -> None:
    assert "0xff" in error_of(localspec("run", bigram.target, "-", stdin=b"abc\xff\xfe"), 2)
    assert "empty" in error_of(localspec("run", bigram.target, "-", stdin=b" \n"), 2)
    endless = localspec("run", bigram.target, "-", stdin=b"y\n" * (9 << 20))
    assert "stdin has more than 16 MiB. Pipe in a shorter prompt" in error_of(endless, 2)


def test_a_draft_of_another_vocabulary_is_refused(bigram: BigramPair, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    texts, _, _ = vocabulary()
    write(other, english_table(), texts=list(reversed(texts)))
    line = error_of(localspec("run", bigram.target, "hi", "--draft", other), 3)
    assert "other.gguf" in line and "bigram-target.gguf" in line


def test_model_drafter_without_a_model(bigram: BigramPair) -> None:
    assert "--draft" in error_of(localspec("run", bigram.target, "hi", "--drafter", "model"), 2)


def test_unknown_commands_and_names() -> None:
    assert "run" in error_of(localspec("rn"), 2)
    error_of(localspec("run", "no-such-model-anywhere", "hi"), 2)


def test_bare_command_without_a_terminal_prints_help() -> None:
    result = localspec()
    assert result.returncode == 2 and b"Usage" in result.stderr and result.stdout == b""


def test_every_command_has_help_and_its_line_in_the_list() -> None:
    listing = localspec("--help").stdout.decode()
    for name in COMMANDS:
        assert name in listing
        result = localspec(name, "--help")
        assert result.returncode == 0, (name, result.stderr)


# --- signals -----------------------------------------------------------------------------------------


def start(pair: BigramPair, *arguments: str) -> subprocess.Popen[bytes]:
    """A run that goes on for long, past its first output."""
    command = [
        *LOCALSPEC,
        "run",
        str(pair.target),
        "The ",
        "--ctx",
        "4000",
        "--threads",
        "1",
        "--temp",
        "1",
        *arguments,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read(30)
    return process


def engine_of(process: subprocess.Popen[bytes]) -> psutil.Process:
    (child,) = psutil.Process(process.pid).children()
    return child


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> BigramPair:
    """A pair that is slow enough to be interrupted: its vocabulary is padded to 3000 rows."""
    folder = tmp_path_factory.mktemp("endless")
    table = english_table()
    write(folder / "target.gguf", table, rows=3000)
    return BigramPair(folder / "target.gguf", folder / "target.gguf", table, table)


def test_interrupt_keeps_the_text_and_exits_130(endless: BigramPair) -> None:
    process = start(endless)
    child = engine_of(process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in err and b"tokens/s" in err
    assert not child.is_running()
    assert out.endswith(b"\n")


def test_terminate_exits_143_and_leaves_no_child(endless: BigramPair) -> None:
    process = start(endless)
    child = engine_of(process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert b"Traceback" not in err
    assert not child.is_running()


def test_a_killed_engine_exits_6_with_the_text_so_far(endless: BigramPair) -> None:
    process = start(endless)
    engine_of(process).send_signal(signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 6
    assert len(out) > 0
    lines = [line for line in err.decode().splitlines() if line.startswith("error:")]
    assert len(lines) == 1 and "SIGKILL" in lines[0] and "Traceback" not in err.decode()


def test_a_killed_engine_leaves_the_text_in_json(endless: BigramPair) -> None:
    command = [*LOCALSPEC, "run", str(endless.target), "The ", "--ctx", "4000", "--threads", "1", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not psutil.Process(process.pid).children() and time.monotonic() < deadline:
        time.sleep(0.02)
    child = engine_of(process)
    while child.cpu_times().user < 1.5 and time.monotonic() < deadline:
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 6
    assert json.loads(out)["finish_reason"] == "cancelled"


def test_a_reader_that_leaves_is_no_error(endless: BigramPair) -> None:
    process = start(endless, "-n", "3000")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()


def test_a_home_that_cannot_be_written_to_still_answers(bigram: BigramPair) -> None:
    result = run(bigram, "--seed", "3", env={"XDG_STATE_HOME": "/dev/null/state"})
    assert result.returncode == 0 and result.stdout == run(bigram, "--seed", "3").stdout
    line = error_of(localspec("import", bigram.target, env={"XDG_DATA_HOME": "/dev/null/data"}), 2)
    assert "/dev/null" in line


# --- nothing is accepted and ignored -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--raw", "--system", "x"], "--system cannot be used with --raw"),
        (["--raw", "--template-arg", "a=1"], "--template-arg cannot be used with --raw"),
        (["--no-draft", "-k", "4"], "-k cannot be used with --no-draft"),
        (["--drafter", "none", "-k", "4"], "-k cannot be used with --drafter none"),
        (["--no-draft", "--drafter", "model"], "--drafter cannot be used with --no-draft"),
        (["--json", "--show-draft"], "--show-draft cannot be used with --json"),
        (["--min-tokens", "9", "-n", "3"], "min tokens 9 is more than -n 3"),
        (["--logit-bias", "999=1"], "there is no token 999 to bias: ids are 0 to 259"),
        (["--logit-bias", "-1=1"], "there is no token -1 to bias"),
    ],
)
def test_options_that_contradict_are_refused(bigram: BigramPair, arguments: list[str], words: str) -> None:
    assert words in error_of(localspec("run", bigram.target, "hi", *SMALL_RUN[:4], *arguments), 2)


def test_what_the_environment_says_gives_way_to_the_command_line(bigram: BigramPair) -> None:
    plain = {"LOCALSPEC_DRAFT_LENGTH": "4", "LOCALSPEC_DRAFTER": "model"}
    assert run(bigram, "--no-draft", env=plain).returncode == 0
    assert run(bigram, "--raw", env={"LOCALSPEC_SYSTEM": "x"}).returncode == 0


def test_options_without_anything_to_act_on_are_said(bigram: BigramPair) -> None:
    alone = ("run", bigram.target, "The ", *SMALL_RUN)
    said = localspec(
        *alone, "--draft-temp", "0.5", "--repeat-last-n", "9", "--main-gpu", "1", "--gpu-layers", "0",
        "--template-arg", "thinking=false", "--template-arg", "messages_=1",
    )  # fmt: skip
    assert said.returncode == 0
    assert said.stderr.decode().splitlines()[:-1] == [
        "note: --draft-temp has no effect: there is no draft model",
        "note: --main-gpu has no effect: this build of llama.cpp uses no GPU. See: localspec doctor",
        "note: --template-arg thinking has no effect: the chat template does not use it",
        "note: --template-arg messages_ has no effect: the chat template does not use it",
        "note: --repeat-last-n has no effect: no penalty is set",
    ]
    wide = localspec(*alone, "--repeat-last-n", "99999999", "--repeat-penalty", "1.1")
    assert b"note: --repeat-last-n 99999999 is more than the context: all 512 are looked at\n" in wide.stderr
    assert localspec(*alone, "--main-gpu", "1", "--quiet").stderr == b""


def test_a_model_without_a_template_refuses_what_only_a_template_could_use(tmp_path: Path) -> None:
    write(tmp_path / "bare.gguf", english_table(), template=None)
    line = error_of(localspec("run", tmp_path / "bare.gguf", "hi", "--system", "Be brief."), 2)
    assert "--system cannot be used with a model without a chat template" in line


def test_an_architecture_that_this_build_does_not_know_is_named(bigram: BigramPair, tmp_path: Path) -> None:
    odd = tmp_path / "odd.gguf"
    odd.write_bytes(bigram.target.read_bytes().replace(b"llama", b"l\x1b9ma"))
    line = error_of(localspec("run", odd, "hi"), 2)
    assert "odd.gguf has the architecture 'l\\x1b9ma', which this build of llama.cpp does not know" in line
    assert "pip install -U llama-cpp-python" in line
    assert "odd.gguf has the architecture" in error_of(localspec("run", bigram.target, "hi", "--draft", odd), 2)


def test_the_command_drafts_as_much_as_the_engine(bigram: BigramPair) -> None:
    """The same options, the same guesses, whatever the front end."""
    prompt, order = "the big model " * 20, ("--raw", "--drafter", "model", "-k", "3", "--temp", "0", "-n", "120")
    command = localspec(
        "run", bigram.target, prompt, "--draft", bigram.draft, "--ctx", "1000", "--threads", "1", "--json", *order
    )
    stats = json.loads(command.stdout)["stats"]
    engine = open_engine(bigram.target, bigram.draft, context=1000)
    try:
        here = ask(engine, prompt, drafter="model", length=3, max_tokens=120).finished.stats
    finally:
        engine.close()
    assert stats["drafted"] == here.drafted and stats["accepted"] == here.accepted
    assert stats["drafted"] / (stats["target_passes"] - 1) >= 2.7
