"""One answer, round by round: what was guessed, what was kept, what it cost."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.widgets import Static

from localspec.engine.records import Token
from localspec.ground.terminal import one_line, visible
from localspec.tui import numbers
from localspec.tui.screens.page import Page
from localspec.tui.units import origin_styles
from localspec.ui.answer import Answer, Step
from localspec.ui.meter import PARTS
from localspec.ui.provenance import MARKS, Piece, pieces_of

_AROUND = 900
"""Characters of the answer shown before and after the round."""


class RoundsScreen(Page[None]):
    """Steps through the rounds of an answer, which may still be growing."""

    HEADING = "rounds of an answer"
    HINTS = "Esc back · ←/→ round · ↑/↓ ten rounds · n/p rejected guess · Home/End"
    BINDINGS = [  # noqa: RUF012 - textual's interface
        Binding("right,l,space", "step(1)", "Next round", priority=True),
        Binding("left,h", "step(-1)", "Round before", priority=True),
        Binding("down", "step(10)", "Ten rounds further", priority=True),
        Binding("up", "step(-10)", "Ten rounds back", priority=True),
        Binding("home", "go(0)", "First round", priority=True),
        Binding("end", "go(-1)", "Last round", priority=True),
        Binding("n", "rejected(1)", "Next rejected guess"),
        Binding("p", "rejected(-1)", "Rejected guess before"),
    ]

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self._answer = answer
        self._at = 0
        self._rows: list[tuple[Step, list[Token]]] = []

    def body(self) -> ComposeResult:
        with VerticalScroll(classes="page", can_focus=False):
            yield Static(id="around", markup=False)
        with VerticalScroll(classes="details", can_focus=False):
            yield Static(id="round", markup=False)

    def on_mount(self) -> None:
        self._rows = list(self._answer.tokens_by_step())
        self._show()

    def action_step(self, by: int) -> None:
        if self._answer.growing or len(self._rows) != len(self._answer.steps):
            self._rows = list(self._answer.tokens_by_step())
        self._at = min(max(self._at + by, 0), len(self._rows) - 1)
        self._show()

    def action_go(self, to: int) -> None:
        self._at = to % len(self._rows)
        self._show()

    def action_rejected(self, by: int) -> None:
        at = self._at + by
        while 0 <= at < len(self._rows):
            round_ = self._rows[at][0].round
            if round_.accepted < round_.verified:
                self._at = at
                break
            at += by
        self._show()

    def _show(self) -> None:
        self.query_one("#around", Static).update(self._around())
        self.query_one("#round", Static).update(self._details())
        self.query_one("#title", Static).update(f"localspec · round {self._at + 1} of {len(self._rows)}")

    def _around(self) -> Text:
        """The round in its text: what came before it dimmed, what follows more so."""
        before = "".join(token.text for _, tokens in self._rows[: self._at] for token in tokens)[-_AROUND:]
        before = _last_lines(before, self.query_one(VerticalScroll).size.height // 2, self.size.width - 4)
        after = "".join(token.text for _, tokens in self._rows[self._at + 1 : self._at + 80] for token in tokens)
        text = Text(visible(before))
        for piece in pieces_of(*self._rows[self._at], self._at):
            self._append(text, piece)
        text.append(visible(after[:_AROUND]), "dim")
        return text

    def _append(self, text: Text, piece: Piece) -> None:
        said = visible(piece.text)
        if piece.origin == "ghost":
            said = said.replace("\n", "↵")
        before, after = MARKS[piece.origin] if self.app.no_color else ("", "")
        style = origin_styles(bool(self.app.native_ansi_color))[piece.origin]
        text.append(f"{before}{said}{after}", style if piece.origin != "plain" else "reverse")

    def _details(self) -> Text:
        step, tokens = self._rows[self._at]
        round_ = step.round
        text = Text()
        text.append(
            f"{round_.drafter if round_.drafted else 'no draft'} · guessed {len(round_.drafted)}, "
            f"verified {round_.verified}, kept {round_.accepted}, emitted {len(round_.emitted)} "
            f"at position {round_.position}\n",
            "bold",
        )
        if round_.reason:
            text.append(f"why: {one_line(round_.reason)}\n", "dim")
        for index, guess in enumerate(step.guesses):
            text.append(*_guess_line(index, guess, step))
        if own := [token for token in tokens if token.provenance != "accepted"]:
            text.append(f"     {_quoted(own[-1].text):<20}         the target's own ({own[-1].provenance.value})\n")
        costs = [f"{part} {numbers.seconds(getattr(round_, part + '_seconds'))}" for part in PARTS]
        rows = f" · caught up {round_.catch_up_rows} rows" if round_.catch_up_rows else ""
        text.append(f"cost: {numbers.seconds(round_.wall_seconds)} = {' + '.join(costs)}{rows}", "dim")
        return text


def _last_lines(text: str, count: int, width: int) -> str:
    """As much of the end of `text` as takes about `count` lines."""
    lines = text.split("\n")
    kept: list[str] = []
    while lines and count > 0:
        line = lines.pop()[-count * max(1, width) :]
        count -= max(1, -(-len(line) // max(1, width)))
        kept.append(line)
    return "\n".join(reversed(kept))


def _guess_line(index: int, guess: str, step: Step) -> tuple[str, str]:
    round_ = step.round
    confidence = round_.confidences[index] if index < len(round_.confidences) else None
    if index < round_.accepted:
        what, style = ("kept" if index < len(round_.emitted) else "kept, then cut"), "green"
    elif index == round_.accepted and index < round_.verified:
        what, style = "rejected: the target wanted something else", "red"
    else:
        what, style = (
            "discarded: it stood on a wrong guess" if index < round_.verified else "not verified",
            "dim",
        )
    return f"{index + 1:>4} {_quoted(guess):<20} {numbers.share(confidence):>5}   {what}\n", style


def _quoted(text: str) -> str:
    shown = visible(text).replace("\n", "↵").replace("\t", "⇥")
    return f"“{shown[:17]}…”" if len(shown) > 18 else f"“{shown}”"
