"""The chat: conversation, live panel, prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Input, Static

from localspec.engine.drafters.table import DRAFTERS
from localspec.engine.settings import SpeculationSettings
from localspec.ground.errors import LocalspecError
from localspec.ground.terminal import one_line
from localspec.tui.screens import copying, views
from localspec.tui.screens.news import take_news
from localspec.tui.screens.page import notify
from localspec.tui.units import legend_text
from localspec.tui.widgets.panel import Panel, panel_state, strip_text
from localspec.tui.widgets.prompt import Prompt
from localspec.tui.widgets.transcript import Transcript
from localspec.ui import controls
from localspec.ui.chat import Busy, Chat
from localspec.ui.preferences import PromptHistory
from localspec.ui.runner import News

if TYPE_CHECKING:
    from localspec.ui.memory import MemoryUse

_PANEL_FROM = (100, 24)
"""Columns and rows from which the panel has room beside the conversation."""
_TINY = (40, 12)
_SLOW_PERIOD = 0.2
"""Seconds between two looks from which on a blinking cursor is a luxury too."""
_KEYS = (
    "Enter send · Esc stop · ^T origins · ^G rounds · ^R again · F5 on/off · F6 drafter · F9 draft · F1 keys · ^Q quit"
)
_KEYS_NARROW = "Esc stop · ^T origins · ^G rounds · ^R again · F5 on/off · F1 keys · ^Q quit"


class NewsArrived(Message):
    """The engine's thread has something to say."""

    def __init__(self, news: News) -> None:
        super().__init__()
        self.news = news


