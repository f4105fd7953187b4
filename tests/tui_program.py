"""The terminal UI on a fake engine, as a program of its own: for tests in a real terminal.

python tests/tui_program.py FOLDER SCRIPT      SCRIPT: a Python literal, the fields of `fake_engine.Script`
"""

import ast
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from localspec.session import LoadOptions
from localspec.tui.app import LocalspecApp, Start
from localspec.ui.preferences import PreferenceFile, PromptHistory
from localspec.ui.session_store import SessionStore
from tests.fake_engine import FakeOpener, Script


def main() -> int:
    folder = Path(sys.argv[1])
    values = ast.literal_eval(sys.argv[2])
    child = values.pop("child", False)  # a process that stands for the engine's: it ends when its stdin does
    if child:
        waiting = "import sys; sys.stdin.read()"
        process = subprocess.Popen([sys.executable, "-c", waiting], stdin=subprocess.PIPE)
        (folder / "child").write_text(str(process.pid))
    app = LocalspecApp(
        Start("pair", LoadOptions()),
        FakeOpener(Script(**values)),
        SessionStore(folder / "chats"),
        PreferenceFile(folder / "chat.json"),
        PromptHistory(folder / "prompts.jsonl"),
    )
    try:
        result = app.run()
    finally:
        app.chat.close()
    return (app.return_code or 0) if result is None else result


if __name__ == "__main__":
    raise SystemExit(main())
