"""The terminal UI through Textual's pilot, on a scripted engine."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from textual.widgets import DataTable, Input, OptionList, Static

from localspec.engine.settings import SamplerSettings, SpeculationSettings
from localspec.ground.errors import Cancelled, ContextFull, InvalidInput
from localspec.session import LoadOptions
from localspec.tui.app import LocalspecApp
from localspec.tui.screens.draft import DraftScreen
from localspec.tui.screens.help import HelpScreen
from localspec.tui.screens.rounds import RoundsScreen
from localspec.tui.screens.sessions import SessionsScreen
from localspec.tui.screens.settings import SettingsScreen
from localspec.tui.screens.trouble import ContextFullScreen, EngineDiedScreen
from localspec.tui.widgets.panel import Panel
from localspec.tui.widgets.prompt import Prompt
from localspec.tui.widgets.transcript import Transcript
from localspec.ui.chat import ChatSettings
from localspec.ui.session_file import read_session
from tests.chat_tools import MARKDOWN, ask, chat_screen, make_app, screen_lines, screen_text, settled, until
from tests.fake_engine import Script

WIDE, NARROW = (120, 40), (80, 24)
LONG = Script(text=MARKDOWN * 20, tokens_per_second=300)


def running(app: LocalspecApp, size: tuple[int, int]) -> Any:
    return app.run_test(size=size, notifications=True)


def notified(app: LocalspecApp) -> list[str]:
    return [notification.message for notification in app._notifications]


async def opened(pilot: Any) -> None:
    await until(pilot, lambda: chat_screen(pilot).chat.runner.session is not None)


# --- the contract ------------------------------------------------------------------------------------


async def test_opens_with_the_prompt_focused_and_a_message_waits_for_the_models(tmp_path: Path) -> None:
    app, opener = make_app(tmp_path, Script(load_seconds=2.0))
    async with running(app, WIDE) as pilot:
        assert isinstance(app.focused, Prompt) and len(app.screen_stack) == 1
        await pilot.press(*"hello", "enter")
        await until(pilot, lambda: "your message waits" in screen_text(app))
        assert not opener.clients or not opener.client.requests
        await settled(pilot)
        assert "Hello, world." in screen_text(app)
        await pilot.press("ctrl+q")
    assert app.return_code == 0


@pytest.mark.parametrize("size", [WIDE, NARROW])
@pytest.mark.parametrize("drafter", ["auto", "none"])
async def test_acceptance_and_rate_are_always_shown(tmp_path: Path, size: tuple[int, int], drafter: str) -> None:
    app, _ = make_app(tmp_path, settings=ChatSettings(speculation=SpeculationSettings(drafter)))
    async with running(app, size) as pilot:
        for _ in range(2):
            text = screen_text(app)
            assert "acceptance" in text and "tokens/s" in text
            await ask(pilot)
        assert ("speculation on" if drafter == "auto" else "speculation off: as ordered") in screen_text(app)


async def test_lines_of_a_prompt(tmp_path: Path) -> None:
    app, opener = make_app(tmp_path)
    async with running(app, NARROW) as pilot:
        await opened(pilot)
        await pilot.press("a", "ctrl+j", "b", "shift+enter", "c", "enter")
        await settled(pilot)
        assert opener.client.requests[0].messages[0].content == "a\nb\nc"


async def test_keys_in_one_burst_act_in_their_order(tmp_path: Path) -> None:
    """A terminal may deliver a word and Enter in one read."""
    from textual import events

    app, opener = make_app(tmp_path)
    async with running(app, NARROW) as pilot:
        await opened(pilot)
        for key in ("h", "i", "enter"):
            app.post_message(events.Key(key, key if len(key) == 1 else "\r"))
        await until(pilot, lambda: bool(opener.client.requests))
        assert opener.client.requests[0].messages[0].content == "hi"


async def test_prompt_history_and_whole_characters(tmp_path: Path) -> None:
    app, _ = make_app(tmp_path)
    async with running(app, NARROW) as pilot:
        await ask(pilot, "first")
        await ask(pilot, "second")
        await pilot.press("up", "up")
        prompt = chat_screen(pilot).prompt
        assert prompt.text == "first"
        await pilot.press("down", "down")
        assert prompt.text == ""
        family = "👨‍👩‍👧‍👦"
        prompt.insert(f"a{family}e\u0301")
        await pilot.press("left")
        assert prompt.cursor_location == (0, 1 + len(family))
        await pilot.press("left")
        assert prompt.cursor_location == (0, 1)
        await pilot.press("right", "backspace")
        assert prompt.text == "ae\u0301"


async def test_a_refused_message_comes_back_to_the_prompt(tmp_path: Path) -> None:
    """TPL-07: the template's own words are shown, the text is kept, nothing is sent."""
    refusal = InvalidInput("the chat template says: roles must alternate", "Nothing was sent")
    app, _ = make_app(tmp_path, Script(refuse=refusal))
    async with running(app, WIDE) as pilot:
        await opened(pilot)
        await pilot.press(*"hello", "enter")
        await until(pilot, lambda: "roles must alternate" in screen_text(app))
        assert chat_screen(pilot).prompt.text == "hello" and not chat_screen(pilot).chat.conversation.turns


