"""Rounds to the numbers of the live panel.

Counts in the engine's thread; the screen takes a reading now and then.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from localspec.engine.records import GenerationStats, Round, RoundFinished

_WINDOW_SECONDS = 2.0
"""What `now` and `recent` mean."""
_SHOWN_RATES = (0.0, 20_000.0)
"""A rate outside is a fault of a clock, and not shown."""
_UNUSED_AFTER = 32
"""Tokens after which a loaded draft model that never guessed is worth a word."""
PARTS = ("draft", "verify", "sample", "rewind", "other")


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at a running or finished answer. Rates are tokens per second; None = unknown."""

    tokens: int = 0
    rounds: int = 0
    rate_now: float | None = None
    rate: float | None = None
    """Of the answer so far, its first token not counted."""
    plain_rate: float | None = None
    """What the target alone would do on this text."""
    saved_seconds: float | None = None
    """Time that drafts saved in this answer; negative = lost."""
    acceptance_now: float | None = None
    acceptance: float | None = None
    """accepted / verified."""
    verified: int = 0
    accepted: int = 0
    mean_length: float | None = None
    """Tokens per target pass; 1.00 = no help."""
    by_position: tuple[float, ...] = ()
    """Share of the guesses at position 1, 2, ... that were kept."""
    length_now: int | None = None
    """Guesses of the last round."""
    drafter_now: str = ""
    reason: str = ""
    """Why the last round guessed as it did."""
    parts: tuple[float, ...] = (0.0,) * len(PARTS)
    """Seconds by part, as in `PARTS`."""
    position: int = 0
    """Tokens in the context."""
    ttft_seconds: float | None = None
    prompt_tokens: int | None = None
    reused_tokens: int = 0
    """Prompt tokens that were still in the cache."""
    speculating: bool = False
    """Whether a guess was made lately."""
    unused_draft: bool = False
    """A draft model is loaded, and was never asked although it might have been."""

    @property
    def speedup(self) -> float | None:
        """Over what plain decoding would do; None while either is unknown."""
        return self.rate / self.plain_rate if self.rate and self.plain_rate else None


@dataclass(slots=True)
class Meter:
    """Counts of one answer."""

    expects_draft: bool = False
    """A draft model is loaded and allowed."""
    _rounds: int = 0
    _tokens: int = 0
    _verified: int = 0
    _accepted: int = 0
    _seconds: list[float] = field(default_factory=lambda: [0.0] * len(PARTS))
    _reached: list[int] = field(default_factory=list)
    _kept: list[int] = field(default_factory=list)
    _recent: deque[Round] = field(default_factory=deque)
    _recent_seconds: float = 0.0
    _last: Round | None = None
    _last_draft: Round | None = None
    _plain: float | None = None
    _stats: GenerationStats | None = None

    def add(self, event: RoundFinished) -> None:
        """Count one round."""
        round_ = event.round
        self._rounds += 1
        self._tokens += len(round_.emitted)
        self._last = round_
        if round_.verified:
            self._last_draft = round_
        self._plain = event.plain_token_seconds
        self._verified += round_.verified
        self._accepted += sum(origin == "accepted" for origin in round_.provenance)
        while len(self._reached) < round_.depth:
            self._reached.append(0)
            self._kept.append(0)
        for position in range(round_.depth):
            self._reached[position] += 1
            self._kept[position] += position < round_.accepted
        if round_.index == 0:
            return
        for place, part in enumerate(PARTS):
            self._seconds[place] += getattr(round_, part + "_seconds")
        self._recent.append(round_)
        self._recent_seconds += round_.wall_seconds
        while len(self._recent) > 4 and self._recent_seconds > _WINDOW_SECONDS:
            self._recent_seconds -= self._recent.popleft().wall_seconds

    def finish(self, stats: GenerationStats) -> None:
        """The engine's own figures replace the running ones."""
        self._stats = stats

    def reading(self) -> Reading:
        """The numbers now."""
        stats, last = self._stats, self._last
        recent = list(self._recent)
        told = self._last_draft or last if stats else last  # of a finished answer: its last draft
        spent = sum(self._seconds)
        rate = _shown(stats.tokens_per_second if stats else _ratio(self._tokens - 1, spent))
        plain = _shown(stats.plain_tokens_per_second if stats else _ratio(1.0, self._plain))
        verified = sum(round_.verified for round_ in recent)
        return Reading(
            tokens=stats.emitted if stats else self._tokens,
            rounds=self._rounds,
            rate_now=_shown(_ratio(sum(len(round_.emitted) for round_ in recent), self._recent_seconds)),
            rate=rate,
            plain_rate=plain,
            saved_seconds=(self._tokens - 1) * (1 / plain - 1 / rate) if rate and plain else None,
            acceptance_now=_ratio(sum(min(r.accepted, r.verified) for r in recent), verified),
            acceptance=stats.acceptance_rate if stats else _ratio(self._accepted, self._verified),
            verified=self._verified,
            accepted=self._accepted,
            mean_length=_ratio(self._tokens, self._rounds),
            by_position=tuple(
                kept / reached for kept, reached in zip(self._kept, list(self._reached), strict=False) if reached
            ),
            length_now=told.verified if told else None,
            drafter_now=told.drafter if told else "",
            reason=(stats.reason if stats and stats.reason else "") or (last.reason if last else ""),
            parts=tuple(self._seconds),
            position=last.position + len(last.emitted) if last else 0,
            ttft_seconds=stats.ttft_seconds if stats else None,
            prompt_tokens=stats.prompt_tokens if stats else None,
            reused_tokens=stats.reused_tokens if stats else 0,
            speculating=stats.state == "on" if stats else any(round_.verified for round_ in recent[-6:]),
            unused_draft=self.expects_draft and self._tokens >= _UNUSED_AFTER and not self._verified,
        )


def meter_of(stats: GenerationStats | None, rounds: list[Round]) -> Meter:
    """The meter of a saved answer."""
    meter = Meter()
    for round_ in rounds:
        meter.add(RoundFinished(round_, ()))
    if stats is not None:
        meter.finish(stats)
    return meter


def _ratio(part: float, whole: float | None) -> float | None:
    return part / whole if whole and part >= 0 else None


def _shown(rate: float | None) -> float | None:
    return rate if rate is not None and _SHOWN_RATES[0] < rate <= _SHOWN_RATES[1] else None
