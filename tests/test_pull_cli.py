"""The commands around pull, as real processes against a loopback hub."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localspec.cli.transfer_view import TransferView
from localspec.pairs.hub.download import Item, Transfer
from localspec.reports.transfer import Speed, clock, size
from tests.fakehub import FakeHub
from tests.gguf_samples import model_bytes
from tests.hub_fixtures import DRAFT, DRAFT_FILE, TARGET, TARGET_FILE, TARGET_REPO, stocked_hub

__all__ = ["stocked_hub"]

PULL = ("pull", "qwen2.5-coder-1.5b", "--draft", "0.5b-q4")
SIZE = len(TARGET) + len(DRAFT)


class Machine:
    """A person's machine: localspec in processes of its own, below one folder."""

    def __init__(self, hub: FakeHub, home: Path) -> None:
        self.home = home
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("HF_", "XDG_", "LOCALSPEC_"))
        }
        self.env = kept | hub.env(home)

    def start(self, *words: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "localspec", *words],
            env=self.env | env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, **env: str) -> tuple[int, str, str]:
        process = self.start(*words, **env)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def json(self, *words: str) -> Any:
        code, out, err = self.run(*words, "--json")
        assert code == 0, err
        return json.loads(out)

    def files(self, pattern: str) -> list[Path]:
        return sorted((self.home / "hf" / "hub").glob(pattern))


@pytest.fixture
def machine(hub: FakeHub, tmp_path: Path) -> Machine:
    return Machine(hub, tmp_path)


def test_from_pull_to_rm(hub: FakeHub, machine: Machine) -> None:
    code, out, err = machine.run(*PULL, "--dry-run")
    assert code == 0 and TARGET_FILE in out and DRAFT_FILE in out and "identical" in out
    assert machine.json("list") == {"schema": 1, "pairs": []}
    code, out, err = machine.run(*PULL)
    assert code == 0
    assert out.startswith(
        'pulled qwen2.5-coder-1.5b: 7.6 MB, identical. Run it: localspec run qwen2.5-coder-1.5b "'
    )
    assert "total" in err and "\x1b" not in err
    (pair,) = machine.json("list")["pairs"]
    assert (pair["name"], pair["state"], pair["verdict"], pair["bytes"]) == (
        "qwen2.5-coder-1.5b", "complete", "identical", SIZE,
    )  # fmt: skip
    assert (pair["target"]["repo"], pair["target"]["revision"]) == (TARGET_REPO, hub.repos[TARGET_REPO].sha)
    assert Path(pair["draft"]["files"][0]).read_bytes() == DRAFT
    assert "qwen2.5-coder-1.5b  0.5b-q4  complete  7.6 MB  identical" in machine.run("list")[1]
    code, out, _ = machine.run("show", "qwen2.5-coder-1.5b")
    assert code == 0 and TARGET_REPO in out and "Q8_0" in out
    assert machine.run("verify", "qwen2.5-coder-1.5b")[0] == 0
    assert machine.run("rm", "qwen2.5-coder-1.5b")[0] == 2  # nobody is there to confirm
    code, out, _ = machine.run("rm", "qwen2.5-coder-1.5b", "--yes")
    assert (code, out) == (0, "removed qwen2.5-coder-1.5b+0.5b-q4, 7.6 MB free\n")
    assert machine.json("list")["pairs"] == [] and not machine.files("models--*/blobs/*")