# --- streaming ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_origin", [False, True])
async def test_a_streamed_answer_ends_as_one_shown_at_once(tmp_path: Path, by_origin: bool) -> None:
    """TUI-02, TUI-09: resized all the time while it streams; nothing lost, no other layout than a fresh one."""
    app, opener = make_app(tmp_path, Script(text=MARKDOWN * 8, tokens_per_second=600))
    async with running(app, WIDE) as pilot:
        await opened(pilot)
        if by_origin:
            await pilot.press("ctrl+t")
        await pilot.press("h", "enter")
        sizes = [(83, 30), (20, 5), (200, 60), (120, 40), (45, 12)]
        while chat_screen(pilot).chat.runner.busy:
            await pilot.resize_terminal(*sizes[opener.client.generated % len(sizes)])
            await asyncio.sleep(0.05)
        await settled(pilot)
        await pilot.resize_terminal(100, 30)
        await pilot.press("tab", "tab")
        app.theme = "textual-light"
        await pilot.pause()
        transcript = chat_screen(pilot).transcript
        streamed = transcript.all_lines()
        for item in transcript._items:
            item.reset()
        assert transcript.all_lines() == streamed
        if not by_origin:
            assert sum("return [i * x for i in range(10)]" in line for line in streamed) == 8
        assert chat_screen(pilot).chat.conversation.last_answer.text == MARKDOWN * 8  # type: ignore[union-attr]


async def test_a_long_stream_costs_no_more_at_its_end(tmp_path: Path) -> None:
    """20 000 tokens of Markdown, drawn as often as at 300 tokens/s and 4 Hz."""
    from localspec.engine.records import Provenance, Round, RoundFinished, Token
    from localspec.ui.answer import Answer
    from localspec.ui.conversation import Turn

    pieces = [MARKDOWN[i : i + 4] for i in range(0, len(MARKDOWN), 4)]
    app, _ = make_app(tmp_path)
    async with running(app, WIDE) as pilot:
        await opened(pilot)
        transcript = chat_screen(pilot).transcript
        answer = Answer()
        transcript.show([Turn("user", "q"), Turn("assistant", answer=answer)])
        costs: list[float] = []
        for start in range(0, 20_000, 1000):
            began = time.process_time()
            for number in range(start, start + 1000):
                token = Token(number, Provenance.PLAIN, pieces[number % len(pieces)])
                answer.add(
                    RoundFinished(Round(number, 0, "none", (), (), 0, 0, (number,), (token.provenance,)), (token,))
                )
                if number % 100 == 0:
                    transcript.grow()
                if number % 300 == 0:
                    await pilot.pause(0)
            costs.append(time.process_time() - began)
        transcript.grow()
        assert len(answer.tokens) == 20_000
        first, last = sorted(costs[1:6])[2], sorted(costs[-5:])[2]
        assert last <= 2.5 * first + 0.02  # work that grows with the text would make it five times as much
        assert "Heading" in "\n".join(transcript.all_lines()[-40:])


async def test_a_message_typed_faster_than_the_first_paint_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, _ = make_app(tmp_path, Script())
    begin = app._begin
    monkeypatch.setattr(app, "_begin", lambda: app.set_timer(0.4, begin))
    async with running(app, WIDE) as pilot:
        await pilot.press(*"hello", "enter")
        assert not chat_screen(pilot).begun
        await until(pilot, lambda: len(chat_screen(pilot).chat.conversation.turns) == 2)
        await settled(pilot)
        assert notified(app) == [] and chat_screen(pilot).prompt.text == ""


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
async def test_a_stop_stops_within_a_round(tmp_path: Path, key: str) -> None:
    app, opener = make_app(tmp_path, LONG)
    async with running(app, WIDE) as pilot:
        await opened(pilot)
        await pilot.press("h", "enter")
        await until(pilot, lambda: opener.client.generated > 20)
        await pilot.press(key)
        await until(pilot, lambda: not chat_screen(pilot).chat.runner.busy)
        lines = chat_screen(pilot).transcript.all_lines()
        await settled(pilot)
        round_at_most = max(accepted + 1 for _, accepted in LONG.pattern)
        assert opener.client.generated - opener.client.generated_at_cancel <= round_at_most
        assert chat_screen(pilot).transcript.all_lines()[: len(lines) - 4] == lines[:-4]
        assert "stopped" in screen_text(app)


