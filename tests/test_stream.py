"""Characters and stop strings across tokens."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.engine.records import Provenance, Token
from localspec.engine.stream import TextStream

CAT = "\U0001f638"


def feed(
    pieces: list[bytes], stops: tuple[str, ...] = (), origins: list[Provenance] | None = None
) -> tuple[list[Token], TextStream]:
    """Everything that comes out, in order."""
    stream = TextStream(pieces.__getitem__, stops)
    out: list[Token] = []
    for index in range(len(pieces)):
        stopped = stream.push(index, origins[index] if origins else Provenance.PLAIN)
        out += stream.release()
        if stopped:
            break
    return out + list(stream.finish()), stream


@pytest.mark.parametrize("cut", range(1, len(CAT.encode())))
def test_a_character_cut_anywhere_appears_once(cut: int) -> None:
    data = CAT.encode()
    tokens, stream = feed([b"a", data[:cut], data[cut:], b"b"])
    assert stream.text == f"a{CAT}b"
    assert [token.text for token in tokens] == ["a", "", CAT, "b"]


def test_a_character_takes_the_origin_of_the_token_that_completes_it() -> None:
    data = CAT.encode()
    tokens, _ = feed([data[:2], data[2:]], origins=[Provenance.ACCEPTED, Provenance.CORRECTED])
    assert [(token.text, token.provenance) for token in tokens] == [("", "accepted"), (CAT, "corrected")]


def test_an_unfinished_character_is_replaced_only_at_the_true_end() -> None:
    tokens, stream = feed([b"a", CAT.encode()[:2]])
    assert stream.text == "a�"
    assert "".join(token.text for token in tokens) == stream.text


def test_stop_string_over_tokens_is_cut_and_later_tokens_are_not_asked_for() -> None:
    tokens, stream = feed([b"well", b" h", b"a h", b"a yes"], stops=(" ha ha",))
    assert stream.stopped
    assert stream.text == "well"
    assert [token.text for token in tokens] == ["well", "", "", ""]


def test_text_that_only_looked_like_a_stop_string_comes_out() -> None:
    stream = TextStream([b"EN", b"D", b"LESS"].__getitem__, ("ENDE",))
    stream.push(0, Provenance.PLAIN)
    assert stream.release() == ()
    stream.push(1, Provenance.PLAIN)
    assert stream.release() == ()
    stream.push(2, Provenance.PLAIN)
    assert "".join(token.text for token in stream.release()) == "ENDLESS"


def test_the_earliest_of_several_stop_strings_wins() -> None:
    _, stream = feed([b"one two three"], stops=("three", "two"))
    assert stream.text == "one "


@given(
    st.text(max_size=40),
    st.lists(st.integers(0, 200), max_size=30),
    st.sampled_from([(), ("ab",), ("é", "xyz")]),
)
def test_any_cut_of_the_bytes_gives_the_same_text(text: str, cuts: list[int], stops: tuple[str, ...]) -> None:
    data = text.encode("utf-8", "replace")
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    pieces = [data[a:b] for a, b in pairwise(places)] or [b""]
    tokens, stream = feed(pieces, stops)
    whole = data.decode()
    ends = [whole.find(stop) for stop in stops if stop in whole]
    # With overlapping stops the one completed first wins; these do not overlap.
    if ends:
        assert stream.stopped and whole.startswith(stream.text)
        assert not any(stop in stream.text for stop in stops)
    else:
        assert stream.text == whole
    assert "".join(token.text for token in tokens) == stream.text
