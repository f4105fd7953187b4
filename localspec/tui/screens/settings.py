"""Settings of the next answer; sampler and speculation act from the next round of the running one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Input, Label, Static, TextArea

from localspec.engine.settings import SamplerSettings, SpeculationSettings
from localspec.ground.errors import LocalspecError
from localspec.ground.terminal import visible
from localspec.tui.screens.page import Page
from localspec.ui.chat import Chat

_NUMBERS: tuple[tuple[str, str, type], ...] = (
    ("temperature", "Temperature (0 = greedy)", float),
    ("top_k", "Top-k (0 = off)", int),
    ("top_p", "Top-p (1 = off)", float),
    ("min_p", "Min-p (0 = off)", float),
    ("repeat_penalty", "Repeat penalty (1 = off)", float),
)


class SettingsScreen(Page[None]):
    """A form. Ctrl+S or Enter applies it."""

    HEADING = "settings"
    HINTS = "Esc back without · Tab next field · Enter or ^S apply and close"
    AUTO_FOCUS = "#temperature"
    BINDINGS = [Binding("ctrl+s", "apply", "Apply and close", priority=True)]  # noqa: RUF012 - textual's interface

    CSS = """
    SettingsScreen .field { height: 1; margin: 0 0 0 0; }
    SettingsScreen Label { width: 65%; max-width: 46; }
    SettingsScreen Input { width: 1fr; max-width: 24; }
    SettingsScreen TextArea { height: 5; border: round $primary; }
    """

    def __init__(self, chat: Chat) -> None:
        super().__init__()
        self._chat = chat

    def body(self) -> ComposeResult:
        settings = self._chat.settings
        sampler, speculation = settings.sampler, settings.speculation
        with VerticalScroll(classes="page", can_focus=False):
            for name, label, _ in _NUMBERS:
                yield self._field(name, label, f"{getattr(sampler, name):g}")
            yield self._field("seed", "Seed (empty = a new one each time)", _text(sampler.seed))
            yield self._field("drafter", "Drafter: auto, model, lookup, none", speculation.drafter)
            yield self._field("length", "Draft length K (empty = auto)", _text(speculation.length))
            yield self._field("max_tokens", "Most tokens of an answer (empty = no limit)", _text(settings.max_tokens))
            yield Static("", classes="error", id="problem", markup=False)
            yield Static("System prompt", markup=False)
            yield TextArea(visible(self._chat.conversation.system), id="system", tab_behavior="focus")

    def _field(self, name: str, label: str, value: str) -> Horizontal:
        return Horizontal(Label(label, markup=False), Input(value, id=name, compact=True), classes="field")

    def on_input_submitted(self) -> None:
        self.action_apply()

    def action_apply(self) -> None:
        try:
            sampler, speculation = self._sampler(), self._speculation()
            max_tokens = _number("max tokens", self._value("max_tokens"), int)
            if max_tokens is not None and max_tokens < 1:
                raise ValueError("max tokens: 1 or more")
        except (ValueError, LocalspecError) as error:
            self.query_one("#problem", Static).update(str(error))
            return
        self._chat.settings.max_tokens = max_tokens
        if sampler != self._chat.settings.sampler:
            self._chat.sample(sampler)
        if speculation != self._chat.settings.speculation:
            self._chat.speculate(speculation)
        system = self.query_one("#system", TextArea).text
        if system != self._chat.conversation.system:
            self._chat.set_system(system)
        self.dismiss(None)

    def _value(self, name: str) -> str:
        return self.query_one(f"#{name}", Input).value.strip()

    def _sampler(self) -> SamplerSettings:
        fields: dict[str, Any] = {}
        for name, _, kind in _NUMBERS:
            value = _number(name, self._value(name), kind)
            fields[name] = getattr(SamplerSettings(), name) if value is None else value
        fields["seed"] = _number("seed", self._value("seed"), int)
        return replace(self._chat.settings.sampler, **fields)

    def _speculation(self) -> SpeculationSettings:
        return SpeculationSettings(self._value("drafter") or "auto", _number("K", self._value("length"), int))


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _number(name: str, text: str, kind: type) -> Any:
    """The number in `text`; None when it is empty or `auto`. Raises ValueError in words."""
    if text in ("", "auto"):
        return None
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{name}: {text!r} is not a {'whole ' if kind is int else ''}number") from None