async def test_ctrl_c_while_nothing_runs_says_how_to_leave(tmp_path: Path) -> None:
    app, _ = make_app(tmp_path, Script())
    async with running(app, WIDE) as pilot:
        await opened(pilot)
        await pilot.press("ctrl+c")
        assert notified(app) == ["Ctrl+Q quits."]


async def test_scrolling_up_is_respected_while_text_arrives(tmp_path: Path) -> None:
    app, opener = make_app(tmp_path, LONG)
    async with running(app, NARROW) as pilot:
        await opened(pilot)
        await pilot.press("h", "enter")
        transcript = chat_screen(pilot).transcript
        await until(pilot, lambda: transcript.scroll_offset.y > transcript.size.height)  # drawn, not only made
        await pilot.press("pageup")
        before, y = opener.client.generated, transcript.scroll_offset.y
        assert not transcript.follows
        await until(pilot, lambda: opener.client.generated > before + 60)
        assert transcript.scroll_offset.y == y
        await pilot.press("ctrl+end")
        assert transcript.follows
        await pilot.press("escape")
        await settled(pilot)


@pytest.mark.parametrize("by_origin", [False, True])
async def test_wide_characters_keep_every_column_in_its_place(tmp_path: Path, by_origin: bool) -> None:
    """TUI-10: ideographs, a family, a flag and combining accents at odd widths, beside the panel."""
    family, flag = "👨\u200d👩\u200d👧\u200d👦", "🇯🇵"
    text = f"{'漢' * 40}{family}{flag}e\u0301o\u0302 end"
    app, _ = make_app(tmp_path, Script(text=text, pattern=((0, 0),)))
    async with running(app, WIDE) as pilot:
        if by_origin:
            await pilot.press("ctrl+t")
        await ask(pilot, "h")
        item = chat_screen(pilot).transcript._items[-1]
        for width in (41, 40, 7, 2):
            look = replace(chat_screen(pilot).transcript._look(), width=width)
            while item.show(0, 1 << 20, look, app.console):
                pass
            strips = [item.line(number, look, app.console) for number in range(item.height(look))]
            assert all(strip.cell_length == cell_len(strip.text) <= width for strip in strips), width
            if width == 41:
                shown = "".join(strip.text for strip in strips)
                assert shown.count("漢") == 40 and family in shown and flag in shown and "e\u0301o\u0302" in shown
        chat_screen(pilot).transcript._settle()
        await pilot.pause()
        panel = chat_screen(pilot).query_one(Panel).region
        for line in screen_lines(app)[panel.y : panel.bottom]:
            before, border, _ = line.partition("▏")
            assert border and cell_len(before) == panel.x, line
        prompt = chat_screen(pilot).prompt
        prompt.insert(f"漢{family}{flag}e\u0301")
        for left in (f"漢{family}{flag}", f"漢{family}", "漢", ""):
            await pilot.press("left")
            assert prompt.text[: prompt.cursor_location[1]] == left
        await pilot.press("right", "right", "backspace")
        assert prompt.text == f"漢{flag}e\u0301"


# --- provenance --------------------------------------------------------------------------------------


async def test_words_by_origin_with_and_without_colour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app, _ = make_app(tmp_path, Script(pieces=["The", " cat", " sat", " on", " the", " mat"], pattern=((0, 0), (3, 1))))
    async with running(app, NARROW) as pilot:
        await ask(pilot)
        assert "The cat sat on the mat" in screen_text(app)
        await pilot.press("ctrl+t")
        assert "The[ cat]‹wrongwrong›~ sat on[ the]‹wrongwrong›~ mat" in screen_text(app)
    app, _ = make_app(tmp_path, Script(pieces=["The", " cat", " sat", " on", " the", " mat"], pattern=((0, 0), (3, 1))))
    app.no_color = False  # type: ignore[misc]
    async with running(app, NARROW) as pilot:
        await ask(pilot)
        assert "Thewrongwrong" in screen_text(app).replace(" cat", ""), "remembered from the last start"
        styles = {
            segment.text: segment.style
            for item in chat_screen(pilot).transcript._items
            for number in range(item.height(chat_screen(pilot).transcript._look()))
            for segment in item.line(number, chat_screen(pilot).transcript._look(), app.console)
        }
        assert styles[" cat"].bgcolor != styles[" sat"].bgcolor and styles["wrongwrong"].strike  # type: ignore[union-attr]