def test_damage_is_found_and_mended(hub: FakeHub, machine: Machine) -> None:
    assert machine.run(*PULL)[0] == 0
    (blob,) = [path for path in machine.files("models--*/blobs/*") if path.stat().st_size == len(TARGET)]
    data = bytearray(TARGET)
    data[len(data) // 2] ^= 0x10
    blob.write_bytes(data)
    code, out, err = machine.run("verify", "qwen2.5-coder-1.5b")
    assert code == 7 and out.startswith("damaged") and "verify qwen2.5-coder-1.5b --repair" in err
    hub.log.clear()
    assert machine.run("verify", "qwen2.5-coder-1.5b", "--repair")[0] == 0
    assert hub.sent() == len(TARGET) and blob.read_bytes() == TARGET


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_killed_three_times(hub: FakeHub, machine: Machine) -> None:
    hub.rate = 2_500_000
    for share in (0.15, 0.4, 0.7):
        process = machine.start(*PULL)
        wait_until(lambda share=share: hub.sent() >= share * SIZE)  # type: ignore[misc]
        process.kill()
        process.communicate()
        assert not [path for path in machine.files("models--*/snapshots/*/*1.5b*")]
    hub.rate = 0
    assert machine.run(*PULL)[0] == 0
    whole = {path.name: path.read_bytes() for path in machine.files("models--*/snapshots/*/*.gguf")}
    assert whole == {TARGET_FILE: TARGET, DRAFT_FILE: DRAFT}
    # What was in flight at each kill is lost: up to a socket's buffers, which weigh more here than at 1.6 GB.
    assert hub.sent() <= SIZE * 1.05 + 3 * (1 << 20)


def test_two_pulls_at_once(hub: FakeHub, machine: Machine) -> None:
    hub.rate = 8_000_000
    both = [machine.start(*PULL), machine.start(*PULL)]
    ends = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    assert hub.sent() == SIZE
    assert len(machine.json("list")["pairs"]) == 1


def test_ctrl_c_says_how_to_go_on(hub: FakeHub, machine: Machine) -> None:
    hub.fault("GET", "/cdn/.*1\\.5b", rate=500_000, skip=1)
    process = machine.start(*PULL)
    wait_until(lambda: any(seen.range == "bytes=2097152-" for seen in hub.log))
    wait_until(lambda: bool(machine.files("models--*0.5B*/snapshots/*/*.gguf")))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and out == ""
    assert err.endswith("error: interrupted. Run the same command again: it goes on where it stopped\n")
    (pair,) = machine.json("list")["pairs"]
    assert pair["state"] == "incomplete 1/2"


def test_offline(hub: FakeHub, machine: Machine) -> None:
    assert machine.run(*PULL)[0] == 0
    hub.__exit__()
    for words, env in (((*PULL, "--offline"), {}), (PULL, {"HF_HUB_OFFLINE": "1"}), (PULL, {})):
        code, out, err = machine.run(*words, **env)
        assert (code, out.split(". ")[0]) == (0, "qwen2.5-coder-1.5b is complete (not checked online)"), err
    code, _, err = machine.run("pull", "qwen2.5-coder-7b")
    assert code == 5 and "no connection" in err
    for server in hub._servers.values():
        server.shutdown = server.server_close = lambda: None  # type: ignore[method-assign]


EXITS = {
    "unknown target": (("pull", "qwen2.5-99b"), 2, "qwen2.5-7b"),
    "unknown quant": (("pull", "qwen2.5-coder-1.5b", "--quant", "q77"), 2, "no quantization named 'q77'"),
    "quant not there": (
        ("pull", "qwen2.5-coder-1.5b", "--quant", "q8"),
        2,
        "has no Q8_0 file. It has: Q4_K_M",
    ),
    "no such repository": (("pull", "hf:acme/nothing"), 5, "no public repository acme/nothing"),
    "no such pair": (("show", "nothing"), 2, "no pair named 'nothing'"),
    "not on this disk": (("run", "qwen2.5-7b", "hello"), 2, "Get it: localspec pull qwen2.5-7b"),
    "incompatible": (("pull", "qwen2.5-coder-1.5b", "--draft", "hf:acme/Other-GGUF"), 3, "cannot draft for"),
    "no file": (("pull", "/nowhere/model.gguf"), 2, "no file at /nowhere/model.gguf"),
    "nothing to import": (("import", "/nowhere"), 2, "neither a folder nor a file"),
    "no such word": (("catalog", "nonsense"), 2, "nothing in the catalog matches 'nonsense'"),
}


@pytest.mark.parametrize(("words", "code", "says"), EXITS.values(), ids=EXITS.keys())
def test_exit_codes(hub: FakeHub, machine: Machine, words: tuple[str, ...], code: int, says: str) -> None:
    hub.add_repo("acme/Other-GGUF", {"o-Q8_0.gguf": model_bytes(2, words=90, pre="other")})
    ended, out, err = machine.run(*words)
    assert (ended, out) == (code, "")
    assert says in err and err.startswith("error: ") and err.count("\n") == 1


def test_the_token_is_nowhere(hub: FakeHub, machine: Machine) -> None:
    token = "hf_VerySecretValue123"
    hub.fault("GET", "/cdn/", status=500, times=1)
    for tokens in ({token}, set()):
        hub.tokens = tokens
        process = machine.start(*PULL, "--verbose", HF_TOKEN=token, HF_HUB_VERBOSITY="debug")
        seen_title = Path(f"/proc/{process.pid}/cmdline").read_bytes() if sys.platform == "linux" else b""
        out, err = process.communicate(timeout=60)
        assert process.returncode == (0 if tokens else 5)
        for text in (out, err, seen_title.decode()):
            assert token not in text
    for path in machine.home.rglob("*"):
        if path.is_file() and path.stat().st_size < 1 << 20:
            assert token.encode() not in path.read_bytes(), path


def test_hostile_names_are_shown_not_sent(hub: FakeHub, machine: Machine) -> None:
    hub.add_repo("acme/Evil-GGUF", {"e-Q8_0.gguf": model_bytes(3)}, licence="\x1b]0;owned\x07evil")
    code, out, err = machine.run("pull", "hf:acme/Evil-GGUF:q8", "--draft", "none")
    assert code == 0 and "\x1b" not in out + err and "\\x1b]0;owned" in err


def test_catalog_and_prune_and_import(hub: FakeHub, machine: Machine) -> None:
    models = machine.json("catalog", "coder", "7b")["models"]
    assert [model["name"] for model in models] == ["qwen2.5-coder-7b"]
    assert models[0]["drafts"] == ["0.5b", "1.5b"] and models[0]["bytes"]["Q4_K_M"] == 4_680_000_000
    assert "qwen2.5-coder-7b" in machine.run("catalog", "coder 7b")[1]
    part = machine.home / "hf/hub/models--a--b/blobs" / ("0" * 64 + ".localspec.part")
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 2000)
    assert "2 kB  unfinished download" in machine.run("prune", "--dry-run")[1] and part.exists()
    assert machine.run("prune")[0] == 2 and part.exists()
    assert machine.run("prune", "--yes")[:2] == (0, "deleted 1 files, 2 kB free\n") and not part.exists()
    (machine.home / "m").mkdir()
    (machine.home / "m" / "mine-Q8_0.gguf").write_bytes(model_bytes())
    assert machine.run("import", str(machine.home / "m"))[0] == 0
    assert [pair["name"] for pair in machine.json("list")["pairs"]] == ["mine-Q8_0"]


