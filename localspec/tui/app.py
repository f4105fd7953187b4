"""The application: one chat, and the screens around it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.screen import Screen

from localspec.ground.machine import usable_cpus
from localspec.tui.screens.chat import ChatScreen, NewsArrived
from localspec.tui.screens.page import if_given, notify, tell
from localspec.ui.chat import Chat, ChatSettings
from localspec.ui.preferences import PreferenceFile, PromptHistory, Remembered
from localspec.ui.runner import News, OpenSession, Runner
from localspec.ui.session_store import SessionStore

if TYPE_CHECKING:
    from localspec.engine.process.handle import EngineHandle
    from localspec.engine.records import LoadProgress
    from localspec.session import LoadOptions, Session

_FEW_CPUS = 2
_TICKS, _FEW_TICKS = 10.0, 3.0
"""Looks at a running answer per second; fewer where the UI and the model share the processors."""
_HANGUP = 129
_INTERRUPTED = 130
_TERMINATED = 143


@dataclass(frozen=True, slots=True)
class Start:
    """What the command line said."""

    pair: str = ""
    """"" = the one used last, or none."""
    options: LoadOptions | None = None
    settings: ChatSettings | None = None
    """None = what was used last."""
    system: str | None = None
    session: str = ""
    """A saved conversation to go on with."""
    theme: str = ""
    """"" = the one used last."""
    replay: bool = False
    """Only show that conversation: no model is loaded."""


class LocalspecApp(App[int]):
    """Starts on the chat, with the prompt focused."""

    CSS_PATH = "app.tcss"
    TITLE = "localspec"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar = [
        Binding("ctrl+q", "quit", "Quit", priority=True),
        Binding("f1", "keys", "All keys", priority=True),
    ]

    def __init__(
        self,
        start: Start,
        open_session: OpenSession | None = None,
        store: SessionStore | None = None,
        preference_file: PreferenceFile | None = None,
        history: PromptHistory | None = None,
    ) -> None:
        super().__init__()
        self._start = start
        self._remembered = Remembered(preference_file or PreferenceFile())
        before = self._remembered.now
        settings = start.settings or ChatSettings(before.sampler)
        system = before.system if start.system is None else start.system
        runner = Runner(open_session or _open_session, self._tell)
        self.chat = Chat(runner, store or SessionStore(), settings, system)
        few = usable_cpus() <= _FEW_CPUS
        if few:
            self.animation_level = "none"
        ticks = _FEW_TICKS if few else _TICKS
        self._chat_screen = ChatScreen(self.chat, self._remembered, history or PromptHistory(), ticks)

    def get_default_screen(self) -> Screen[Any]:
        return self._chat_screen

    def on_mount(self) -> None:
        theme = self._start.theme or self._remembered.now.theme
        if theme in self.available_themes:
            self.theme = theme
        self.theme_changed_signal.subscribe(self, lambda theme: self._remembered.change(theme=theme.name))
        self._obey_signals()
        # After the first paint: opening a pair imports and reads a lot.
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        start, screen = self._start, self._chat_screen
        screen.begun = True
        if start.session:
            session = self.chat.reopen(self.chat.store.find(start.session))
            screen.show_conversation()
            if start.replay:
                screen.say("Saved. ^T shows origins, ^G steps through rounds, F2 opens a pair.")
                return
            if not start.pair:
                self._open(session.meta.pair, session.meta.draft or None)
                return
        if start.pair:
            assert start.options is not None
            self.chat.open_pair(start.pair, start.options)
            screen.show_conversation()
        elif last := self._remembered.now.last_pair:
            self._open(last, self._remembered.now.last_draft or None)
        else:
            from localspec.tui.screens.first_run import FirstRunScreen

            self.push_screen(FirstRunScreen(), if_given(self._open_instead))

    def _open(self, pair: str, draft: str | None) -> None:
        from localspec.session import LoadOptions

        options = replace(self._start.options or LoadOptions(), draft=draft)
        self.chat.open_pair(pair, options)
        self._chat_screen.show_conversation()

    def _open_instead(self, pair: str) -> None:
        """In place of the one that is open."""
        from localspec.session import LoadOptions

        self.chat.open_pair(pair, replace(self.chat.options or LoadOptions(), draft=None))
        self._chat_screen.say_status(f"loading {pair}")

    # --- news ----------------------------------------------------------------------------------------

    def _tell(self, news: News) -> None:
        """Called in the engine's thread."""
        tell(self._chat_screen, NewsArrived(news))

    # --- other screens -------------------------------------------------------------------------------

    def action_sessions(self) -> None:
        from localspec.tui.screens.sessions import SessionsScreen

        self.push_screen(SessionsScreen(self.chat), lambda _: self._chat_screen.show_conversation())

    def action_pairs(self) -> None:
        from localspec.tui.screens.pairs import PairsScreen

        self.push_screen(PairsScreen(), if_given(self._open_instead))

    def action_settings(self) -> None:
        from localspec.tui.screens.settings import SettingsScreen

        self.push_screen(SettingsScreen(self.chat), lambda _: self._chat_screen.remember_settings())

    def action_swap_draft(self) -> None:
        from localspec.tui.screens.draft import DraftScreen

        session, say = self.chat.runner.session, self._chat_screen.say
        if session is None:
            say("No model is loaded yet.", "warning")
        elif self.chat.is_remote:
            say("The draft was chosen where the server was started: localspec serve PAIR --draft D", "warning")
        else:
            self.push_screen(DraftScreen(session), if_given(self._swap))

    def _swap(self, draft: str) -> None:
        self.chat.swap_draft(draft)
        waits = " after this answer" if self.chat.runner.busy else ""
        self._chat_screen.say_status(f"swapping the draft{waits}")

    def action_bench(self) -> None:
        from localspec.tui.screens.bench import BenchScreen

        self.push_screen(BenchScreen(self.chat))

    def action_log(self) -> None:
        from localspec.tui.screens.log import log_screen

        session = self.chat.runner.session
        server = self.chat.pair if self.chat.is_remote else ""
        self.push_screen(log_screen(session.client if session is not None else None, server))

    # --- keys ----------------------------------------------------------------------------------------

    async def action_quit(self) -> None:
        self.exit(0)

    def action_help_quit(self) -> None:
        """Ctrl+C where nothing is selected to be copied: as in a shell it stops what runs, and nothing else."""
        if self.screen is self._chat_screen and self.chat.runner.busy:
            self._chat_screen.action_stop()
        else:
            notify(self, "Ctrl+Q quits.", seconds=3)

    def action_keys(self) -> None:
        from localspec.tui.screens.help import HelpScreen

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.screen))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        yield from super().get_system_commands(screen)
        chat = self._chat_screen
        if screen is not chat:
            return
        for binding in chat.BINDINGS:
            assert isinstance(binding, Binding)
            yield SystemCommand(binding.description, f"Key: {binding.key}", _runs(chat, binding.action))
        yield SystemCommand("Copy the answer", "", _runs(chat, "copy_answer"))
        yield SystemCommand("Copy the last code block", "", _runs(chat, "copy_code"))
        yield SystemCommand("Edit my last message", "", _runs(chat, "edit_last"))

    # --- leaving -------------------------------------------------------------------------------------

    def _obey_signals(self) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        with suppress(NotImplementedError, ValueError, RuntimeError):
            loop.add_signal_handler(signal.SIGTERM, lambda: self.exit(_TERMINATED))
            loop.add_signal_handler(signal.SIGINT, lambda: self.exit(_INTERRUPTED))
            loop.add_signal_handler(signal.SIGHUP, self._hang_up)

    def _hang_up(self) -> None:
        """The terminal is gone: nothing can be drawn any more. Leave at once, and take the engine along."""
        self.chat.close()
        os._exit(_HANGUP)


def _runs(screen: Screen[Any], action: str) -> Any:
    async def run() -> None:
        await screen.run_action(action)

    return run


def _open_session(
    pair: str,
    options: LoadOptions,
    on_progress: Callable[[LoadProgress], None] | None = None,
    on_client: Callable[[EngineHandle], None] | None = None,
) -> Session:
    from localspec.session import open_session

    return open_session(pair, options, on_progress, on_client)


def run_app(start: Start) -> int:
    """Show the UI until it is left; the exit code."""
    app = LocalspecApp(start)
    try:
        result = app.run()
    finally:
        app.chat.close()
    return app.return_code or 0 if result is None else result