async def test_stepping_through_rounds(tmp_path: Path) -> None:
    app, _ = make_app(tmp_path, Script(pieces=["The", " cat", " sat", " on"], pattern=((3, 1),), reason="model pays"))
    async with running(app, NARROW) as pilot:
        await ask(pilot)
        await pilot.press("ctrl+g")
        assert isinstance(app.screen, RoundsScreen)
        assert "round 1 of 3" in screen_text(app)
        await pilot.press("right")
        text = screen_text(app)
        for part in (
            "round 2 of 3",
            "guessed 3, verified 3, kept 1",
            "“ cat”",
            "90%",
            "rejected",
            "discarded",
            "why: model pays",
            "draft 6.0 ms",
        ):
            assert part in text
        await pilot.press("end", "right", "home", "left", "n", "p", "down", "up", "escape")
        assert not isinstance(app.screen, RoundsScreen)


async def test_thoughts_are_folded_and_shown_on_request(tmp_path: Path) -> None:
    app, _ = make_app(tmp_path, Script(text="<think>\nsecret plan here\n</think>\n\nThe answer."))
    async with running(app, WIDE) as pilot:
        await ask(pilot)
        assert "thoughts, 3 words" in screen_text(app) and "secret" not in screen_text(app)
        assert "The answer." in screen_text(app)
        await pilot.press("tab", "t")
        assert "secret plan here" in screen_text(app)
    app, _ = make_app(tmp_path, Script(text="the template opened it\n</think>\n\nThe answer."))
    async with running(app, WIDE) as pilot:
        await ask(pilot)
        assert "thoughts, 4 words" in screen_text(app) and "template" not in screen_text(app)


# --- controls ----------------------------------------------------------------------------------------


async def test_controls_act_while_an_answer_is_made(tmp_path: Path) -> None:
    app, opener = make_app(tmp_path, LONG)
    async with running(app, WIDE) as pilot:
        await opened(pilot)
        await pilot.press("h", "enter")
        await until(pilot, lambda: opener.client.generated > 20)
        await pilot.press("f5")
        await until(pilot, lambda: "speculation off: as ordered" in screen_text(app))
        await pilot.press("f5", "f6", "f8", "f7")
        asked = [speculation for speculation, _ in opener.client.changes]
        assert [one.drafter for one in asked] == ["none", "auto", "model", "model", "model"]
        assert asked[3].length is not None and asked[4].length == asked[3].length - 1
        await pilot.press("f4")
        assert isinstance(app.screen, SettingsScreen)
        app.screen.query_one("#temperature", Input).value = "hot"
        await pilot.press("enter")
        assert "'hot' is not a number" in screen_text(app)
        app.screen.query_one("#temperature", Input).value = "0.2"
        await pilot.press("ctrl+s")
        assert opener.client.changes[-1] == (None, SamplerSettings(0.2))
        await pilot.press("escape")
        await settled(pilot)
    app, _ = make_app(tmp_path, LONG)
    assert app.chat.settings.sampler.temperature == 0.2, "remembered"


async def test_regenerate_edit_copy_new(tmp_path: Path) -> None:
    app, opener = make_app(tmp_path, Script(text="Text\n\n```py\nx = 1\n```"))
    async with running(app, WIDE) as pilot:
        await ask(pilot, "one")
        await pilot.press("ctrl+r")
        await settled(pilot)
        assert len(opener.client.requests) == 2 and len(chat_screen(pilot).chat.conversation.turns) == 2
        await pilot.press("tab", "b")
        assert app.clipboard == "x = 1"
        await pilot.press("c")
        assert app.clipboard == "Text\n\n```py\nx = 1\n```"
        await pilot.press("k", "e")
        assert chat_screen(pilot).prompt.text == "one" and app.focused is chat_screen(pilot).prompt
        assert not chat_screen(pilot).chat.conversation.turns
        await pilot.press("enter")
        await settled(pilot)
        await pilot.press("ctrl+n")
        assert not chat_screen(pilot).chat.conversation.turns and "Text" not in screen_text(app)


async def test_find(tmp_path: Path) -> None:
    app, _ = make_app(tmp_path, Script(text="paragraph\n\n" * 60 + "needle here\n\n" + "after\n\n" * 60))
    async with running(app, NARROW) as pilot:
        await ask(pilot)
        assert "needle" not in screen_text(app)
        await pilot.press("ctrl+f", *"Needle", "enter")
        assert "needle here" in screen_text(app)
        await pilot.press("escape")
        assert isinstance(app.focused, Prompt)


async def test_another_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from localspec.ui import drafts

    choices = [
        drafts.DraftChoice("good.gguf", "good", True, "identical"),
        drafts.DraftChoice("bad.gguf", "bad", False, "no"),
    ]
    monkeypatch.setattr("localspec.tui.screens.draft.draft_choices", lambda target: choices)
    app, opener = make_app(tmp_path)
    async with running(app, NARROW) as pilot:
        await ask(pilot)
        await pilot.press("f9")
        assert isinstance(app.screen, DraftScreen)
        await until(pilot, lambda: app.screen.query_one(OptionList).option_count == 3)
        assert "1 of 2 models here" in screen_text(app)
        await pilot.press("down", "enter")
        await until(pilot, lambda: opener.client.drafts == [Path("good.gguf")])
        await until(pilot, lambda: any("kept its cache" in message for message in notified(app)))
        await ask(pilot, "more")
        assert len(opener.clients) == 1