# --- the progress display


def transfers() -> list[Transfer]:
    rows = [Transfer(Item("a/b", "c", f"file{n}.gguf", 10**9), total=10**9) for n in (1, 2)]
    rows[0].done = rows[0].received = 250_000_000
    rows[0].state = "downloading"
    rows[1].state, rows[1].note = "retrying", "no answer in time"
    return rows


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal() -> None:
    now = [0.0]
    stream = Terminal()
    view = TransferView(stream, lambda: now[0])
    rows = transfers()
    view(rows)
    now[0] = 1.0
    rows[0].done += 50_000_000
    rows[0].received += 50_000_000
    view(rows)
    first, second = stream.getvalue().split("\x1b[3A")
    assert first.count("\n") == second.count("\n") == 3
    assert "file1" in second and " 30 %  300.0 MB / 1.00 GB" in second
    assert "retry: no answer in time" in second
    assert "15 %  300.0 MB / 2.00 GB  50.0 MB/s  0:34 left" in second


def test_progress_into_a_file_is_a_line_now_and_then() -> None:
    now = [0.0]
    stream = io.StringIO()
    view = TransferView(stream, lambda: now[0])
    for _ in range(100):
        view(transfers())
        now[0] += 0.1
    lines = stream.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["file2:", "total", "total"]


def test_speed_follows_and_forgets() -> None:
    speed = Speed()
    assert speed.update(0.0, 0) is None
    assert speed.update(1.0, 10) == 10
    assert speed.update(1.1, 99) == 10  # too soon to say
    slower = speed.update(6.5, 10)
    assert slower == 0.0


def test_numbers_for_people() -> None:
    assert [size(n) for n in (0, 999, 2048, 5_300_000, 1_617_000_000)] == [
        "0 B",
        "999 B",
        "2 kB",
        "5.3 MB",
        "1.62 GB",
    ]
    assert [clock(n) for n in (7, 61, 3725)] == ["0:07", "1:01", "1:02:05"]


def test_names_keep_what_tells_files_apart() -> None:
    from localspec.reports.transfer import file_line

    def shown(path: str) -> str:
        return file_line(Transfer(Item("a/b", "c", path, 1))).split("  ")[0].strip()

    assert shown(TARGET_FILE) == "qwen2.5-coder-1.5b-…t-q4_k_m"
    assert shown(DRAFT_FILE) == "qwen2.5-coder-0.5b-…t-q4_k_m"
    assert shown("x/qwen2.5-7b-instruct-q4_k_m-00002-of-00003.gguf") == "qwen2.5-7b-inst…t-q4_k_m 2/3"
