"""The chat: conversation, live panel, prompt."""

from __future__ import annotations

from dataclasses import replace
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
from localspec.ground.errors import Cancelled, ContextFull, EngineDied, LocalspecError
from localspec.ground.terminal import one_line
from localspec.tui.screens.news import remarks_on, status_of
from localspec.tui.screens.page import copy, copy_code, notify
from localspec.tui.screens.template import TemplateScreen, template_key
from localspec.tui.screens.trouble import ContextFullScreen, EngineDiedScreen
from localspec.tui.units import legend_text
from localspec.tui.widgets.panel import Panel, panel_state, strip_text
from localspec.tui.widgets.prompt import Prompt
from localspec.tui.widgets.transcript import Transcript
from localspec.ui import controls
from localspec.ui import runner as news_of
from localspec.ui.chat import Busy, Chat, NeedsTemplate
from localspec.ui.family_templates import family_template
from localspec.ui.memory import memory_use
from localspec.ui.preferences import PromptHistory, Remembered

if TYPE_CHECKING:
    from localspec.session import Session
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

    def __init__(self, news: news_of.News) -> None:
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
        Binding("ctrl+o", "app.sessions", "Saved conversations", priority=True),
        Binding("f2", "app.pairs", "Pairs: choose, pull, remove", priority=True),
        Binding("f4", "app.settings", "Settings of the next answer", priority=True),
        Binding("f5", "speculate('on_off')", "Speculation: auto, off", priority=True),
        Binding("f6", "speculate('drafter')", "Next drafter", priority=True),
        Binding("f7", "speculate('shorter')", "Shorter drafts: K - 1", priority=True),
        Binding("f8", "speculate('longer')", "Longer drafts: K + 1", priority=True),
        Binding("f9", "app.swap_draft", "Swap the draft model", priority=True),
        Binding("f10", "panel", "Show or hide the panel", priority=True),
        Binding("f11", "app.log", "The engine's log", priority=True),
        Binding("f12", "app.bench", "Benchmark", priority=True),
        Binding("ctrl+home", "scroll('home')", "To the beginning", priority=True),
        Binding("ctrl+end", "scroll('end')", "To the end", priority=True),
    ]

    def __init__(
        self, chat: Chat, remembered: Remembered, history: PromptHistory, ticks_per_second: float
    ) -> None:
        super().__init__()
        self.chat = chat
        self._remembered = remembered
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
        preferences = self._remembered.now
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
        line = one_line(" · ".join(["localspec", *self.chat.headline]), max(20, self.app.size.width - 2))
        self.query_one("#title", Static).update(line, layout=False)

    def say_status(self, text: str) -> None:
        """What is going on, in the line above the prompt; when nothing is, what the colours mean."""
        self._status = text
        legend = self._remembered.now.provenance and not text
        shown = legend_text(self.app.no_color, bool(self.app.native_ansi_color)) if legend else one_line(text)
        self.query_one("#status", Static).update(shown, layout=False)

    # --- the engine's news -----------------------------------------------------------------------------

    @on(NewsArrived)
    def _take_news(self, message: NewsArrived) -> None:
        status = status_of(message.news, self.chat.runner.busy)
        if status is not None:
            self.say_status(status)
        match message.news:
            case news_of.Opened(session):
                self._opened(session)
            case news_of.AnswerEnded() as ended:
                self._answer_ended(ended)
            case news_of.DraftSwapped(session):
                self._look_at_memory(session)
                draft = session.files.draft.name if session.files.draft else "no draft model"
                self.say(f"Draft: {draft}. The target kept its cache.")
                self.remember_pair()
            case news_of.Unforeseen(error):
                self.say(f"{type(error).__name__}: {error}. This is a bug in localspec", "error", 30.0)
            case news_of.OpenFailed(_, error) | news_of.SwapFailed(_, error):
                self._ask_about(error)
        self._draw_title()
        self.draw_numbers()

    def _opened(self, session: Session) -> None:
        self._look_at_memory(session)
        for remark in remarks_on(session):
            self.say(*remark)
        if not session.info.has_template:
            self._recall_template(session)
        self.remember_pair()

    def _look_at_memory(self, session: Session) -> None:
        self.memory = None if self.chat.is_remote else memory_use(session)

    def _answer_ended(self, ended: news_of.AnswerEnded) -> None:
        self.transcript.grow()
        if text := self.chat.ended(ended):
            self.prompt.offer(text)
            self.show_conversation()
        self.say_status(self.chat.save_fault)
        if ended.error is not None:
            self._ask_about(ended.error)
        elif ended.answer.reason == "length" and self.chat.settings.max_tokens is None:
            self._ask_for_room("the answer reached the context's end")

    # --- what only a person can decide ---------------------------------------------------------------

    def _ask_about(self, error: Exception) -> None:
        """Whatever the engine's thread ran into."""
        if isinstance(error, NeedsTemplate):
            self.app.push_screen(TemplateScreen(), self._use_template)
        elif isinstance(error, EngineDied):
            self.app.push_screen(EngineDiedScreen(error), self._restart)
        elif isinstance(error, ContextFull):
            self._ask_for_room(error.message)
        elif not isinstance(error, Cancelled):
            self.complain(error)

    def _ask_for_room(self, what: str) -> None:
        self.app.push_screen(ContextFullScreen(what), self._make_room)

    def _restart(self, how: str | None) -> None:
        options = self.chat.options
        if how is None or options is None:
            return
        if how == "no-draft":
            options = replace(options, draft="none")
            self.chat.speculate(SpeculationSettings("none"))
        self.chat.open_pair(self.chat.pair, options)
        self.say_status("starting the engine again")

    def _make_room(self, how: str | None) -> None:
        if how == "skip":
            count = self.chat.skip_oldest()
            self.say(
                f"{count} older messages stay on file and are no longer sent."
                if count
                else "There is nothing older that could be left out."
            )
        elif how == "new":
            self.action_new_chat()
        elif how == "edit" and self.chat.conversation.turns:
            self.action_edit_last()

    def _recall_template(self, session: Session) -> None:
        """Use what was chosen for this file before; else ask when the first message is sent."""
        chosen = family_template(self._remembered.now.templates.get(template_key(session), ""))
        self.chat.settings.template = chosen
        if chosen is not None:
            self.say(f"No chat template in this file; using your choice: {chosen.title}")
        elif not self.chat.settings.raw:
            self.say("This file has no chat template. You will be asked how to write to it.", "warning")

    def _use_template(self, name: str | None) -> None:
        """From now on, and for what was being sent."""
        family, session = family_template(name or ""), self.chat.runner.session
        if family is not None and session is not None:
            self.chat.settings.template = family
            self._remembered.choose_template(template_key(session), family.name)
            self.prompt.send()

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
                copy(self.app, turn.said, "message")
            case "copy_code":
                copy_code(self.app, turn.said)
            case "rounds":
                self._show_rounds(message.index)

    def action_copy_answer(self) -> None:
        if (answer := self.chat.conversation.last_answer) is not None:
            copy(self.app, answer.text, "answer")

    def action_copy_code(self) -> None:
        if (answer := self.chat.conversation.last_answer) is not None:
            copy_code(self.app, answer.text)

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

    def action_speculate(self, how: str) -> None:
        session = self.chat.runner.session
        drafters = tuple(DRAFTERS) if session is None else session.info.drafters
        seen = self.chat.runner.meter.reading().length_now
        speculation = controls.pressed(how, self.chat.settings.speculation, drafters, seen)
        if session is not None and session.info.speculation_off and speculation.drafter != "none":
            self.say(f"Speculation cannot be used: {session.info.speculation_off}", "warning")
            return
        self.chat.speculate(speculation)
        self.say(f"Speculation {controls.described(speculation)}, from the next round on.", seconds=2.5)
        self.remember_settings()

    # --- other views -----------------------------------------------------------------------------------

    def action_origins(self) -> None:
        by_origin = not self._remembered.now.provenance
        self._remembered.change(provenance=by_origin)
        self.transcript.set_by_origin(by_origin)
        self.say_status(self._status)

    def action_panel(self) -> None:
        self._remembered.change(panel=not self._remembered.now.panel)
        self.set_class(not self._remembered.now.panel, "-no-panel")
        self.call_after_refresh(self.draw_numbers)

    def action_rounds(self) -> None:
        self._show_rounds(self.transcript.selected)

    def _show_rounds(self, index: int | None) -> None:
        """Of the answer at `index`, else of the last one."""
        from localspec.tui.screens.rounds import RoundsScreen

        turns = self.chat.conversation.turns
        answer = turns[index].answer if index is not None else None
        answer = answer or self.chat.conversation.last_answer
        if answer is None:
            self.say("There is no answer yet.", "warning")
        elif not answer.steps:
            self.say("No rounds are known of this answer.", "warning")
        else:
            self.app.push_screen(RoundsScreen(answer))

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

    # --- what is remembered ----------------------------------------------------------------------------

    def remember_settings(self) -> None:
        """For the next start."""
        self._remembered.change(sampler=self.chat.settings.sampler, system=self.chat.conversation.system)
        self.draw_numbers()

    def remember_pair(self) -> None:
        """For the next start."""
        draft = self.chat.options.draft if self.chat.options is not None else None
        self._remembered.change(last_pair=self.chat.pair, last_draft=draft or "")
