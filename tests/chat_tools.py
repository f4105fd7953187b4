"""What the tests of the chat and of the terminal UI share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import textual.app
import textual.pilot
from textual.pilot import Pilot

from localspec.session import LoadOptions
from localspec.tui.app import LocalspecApp, Start
from localspec.tui.screens.chat import ChatScreen
from localspec.ui.chat import Chat, ChatSettings
from localspec.ui.preferences import PreferenceFile, PromptHistory
from localspec.ui.runner import AnswerEnded, Runner
from localspec.ui.session_store import SessionStore
from tests.fake_engine import FakeOpener, Script

MARKDOWN = (
    "## Heading\n\nSome *prose* with `code` and **bold** text that goes on for a while so that it wraps.\n\n"
    "- one item\n- another item with [a link](x)\n\n"
    "```python\ndef f(x):\n    return [i * x for i in range(10)]\n\nprint(f(3))\n```\n\n"
    "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\n"
)


class FakeChat:
    """A chat on a fake engine, with the news it was told."""

    def __init__(self, folder: Path, script: Script | None = None, **settings: Any) -> None:
        self.opener = FakeOpener(script)
        self.news: list[Any] = []
        self.store = SessionStore(folder / "chats")
        self.chat = Chat(Runner(self.opener, self.news.append), self.store, ChatSettings(**settings))

    def open(self) -> FakeChat:
        self.chat.open_pair("pair", LoadOptions())
        self.wait_for(lambda: self.chat.runner.session is not None)
        return self

    def ask(self, text: str = "hello") -> Any:
        """Send, and wait for the end; the answer."""
        turn = self.chat.send(text)
        self.wait_idle()
        return turn.answer

    def wait_idle(self) -> None:
        self.wait_for(lambda: not self.chat.runner.busy)
        self.wait_for(
            lambda: all(turn.answer is None or not turn.answer.growing for turn in self.chat.conversation.turns)
        )

    def wait_for(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, "waited in vain"
            time.sleep(0.005)

    def ended(self) -> AnswerEnded:
        """The news of the one answer that has ended."""
        self.wait_for(lambda: bool(self.told(AnswerEnded)))
        (news,) = self.told(AnswerEnded)
        assert isinstance(news, AnswerEnded)
        return news

    def told(self, kind: type) -> list[Any]:
        return [news for news in self.news if isinstance(news, kind)]


async def _ui_is_idle(min_sleep: float = 0.0, max_sleep: float = 1.0) -> None:
    """In place of textual's `wait_for_idle`, which takes a busy engine's thread for a busy UI, and waits its second.

    Idle: this thread has done next to nothing for some milliseconds, no message waits and nothing is to be drawn.
    """
    end = time.monotonic() + max_sleep
    while time.monotonic() < end:
        worked = time.thread_time()
        await asyncio.sleep(_LOOK_SECONDS)
        for _ in range(_TURNS):  # on a busy machine the time may pass without anybody having had a turn
            await asyncio.sleep(0)
        if time.thread_time() - worked < _IDLE_SHARE * _LOOK_SECONDS and not _is_work_left():
            return


def _is_work_left() -> bool:
    if not _newest_app:
        return False
    app = _newest_app[-1]
    widgets = [widget for screen in app.screen_stack for widget in screen.walk_children(with_self=True)]
    on_top = [widget for widget in widgets if widget.screen is app.screen and widget.display]
    return (
        any(pump.message_queue_size for pump in (app, *widgets))
        or any(w._layout_required or w._scroll_required or w._repaint_required for w in on_top)
        or bool(app.screen._dirty_widgets or app.screen._callbacks)
    )


_LOOK_SECONDS = 0.01
_TURNS = 12
_IDLE_SHARE = 0.2
_newest_app: list[LocalspecApp] = []
textual.app.wait_for_idle = textual.pilot.wait_for_idle = _ui_is_idle  # type: ignore[attr-defined]


def make_app(folder: Path, script: Script | None = None, **start: Any) -> tuple[LocalspecApp, FakeOpener]:
    """The application on a fake engine, its files in `folder`."""
    opener = FakeOpener(script)
    start.setdefault("pair", "pair")
    start.setdefault("options", LoadOptions())
    app = LocalspecApp(
        Start(**start),
        opener,
        SessionStore(folder / "chats"),
        PreferenceFile(folder / "chat.json"),
        PromptHistory(folder / "prompts.jsonl"),
    )
    _newest_app[:] = [app]
    return app, opener


async def until(pilot: Pilot[Any], condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for the UI to get there."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited in vain; the screen shows:\n{screen_text(pilot.app)}"
        await asyncio.sleep(0.01)
        await pilot.pause()


async def ask(pilot: Pilot[Any], text: str = "hello") -> None:
    """Type, send, and wait for the end of the answer."""
    turns = len(chat_screen(pilot).chat.conversation.turns)
    await until(pilot, lambda: pilot.app.focused is not None)
    await pilot.press(*text, "enter")
    await until(pilot, lambda: len(chat_screen(pilot).chat.conversation.turns) > turns)
    await settled(pilot)


async def settled(pilot: Pilot[Any]) -> None:
    """Until no answer is being made and the last one is drawn."""
    chat = chat_screen(pilot).chat
    await until(pilot, lambda: not chat.runner.busy)
    await until(pilot, lambda: not any(item.is_growing() for item in chat_screen(pilot).transcript._items[-1:]))


def chat_screen(pilot: Pilot[Any]) -> ChatScreen:
    screen = pilot.app.screen_stack[0]
    assert isinstance(screen, ChatScreen)
    return screen


def screen_lines(app: Any) -> list[str]:
    """What a person sees, line by line."""
    from textual.geometry import Region

    width, height = app.size
    update = app.screen._compositor.render_strips(app.size)
    return [strip.text.rstrip() for strip in update][:height] if update else [str(Region(0, 0, width, height))]


def screen_text(app: Any) -> str:
    return "\n".join(screen_lines(app))
