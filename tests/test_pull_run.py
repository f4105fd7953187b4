"""From a hub to an answer: what was pulled runs with the hub gone and without an internet socket."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.bigram import BigramPair
from tests.fakehub import FakeHub
from tests.split_model import split_model

# Runs in every Python process of the command, the engine's own included.
NO_INTERNET = """
import os, socket, sys
def hook(event, arguments):
    if event == "socket.__new__" and arguments[1] in (socket.AF_INET, socket.AF_INET6):
        os.write(2, b"an internet socket was opened\\n")
        os._exit(99)
sys.addaudithook(hook)
"""


def test_a_split_pair_from_the_hub_to_an_answer(bigram: BigramPair, tmp_path: Path) -> None:
    shards = split_model(bigram.target, tmp_path, "tiny-F32", 3)
    (tmp_path / "guard").mkdir()
    (tmp_path / "guard" / "sitecustomize.py").write_text(NO_INTERNET)
    with FakeHub() as hub:
        hub.add_repo("acme/Tiny-GGUF", {path.name: path for path in shards})
        hub.add_repo("acme/Draft-GGUF", {"draft-F32.gguf": bigram.draft})
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "XDG_", "LOCALSPEC_"))}
        env = kept | hub.env(tmp_path / "home")

        def localspec(*words: str, **extra: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "localspec", *words]
            return subprocess.run(
                command,
                env=env | extra,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=120,
            )

        draft = "hf:acme/Draft-GGUF:f32"
        pulled = localspec("pull", "hf:acme/Tiny-GGUF:f32", "--draft", draft, "--as", "tiny", "--force")
        assert pulled.returncode == 0, pulled.stderr
        assert hub.sent() == sum(path.stat().st_size for path in (*shards, bigram.draft))
    guarded = {"PYTHONPATH": f"{tmp_path / 'guard'}:{Path(__file__).parent.parent}"}
    opened = subprocess.run(
        [sys.executable, "-c", "import socket; socket.socket()"], env=env | guarded, timeout=60
    )
    assert opened.returncode == 99, "the guard sleeps"
    plain = ("run", "tiny", "the", "--raw", "--temp", "0", "-n", "12")
    answer, alone = localspec(*plain, **guarded), localspec(*plain, "--no-draft", **guarded)
    assert (answer.returncode, alone.returncode) == (0, 0), answer.stderr + alone.stderr
    assert answer.stdout == alone.stdout and len(answer.stdout.strip()) > 3
    assert "acceptance" in answer.stderr
