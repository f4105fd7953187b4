"""Session files, exports, preferences: what is on disk survives whatever happens to the program."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from localspec.engine.settings import SamplerSettings
from localspec.ground.errors import InvalidInput, UnknownName, UnreadableFile
from localspec.ui.answer import Answer
from localspec.ui.export import export, to_json, to_markdown
from localspec.ui.preferences import PreferenceFile, Preferences, PromptHistory
from localspec.ui.provenance import PieceReader
from localspec.ui.session_file import SessionMeta, SessionWriter, read_session
from localspec.ui.session_store import SessionStore
from tests.chat_tools import FakeChat
from tests.fake_engine import Script

HOSTILE = "\x1b]52;c;aGk=\x07 \x1b[2J \x9b31m \u202e [bold]x[/] \\ ```"


def saved_chat(folder: Path, text: str = "One *two* three.") -> FakeChat:
    fake = FakeChat(folder, Script(text=text)).open()
    fake.ask("hello")
    return fake


def test_a_session_reads_back_as_it_was(tmp_path: Path) -> None:
    fake = saved_chat(tmp_path)
    fake.ask("more")
    before = fake.chat.conversation
    after = read_session(fake.chat.path)
    assert not after.incomplete and after.meta.pair == "pair"
    assert [(turn.role, turn.said) for turn in after.conversation.turns] == [
        (turn.role, turn.said) for turn in before.turns
    ]
    for old, new in zip(before.turns, after.conversation.turns, strict=True):
        if old.answer is not None:
            assert new.answer is not None
            assert new.answer.stats == old.answer.stats and new.answer.reason == "stop"
            assert new.answer.tokens == old.answer.tokens
            assert [step.round for step in new.answer.steps] == [step.round for step in old.answer.steps]
            assert PieceReader(new.answer).read() == PieceReader(old.answer).read()


def test_rounds_are_loaded_only_when_asked_for(tmp_path: Path) -> None:
    fake = saved_chat(tmp_path)
    answer = read_session(fake.chat.path).conversation.last_answer
    assert answer is not None and answer._load is not None
    assert answer.text == "One *two* three." and answer._load is not None
    assert answer.steps and answer._load is None


def test_every_cut_of_the_file_reads_back(tmp_path: Path) -> None:
    """A crash may end the file anywhere: no turn before the cut is lost, and nothing is raised."""
    fake = saved_chat(tmp_path)
    data = fake.chat.path.read_bytes()
    fake.chat.close()
    first = data.index(b"\n") + 1
    for end in range(first, len(data), 7):
        cut = tmp_path / "cut.jsonl"
        cut.write_bytes(data[:end])
        turns = read_session(cut).conversation.turns
        lines = data[:end].count(b"\n")
        assert [turn.role for turn in turns][:1] == (["user"] if lines >= 2 else [])
        if lines >= data.count(b"\n") - 1:
            assert turns[1].said == "One *two* three."


def test_a_cut_answer_is_kept_and_marked_and_the_file_goes_on(tmp_path: Path) -> None:
    fake = saved_chat(tmp_path)
    data = fake.chat.path.read_bytes()
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(data[: data.index(b'{"kind":"end"')] + b'{"kind":"rou')
    session = read_session(cut)
    assert session.incomplete
    answer = session.conversation.last_answer
    assert answer is not None and answer.text == "One *two* three." and answer.reason == "failed"
    fake.chat.reopen(cut)
    fake.ask("and on")
    again = read_session(cut).conversation
    assert [turn.role for turn in again.turns] == ["user", "assistant", "user", "assistant"]
    assert again.turns[1].said == again.turns[3].said == "One *two* three."


def test_a_damaged_line_costs_that_line(tmp_path: Path) -> None:
    fake = saved_chat(tmp_path)
    lines = fake.chat.path.read_bytes().split(b"\n")
    lines[1:1] = [b"\xff\xfe not json", b'{"kind": 7}', b'{"no": "kind"}', b"[]", b'{"kind":"message"}']
    fake.chat.path.write_bytes(b"\n".join(lines))
    assert [turn.said for turn in read_session(fake.chat.path).conversation.turns] == ["hello", "One *two* three."]


@pytest.mark.parametrize("content", [b"", b"{}\n", b"GGUF\x03", b'{"kind":"session","schema":99}\n'])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises(UnreadableFile):
        read_session(path)


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    first, second = (SessionWriter(tmp_path / "a.jsonl", SessionMeta("now")) for _ in range(2))
    first.message("one")
    second.message("two")
    assert "open in another localspec" in second.fault and not first.fault
    first.close()
    third = SessionWriter(tmp_path / "a.jsonl", SessionMeta("now"))
    third.message("three")
    assert [turn.text for turn in read_session(third.path).conversation.turns] == ["one", "three"]


def test_a_full_disk_is_said_and_survived(tmp_path: Path) -> None:
    writer = SessionWriter(Path("/dev/full"), SessionMeta("now"))
    writer.message("x")
    assert writer.fault
    (tmp_path / "file").write_text("")
    blocked = SessionWriter(tmp_path / "file" / "a.jsonl", SessionMeta("now"))
    blocked.message("x")
    blocked.end(Answer("t"))
    assert "not being saved" in blocked.fault


def test_replaced_turns_are_gone_and_titles_stay(tmp_path: Path) -> None:
    fake = saved_chat(tmp_path)
    assert fake.chat.take_back(1) == "hello"
    fake.ask("changed")
    fake.chat.rename("My title")
    conversation = read_session(fake.chat.path).conversation
    assert [turn.said for turn in conversation.turns] == ["changed", "One *two* three."]
    assert conversation.title == "My title"


def test_the_list_of_sessions(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    for index in range(3):
        writer = store.new("pair")
        writer.message(f"question {index}\nsecond line {HOSTILE}")
        writer.close()
    (tmp_path / "junk.jsonl").write_bytes(b"\x00\xff")
    summaries = store.newest()
    assert sorted(summary.title[:10] for summary in summaries) == ["question 0", "question 1", "question 2"]
    store.rename(summaries[0].path, "New name")
    assert "New name" in [summary.title for summary in store.newest()]
    store.delete(summaries[1].path)
    assert len(store.newest()) == 2
    assert store.find(summaries[0].path.stem) == summaries[0].path and store.find("last").exists()
    with pytest.raises(UnknownName):
        store.find("nothing")


def test_exports(tmp_path: Path) -> None:
    fake = saved_chat(tmp_path, HOSTILE)
    markdown, value = to_markdown(fake.chat.saved), json.loads(to_json(fake.chat.saved))
    assert "## You\n\nhello" in markdown and "tokens/s" in markdown
    assert not set("\x1b\x07\x9b\u202e") & set(markdown)
    assert value["turns"][1]["text"] == HOSTILE, "JSON keeps the original, escaped"
    assert "\\u001b]52" in to_json(fake.chat.saved)
    assert "".join(token["text"] for token in value["turns"][1]["tokens"]) == HOSTILE
    assert {"accepted", "corrected"} <= {token["provenance"] for token in value["turns"][1]["tokens"]}
    export(fake.chat.saved, tmp_path / "a.md")
    with pytest.raises(InvalidInput, match="exists"):
        export(fake.chat.saved, tmp_path / "a.md")
    with pytest.raises(InvalidInput, match=r"or \.json"):
        export(fake.chat.saved, tmp_path / "a.pdf")


def test_a_long_session_opens_fast(tmp_path: Path) -> None:
    """TUI-11: 2000 messages, 5 MB of text, with provenance."""
    fake = saved_chat(tmp_path, "Some *text* with `code`.\n\n" * 190)
    lines = fake.chat.path.read_bytes().split(b"\n")
    path = tmp_path / "long.jsonl"
    path.write_bytes(b"\n".join([lines[0], *lines[1:-1] * 1000, b""]))
    start = time.process_time()
    turns = read_session(path).conversation.turns
    assert time.process_time() - start < 10
    assert len(turns) == 2000 and sum(len(turn.said) for turn in turns) > 4_900_000


def test_preferences_survive_damage(tmp_path: Path) -> None:
    file = PreferenceFile(tmp_path / "p" / "chat.json")
    assert file.read() == Preferences()
    wanted = Preferences(
        "nord",
        True,
        False,
        "pair",
        "draft",
        SamplerSettings(0.3, seed=4, logit_bias=((5, -1.0),)),
        "sys",
        {"k": "chatml"},
    )
    file.write(wanted)
    assert file.read() == wanted
    file.path.write_text('{"theme": 7, "sampler": {"temperature": -3}, "panel": false}')
    assert file.read() == Preferences(panel=False)
    file.path.write_bytes(b"\xff{")
    assert file.read() == Preferences()


def test_prompt_history(tmp_path: Path) -> None:
    history = PromptHistory(tmp_path / "h")
    for text in ("one", "two\nlines", "two\nlines"):
        history.add(text)
    with open(tmp_path / "h", "ab") as file:
        file.write(b'"torn')
    assert PromptHistory(tmp_path / "h").entries == ["one", "two\nlines"]
