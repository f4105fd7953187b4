"""Answers as people see them: blocks of Markdown, thoughts, origins, numbers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from localspec.engine.records import Finished, Provenance, Round, RoundFinished, Token
from localspec.engine.settings import SpeculationSettings
from localspec.engine.stream import TextStream
from localspec.tui import numbers
from localspec.tui.blocks import Block, BlockSplitter, code_blocks, split_blocks
from localspec.tui.markdown import render_block
from localspec.tui.units import Look, PieceSplitter, PieceUnit, TextUnit
from localspec.tui.widgets.panel import PanelState, strip_text
from localspec.ui.answer import Answer
from localspec.ui.controls import described, next_drafter, toggled, with_length
from localspec.ui.conversation import Conversation, Turn
from localspec.ui.meter import Meter, Reading
from localspec.ui.provenance import PieceReader, marked_text
from localspec.ui.thinking import split_thoughts
from tests.chat_tools import MARKDOWN

CONSOLE = Console(width=200, force_terminal=True, color_system="truecolor")


def shown(text: str, width: int = 60, plain: bool = False) -> list[str]:
    return [strip.text.rstrip() for block in split_blocks(text) for strip in render_block(block, width, CONSOLE, plain)]


# --- blocks ------------------------------------------------------------------------------------------


def test_blocks_are_what_a_reader_calls_blocks() -> None:
    kinds = [(block.is_code, block.language, block.text.split("\n")[0]) for block in split_blocks(MARKDOWN)]
    assert kinds == [
        (False, "", "## Heading"),
        (False, "", "Some *prose* with `code` and **bold** text that goes on for a while so that it wraps."),
        (False, "", "- one item"),
        (True, "python", "def f(x):"),
        (False, "", "| a | b |"),
    ]


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="ab `~-1.#|\n >", max_size=300), st.lists(st.integers(1, 9), min_size=1, max_size=40))
def test_blocks_do_not_depend_on_how_the_text_arrives(text: str, cuts: list[int]) -> None:
    splitter, blocks, place = BlockSplitter(), [], 0
    for cut in cuts * (len(text) // sum(cuts) + 1):
        blocks += splitter.feed(text[place : place + cut])
        place += cut
    blocks += splitter.feed(text[place:])
    assert blocks + splitter.finish() == split_blocks(text)


def test_long_code_is_cut_and_copied_whole() -> None:
    code = "\n".join(f"line {number}" for number in range(200))
    blocks = split_blocks(f"```py\n{code}\n```\n\nafter")
    assert [block.continues for block in blocks] == [False, True, True, True, False]
    assert code_blocks(f"```py\n{code}\n```") == [code]


def test_a_fence_inside_a_list_keeps_its_blank_lines() -> None:
    text = "1. first\n\n   ```py\n   a\n\n   b\n   ```\n\nend"
    assert [block.text for block in split_blocks(text)] == ["1. first\n\n   ```py\n   a\n\n   b\n   ```", "end"]


def test_an_endless_line_is_cut_without_loss() -> None:
    text = "word " * 4000
    assert "".join(block.text + " " for block in split_blocks(text)).split() == text.split()


def test_markdown_hides_nothing() -> None:
    text = "<div onclick=x>hi</div> [link](http://x.example/) ![pic](http://y.example) &#x202e;abc \x1b[31mred"
    line = " ".join(shown(text, 200))
    for part in ("<div onclick=x>", "(http://x.example/)", "http://y.example", "\\u202e", "\\x1b[31m"):
        assert part in line
    assert "\x1b" not in line and "\u202e" not in line


def test_no_style_carries_a_link() -> None:
    for block in split_blocks("[text](http://x.example) <http://z.example>"):
        for strip in render_block(block, 60, CONSOLE):
            assert all(segment.style is None or segment.style.link is None for segment in strip)


@pytest.mark.parametrize("width", [1, 7, 41])
def test_wide_characters_never_overflow(width: int) -> None:
    family, flag, accents = "👨‍👩‍👧‍👦", "🇩🇪", "e\u0301" * 10
    text = "漢字" * 20 + family + flag + accents + "\n\n```\n" + "漢字" * 20 + family + "\n```"
    for block in split_blocks(text):
        assert all(cell_len(strip.text) <= max(width, 2) for strip in render_block(block, width, CONSOLE))
    unit = TextUnit(text)
    assert all(cell_len(strip.text) <= max(width, 2) for strip in unit.lines(Look(width), CONSOLE))


def test_plain_look_has_no_colour() -> None:
    block = Block("x = 1", True, "python")
    assert all(
        segment.style is None or segment.style.color is None
        for strip in render_block(block, 40, CONSOLE, True)
        for segment in strip
    )


# --- thoughts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "thoughts", "answer", "is_open"),
    [
        ("<think>\nhm\n</think>\n\nYes", "hm", "Yes", False),
        ("<think>\nhm", "hm", "", True),
        ("<thi", "", "", True),
        ("hm\n</think>\n\nYes", "hm", "Yes", False),
        ("no tags at all", "", "no tags at all", False),
        ("text <think>later</think>", "", "text <think>later</think>", False),
    ],
)
def test_thoughts(text: str, thoughts: str, answer: str, is_open: bool) -> None:
    split = split_thoughts(text)
    assert (split.thoughts, split.answer, split.open) == (thoughts, answer, is_open)


# --- origins -----------------------------------------------------------------------------------------

A, C, B, P = Provenance.ACCEPTED, Provenance.CORRECTED, Provenance.BONUS, Provenance.PLAIN


def a_round(index: int, accepted: int, verified: int, origins: list[Provenance], **more: float) -> Round:
    return Round(
        index,
        index,
        "model" if verified else "none",
        tuple(range(verified)),
        (0.5,) * verified,
        verified,
        accepted,
        tuple(range(len(origins))),
        tuple(origins),
        "why",
        **more,
    )


def event(round_: Round, texts: list[str], guesses: list[str]) -> RoundFinished:
    tokens = tuple(Token(0, origin, text) for origin, text in zip(round_.provenance, texts, strict=True))
    return RoundFinished(round_, tokens, tuple(guesses))


def test_pieces_show_ghosts_before_the_targets_own_word() -> None:
    answer = Answer()
    answer.add(event(a_round(0, 0, 0, [P]), ["The"], []))
    answer.add(event(a_round(1, 1, 3, [A, C]), [" cat", " sat"], [" cat", " ran", "\n"]))
    answer.add(event(a_round(2, 2, 2, [A, A, B]), [" on", " a", " mat"], [" on", " a"]))
    pieces = [(piece.text, piece.origin, piece.step) for piece in PieceReader(answer).read()]
    assert pieces == [
        ("The", "plain", 0),
        (" cat", "accepted", 1),
        (" ran\n", "ghost", 1),
        (" sat", "corrected", 1),
        (" on", "accepted", 2),
        (" a", "accepted", 2),
        (" mat", "bonus", 2),
    ]
    assert marked_text(answer) == "The[ cat]‹ ran↵›~ sat[ on a]+ mat"


def test_every_token_is_one_piece_of_text_however_late_its_text_settles() -> None:
    """UTF-01: a character cut at every place; shown once, of one origin."""
    letter = "😸".encode()
    for cut in range(1, 4):
        tokens = {0: letter[:cut], 1: letter[cut:], 2: b"!"}
        stream = TextStream(lambda token, tokens=tokens: tokens[token])
        answer = Answer()
        for index, (token, origin) in enumerate(((0, A), (1, C), (2, B))):
            stream.push(token, origin)
            verified = int(origin is not B)
            answer.add(RoundFinished(a_round(index, verified, verified, [origin]), stream.release(), ("?",) * verified))
        answer._tokens.extend(stream.finish())
        answer.reason = "stop"
        text = [(piece.text, piece.origin) for piece in PieceReader(answer).read()]
        assert text == [("😸", "corrected"), ("!", "bonus")]
        assert answer.text == "😸!"


def test_a_cut_block_has_only_the_text_that_stands() -> None:
    """TPL-01, TPL-02: what the engine cut is in no view."""
    answer = Answer()
    answer.add(event(a_round(0, 3, 5, [A, A]), ["a", "b"], ["a", "b", "</s>", "c", "d"]))
    answer.finish(Finished("stop", "ab", (0, 1), None))  # type: ignore[arg-type]
    assert answer.text == "ab"
    assert [piece.text for piece in PieceReader(answer).read() if piece.origin != "ghost"] == ["a", "b"]


def test_piece_units_are_one_a_line_and_lose_nothing() -> None:
    answer = Answer()
    answer.add(event(a_round(0, 1, 1, [A, B]), ["one\ntw", "o\n\nthree"], ["one\ntw"]))
    splitter = PieceSplitter()
    units = [*splitter.feed(PieceReader(answer).read()), *splitter.finish()]
    assert all(isinstance(unit, PieceUnit) for unit in units)
    lines = [strip.text for unit in units for strip in unit.lines(Look(40), CONSOLE)]
    assert lines == ["one", "two", "", "three"]
    plain = [strip.text for unit in units for strip in unit.lines(Look(40, plain=True), CONSOLE)]
    assert plain[0] == "[one]" and plain[1] == "[tw]+o"


# --- numbers -----------------------------------------------------------------------------------------


def test_the_meter_counts_tokens_not_events() -> None:
    """BEN-01, BEN-02: rates come from tokens and the rounds' own time; impossible ones are not shown."""
    meter = Meter(expects_draft=True)
    meter.add(RoundFinished(a_round(0, 0, 0, [P]), ()))
    assert meter.reading().rate is None
    for index in range(1, 11):
        round_ = a_round(index, 2, 3, [A, A, C], draft_seconds=0.02, verify_seconds=0.08)
        meter.add(RoundFinished(round_, (), (), 0.05))
    reading = meter.reading()
    assert reading.tokens == 31 and reading.rate == pytest.approx(30.0)
    assert reading.acceptance == pytest.approx(2 / 3) and reading.mean_length == pytest.approx(31 / 11)
    assert reading.by_position == (1.0, 1.0, 0.0)
    assert reading.plain_rate == pytest.approx(20.0) and reading.speedup == pytest.approx(1.5)
    assert reading.saved_seconds == pytest.approx(30 * 0.05 - 1.0)
    assert reading.parts[0] == pytest.approx(0.2) and reading.parts[1] == pytest.approx(0.8)
    assert reading.position == 10 + 3 and not reading.unused_draft
    fast = Meter()
    fast.add(RoundFinished(a_round(1, 0, 0, [P], verify_seconds=1e-9), ()))
    assert fast.reading().rate_now is None


