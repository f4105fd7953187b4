"""What a person does in a chat, whatever shows it: send, stop, answer again, edit, start over, reopen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.engine.settings import GenerationRequest, SamplerSettings, SpeculationSettings
from localspec.ground.errors import InvalidInput
from localspec.ui.answer import Answer
from localspec.ui.conversation import Conversation, Turn
from localspec.ui.family_templates import FamilyTemplate
from localspec.ui.meter import Meter, meter_of
from localspec.ui.runner import AnswerEnded, Runner
from localspec.ui.session_file import SavedSession, SessionWriter, read_session
from localspec.ui.session_store import SessionStore

if TYPE_CHECKING:
    from localspec.session import LoadOptions, Session


class NeedsTemplate(InvalidInput):
    """The model has no chat template, and nobody has chosen one yet."""


@dataclass(slots=True)
class ChatSettings:
    """What the next answer is made with. Sampler and speculation also act on the running one."""

    sampler: SamplerSettings = field(default_factory=SamplerSettings)
    speculation: SpeculationSettings = field(default_factory=SpeculationSettings)
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    template_arguments: tuple[tuple[str, object], ...] = ()
    template: FamilyTemplate | None = None
    """For models that have none of their own."""
    raw: bool = False
    """Never use a template."""


class Busy(InvalidInput):
    """An answer is being made."""

    def __init__(self) -> None:
        super().__init__("the answer is not finished", "Esc stops it")


class Chat:
    """One conversation at a time, its file, and the engine behind it."""

    def __init__(self, runner: Runner, store: SessionStore, settings: ChatSettings, system: str = "") -> None:
        self.runner = runner
        self.store = store
        self.settings = settings
        self.pair = ""
        """The name that was opened, "" = none."""
        self.options: LoadOptions | None = None
        self.conversation = Conversation(system=system)
        self._system = system
        self._writer = store.new("")

    @property
    def path(self) -> Path:
        """Where the conversation is, or will be, saved."""
        return self._writer.path

    @property
    def is_remote(self) -> bool:
        """Whether the models are in a server, and not in a process of ours."""
        from localspec.remote import is_url

        return is_url(self.pair)

    @property
    def headline(self) -> list[str]:
        """Which models, and what the conversation is about; those that are known."""
        session, last = self.runner.session, self.conversation.last_answer
        models = self.pair
        if session is not None:
            draft = session.files.draft.name if session.files.draft else "no draft model"
            models = f"{session.files.target.name} + {draft}"
        elif not self.pair and last is not None and last.target:
            models = f"{last.target} + {last.draft or 'no draft model'}"
        return [part for part in (models, self.conversation.shown_title) if part]

    @property
    def saved(self) -> SavedSession:
        """The conversation as it would be read back, for exports."""
        return SavedSession(self._writer.meta, self.conversation)

    @property
    def save_fault(self) -> str:
        """Why the conversation is not being saved, "" when it is."""
        return self._writer.fault

    # --- the engine ----------------------------------------------------------------------------------

    def open_pair(self, pair: str, options: LoadOptions) -> None:
        """Load a pair; messages wait for it."""
        self.pair, self.options = pair, options
        if not self.conversation.turns:
            self._begin_file()
        self.runner.open(pair, options)

    def unload(self) -> None:
        """Give the memory back; `reload` brings the same pair again."""
        self.runner.unload()

    def reload(self) -> None:
        """Load the pair again, if there is one."""
        if self.pair and self.options is not None:
            self.runner.open(self.pair, self.options)

    def swap_draft(self, draft: str) -> None:
        """Another draft model (`none` for no one) beside the target, after the running answer."""
        if self.options is None:
            raise InvalidInput("no model is loaded", "Choose a pair: F2")
        self.runner.swap_draft(draft, self.options)

    def speculate(self, speculation: SpeculationSettings) -> None:
        """From the next round on."""
        self.settings.speculation = speculation
        self.runner.change(speculation, None)

    def sample(self, sampler: SamplerSettings) -> None:
        """From the next round on."""
        self.settings.sampler = sampler
        self.runner.change(None, sampler)

    # --- turns ---------------------------------------------------------------------------------------

    def send(self, text: str) -> Turn:
        """Say something; returns the turn of the answer. Raises Busy."""
        self._refuse_if_busy()
        if not self.pair:
            raise InvalidInput("no pair is open", "Choose one: F2")
        if not self.conversation.turns and self.conversation.system:
            self._writer.system(self.conversation.system)
        self._writer.message(text)
        self.conversation.turns.append(Turn("user", text))
        return self._answer()

    def regenerate(self, index: int | None = None) -> Turn:
        """Answer again the last message, or that of turn `index`. Raises Busy, InvalidInput."""
        self._refuse_if_busy()
        turns = self.conversation.turns
        last = len(turns) - 1 if index is None else index
        while last >= 0 and turns[last].role != "user":
            last -= 1
        if last < 0:
            raise InvalidInput("there is nothing to answer", "Write something first")
        self._keep(last + 1)
        return self._answer()

    def take_back(self, index: int) -> str:
        """Remove the message at or before turn `index` and all after it; returns its text, to be edited."""
        self._refuse_if_busy()
        turns = self.conversation.turns
        while index >= 0 and turns[index].role != "user":
            index -= 1
        if index < 0:
            raise InvalidInput("there is no message to edit", "Write something first")
        text = turns[index].text
        self._keep(index)
        return text

    def stop(self) -> None:
        """End the running answer, and forget those that wait."""
        self.runner.stop()

    def ended(self, news: AnswerEnded) -> str:
        """An answer ended. Without a word in it, it is taken back with its question (returned)."""
        turns = self.conversation.turns
        if news.answer.text or not turns or turns[-1].answer is not news.answer:
            return ""
        if news.answer.reason == "stop":  # the model chose to say nothing
            return ""
        text = turns[-2].text if len(turns) > 1 else ""
        self._keep(max(0, len(turns) - 2))
        return text

    def set_system(self, text: str) -> None:
        """Another system prompt, for this conversation from the next answer on and for new ones."""
        self._system = self.conversation.system = text
        if self.conversation.turns:
            self._writer.system(text)

    def skip_oldest(self) -> int:
        """Stop sending the oldest turns; returns how many."""
        count = self.conversation.skip_oldest()
        if count:
            self._writer.skip(self.conversation.skipped)
        return count

    # --- conversations -------------------------------------------------------------------------------

    def new(self) -> None:
        """An empty conversation. Raises Busy."""
        self._refuse_if_busy()
        self.conversation = Conversation(system=self._system)
        self.runner.meter = Meter()
        self._begin_file()

    def reopen(self, path: Path) -> SavedSession:
        """Go on with a saved one. Raises Busy, UnreadableFile."""
        self._refuse_if_busy()
        session = read_session(path)
        self._writer.close()
        self.conversation = session.conversation
        self._writer = SessionWriter(path, session.meta)
        last = self.conversation.last_answer
        self.runner.meter = Meter() if last is None else meter_of(last.stats, [step.round for step in last.steps])
        return session

    def rename(self, title: str) -> None:
        """Give the conversation a title, in its file too."""
        self.conversation.title = title
        self._writer.title(title)

    def close(self) -> None:
        """End the engine and the file."""
        self.runner.close()
        self._writer.close()

    # --- parts ---------------------------------------------------------------------------------------

    def _answer(self) -> Turn:
        turn = Turn("assistant", answer=Answer())
        messages = self._request_maker()
        self.conversation.turns.append(turn)
        assert turn.answer is not None
        self.runner.ask(turn.answer, messages, self._writer)
        return turn

    def _request_maker(self) -> Callable[[Session], GenerationRequest]:
        messages = self.conversation.messages()
        text = self.conversation.as_plain_text()
        settings = self.settings

        def make(session: Session) -> GenerationRequest:
            template = settings.template if not session.info.has_template else None
            raw = settings.raw or (template is not None and not template.source)
            if not raw and not session.info.has_template and template is None:
                raise NeedsTemplate("this model's file has no chat template", "Choose how to write to it")
            return GenerationRequest(
                messages=() if raw else messages,
                prompt=text if raw else None,
                sampler=settings.sampler,
                speculation=settings.speculation,
                max_tokens=settings.max_tokens,
                stop=(*settings.stop, *(template.stop if template is not None else ())),
                template_arguments=settings.template_arguments,
                template=template.source if template is not None and not raw else None,
            )

        return make

    def _keep(self, turns: int) -> None:
        if turns < len(self.conversation.turns):
            del self.conversation.turns[turns:]
            self.conversation.skipped = min(self.conversation.skipped, turns)
            self._writer.keep(turns)

    def _begin_file(self) -> None:
        self._writer.close()
        draft = (self.options.draft or "") if self.options is not None else ""
        self._writer = self.store.new(self.pair, draft)

    def _refuse_if_busy(self) -> None:
        if self.runner.busy:
            raise Busy
