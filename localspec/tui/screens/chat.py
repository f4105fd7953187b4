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

from localspec.chat import controls
from localspec.chat import runner as news_of
from localspec.chat.chat import Busy, Chat, NeedsTemplate
from localspec.chat.preferences import PromptHistory
from localspec.engine.records import LoadProgress, PrefillProgress
from localspec.engine.settings import SpeculationSettings
from localspec.errors import LocalspecError
from localspec.terminal import one_line
from localspec.tui import numbers
from localspec.tui.screens.trouble import show_context_full, show_trouble
from localspec.tui.widgets.panel import Panel, panel_state, strip_text
from localspec.tui.widgets.prompt import Prompt
from localspec.tui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from localspec.chat.memory import MemoryUse

_PANEL_FROM = (100, 24)
"""Columns and rows from which the panel has room beside the conversation."""
_TINY = (40, 12)
_KEYS = (
    "Enter send · Esc stop · ^T origins · ^G rounds · ^R again · F5 on/off · F6 drafter · F9 draft"
    " · F1 keys · ^Q quit"
)
_KEYS_NARROW = "Esc stop · ^T origins · ^G rounds · ^R again · F5 on/off · F1 keys · ^Q quit"
_SLOW_LOAD_SECONDS = 5.0


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
        self._memory: MemoryUse | None = None
        self._status = ""
        self._half = False

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

    def on_resize(self) -> None:
        width, height = self.app.size
        self.set_class(width < _PANEL_FROM[0] or height < _PANEL_FROM[1], "-narrow")
        self.set_class(width < _TINY[0] or height < _TINY[1], "-tiny")
        self.query_one("#keys", Static).update(_KEYS if width >= 114 else _KEYS_NARROW)
        self._draw_numbers()
        self.call_after_refresh(self._draw_numbers)  # once more, when the widths are settled

    # --- showing -------------------------------------------------------------------------------------

    def show_conversation(self) -> None:
        """After the turns were replaced."""
        self.transcript.show(self.chat.conversation.turns)
        self._draw_title()
        self._draw_numbers()

    def say(self, text: str, severity: str = "information", seconds: float = 6.0) -> None:
        """A notification; text from anywhere."""
        self.app.notify(one_line(text, 600), severity=severity, timeout=seconds, markup=False)  # type: ignore[arg-type]

    def complain(self, error: Exception) -> None:
        """What went wrong, and what to do."""
        self.say(str(error), "error" if not isinstance(error, Busy) else "warning", 10.0)

    def _tick(self) -> None:
        self.transcript.grow()
        if self.chat.runner.busy:
            self._half = not self._half
            if self._half:
                self.query_one(Panel).note_rate(self.chat.runner.meter.reading().rate_now)
        elif self._ticker is not None:
            self._ticker.pause()
        self._draw_numbers()

    def _draw_numbers(self) -> None:
        state = panel_state(self.chat, self._memory, self.query_one(Panel).rates)
        if self.has_class("-narrow") or self.has_class("-no-panel"):
            strip = self.query_one("#strip", Static)
            strip.update(strip_text(state, max(20, strip.content_size.width)))
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
        if title := self.chat.conversation.shown_title:
            parts.append(title)
        self.query_one("#title", Static).update(one_line(" · ".join(parts), max(20, self.app.size.width - 2)))

    def say_status(self, text: str) -> None:
        if text != self._status:
            self._status = text
            self.query_one("#status", Static).update(one_line(text))

    # --- the engine's news -----------------------------------------------------------------------------

    @on(NewsArrived)
    def _take_news(self, message: NewsArrived) -> None:
        match message.news:
            case LoadProgress(part, fraction):
                waiting = " · your message waits" if self.chat.runner.busy else ""
                self.say_status(f"loading the {part} {numbers.bar(fraction, 20)} {fraction:4.0%}{waiting}")
            case PrefillProgress(done, total) if total > 0:
                self.say_status(f"reading the prompt {numbers.bar(done / total, 20)} {done}/{total}")
            case news_of.Opened(session):
                self._opened(session)
            case news_of.OpenFailed(pair, error):
                self._open_failed(pair, error)
            case news_of.AnswerBegan():
                self.say_status("")
            case news_of.AnswerEnded() as ended:
                self._answer_ended(ended)
            case news_of.DraftSwapped(session):
                self._memory_of(session)
                self.say_status("")
                draft = session.files.draft.name if session.files.draft else "no draft model"
                self.say(f"Draft: {draft}. The target kept its cache.")
                self._remember_pair()
            case news_of.SwapFailed(_, error):
                self.say_status("")
                show_trouble(self, error)
        self._draw_title()
        self._draw_numbers()

    def _opened(self, session: object) -> None:
        from localspec.session import Session

        assert isinstance(session, Session)
        self.say_status("")
        self._memory_of(session)
        if session.info.load_seconds > _SLOW_LOAD_SECONDS:
            self.say(f"Ready after {session.info.load_seconds:.0f} s")
        if session.files.draft is None and not session.info.speculation_off:
            self.say_status("no draft model: guesses come from prompt lookup (F9 loads one)")
        if not session.info.has_template:
            from localspec.tui.screens.template import recall_template

            recall_template(self, session)
        self._remember_pair()

    def _open_failed(self, pair: str, error: Exception) -> None:
        self.say_status(f"{pair}: not loaded")
        show_trouble(self, error)

    def _answer_ended(self, ended: news_of.AnswerEnded) -> None:
        self.transcript.grow()
        text = self.chat.ended(ended)
        if text:
            self.prompt.offer(text)
            self.show_conversation()
        self.say_status(self.chat.save_fault)
        if isinstance(ended.error, NeedsTemplate):
            from localspec.tui.screens.template import choose_template

            choose_template(self)
        elif ended.error is not None and not (text and ended.answer.reason == "cancelled"):
            show_trouble(self, ended.error)
        elif ended.answer.reason == "length" and self.chat.settings.max_tokens is None:
            show_context_full(self, "the answer reached the context's end")

    def _memory_of(self, session: object) -> None:
        from localspec.chat.memory import memory_use
        from localspec.session import Session

        assert isinstance(session, Session)
        self._memory = memory_use(session)

    # --- sending ---------------------------------------------------------------------------------------

    @on(Prompt.Sent)
    def _send(self, message: Prompt.Sent) -> None:
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
                self.copy(turn.said, "message")
            case "copy_code":
                self._copy_code(turn.said)
            case "rounds":
                self._show_rounds(message.index)

    def copy(self, text: str, what: str) -> None:
        """To the clipboard, through the terminal."""
        self.app.copy_to_clipboard(text)
        self.say(f"Copied the {what}: {len(text):,} characters", seconds=3.0)

    def _copy_code(self, text: str) -> None:
        from localspec.tui.blocks import code_blocks

        codes = code_blocks(text)
        if codes:
            self.copy(codes[-1], "last code block" if len(codes) > 1 else "code block")
        else:
            self.say("There is no code block in it.", "warning")

    def action_copy_answer(self) -> None:
        if (answer := self.chat.conversation.last_answer) is not None:
            self.copy(answer.text, "answer")

    def action_copy_code(self) -> None:
        if (answer := self.chat.conversation.last_answer) is not None:
            self._copy_code(answer.text)

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
        has_draft = session is None or session.info.draft is not None
        self._speculate(controls.next_drafter(self.chat.settings.speculation, has_draft))

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
        self._remember_settings()
        self._draw_numbers()

    # --- other views -----------------------------------------------------------------------------------

    def action_origins(self) -> None:
        by_origin = not self._preferences.provenance
        self._prefer(provenance=by_origin)
        self.transcript.set_by_origin(by_origin)
        if by_origin:
            marks = " [accepted] ~corrected +bonus ‹rejected guess›" if self.app.no_color else ""
            self.say(f"Words by origin.{marks} ^T goes back to the text.", seconds=5.0)

    def action_panel(self) -> None:
        self._prefer(panel=not self._preferences.panel)
        self.set_class(not self._preferences.panel, "-no-panel")
        self.call_after_refresh(self._draw_numbers)

    def action_rounds(self) -> None:
        index = self.transcript.selected
        turns = self.chat.conversation.turns
        if index is None or turns[index].answer is None:
            index = next((i for i in range(len(turns) - 1, -1, -1) if turns[i].answer is not None), None)
        if index is None:
            self.say("There is no answer yet.", "warning")
        else:
            self._show_rounds(index)

    def _show_rounds(self, index: int) -> None:
        from localspec.tui.screens.rounds import RoundsScreen

        answer = self.chat.conversation.turns[index].answer
        if answer is None or not answer.steps:
            self.say("No rounds are known of this message.", "warning")
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

    def action_sessions(self) -> None:
        from localspec.tui.screens.sessions import SessionsScreen

        self.app.push_screen(SessionsScreen(self.chat), lambda _: self.show_conversation())

    def action_pairs(self) -> None:
        from localspec.tui.screens.pairs import PairsScreen

        self.app.push_screen(PairsScreen(), self.open_chosen)

    def action_log(self) -> None:
        from localspec.tui.screens.log import log_screen

        session = self.chat.runner.session
        self.app.push_screen(log_screen(session.client if session is not None else None))

    def action_bench(self) -> None:
        from localspec.tui.screens.bench import BenchScreen

        self.app.push_screen(BenchScreen(self.chat))

    def action_settings(self) -> None:
        from localspec.tui.screens.settings import SettingsScreen

        self.app.push_screen(SettingsScreen(self.chat), self._settings_done)

    def action_swap_draft(self) -> None:
        from localspec.tui.screens.draft import DraftScreen

        session = self.chat.runner.session
        if session is None:
            self.say("No model is loaded yet.", "warning")
            return
        self.app.push_screen(DraftScreen(session), self._swap_chosen)

    def open_chosen(self, pair: str | None) -> None:
        if pair:
            from localspec.session import LoadOptions

            self.chat.open_pair(
                pair, LoadOptions() if self.chat.options is None else replace(self.chat.options, draft=None)
            )
            self.say_status(f"loading {pair}")

    def _swap_chosen(self, draft: str | None) -> None:
        if draft:
            self.chat.swap_draft(draft)
            waits = " after this answer" if self.chat.runner.busy else ""
            self.say_status(f"swapping the draft{waits}")

    def _settings_done(self, _: object) -> None:
        self._remember_settings()
        self._draw_numbers()

    @property
    def remembered_templates(self) -> dict[str, str]:
        """By file: the template chosen for it."""
        return dict(self._preferences.templates)

    def remember_template(self, key: str, name: str) -> None:
        self._prefer(templates=self.remembered_templates | {key: name})

    # --- what is remembered ----------------------------------------------------------------------------

    @property
    def _preferences(self):  # type: ignore[no-untyped-def]
        return self.app.preferences  # type: ignore[attr-defined]

    def _prefer(self, **changes: object) -> None:
        self.app.prefer(**changes)  # type: ignore[attr-defined]

    def _remember_settings(self) -> None:
        settings = self.chat.settings
        self._prefer(
            sampler=settings.sampler, speculation=settings.speculation, system=self.chat.conversation.system
        )

    def _remember_pair(self) -> None:
        draft = self.chat.options.draft if self.chat.options is not None else None
        self._prefer(last_pair=self.chat.pair, last_draft=draft or "")
