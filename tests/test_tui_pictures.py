"""Each screen as text, at two sizes, against files that people can read: tests/golden/tui-*.txt.

To renew them after a wanted change: RENEW_PICTURES=1 python -m pytest tests/test_tui_pictures.py
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from localspec.tui.widgets.panel import Panel
from localspec.ui import pair_list
from localspec.ui.drafts import DraftChoice
from localspec.ui.pair_list import CatalogEntry, InstalledPair
from tests.chat_tools import MARKDOWN, ask, chat_screen, make_app, screen_lines, until
from tests.fake_engine import Script

GOLDEN = Path(__file__).parent / "golden"
INSTALLED = [
    InstalledPair("qwen2.5-7b", "0.5b", "complete", 5_000_000_000, "identical", "yes", "code 1.62x, chat 1.21x"),
    InstalledPair("llama3.1-8b", "llama3.2-1b", "incomplete 1/2", 5_600_000_000, "shared", "yes", "not measured"),
]
CATALOG = [
    CatalogEntry("qwen2.5-7b", "0.5b", "Q4_K_M 4.7 GB, Q8_0 8.1 GB", True, "same family, a tenth of the size"),
    CatalogEntry("qwen2.5-72b", "1.5b", "Q4_K_M 47 GB", False, "same family"),
]
SCREENS: dict[str, list[str]] = {
    "chat": [],
    "origins": ["ctrl+t"],
    "rounds": ["ctrl+g", "right", "right", "right"],
    "help": ["f1"],
    "pairs": ["f2"],
    "catalog": ["f2", "2"],
    "settings": ["f4"],
    "draft": ["f9"],
    "log": ["f11"],
    "find": ["ctrl+f", "w", "o"],
}


@pytest.fixture(autouse=True)
def same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_list, "installed_pairs", lambda: INSTALLED)
    monkeypatch.setattr(pair_list, "catalog_entries", lambda: CATALOG)
    monkeypatch.setattr(pair_list, "machine_summary", lambda: "8 processors, 31.2 GiB of memory, 20.0 GiB free")
    choices = [
        DraftChoice("a.gguf", "a.gguf (0.49B Q4_0)", True, "identical"),
        DraftChoice("b", "b", False, "another tokenizer"),
    ]
    monkeypatch.setattr("localspec.tui.screens.draft.draft_choices", lambda target: choices)


@pytest.mark.parametrize("size", [(120, 40), (80, 24)], ids=["120x40", "80x24"])
async def test_screens_look_as_they_should(tmp_path: Path, size: tuple[int, int]) -> None:
    app, _ = make_app(tmp_path, Script(text=MARKDOWN * 2))
    wrong = []
    async with app.run_test(size=size) as pilot:
        await ask(pilot, "Show me everything.")
        chat_screen(pilot).query_one(Panel).forget_rates()  # the sparkline depends on the clock
        chat_screen(pilot).draw_numbers()
        chat_screen(pilot).transcript.all_lines()  # exact heights, whatever was drawn while it streamed
        chat_screen(pilot).transcript._settle()
        for name, keys in SCREENS.items():
            await pilot.press(*keys)
            await until(pilot, lambda: "looking at the models" not in "\n".join(screen_lines(app)))
            await pilot.pause()
            wrong += compare(f"tui-{name}-{size[0]}x{size[1]}.txt", app)
            await pilot.press("ctrl+t" if name == "origins" else "escape")
            assert app.screen is chat_screen(pilot)
    assert not wrong, "\n\n".join(wrong)


def compare(name: str, app: Any) -> list[str]:
    """Nothing, or what the screen shows instead of the file."""
    # The ends of a scrollbar's thumb are fractions of a cell that depend on which message came first.
    lines = [re.sub(r"[▁▂▃▄▅▆▇]$", "", line).rstrip() for line in screen_lines(app)]
    text = "\n".join(lines) + "\n"
    path = GOLDEN / name
    if os.environ.get("RENEW_PICTURES"):
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    wanted = path.read_text("utf-8")
    return [] if text == wanted else [f"{name} differs. It shows:\n{text}"]