# --- trouble -----------------------------------------------------------------------------------------


async def test_the_engines_death_is_told_and_a_restart_offered(tmp_path: Path) -> None:
    """SMP-12."""
    app, opener = make_app(tmp_path, Script(text="word " * 50, die_after=20))
    async with running(app, NARROW) as pilot:
        await opened(pilot)
        await pilot.press("h", "enter")
        await until(pilot, lambda: isinstance(app.screen, EngineDiedScreen))
        assert "boom" in screen_text(app) and "without speculation" in screen_text(app)
        opener.script.die_after = None
        await pilot.press("enter")
        await until(pilot, lambda: len(opener.clients) == 2)
        assert opener.options[-1].draft == "none"
        assert "word word" in chat_screen(pilot).chat.conversation.turns[1].said
        await ask(pilot, "again")
        assert opener.client.requests[0].speculation.drafter == "none"


async def test_a_full_context_is_a_question(tmp_path: Path) -> None:
    """KV-08."""
    refusal = ContextFull(5000, 4096)
    app, opener = make_app(tmp_path)
    async with running(app, NARROW) as pilot:
        for text in ("one", "two", "three"):
            await ask(pilot, text)
        opener.script.refuse = refusal
        await pilot.press(*"four", "enter")
        await until(pilot, lambda: isinstance(app.screen, ContextFullScreen))
        assert "5000" in screen_text(app) and "4096" in screen_text(app)
        opener.script.refuse = None
        await pilot.press("enter")
        assert chat_screen(pilot).chat.conversation.skipped == 4
        assert chat_screen(pilot).prompt.text == "four"
        await pilot.press("enter")
        await settled(pilot)
        assert opener.client.requests[-1].messages[0].content == "three"


async def test_a_draft_that_is_never_used_is_said_in_red(tmp_path: Path) -> None:
    """SRV-02."""
    app, _ = make_app(tmp_path, Script(text="word " * 60, never_drafts=True, reason="the drafter gave up"))
    async with running(app, WIDE) as pilot:
        await ask(pilot)
        assert "draft loaded but not used" in screen_text(app) and "the drafter gave" in screen_text(app)


async def test_a_model_without_a_template_asks_once(tmp_path: Path) -> None:
    """TPL-05."""
    app, opener = make_app(tmp_path, Script(has_template=False))
    async with running(app, NARROW) as pilot:
        await opened(pilot)
        await pilot.press(*"hello", "enter")
        await until(pilot, lambda: "How is this model to be written to?" in screen_text(app))
        await pilot.press("down", "enter")
        await settled(pilot)
        assert "<|im_start|>" in (opener.client.requests[-1].template or "")
    app, opener = make_app(tmp_path, Script(has_template=False))
    async with running(app, NARROW) as pilot:
        await opened(pilot)
        await ask(pilot)
        assert "<|im_start|>" in (opener.client.requests[-1].template or ""), "remembered"


# --- hostile text ------------------------------------------------------------------------------------

PAYLOADS = [
    "\x1b]52;c;aGVsbG8=\x07",
    "\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\",
    "\x1b[2J\x1b[6n\x1bc",
    "\x9b31m\x9d0;t\x9c\x90q\x9c",
    "lone \x1b",
    "[bold red]markup[/] [@click=app.quit]x[/]",
    "\u202eabc\u2066",
    "{{ jinja }} {% x %}",
    "a\rb\x08c\x00d",
]


@pytest.mark.parametrize("by_origin", [False, True])
async def test_hostile_text_is_shown_and_never_obeyed(tmp_path: Path, by_origin: bool) -> None:
    """TUI-08: from the reply, the prompt's echo, file names and errors."""
    everything = "\n\n".join(PAYLOADS)
    app, opener = make_app(tmp_path, Script(text=everything, reason=everything, pattern=((0, 0),)), pair=everything)
    async with running(app, WIDE) as pilot:
        if by_origin:
            await pilot.press("ctrl+t")
        await opened(pilot)
        chat_screen(pilot).chat.send(everything)
        chat_screen(pilot)._begun()
        await settled(pilot)
        transcript = "\n".join(chat_screen(pilot).transcript.all_lines())
        for shown in ("\\x1b]52;c;", "\\x9b31m", "[bold red]markup[/]", "\\u202eabc", "\\x00d"):
            assert transcript.count(shown) == 2, shown
        opener.script.refuse = InvalidInput(everything)
        await pilot.press("x", "enter")
        await until(pilot, lambda: "markup" in screen_text(app).split("prompt")[0])
        for screen in (None, "ctrl+o", "ctrl+g", "f2"):
            if screen:
                await pilot.press(screen)
            rendered = app.export_screenshot() + screen_text(app)
            assert not any(
                chr(code) in rendered for code in (*range(9), *range(14, 32), 0x7F, *range(0x80, 0xA0), 0x202E)
            )
            if screen:
                await pilot.press("escape")


