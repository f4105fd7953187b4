"""The live panel: what speculation does for this very answer, and what it costs."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from rich.text import Text
from textual.widgets import Static

from localspec.engine.settings import SamplerSettings, SpeculationSettings
from localspec.ground.terminal import one_line
from localspec.tui import numbers
from localspec.ui.chat import Chat
from localspec.ui.controls import described
from localspec.ui.memory import MemoryUse
from localspec.ui.meter import PARTS, Reading

_HISTORY = 120
"""Looks at the rate that the sparkline remembers."""
_POSITIONS = 6


@dataclass(frozen=True, slots=True)
class PanelState:
    """Everything the panel shows."""

    reading: Reading = Reading()  # noqa: RUF009 - frozen
    speculation: SpeculationSettings = SpeculationSettings()  # noqa: RUF009 - frozen
    sampler: SamplerSettings = SamplerSettings()  # noqa: RUF009 - frozen
    context: int = 0
    """Tokens that fit."""
    memory: MemoryUse | None = None
    has_draft: bool = False
    impossible: str = ""
    """Why this target cannot be guessed for at all, "" when it can."""
    rates: tuple[float, ...] = ()
    loaded: bool = False


def panel_state(chat: Chat, memory: MemoryUse | None, rates: tuple[float, ...]) -> PanelState:
    """What there is to show of a chat now."""
    session = chat.runner.session
    return PanelState(
        reading=chat.runner.meter.reading(),
        speculation=chat.settings.speculation,
        sampler=chat.settings.sampler,
        context=session.info.context if session else 0,
        memory=memory if session else None,
        has_draft=session is not None and session.info.draft is not None,
        impossible=session.info.speculation_off if session else "",
        rates=rates,
        loaded=session is not None,
    )


class Panel(Static):
    """All numbers, one under the other."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self._rates: deque[float] = deque(maxlen=_HISTORY)
        self._shown: tuple[PanelState, int] | None = None

    def note_rate(self, rate: float | None) -> None:
        """One more point of the sparkline."""
        self._rates.append(rate or 0.0)

    @property
    def rates(self) -> tuple[float, ...]:
        return tuple(self._rates)

    def forget_rates(self) -> None:
        self._rates.clear()

    def show(self, state: PanelState) -> None:
        """Draw, unless it is drawn already."""
        width = max(20, self.content_size.width or 34)
        if self._shown != (state, width):
            self._shown = (state, width)
            self.update(panel_text(state, width), layout=False)


def panel_text(state: PanelState, width: int) -> Text:
    """The panel's lines."""
    text = Text(no_wrap=True, overflow="ellipsis")
    _speculation(text, state, width)
    _speed(text, state, width)
    _acceptance(text, state, width)
    _time(text, state.reading, width)
    _context(text, state, width)
    if state.loaded:
        _settings(text, state)
    text.rstrip()
    return text


def strip_text(state: PanelState, width: int) -> Text:
    """The same in two lines, for narrow screens."""
    reading = state.reading
    rates = f"{numbers.rate(reading.rate_now or reading.rate)} tokens/s"
    acceptance = f"acceptance {numbers.share(reading.acceptance)}"
    parts = [rates, acceptance]
    if reading.plain_rate is not None and reading.verified:
        parts[1:1] = [f"plain {numbers.rate(reading.plain_rate)}", numbers.times(reading.speedup)]
    if reading.mean_length is not None:
        parts.append(f"{reading.mean_length:.2f} tokens/pass")
    first = _joined(parts, {rates, acceptance}, width)
    second = state_line(state)
    if state.context and reading.position:
        second += f" · context {reading.position}/{state.context}"
    return Text(f"{first}\n{second}", no_wrap=True, overflow="ellipsis")


def state_line(state: PanelState) -> str:
    """Whether drafts are in use, what guesses, and how long."""
    reading, speculation = state.reading, state.speculation
    if not state.loaded and not reading.tokens:
        return "speculation: no pair loaded"
    if state.impossible:
        return f"speculation off: {one_line(state.impossible)}"
    if state.loaded and (speculation.drafter == "none" or speculation.length == 0):
        return "speculation off: as ordered"
    if reading.rounds <= 1:
        return f"speculation on: {described(speculation)}"
    if reading.speculating:
        now = f"{reading.drafter_now}, K now {reading.length_now}"
        return f"speculation on: {now}" if reading.drafter_now != "none" else "speculation on: no draft this round"
    return f"speculation off: {_why(reading) or 'nothing beats plain'}"


def _why(reading: Reading) -> str:
    """The controller's reason, without the state that stands before it already."""
    return one_line(reading.reason).removeprefix("off: ").removeprefix("on: ")


def _joined(parts: list[str], needed: set[str], width: int) -> str:
    """As many parts as there is room for; the needed ones always, of the others the last go first."""
    parts = list(parts)
    for part in reversed(list(parts)):
        if len(" · ".join(parts)) <= width:
            break
        if part not in needed:
            parts.remove(part)
    return " · ".join(parts)


