"""The chat without a screen, on a scripted engine: what waits, what stops, what is said when things go wrong."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from localspec.engine.settings import SamplerSettings, SpeculationSettings
from localspec.engine.templates.chat_template import ChatTemplate
from localspec.ground.errors import Cancelled, EngineDied, InvalidInput
from localspec.session import LoadOptions
from localspec.ui.chat import Busy, NeedsTemplate
from localspec.ui.family_templates import FAMILIES, family_template, file_key
from localspec.ui.memory import MemoryUse
from localspec.ui.runner import AnswerEnded, DraftSwapped, Opened, OpenFailed, SwapFailed, Unforeseen
from localspec.ui.session_file import read_session
from tests.chat_tools import FakeChat
from tests.fake_engine import Script


def slow() -> Script:
    return Script(text="word " * 400, tokens_per_second=400)


def test_a_message_waits_for_the_models(tmp_path: Path) -> None:
    fake = FakeChat(tmp_path, Script(load_seconds=0.2))
    fake.chat.open_pair("pair", LoadOptions())
    turn = fake.chat.send("hello")
    assert fake.chat.runner.session is None and fake.chat.runner.busy
    fake.wait_idle()
    assert turn.said == "Hello, *world*." and [type(news) for news in fake.news if isinstance(news, Opened)]


def test_a_second_message_is_refused_while_one_is_answered(tmp_path: Path) -> None:
    """CON-03: sending twice quickly."""
    fake = FakeChat(tmp_path, slow()).open()
    fake.chat.send("one")
    for act in (lambda: fake.chat.send("two"), fake.chat.regenerate, fake.chat.new, lambda: fake.chat.take_back(0)):
        with pytest.raises(Busy):
            act()
    assert [turn.role for turn in fake.chat.conversation.turns] == ["user", "assistant"]
    fake.chat.stop()
    fake.wait_idle()


def test_a_stop_keeps_the_text_and_the_next_answer_works(tmp_path: Path) -> None:
    """SRV-03."""
    fake = FakeChat(tmp_path, slow()).open()
    turn = fake.chat.send("one")
    assert turn.answer is not None
    fake.wait_for(lambda: len(turn.answer.tokens) > 10)
    made = fake.opener.client.generated
    fake.chat.stop()
    fake.wait_idle()
    assert turn.answer.reason == "cancelled" and 10 < len(turn.answer.tokens) <= made + 8
    assert turn.said and read_session(fake.chat.path).conversation.turns[1].said == turn.said
    fake.opener.script.text = "short"
    assert fake.ask("two").text == "short"


def test_a_stop_while_waiting_takes_the_message_back(tmp_path: Path) -> None:
    fake = FakeChat(tmp_path, Script(load_seconds=0.3))
    fake.chat.open_pair("pair", LoadOptions())
    fake.chat.send("hello")
    fake.chat.stop()
    ended = fake.ended()
    assert isinstance(ended.error, Cancelled)
    assert fake.chat.ended(ended) == "hello" and not fake.chat.conversation.turns
    fake.wait_for(lambda: fake.chat.runner.session is not None)
    assert not fake.opener.client.requests, "the load went on, the answer was never begun"


def test_a_stop_in_the_prefill_takes_the_message_back(tmp_path: Path) -> None:
    fake = FakeChat(tmp_path, Script(prefill_seconds=5.0)).open()
    fake.chat.send("hello")
    fake.wait_for(lambda: bool(fake.opener.client.requests))
    fake.chat.stop()
    fake.wait_idle()
    ended = fake.ended()
    assert fake.chat.ended(ended) == "hello" and not fake.chat.conversation.turns


def test_what_the_template_refuses_is_not_sent(tmp_path: Path) -> None:
    """TPL-07."""
    refusal = InvalidInput("the chat template says: roles must alternate", "Nothing was sent")
    fake = FakeChat(tmp_path, Script(refuse=refusal)).open()
    fake.ask("hello")
    ended = fake.ended()
    assert ended.error is refusal
    assert fake.chat.ended(ended) == "hello" and not fake.chat.conversation.turns
    assert not read_session(fake.chat.path).conversation.turns


def test_the_engines_death_keeps_the_text_and_says_why(tmp_path: Path) -> None:
    """SMP-12."""
    fake = FakeChat(tmp_path, Script(text="word " * 50, die_after=20)).open()
    answer = fake.ask()
    ended = fake.ended()
    assert isinstance(ended.error, EngineDied) and "boom" in str(ended.error)
    assert len(answer.tokens) >= 20 and answer.reason == "failed" and "SIGKILL" in answer.note
    assert fake.chat.ended(ended) == "" and fake.chat.runner.session is None
    saved = read_session(fake.chat.path).conversation
    assert saved.turns[1].said == answer.text and saved.turns[1].answer.note == answer.note  # type: ignore[union-attr]
    fake.opener.script.die_after = None
    fake.chat.speculate(SpeculationSettings("none"))
    fake.chat.open_pair("pair", LoadOptions(draft="none"))
    assert fake.ask("again").reason == "stop"
    assert fake.opener.options[-1].draft == "none"


def test_a_pair_that_cannot_be_opened(tmp_path: Path) -> None:
    fake = FakeChat(tmp_path, Script(fail_load=InvalidInput("no such file")))
    fake.chat.open_pair("pair", LoadOptions())
    fake.chat.send("hello")
    assert fake.chat.ended(fake.ended()) == "hello"
    assert fake.told(OpenFailed) and not fake.opener.client.alive


def test_changes_act_on_the_running_answer(tmp_path: Path) -> None:
    fake = FakeChat(tmp_path, slow()).open()
    turn = fake.chat.send("one")
    fake.wait_for(lambda: len(turn.answer.tokens) > 10)  # type: ignore[union-attr]
    fake.chat.speculate(SpeculationSettings("none"))
    fake.chat.sample(SamplerSettings(0.0))
    fake.wait_for(lambda: len(turn.answer.tokens) > 40)  # type: ignore[union-attr]
    fake.chat.stop()
    fake.wait_idle()
    assert (SpeculationSettings("none"), None) in fake.opener.client.changes
    assert (None, SamplerSettings(0.0)) in fake.opener.client.changes
    assert not turn.answer.steps[-1].round.drafted  # type: ignore[union-attr]


def test_a_change_between_request_and_first_round_is_not_lost(tmp_path: Path) -> None:
    fake = FakeChat(tmp_path, Script(begin_seconds=0.2)).open()
    fake.chat.send("one")
    fake.wait_for(lambda: bool(fake.opener.client.requests))
    fake.chat.speculate(SpeculationSettings("none"))
    fake.opener.client.changes.clear()  # an engine that is not generating yet forgets it
    fake.wait_idle()
    assert [speculation for speculation, _ in fake.opener.client.changes] == [SpeculationSettings("none")]


def test_a_draft_swap_waits_for_the_answer(tmp_path: Path) -> None:
    fake = FakeChat(tmp_path, Script(text="word " * 60, tokens_per_second=400)).open()
    turn = fake.chat.send("one")
    fake.chat.swap_draft("other.gguf")
    fake.wait_for(lambda: bool(fake.told(DraftSwapped)))
    assert turn.answer is not None and turn.answer.reason == "stop"
    assert fake.opener.client.drafts == [Path("other.gguf")] and len(fake.opener.clients) == 1
    fake.chat.runner.session.swap_draft = None  # type: ignore[union-attr, method-assign, assignment]
    fake.chat.swap_draft("bad")
    fake.wait_for(lambda: bool(fake.told(SwapFailed)))
    assert fake.ask("still works").reason == "stop"


def test_regenerate_and_edit_replace_what_follows(tmp_path: Path) -> None:
    fake = FakeChat(tmp_path).open()
    for text in ("one", "two", "three"):
        fake.ask(text)
    fake.chat.regenerate(3)  # the answer to "two"
    fake.wait_idle()
    assert [turn.said for turn in fake.chat.conversation.turns if turn.role == "user"] == ["one", "two"]
    assert fake.chat.take_back(2) == "two"
    assert [message.role for message in fake.chat.conversation.messages()] == ["user", "assistant"]
    with pytest.raises(InvalidInput):
        fake.chat.take_back(-1)


def test_the_system_prompt_is_sent_and_saved(tmp_path: Path) -> None:
    fake = FakeChat(tmp_path).open()
    fake.chat.set_system("Be brief.")
    fake.ask()
    assert fake.opener.client.requests[0].messages[0].content == "Be brief."
    assert read_session(fake.chat.path).conversation.system == "Be brief."
    fake.chat.new()
    assert fake.chat.conversation.system == "Be brief."


def test_a_model_without_a_template_needs_a_choice(tmp_path: Path) -> None:
    """TPL-05."""
    fake = FakeChat(tmp_path, Script(has_template=False)).open()
    fake.ask("hello")
    ended = fake.ended()
    assert isinstance(ended.error, NeedsTemplate) and fake.chat.ended(ended) == "hello"
    fake.chat.settings.template = family_template("chatml")
    fake.ask("hello")
    request = fake.opener.client.requests[-1]
    assert request.template and "<|im_start|>" in request.template and request.stop == ("<|im_end|>",)
    fake.chat.settings.template = family_template("base")
    fake.ask("and more")
    assert fake.opener.client.requests[-1].prompt == "hello\n\nHello, *world*.\n\nand more"


def test_family_templates_render() -> None:
    from localspec.engine.templates.chat_template import Message

    messages = [Message("user", "hi"), Message("assistant", "yes"), Message("user", "more")]
    for family in FAMILIES[1:]:
        text = "".join(segment.text for segment in ChatTemplate(family.source, "", "").render(messages))
        assert text.index("hi") < text.index("yes") < text.index("more")


def test_files_are_told_apart(tmp_path: Path) -> None:
    for name, content in (("a", b"x" * 10), ("b", b"x" * 11), ("c", b"x" * 10)):
        (tmp_path / name).write_bytes(content)
    keys = [file_key(tmp_path / name) for name in "abc"]
    assert keys[0] != keys[1] and keys[0] == keys[2]


def test_closing_while_loading_ends_the_engine(tmp_path: Path) -> None:
    """TUI-06."""
    fake = FakeChat(tmp_path, Script(load_seconds=30.0))
    fake.chat.open_pair("pair", LoadOptions())
    fake.wait_for(lambda: bool(fake.opener.clients))
    fake.chat.close()
    assert not fake.opener.client.alive


def test_many_interleavings_mix_nothing_up(tmp_path: Path) -> None:
    """CON-03: sends, stops, regenerations and swaps in any order; no crash, no text in the wrong answer."""
    random.seed(7)
    fake = FakeChat(tmp_path, Script(text="abcdefgh" * 12, tokens_per_second=4000)).open()
    chat = fake.chat
    actions = [
        lambda: chat.send("x"),
        chat.regenerate,
        chat.stop,
        chat.new,
        lambda: chat.swap_draft("d.gguf"),
        lambda: chat.take_back(len(chat.conversation.turns) - 1),
        lambda: chat.speculate(SpeculationSettings("none")),
    ]
    wait = threading.Event()
    for _ in range(200):
        try:
            random.choice(actions)()
        except InvalidInput:
            wait.wait(0.002)
        for ended in fake.told(AnswerEnded):
            fake.news.remove(ended)
            chat.ended(ended)
    chat.stop()
    fake.wait_idle()
    for turn in chat.conversation.turns:
        assert turn.answer is None or turn.said == "abcdefgh" * 12 or ("abcdefgh" * 12).startswith(turn.said)
    assert [turn.role for turn in chat.conversation.turns] == ["user", "assistant"] * (
        len(chat.conversation.turns) // 2
    )


def test_unknown_memory_is_never_counted_as_nothing() -> None:
    """MEM-03."""
    assert MemoryUse(10, 5, 3, 2, True).total == 20
    assert MemoryUse(10, 5, None, None, False).total == 15
    assert MemoryUse(10, 5, None, 2, True).total is None


def test_another_pair_while_one_loads_or_answers(tmp_path: Path) -> None:
    """What is replaced on purpose is no failure."""
    fake = FakeChat(tmp_path, Script(load_seconds=0.5))
    fake.chat.open_pair("first", LoadOptions())
    fake.wait_for(lambda: bool(fake.opener.clients))
    fake.chat.open_pair("second", LoadOptions())
    fake.wait_for(lambda: fake.chat.runner.session is not None)
    assert not fake.told(OpenFailed) and fake.chat.runner.session.files.name == "second"  # type: ignore[union-attr]
    fake.opener.script = slow()
    fake.opener.client.script = fake.opener.script
    turn = fake.chat.send("hello")
    fake.wait_for(lambda: len(turn.answer.tokens) > 5)  # type: ignore[union-attr]
    fake.chat.open_pair("third", LoadOptions())
    fake.wait_idle()
    assert not any(isinstance(ended.error, EngineDied) for ended in fake.told(AnswerEnded))
    assert not fake.opener.clients[1].alive


def test_a_stop_at_the_worst_moment_is_not_forgotten(tmp_path: Path) -> None:
    """The engine's handle clears the flag when it takes a request: a stop just before that must still count."""
    fake = FakeChat(tmp_path, Script(text="word " * 400, tokens_per_second=200, begin_seconds=0.2)).open()
    client = fake.opener.client
    turn = fake.chat.send("hello")
    fake.wait_for(lambda: bool(client.requests))
    fake.chat.stop()
    client._cancel.clear()
    fake.wait_idle()
    assert turn.answer is not None and turn.answer.reason == "cancelled" and len(turn.answer.tokens) < 20


def test_a_bug_is_told_and_the_chat_goes_on(tmp_path: Path) -> None:
    fake = FakeChat(tmp_path).open()
    fake.chat.runner._work.put(lambda: 1 / 0)  # type: ignore[arg-type, func-returns-value]
    fake.wait_for(lambda: bool(fake.told(Unforeseen)))
    assert fake.ask().reason == "stop"