async def test_pasted_control_characters_are_shown(tmp_path: Path) -> None:
    from textual import events

    app, _ = make_app(tmp_path)
    async with running(app, NARROW) as pilot:
        chat_screen(pilot).prompt.post_message(events.Paste("a\x1b[2Jb\r\nc"))
        await pilot.pause()
        assert chat_screen(pilot).prompt.text == "a\\x1b[2Jb\nc"


# --- sessions ----------------------------------------------------------------------------------------


async def test_sessions_are_reopened_with_their_origins(tmp_path: Path) -> None:
    app, _ = make_app(tmp_path, Script(text="An answer to keep."))
    async with running(app, WIDE) as pilot:
        await ask(pilot, "question")
    app.chat.close()
    app, _ = make_app(tmp_path)
    async with running(app, WIDE) as pilot:
        await opened(pilot)
        await pilot.press("ctrl+o")
        assert isinstance(app.screen, SessionsScreen) and "question" in screen_text(app)
        await pilot.press("r")
        app.screen.query_one(Input).value = "Renamed"
        await pilot.press("enter")
        assert "Renamed" in screen_text(app)
        await pilot.press("m")
        app.screen.query_one(Input).value = str(tmp_path / "out.md")
        await pilot.press("enter")
        assert "An answer to keep." in (tmp_path / "out.md").read_text()
        await pilot.press("enter")
        assert "An answer to keep." in screen_text(app)
        await pilot.press("ctrl+t", "ctrl+g", "right")
        assert isinstance(app.screen, RoundsScreen)
        await pilot.press("escape")
        await ask(pilot, "next")
        assert len(read_session(chat_screen(pilot).chat.path).conversation.turns) == 4
        await pilot.press("ctrl+n", "ctrl+o", "d", "y")
        assert "no conversations" in screen_text(app)


async def test_a_long_session_opens_fast(tmp_path: Path) -> None:
    """TUI-11: 2000 messages, 5 MB."""
    app, _ = make_app(tmp_path, Script(text="Some *text* with `code`.\n\n" * 190))
    async with running(app, WIDE) as pilot:
        await ask(pilot)
        path = chat_screen(pilot).chat.path
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], *lines[1:-1] * 1000, b""]))
    app, _ = make_app(tmp_path, session="last", replay=True, pair="")
    start = time.process_time()
    async with running(app, WIDE) as pilot:
        await until(pilot, lambda: "Some text with code." in screen_text(app))
        assert time.process_time() - start < 15
        start = time.process_time()
        await pilot.press("ctrl+home", "x", "ctrl+end", "pageup")
        assert time.process_time() - start < 15
        assert chat_screen(pilot).prompt.text == "x"


# --- walking through everything with keys ----------------------------------------------------------------


@pytest.mark.parametrize("size", [NARROW, (20, 5)])
async def test_every_screen_by_keys_alone(tmp_path: Path, size: tuple[int, int]) -> None:
    app, _ = make_app(tmp_path)
    async with running(app, size) as pilot:
        await ask(pilot)
        for keys in (
            ["f1", "escape"],
            ["ctrl+g", "right", "escape"],
            ["f2", "2", "down", "1", "escape"],
            ["ctrl+o", "escape"],
            ["f4", "tab", "escape"],
            ["f9", "escape"],
            ["f11", "escape"],
            ["f12", "escape"],
            ["ctrl+p", "escape"],
            ["f10", "f10"],
            ["ctrl+f", "a", "enter", "f3", "escape"],
            ["tab", "j", "k", "up", "down", "pageup", "end", "tab"],
            ["ctrl+t", "ctrl+t"],
            ["ctrl+home", "ctrl+end"],
            ["f5", "f5", "f6", "f7", "f8"],
        ):
            await pilot.press(*keys)
            await pilot.pause()
            assert len(app.screen_stack) == 1, keys
        assert isinstance(chat_screen(pilot).prompt, Prompt)
        await pilot.press("ctrl+q")
    assert app.return_code == 0


async def test_every_key_has_a_line_of_help(tmp_path: Path) -> None:
    app, _ = make_app(tmp_path)
    async with running(app, (120, 90)) as pilot:
        await pilot.press("f1")
        assert isinstance(app.screen, HelpScreen)
        text = screen_text(app)
        for binding in (*chat_screen(pilot).BINDINGS, *Transcript.BINDINGS):
            assert binding.description in text  # type: ignore[union-attr]