def _speculation(text: Text, state: PanelState, width: int) -> None:
    line = state_line(state)
    on = line.startswith("speculation on")
    _wrapped(text, line, width, "bold green" if on else "bold yellow")
    if state.reading.unused_draft:
        reason = one_line(state.reading.reason) or "no reason given"
        _wrapped(text, f"draft loaded but not used: {reason}", width, "bold red")
    elif state.reading.speculating and state.reading.reason:
        _wrapped(text, f"because: {_why(state.reading)}", width, "dim")
    text.append("\n")


def _speed(text: Text, state: PanelState, width: int) -> None:
    reading = state.reading
    text.append(f"{numbers.rate(reading.rate_now):>6} tokens/s now\n", "bold")
    text.append(f"{numbers.rate(reading.rate):>6} tokens/s this answer\n")
    text.append(f"{numbers.rate(reading.plain_rate):>6} tokens/s plain (estimate)\n")
    if reading.rounds > 1 and not reading.verified:
        text.append("     – nothing was guessed\n", "dim")
    elif reading.speedup is not None and reading.saved_seconds is not None:
        word = "saved" if reading.saved_seconds >= 0 else "lost"
        style = "bold green" if reading.speedup >= 1 else "bold red"
        text.append(f"{numbers.times(reading.speedup):>6} plain", style)
        text.append(f" · {numbers.seconds(abs(reading.saved_seconds))} {word}\n")
    else:
        text.append("     – plain not measured yet\n", "dim")
    text.append(numbers.sparkline(state.rates, width) + "\n", "cyan")
    text.append("\n")


def _acceptance(text: Text, state: PanelState, width: int) -> None:
    reading = state.reading
    now, whole = numbers.share(reading.acceptance_now), numbers.share(reading.acceptance)
    text.append(f"acceptance {now} now, {whole} whole\n", "bold")
    length = "–" if reading.mean_length is None else f"{reading.mean_length:.2f}"
    text.append(f"{length:>6} tokens per target pass\n")
    for position, value in enumerate(reading.by_position[:_POSITIONS], 1):
        text.append(f"{position:>3} ")
        text.append(numbers.bar(value, max(4, width - 10)), "green")
        text.append(f" {value:>4.0%}\n")
    more = len(reading.by_position) - _POSITIONS
    if more > 0:
        text.append(f"    and {more} more positions\n", "dim")
    text.append("\n")


def _time(text: Text, reading: Reading, width: int) -> None:
    whole = sum(reading.parts)
    if whole <= 0:
        return
    text.append("where the time goes\n", "bold")
    text.append(numbers.shares(reading.parts, width, "█▓▒░·") + "\n", "magenta")
    named = [f"{name} {part / whole:.0%}" for name, part in zip(PARTS, reading.parts, strict=True)]
    text.append("  " + " ".join(named[:3]) + "\n  " + " ".join(named[3:]) + "\n", "dim")
    text.append("\n")


def _context(text: Text, state: PanelState, width: int) -> None:
    if not state.loaded:
        return
    position, context = state.reading.position, state.context
    text.append(f"context {position:,} of {context:,}\n", "bold")
    text.append(numbers.bar(position / context if context else 0, width) + "\n", "blue")
    reading = state.reading
    if reading.prompt_tokens is not None and reading.ttft_seconds is not None:
        text.append(f"  prompt {reading.prompt_tokens:,}, {reading.reused_tokens:,} of it reused\n", "dim")
        text.append(f"  first token after {numbers.seconds(reading.ttft_seconds)}\n", "dim")
    if state.memory is not None:
        _memory(text, state.memory)
    text.append("\n")


def _memory(text: Text, memory: MemoryUse) -> None:
    text.append(f"memory {numbers.size(memory.total)}\n", "bold")
    text.append(f"  target {numbers.size(memory.target)} + cache {numbers.size(memory.target_cache)}\n", "dim")
    if memory.has_draft:
        text.append(f"  draft {numbers.size(memory.draft)} + cache {numbers.size(memory.draft_cache)}\n", "dim")
    for place, used, free in memory.places:
        text.append(f"  {one_line(place, 14)} {numbers.size(used)} of {numbers.size(free)} free\n", "dim")


def _settings(text: Text, state: PanelState) -> None:
    sampler = state.sampler
    text.append(f"temp {sampler.temperature:g} · top-k {sampler.top_k} · top-p {sampler.top_p:g}\n", "dim")
    if sampler.seed is not None:
        text.append(f"seed {sampler.seed}\n", "dim")


def _wrapped(text: Text, line: str, width: int, style: str) -> None:
    import textwrap

    for part in textwrap.wrap(line, width) or [""]:
        text.append(part + "\n", style)
