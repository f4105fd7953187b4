"""Another server's stream -> the engine's events.

`localspec serve` sends its rounds along, so everything is known. Of other servers a chunk is taken for a
token without a history; their own counters, where they offer some, make the statistics.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, cast

from localspec.engine.metrics import StatsBuilder
from localspec.engine.records import (
    Event,
    Finished,
    FinishReason,
    GenerationStats,
    PrefillProgress,
    Provenance,
    Round,
    RoundFinished,
    Token,
    stats_values,
)
from localspec.ground.errors import EngineError
from localspec.ground.terminal import one_line
from localspec.remote.counters import Counters

UNKNOWN_ID = -1
"""Of a token whose id the server does not tell."""
_ASK_SECONDS = 1.0  # between two looks at the counters
_READ = re.compile(r"(\d{1,9}) of (\d{1,9}) prompt tokens read")
_REASONS: dict[str, FinishReason] = {"stop": "stop", "length": "length"}


class AnswerReader:
    """Events of one answer. `counters` asks the server for its counters."""

    def __init__(self, counters: Callable[[], Counters], clock: Callable[[], float] = time.perf_counter) -> None:
        self._counters = counters
        self._clock = clock
        self._start = clock()
        self._last = self._start
        self._first: float | None = None
        self._before = counters()
        self._seen = self._before
        self._asked = self._start
        self._builder = StatsBuilder(0, 0)
        self._text: list[str] = []
        self._ids: list[int] = []
        self._index = 0
        self._thinking = False
        self._reason: FinishReason | None = None
        self._usage: dict[str, Any] = {}
        self._timings: dict[str, Any] = {}
        self._stats: dict[str, Any] | None = None

    def read(self, chunks: Iterable[dict[str, Any] | str]) -> Iterator[Event]:
        """Everything up to the end. Raises EngineError when the server reports one."""
        for chunk in chunks:
            if isinstance(chunk, str):
                if found := _READ.search(chunk):
                    yield PrefillProgress(int(found[1]), int(found[2]))
                continue
            if "error" in chunk:
                raise EngineError(f"the server says: {_said(chunk['error'])}", "Try again")
            yield from self._chunk(chunk)

    def finish(self, cancelled: bool) -> Finished:
        """The end, whether the server said one or was hung up on."""
        reason = "cancelled" if cancelled or self._reason is None else self._reason
        known = tuple(token for token in self._ids if token != UNKNOWN_ID)
        return Finished(reason, "".join(self._text), known, self._statistics())

    def _chunk(self, chunk: dict[str, Any]) -> Iterator[Event]:
        for name, place in (("usage", "_usage"), ("timings", "_timings"), ("speculative", "_stats")):
            if isinstance(chunk.get(name), dict):
                setattr(self, place, chunk[name])
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        text = self._piece(choice)
        if isinstance(chunk.get("round"), dict):
            yield self._known(chunk["round"], chunk.get("tokens"))
        elif isinstance(chunk.get("tokens"), list) and chunk["tokens"]:
            yield self._guessed(_tokens(chunk["tokens"]))
        elif text:
            yield self._guessed((Token(UNKNOWN_ID, Provenance.PLAIN, text),))
        reason = choice.get("finish_reason")
        if isinstance(reason, str):
            self._reason = _REASONS.get(reason, "stop")

    def _piece(self, choice: dict[str, Any]) -> str:
        """The text in a chunk; thoughts that come apart are put between the usual marks."""
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return _as_text(choice.get("text"))
        thought, text = _as_text(delta.get("reasoning_content")), _as_text(delta.get("content"))
        if thought and not self._thinking:
            self._thinking = True
            thought = "<think>" + thought
        if text and self._thinking:
            self._thinking = False
            text = "</think>\n" + text
        return thought + text

    def _known(self, values: dict[str, Any], tokens: object) -> RoundFinished:
        """A round as the other side had it."""
        round_ = _round(values)
        self._note_time()
        self._builder.add(round_)
        self._ids.extend(round_.emitted)
        settled = _tokens(tokens)
        self._text.extend(token.text for token in settled)
        guesses = values.get("guesses")
        texts = tuple(map(str, guesses)) if isinstance(guesses, list) else ()
        plain = values.get("plain_token_seconds")
        return RoundFinished(round_, settled, texts, _positive(plain))

    def _guessed(self, tokens: tuple[Token, ...]) -> RoundFinished:
        """A round made up for a chunk, with what the counters have gained since they were asked last."""
        spent = self._note_time()
        drafted, accepted = self._gained()
        self._text.extend(token.text for token in tokens)
        round_ = Round(
            self._index, self._index, "model" if drafted else "none", (UNKNOWN_ID,) * drafted, (), drafted, accepted,
            tuple(token.id for token in tokens), tuple(token.provenance for token in tokens),
            "on the server", verify_seconds=spent,
        )  # fmt: skip
        self._index += 1
        self._ids.extend(round_.emitted)
        self._builder.add(round_)
        return RoundFinished(round_, tokens)

    def _note_time(self) -> float:
        """Seconds since the chunk before."""
        now = self._clock()
        if self._first is None:
            self._first = now
            self._builder.ttft_seconds = now - self._start
        spent, self._last = now - self._last, now
        return spent

    def _gained(self) -> tuple[int, int]:
        """Draft tokens and kept ones since the last time."""
        if not self._before or self._clock() - self._asked < _ASK_SECONDS:
            return 0, 0
        self._asked = self._clock()
        now = self._counters() or self._seen
        drafted, accepted = (int(now.get(n, 0) - self._seen.get(n, 0)) for n in ("draft_tokens", "accepted_tokens"))
        self._seen = now
        return max(0, drafted), max(0, min(accepted, drafted))

    def _statistics(self) -> GenerationStats:
        made = self._builder.build(self._clock() - self._start, None, "off", "the server does not say")
        prompt = _count(self._usage.get("prompt_tokens"))
        details = self._usage.get("prompt_tokens_details")
        reused = _count(details.get("cached_tokens")) if isinstance(details, dict) else 0
        emitted = _count(self._usage.get("completion_tokens")) or made.emitted
        read = (prompt - reused) / made.ttft_seconds if made.ttft_seconds and prompt > reused else None
        made = replace(made, prompt_tokens=prompt, reused_tokens=reused, emitted=emitted, prompt_tokens_per_second=read)
        if self._stats is not None:
            return _merged(made, self._stats)
        drafted, accepted = self._totals()
        decode = made.wall_seconds - (made.ttft_seconds or 0.0)
        passes = max(emitted - accepted, 1)
        return replace(
            made,
            target_passes=passes,
            drafted=drafted,
            verified=drafted,
            accepted=accepted,
            acceptance_rate=accepted / drafted if drafted else None,
            mean_acceptance_length=emitted / passes if emitted else None,
            tokens_per_second=(emitted - 1) / decode if emitted > 1 and decode > 0 else None,
            accepted_per_position=(),
            rounds_by_drafter={},
            draft_lengths={},
            state="on" if drafted else "off",
            reason="guesses on the server" if drafted else made.reason,
        )

    def _totals(self) -> tuple[int, int]:
        """Draft tokens and kept ones of this answer: llama-server's timings, else the counters' gain."""
        if "draft_n" in self._timings:
            drafted = _count(self._timings["draft_n"])
            return drafted, min(_count(self._timings.get("draft_n_accepted")), drafted)
        if not self._before:
            return 0, 0
        now = self._counters()
        names = ("draft_tokens", "accepted_tokens")
        drafted, accepted = (int(now.get(name, 0) - self._before.get(name, 0)) for name in names)
        return max(0, drafted), max(0, min(accepted, drafted))


def _merged(made: GenerationStats, theirs: dict[str, Any]) -> GenerationStats:
    """`made` with every number that the other localspec gives, times as they were there."""
    values = stats_values(theirs).items()
    return replace(made, **{name: value for name, value in values if _fits(getattr(made, name), value)})


def _fits(ours: object, theirs: object) -> bool:
    """Whether a value from outside may take the place of one of ours."""
    if theirs is None:
        return ours is None or isinstance(ours, float)
    if isinstance(theirs, bool):
        return False
    if isinstance(theirs, int | float):
        return ours is None or isinstance(ours, int | float)
    if isinstance(theirs, tuple):  # checked when it was converted
        return isinstance(ours, tuple)
    if isinstance(theirs, dict):
        return isinstance(ours, dict) and all(isinstance(item, int) for item in theirs.values())
    return isinstance(theirs, str) and isinstance(ours, str)


def _round(values: dict[str, Any]) -> Round:
    """A round from outside; what is missing or of another type is empty."""

    def seconds(part: str) -> float:
        return _positive(values.get(f"{part}_seconds")) or 0.0

    return Round(
        index=_count(values.get("index")),
        position=_count(values.get("position")),
        drafter=_as_text(values.get("drafter"))[:40],
        drafted=tuple(map(_count, _as_list(values.get("drafted")))),
        confidences=(),
        verified=_count(values.get("verified")),
        accepted=_count(values.get("accepted")),
        emitted=tuple(map(_count, _as_list(values.get("emitted")))),
        provenance=tuple(map(_origin, _as_list(values.get("provenance")))),
        reason=_as_text(values.get("reason"))[:400],
        catch_up_rows=_count(values.get("catch_up_rows")),
        draft_seconds=seconds("draft"),
        verify_seconds=seconds("verify"),
        sample_seconds=seconds("sample"),
        rewind_seconds=seconds("rewind"),
        other_seconds=seconds("other"),
    )


def _tokens(values: object) -> tuple[Token, ...]:
    rows = [row for row in _as_list(values) if isinstance(row, list) and len(row) == 3]
    return tuple(Token(_count(row[0]), _origin(row[1]), _as_text(row[2])) for row in rows)


def _origin(value: object) -> Provenance:
    try:
        return Provenance(cast(str, value))
    except ValueError:
        return Provenance.PLAIN


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 40 else 0


def _positive(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


def _said(error: object) -> str:
    return one_line(str(error.get("message", error)) if isinstance(error, dict) else str(error), 300)