def test_a_draft_that_is_never_asked_is_noticed() -> None:
    """SRV-02."""
    meter = Meter(expects_draft=True)
    for index in range(32):
        assert not meter.reading().unused_draft
        meter.add(RoundFinished(a_round(index, 0, 0, [P], verify_seconds=0.1), ()))
    assert meter.reading().unused_draft


def test_bars_are_as_wide_as_they_should_be() -> None:
    for value in (-1.0, 0.0, 0.013, 0.5, 0.999, 1.0, 7.0):
        assert cell_len(numbers.bar(value, 17)) == 17
    assert cell_len(numbers.shares([0.2, 0.3, 0.4999, 0.0001, 0.0], 23)) == 23
    assert cell_len(numbers.sparkline([1, 2, 3], 9)) == 9
    assert numbers.rate(None) == "–" and numbers.rate(123.4) == "123" and numbers.size(None) == "unknown"


@pytest.mark.parametrize(
    ("width", "first"),
    [
        (80, "74.5 tokens/s · plain 50.0 · 1.49x · acceptance 40% · 1.95 tokens/pass"),
        (60, "74.5 tokens/s · plain 50.0 · 1.49x · acceptance 40%"),
        (48, "74.5 tokens/s · plain 50.0 · acceptance 40%"),
        (38, "74.5 tokens/s · acceptance 40%"),
        (10, "74.5 tokens/s · acceptance 40%"),
    ],
)
def test_the_strip_keeps_rate_and_acceptance_on_one_line(width: int, first: str) -> None:
    reading = Reading(rate_now=74.5, rate=74.5, plain_rate=50.0, acceptance=0.4, verified=10, mean_length=1.95)
    assert strip_text(PanelState(reading), width).plain.split("\n")[0] == first


def test_speculation_keys() -> None:
    auto, off = SpeculationSettings(), SpeculationSettings("none")
    assert toggled(auto) == off and toggled(off) == auto
    assert next_drafter(auto, ("model", "lookup")).drafter == "model"
    assert next_drafter(auto, ("lookup",)).drafter == "lookup"
    assert with_length(auto, 5, 1).length == 6 and with_length(SpeculationSettings("model", 1), 1, -1).length is None
    assert with_length(SpeculationSettings("model", 64), 64, 1).length == 64
    assert described(SpeculationSettings("model", 4)) == "model, K 4" and described(off) == "off"


# --- conversations -----------------------------------------------------------------------------------


def test_the_oldest_exchanges_are_left_out() -> None:
    turns = [Turn("user" if n % 2 == 0 else "assistant", str(n)) for n in range(7)]
    conversation = Conversation("system", turns)
    assert conversation.skip_oldest() == 4
    assert [message.content for message in conversation.messages()] == ["system", "4", "5", "6"]
    assert conversation.skip_oldest() == 2 and conversation.skip_oldest() == 0