@pytest.mark.parametrize("state", ["loading", "answering", "first run", "dialog", "swapping"])
async def test_quit_from_any_state(tmp_path: Path, state: str) -> None:
    """TUI-06."""
    script = Script(load_seconds=600.0) if state == "loading" else Script(text="word " * 50_000, tokens_per_second=100)
    app, opener = make_app(tmp_path, script, **({"pair": "", "options": None} if state == "first run" else {}))
    async with running(app, NARROW) as pilot:
        if state in ("answering", "swapping"):
            await opened(pilot)
            await pilot.press("h", "enter")
            await until(pilot, lambda: opener.client.generated > 5)
        if state == "swapping":
            chat_screen(pilot).chat.swap_draft("x.gguf")
        if state == "dialog":
            await pilot.press("f2")
        start = time.monotonic()
        await pilot.press("ctrl+q")
    app.chat.close()
    assert app.return_code == 0 and time.monotonic() - start < 60, "it waited for the load or the answer"
    assert not opener.clients or not opener.client.alive


async def test_first_run_offers_ways_to_begin(tmp_path: Path) -> None:
    app, opener = make_app(tmp_path, pair="", options=None)
    async with running(app, NARROW) as pilot:
        await until(pilot, lambda: "Welcome to localspec" in screen_text(app))
        text = screen_text(app)
        assert "processors" in text and "Pull " in text and "Open a GGUF file" in text
        await pilot.press("end", "enter")
        app.screen.query_one(Input).value = "some.gguf"
        await pilot.press("enter")
        await until(pilot, lambda: bool(opener.clients))
        assert chat_screen(pilot).chat.pair == "some.gguf"
    app, opener = make_app(tmp_path, pair="", options=LoadOptions())
    async with running(app, NARROW) as pilot:
        await opened(pilot)
        assert chat_screen(pilot).chat.pair == "some.gguf", "the pair of the last start"


async def test_first_run_says_what_the_doctor_found_and_does_not_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Event()

    def slow() -> list[tuple[str, str]]:
        looked.wait(60)
        what = "problem: a card \x1b[2J cannot be used"
        return [(what, "pip install another-build"), ("and 2 more", "localspec doctor")]

    monkeypatch.setattr("localspec.ui.checkup.checkup", slow)
    app, _ = make_app(tmp_path, pair="", options=None)
    async with running(app, NARROW) as pilot:
        await until(pilot, lambda: "looking at this machine" in screen_text(app))
        assert "Pull " in screen_text(app), "what can be done is there before"
        looked.set()
        await until(pilot, lambda: "problem: a card \\x1b[2J cannot be used" in screen_text(app))
        assert "  pip install another-build" in screen_text(app) and "and 2 more" in screen_text(app)
        await pilot.press("escape")
        assert len(app.screen_stack) == 1


async def test_themes_are_remembered(tmp_path: Path) -> None:
    app, _ = make_app(tmp_path)
    async with running(app, NARROW) as pilot:
        app.theme = "ansi-dark" if "ansi-dark" in app.available_themes else "textual-ansi"
        await ask(pilot)
    again, _ = make_app(tmp_path)
    async with running(again, NARROW):
        assert again.theme == app.theme


async def test_the_benchmark_screen_unloads_measures_and_loads_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from localspec.ui.benching import BenchEnded, BenchLine

    told: list[Any] = []

    class FakeJob:
        def __init__(self, arguments: list[str], tell: Any) -> None:
            told.append((arguments, tell))

        def close(self) -> None: ...

        stop = close

    monkeypatch.setattr("localspec.tui.screens.bench.BenchJob", FakeJob)
    app, opener = make_app(tmp_path, options=LoadOptions(draft="small.gguf", context=512))
    async with running(app, WIDE) as pilot:
        await opened(pilot)
        await pilot.press("f12")
        assert "plain decoding against speculation" in screen_text(app)
        await pilot.press("r")
        ((arguments, tell),) = told
        assert arguments == ["pair", "--draft", "small.gguf", "--ctx", "512"]
        await until(pilot, lambda: not opener.client.alive)
        tell(BenchLine("12 of 40 answers \x1b[31m"))
        await until(pilot, lambda: "12 of 40 answers \\x1b[31m" in screen_text(app))
        row = {"stage": "main", "kind": "code", "arm": "auto", "speedup": {"value": 1.5, "low": 1.4, "high": 1.6}}
        report = {"headline": "It pays.", "rows": [row | {"verdict": "pays"}], "curve": [{"rows": 1, "seconds": 0.1}]}
        tell(BenchEnded(0, {"report": report}))
        await until(pilot, lambda: "It pays." in screen_text(app))
        text = screen_text(app)
        assert "1.50x" in text and "1.40 … 1.60" in text and "1 rows   100 ms" in text
        await pilot.resize_terminal(*NARROW)
        await until(pilot, lambda: any(line.strip().endswith("1.40 … 1.60    pays") for line in screen_lines(app)))
        await until(pilot, lambda: len(opener.clients) == 2 and chat_screen(pilot).chat.runner.session is not None)
        await pilot.press("escape")
        await ask(pilot)


