"""`bench`, `audit` and `tune` as they are typed, on real libllama with tiny files."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

from localspec.bench import storage
from localspec.cli.main import main
from localspec.ground.locations import state_folder
from localspec.session import verdicts
from tests.bigram import BigramPair

PROMPTS = """
[[prompt]]
id = "a1"
kind = "code"
text = "the small model"
max_tokens = 24
[[prompt]]
id = "a2"
kind = "code"
text = "a list of names"
max_tokens = 24
[[prompt]]
id = "b1"
kind = "chat"
text = "what it would have said"
max_tokens = 24
[[prompt]]
id = "b2"
kind = "chat"
text = "so the text is <b>the</b> big model's"
max_tokens = 24
"""


SERVER_ARM = {"name": "llama-server", "drafter": "none", "length": None, "draft": "", "peer": "llama-server"}


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.toml"
    path.write_text(PROMPTS)
    return path


class Balanced(HTMLParser):
    """Counts open and closed elements and what the page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Nothing stays open."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_run_writes_every_format_and_goes_on_after_a_cut(
    bigram: BigramPair, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = {name: tmp_path / f"run.{name}" for name in ("json", "html", "md", "csv")}
    pair = [str(bigram.target), "--draft", str(bigram.draft), "--ctx", "512", "--threads", "1"]
    files = [word for name, path in out.items() for word in (f"--{name}", str(path))]
    wishes = ["--prompts", str(prompts), "--temps", "0", "--sweep", "1,3", "--drafters", "lookup", "--budget", "3h"]
    assert main(["bench", *pair, *wishes, *files]) == 0
    shown = capsys.readouterr()
    assert "kind of text" in shown.out and "no verdict" in shown.out and "cut off" in shown.out
    assert "3 starts: code, chat; arms: plain, auto, lookup, k1, k3, k3 raw" in shown.err

    run = storage.load(out["json"])
    assert run.finished and len(run.samples) == len(run.plan.cells) == 3 * (4 * 3 + 4 * 4)
    assert all(not sample.measured.error for sample in run.samples)
    assert {sample.measured.text_hash for sample in run.samples if sample.cell.prompt == "a1"}.__len__() == 1
    stored = json.loads(out["json"].read_text())
    verdict_words = {row["verdict"] for row in stored["report"]["rows"] if row["arm"] == "auto"}
    assert verdict_words == {"no measurable gain"}
    assert set(stored["report"]["acceptance_by_format"]) == {"chat", "raw"}
    assert "behind the chat template" in shown.out
    assert stored["environment"]["target"]["file"] == bigram.target.name

    page = Balanced()
    page.feed(out["html"].read_text())
    assert page.open == [] and page.fetched == []
    assert out["html"].read_text().count("<svg") >= 4
    assert out["md"].read_text().startswith(f"# {bigram.target.name}")
    assert len(list(csv.DictReader(out["csv"].open()))) == len(run.samples)

    known = verdicts.read(bigram.target, bigram.draft)
    assert known is not None and known.bench["recommended"] == "off" and known.speedup is not None

    cut = stored | {"samples": stored["samples"][:10], "finished": False}
    out["json"].write_text(json.dumps(cut))
    assert main(["bench", *pair, "--resume", "--json", str(out["json"]), "--quiet"]) == 0
    again = storage.load(out["json"])
    assert again.finished and sorted(s.cell.index for s in again.samples) == list(range(len(run.plan.cells)))
    capsys.readouterr()

    assert main(["bench", "compare", str(out["json"]), str(out["json"])]) == 0
    assert "0 regressions" in capsys.readouterr().out

    out["json"].write_text(json.dumps(cut | {"plan": cut["plan"] | {"arms": cut["plan"]["arms"] + [SERVER_ARM]}}))
    assert main(["bench", *pair, "--resume", "--json", str(out["json"])]) == 2
    assert "measured llama-server too" in capsys.readouterr().err
    assert main(["bench", *pair[:-1], "2", "--resume", "--json", str(out["json"])]) == 2
    assert "was measured with another --threads: 1" in capsys.readouterr().err

    cut["environment"]["draft"]["fingerprint"] = "other"
    out["json"].write_text(json.dumps(cut))
    assert main(["bench", *pair, "--resume", "--json", str(out["json"])]) == 2
    assert "the draft is not the one that" in capsys.readouterr().err


def test_ctrl_c_prints_what_is_known_and_can_be_resumed(bigram: BigramPair, prompts: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    pair = [str(bigram.target), "--draft", str(bigram.draft), "--ctx", "512", "--threads", "1"]
    words = ["bench", *pair, "--prompts", str(prompts), "--cooldown", "0.2", "--budget", "3h", "--json", str(path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "localspec", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 60
        while not path.exists() or not {"plain", "auto"} <= {sample.cell.arm for sample in storage.load(path).samples}:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "kind of text" in out, out
    assert "not finished" in out and "--resume --json" in err and "interrupted" in err, err
    run = storage.load(path)
    assert not run.finished and len(run.samples) >= 2
    assert verdicts.read(bigram.target, bigram.draft) is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no pair given"),
        (["a", "b"], "one pair, please"),
        (["x.gguf", "--sweep", "0"], "below 1"),
        (["x.gguf", "--temps", "-1"], "below 0"),
        (["x.gguf", "--temps", "nan"], "not finite"),
        (["x.gguf", "--budget", "soon"], "no time"),
        (["x.gguf", "--drafters", "tree"], "no drafter named"),
        (["x.gguf", "--depths", "4096", "--ctx", "2048"], "needs 5632 tokens of context"),
        (["x.gguf", "--against", "vllm=/bin/true"], "not NAME=PATH"),
        (["x.gguf", "--json", "/nowhere/at/all.json"], "no folder"),
        (["compare", "one.json"], "two files"),
        (["compare", "one.json", "two.json"], "no bench result"),
    ],
)
def test_wrong_orders_are_refused_before_anything_is_loaded(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *words]) == 2
    shown = capsys.readouterr()
    assert said in shown.err and not shown.out


def test_audit_prints_one_object_and_is_stored(bigram: BigramPair, capsys: pytest.CaptureFixture[str]) -> None:
    pair = [str(bigram.target), "--draft", str(bigram.draft), "--ctx", "512", "--threads", "1"]
    assert main(["audit", *pair, "--quick", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["passed"], found["bugs"], found["quick"]) == (1, True, 0, True)
    assert {check["name"] for check in found["checks"]} >= {"greedy", "coupled", "distribution", "rewind"}
    known = verdicts.read(bigram.target, bigram.draft, found["device"])
    assert known is not None and known.audit["passed"]
    assert main(["audit", *pair, "--only", "rewind,law"]) == 2
    assert "no check named 'law'" in capsys.readouterr().err
    assert main(["audit", *pair, "--quick"]) == 0
    assert "The output is the target's own here" in capsys.readouterr().out


def test_tune_stores_a_profile(bigram: BigramPair, capsys: pytest.CaptureFixture[str]) -> None:
    pair = [str(bigram.target), "--draft", str(bigram.draft), "--ctx", "512", "--threads", "1"]
    assert main(["tune", *pair, "--budget", "10m", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    known = verdicts.read(bigram.target, bigram.draft, found["device"])
    assert known is not None and known.profile["verify_seconds"] == found["verify_seconds"]
    assert {"1", "3"} <= set(found["verify_seconds"]) and found["draft_step_seconds"] > 0
    assert len(list((state_folder() / "profiles").glob("*.json"))) == 1