class ChatScreen(Screen[None]):
    """One conversation with one pair."""

    AUTO_FOCUS = "#prompt"
    BINDINGS = [  # noqa: RUF012 - textual's interface
        Binding("escape", "stop", "Stop the answer", priority=False),
        Binding("ctrl+t", "origins", "Show where each word comes from", priority=True),
        Binding("ctrl+g", "rounds", "Step through the rounds of an answer", priority=True),
        Binding("ctrl+r", "regenerate", "Answer again", priority=True),
        Binding("ctrl+n", "new_chat", "New chat", priority=True),
        Binding("ctrl+f", "find", "Find in the conversation", priority=True),
        Binding("f3", "find_next", "Find further up"),
        Binding("ctrl+o", "sessions", "Saved conversations", priority=True),
        Binding("f2", "pairs", "Pairs: choose, pull, remove", priority=True),
        Binding("f4", "settings", "Settings of the next answer", priority=True),
        Binding("f5", "speculation", "Speculation: auto, off", priority=True),
        Binding("f6", "drafter", "Next drafter", priority=True),
        Binding("f7", "shorter", "Shorter drafts: K - 1", priority=True),
        Binding("f8", "longer", "Longer drafts: K + 1", priority=True),
        Binding("f9", "swap_draft", "Swap the draft model", priority=True),
        Binding("f10", "panel", "Show or hide the panel", priority=True),
        Binding("f11", "log", "The engine's log", priority=True),
        Binding("f12", "bench", "Benchmark", priority=True),
        Binding("ctrl+home", "scroll('home')", "To the beginning", priority=True),
        Binding("ctrl+end", "scroll('end')", "To the end", priority=True),
    ]

    def __init__(self, chat: Chat, history: PromptHistory, ticks_per_second: float) -> None:
        super().__init__()
        self.chat = chat
        self._history = history
        self._period = 1 / ticks_per_second
        self._ticker: Timer | None = None
        self.memory: MemoryUse | None = None
        self._status = ""
        self.begun = False
        """Whether the app has opened what it was started with; a message waits for that."""
        self._ticks = 0
        self._numbers_every = max(3, round(ticks_per_second / 2))

    def compose(self) -> ComposeResult:
        yield Static("", id="title", markup=False)
        with Horizontal(id="body"):
            yield Transcript(id="transcript")
            yield Panel(id="panel")
        yield Static("", id="strip", markup=False)
        yield Static("", id="status", markup=False)
        yield Input(placeholder="Find: Enter goes up, F3 further, Esc ends", id="find")
        yield Prompt(self._history, id="prompt")
        yield Static(_KEYS, id="keys", markup=False)

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    @property
    def prompt(self) -> Prompt:
        return self.query_one(Prompt)

    def on_mount(self) -> None:
        self._ticker = self.set_interval(self._period, self._tick, pause=True)
        preferences = self._preferences
        self.transcript.set_plain(self.app.no_color)
        self.transcript.set_by_origin(preferences.provenance)
        self.set_class(not preferences.panel, "-no-panel")
        self.show_conversation()
        self.say_status("")
        self.prompt.cursor_blink = self._period < _SLOW_PERIOD

    def on_resize(self) -> None:
        width, height = self.app.size
        self.set_class(width < _PANEL_FROM[0] or height < _PANEL_FROM[1], "-narrow")
        self.set_class(width < _TINY[0] or height < _TINY[1], "-tiny")
        self.query_one("#keys", Static).update(_KEYS if width >= 114 else _KEYS_NARROW)
        self.draw_numbers()
        self.call_after_refresh(self.draw_numbers)  # once more, when the widths are settled

    # --- showing -------------------------------------------------------------------------------------

    def show_conversation(self) -> None:
        """After the turns were replaced."""
        self.transcript.show(self.chat.conversation.turns)
        self._draw_title()
        self.draw_numbers()

    def say(self, text: str, severity: str = "information", seconds: float = 6.0) -> None:
        """A notification; text from anywhere."""
        notify(self.app, text, severity, seconds)

    def complain(self, error: Exception) -> None:
        """What went wrong, and what to do."""
        self.say(str(error), "error" if not isinstance(error, Busy) else "warning", 10.0)

    def _tick(self) -> None:
        """Text at every tick, numbers more rarely: they are the larger part of the cost."""
        self.transcript.grow()
        if not self.chat.runner.busy:
            if self._ticker is not None:
                self._ticker.pause()
            self.draw_numbers()
        elif self._ticks % self._numbers_every == 0:
            self.query_one(Panel).note_rate(self.chat.runner.meter.reading().rate_now)
            self.draw_numbers()
        self._ticks += 1

    def draw_numbers(self) -> None:
        """Bring the panel, or on narrow screens the strip, up to date."""
        state = panel_state(self.chat, self.memory, self.query_one(Panel).rates)
        if self.has_class("-narrow") or self.has_class("-no-panel"):
            strip = self.query_one("#strip", Static)
            strip.update(strip_text(state, max(20, strip.content_size.width)), layout=False)
        else:
            self.query_one(Panel).show(state)

    def _draw_title(self) -> None:
        session = self.chat.runner.session
        parts = ["localspec"]
        if session is not None:
            draft = session.files.draft.name if session.files.draft else "no draft model"
            parts.append(f"{session.files.target.name} + {draft}")
        elif self.chat.pair:
            parts.append(self.chat.pair)
        elif (answer := self.chat.conversation.last_answer) is not None and answer.target:
            parts.append(f"{answer.target} + {answer.draft or 'no draft model'}")
        if title := self.chat.conversation.shown_title:
            parts.append(title)
        title_line = one_line(" · ".join(parts), max(20, self.app.size.width - 2))
        self.query_one("#title", Static).update(title_line, layout=False)

    def say_status(self, text: str) -> None:
        """What is going on, in the line above the prompt; when nothing is, what the colours mean."""
        self._status = text
        legend = self._preferences.provenance and not text
        shown = legend_text(self.app.no_color, bool(self.app.native_ansi_color)) if legend else one_line(text)
        self.query_one("#status", Static).update(shown, layout=False)

    # --- the engine's news -----------------------------------------------------------------------------

    @on(NewsArrived)
    def _take_news(self, message: NewsArrived) -> None:
        take_news(self, message.news)
        self._draw_title()
        self.draw_numbers()

    # --- sending ---------------------------------------------------------------------------------------

    @on(Prompt.Sent)
    def _send(self, message: Prompt.Sent) -> None:
        if not self.begun:  # typed faster than the first paint; the pair is opened right after it
            self.set_timer(0.02, lambda: self._send(message))
            return
        try:
            self.chat.send(message.text)
        except LocalspecError as error:
            self.complain(error)
            return
        self.prompt.sent()
        self._begun()

    def _begun(self) -> None:
        if self.chat.runner.session is None:
            self.say_status("your message waits for the models")
        self.query_one(Panel).forget_rates()
        self.show_conversation()
        if self._ticker is not None:
            self._ticker.resume()

    @on(Prompt.Scrolled)
    def _scroll_from_prompt(self, message: Prompt.Scrolled) -> None:
        getattr(self.transcript, f"action_{message.action}")()

    def action_scroll(self, where: str) -> None:
        getattr(self.transcript, f"action_scroll_{where}")()

    def action_stop(self) -> None:
        if self.query_one("#find").has_class("-open"):
            self._end_find()
        elif self.chat.runner.busy:
            self.chat.stop()
            self.say_status("stopping")
        else:
            self.prompt.focus()

    def action_regenerate(self) -> None:
        self._try_again(None)

    def _try_again(self, index: int | None) -> None:
        try:
            self.chat.regenerate(index)
        except LocalspecError as error:
            self.complain(error)
            return
        self._begun()

    def edit(self, index: int) -> None:
        """Take a message back into the prompt, with all that follows it."""
        try:
            text = self.chat.take_back(index)
        except LocalspecError as error:
            self.complain(error)
            return
        self.prompt.text = ""
        self.prompt.offer(text)
        self.prompt.focus()
        self.show_conversation()

    @on(Transcript.Asked)
    def _asked(self, message: Transcript.Asked) -> None:
        turn = self.chat.conversation.turns[message.index]
        match message.what:
            case "edit":
                self.edit(message.index)
            case "regenerate":
                self._try_again(message.index)
            case "copy":
                copying.copy(self, turn.said, "message")
            case "copy_code":
                copying.copy_code(self, turn.said)
            case "rounds":
                views.show_rounds(self, message.index)

    def action_copy_answer(self) -> None:
        if (answer := self.chat.conversation.last_answer) is not None:
            copying.copy(self, answer.text, "answer")

    def action_copy_code(self) -> None:
        if (answer := self.chat.conversation.last_answer) is not None:
            copying.copy_code(self, answer.text)

    def action_edit_last(self) -> None:
        self.edit(len(self.chat.conversation.turns) - 1)

    def action_new_chat(self) -> None:
        try:
            self.chat.new()
        except LocalspecError as error:
            self.complain(error)
            return
        self.show_conversation()
        self.prompt.focus()

    # --- how guesses are made ------------------------------------------------------------------------

    def action_speculation(self) -> None:
        self._speculate(controls.toggled(self.chat.settings.speculation))

    def action_drafter(self) -> None:
        session = self.chat.runner.session
        drafters = tuple(DRAFTERS) if session is None else session.info.drafters
        self._speculate(controls.next_drafter(self.chat.settings.speculation, drafters))

    def action_shorter(self) -> None:
        self._change_length(-1)

    def action_longer(self) -> None:
        self._change_length(1)

    def _change_length(self, step: int) -> None:
        seen = self.chat.runner.meter.reading().length_now
        self._speculate(controls.with_length(self.chat.settings.speculation, seen, step))

    def _speculate(self, speculation: SpeculationSettings) -> None:
        session = self.chat.runner.session
        if session is not None and session.info.speculation_off and speculation.drafter != "none":
            self.say(f"Speculation cannot be used: {session.info.speculation_off}", "warning")
            return
        self.chat.speculate(speculation)
        self.say(f"Speculation {controls.described(speculation)}, from the next round on.", seconds=2.5)
        self.remember_settings()
        self.draw_numbers()

    # --- other views -----------------------------------------------------------------------------------

    def action_origins(self) -> None:
        by_origin = not self._preferences.provenance
        self._prefer(provenance=by_origin)
        self.transcript.set_by_origin(by_origin)
        self.say_status(self._status)

    def action_panel(self) -> None:
        self._prefer(panel=not self._preferences.panel)
        self.set_class(not self._preferences.panel, "-no-panel")
        self.call_after_refresh(self.draw_numbers)

    def action_rounds(self) -> None:
        views.show_rounds(self, self.transcript.selected)

    def action_find(self) -> None:
        box = self.query_one("#find", Input)
        box.add_class("-open")
        box.focus()

    def action_find_next(self) -> None:
        needle = self.query_one("#find", Input).value
        if needle and not self.transcript.find(needle):
            self.say("Not found.", "warning", 2.0)

    @on(Input.Submitted, "#find")
    def _find(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_find_next()

    def _end_find(self) -> None:
        self.query_one("#find").remove_class("-open")
        self.transcript.end_find()
        self.prompt.focus()

    def action_sessions(self) -> None:
        views.show_sessions(self)

    def action_pairs(self) -> None:
        views.show_pairs(self)

    def action_settings(self) -> None:
        views.show_settings(self)

    def action_swap_draft(self) -> None:
        views.show_drafts(self)

    def action_bench(self) -> None:
        views.show_bench(self)

    def action_log(self) -> None:
        views.show_log(self)

    # --- what is remembered ----------------------------------------------------------------------------

    @property
    def _preferences(self):  # type: ignore[no-untyped-def]
        return self.app.preferences  # type: ignore[attr-defined]

    def _prefer(self, **changes: object) -> None:
        self.app.prefer(**changes)  # type: ignore[attr-defined]

    def remember_settings(self) -> None:
        """For the next start."""
        settings = self.chat.settings
        self._prefer(sampler=settings.sampler, system=self.chat.conversation.system)

    def remember_pair(self) -> None:
        """For the next start."""
        draft = self.chat.options.draft if self.chat.options is not None else None
        self._prefer(last_pair=self.chat.pair, last_draft=draft or "")

    @property
    def remembered_templates(self) -> dict[str, str]:
        """By file: the template chosen for it."""
        return dict(self._preferences.templates)

    def remember_template(self, key: str, name: str) -> None:
        self._prefer(templates=self.remembered_templates | {key: name})