async def test_pairs_on_this_disk_and_in_the_catalog(tmp_path: Path) -> None:
    app, _ = make_app(tmp_path)
    async with running(app, WIDE) as pilot:
        await opened(pilot)
        await pilot.press("f2")
        assert "No pairs yet" in screen_text(app)
        await pilot.press("2")
        assert "models can be pulled" in screen_text(app) and app.screen.query_one(DataTable).row_count > 20
        assert "draft" in str(app.screen.query_one("#details", Static).render())


class FakePuller:
    """A pull that goes on until it is cancelled or told to end."""

    def __init__(self, target: str, draft: str | None, cancel: Any) -> None:
        self.target, self.cancel, self.ends = target, cancel, False

    def plan(self) -> Any:
        class Plan:
            missing_bytes = 1000

            def discard(self) -> None: ...

        return Plan()

    def run(self, plan: Any, watch: Any) -> Any:
        watch([FakeTransfer()])
        while not self.cancel.wait(0.01):
            if self.ends:
                return FakeLock()
        raise Cancelled("the download was stopped")


class FakeTransfer:
    done, total, received = 400, 1000, 400


class FakeLock:
    full_name = "new-pair"


@pytest.mark.parametrize("ending", ["done", "cancelled", "quit"])
async def test_a_pull_from_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    """TUI-06: quitting in the middle of one too."""
    monkeypatch.setattr("localspec.reports.pull.plan_lines", lambda plan: ["target  big.gguf \x1b[2J", "total 1 kB"])
    monkeypatch.setattr("localspec.reports.transfer.file_line", lambda transfer: "big.gguf 40 %")
    monkeypatch.setattr("localspec.reports.transfer.total_line", lambda transfers, speed: "total 40 %  1 kB/s")
    pullers: list[FakePuller] = []

    def make(*arguments: Any) -> FakePuller:
        pullers.append(FakePuller(*arguments))
        return pullers[-1]

    app, _ = make_app(tmp_path)
    app.make_puller = make  # type: ignore[attr-defined]
    async with running(app, NARROW) as pilot:
        await opened(pilot)
        await pilot.press("f2", "2", "enter")
        await until(pilot, lambda: "Enter downloads" in screen_text(app))
        assert "big.gguf \\x1b[2J" in screen_text(app)
        await pilot.press("enter")
        await until(pilot, lambda: "total 40 %" in screen_text(app))
        if ending == "quit":
            await pilot.press("ctrl+q")
        elif ending == "cancelled":
            await pilot.press("escape")
            await until(pilot, lambda: any("was stopped" in message for message in notified(app)))
        else:
            pullers[0].ends = True
            await until(pilot, lambda: any("new-pair is here" in message for message in notified(app)))
    assert pullers[0].cancel.is_set() or ending == "done"
    assert app.return_code in (0, None)


async def test_megabytes_of_wide_characters_arrive_whole(tmp_path: Path) -> None:
    """UTF-03: 5 MB faster than anybody draws."""
    text = "漢字仮名交じり文。\n" * 500_000
    pieces = [text[start : start + 50_000] for start in range(0, len(text), 50_000)]
    app, _ = make_app(tmp_path, Script(pieces=pieces))
    async with running(app, WIDE) as pilot:
        await opened(pilot)
        await pilot.press("h", "enter")
        await settled(pilot)
        answer = chat_screen(pilot).chat.conversation.last_answer
        assert answer is not None and answer.text == text
        assert "漢字仮名交じり文。" in screen_text(app) and "\ufffd" not in screen_text(app)


async def test_a_pair_in_a_server_is_told_apart(tmp_path: Path) -> None:
    app, _ = make_app(tmp_path, pair="http://127.0.0.1:9")
    async with running(app, WIDE) as pilot:
        await opened(pilot)
        await until(pilot, lambda: "acceptance" in screen_text(app))
        assert "memory" not in screen_text(app), "that is the server's"
        await pilot.press("f9")
        assert any("where the server was started" in message for message in notified(app))
        await pilot.press("f11")
        assert "where http://127.0.0.1:9 runs" in screen_text(app)
        await pilot.press("escape", "f12", "r")
        assert "Measure it there: localspec bench" in screen_text(app)
        await pilot.press("escape")
        await ask(pilot)
        assert "Hello, world." in screen_text(app)
