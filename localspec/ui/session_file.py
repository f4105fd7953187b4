"""A conversation on disk: one JSON object a line, only ever appended to.

    {"kind": "session", "schema": 1, "created": "...", "pair": "...", ...}   the first line
    {"kind": "system", "text": "..."}
    {"kind": "message", "text": "..."}                                        a person's turn
    {"kind": "answer", "target": "...", "draft": "..."}                       an answer begins; file names
    {"kind": "rounds", "rounds": [[...], ...], "tokens": [[id, origin, text], ...]}   some more of it
    {"kind": "end", "reason": "stop", "text": "...", "stats": {...}}
    {"kind": "keep", "turns": 4}                                              later turns were replaced
    {"kind": "skip", "turns": 2}     {"kind": "title", "title": "..."}

A process that is killed loses what it had not written yet, at most half a second. A last line that was cut
is passed over.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO

from localspec.engine.records import GenerationStats, Provenance, Round, Token, stats_values
from localspec.ground.errors import InvalidInput, UnreadableFile
from localspec.ground.file_locks import try_lock
from localspec.ground.parsing import parse_json
from localspec.ui.answer import Answer, Details, Step
from localspec.ui.conversation import Conversation, Turn

SCHEMA = 1
SUFFIX = ".jsonl"
_ROUNDS = b'{"kind":"rounds"'
_ROUND_FIELDS = tuple(field.name for field in fields(Round))
_DAMAGE = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)
"""What values of the wrong kind lead to."""
_LETTERS = {"a": Provenance.ACCEPTED, "c": Provenance.CORRECTED, "b": Provenance.BONUS, "p": Provenance.PLAIN}


@dataclass(frozen=True, slots=True)
class SessionMeta:
    """What the first line says."""

    created: str
    """ISO 8601, UTC."""
    pair: str = ""
    """The name or path that was opened."""
    draft: str = ""
    """What was said about the draft, "" = the pair's own."""


@dataclass(slots=True)
class SavedSession:
    """A session as read."""

    meta: SessionMeta
    conversation: Conversation
    incomplete: bool = False
    """Its last answer was cut by a crash."""


class SessionWriter:
    """Appends to a session file, which is made with the first line. One process at a time may write to one.

    A full or read-only disk must not end a conversation: then `fault` says so and nothing more is written.
    """

    def __init__(self, path: Path, meta: SessionMeta) -> None:
        self.path = path
        self.meta = meta
        self.fault = ""
        self._file: BinaryIO | None = None
        self._closed = False
        self._lock = threading.Lock()  # people's turns and answers come from two threads

    def system(self, text: str) -> None:
        """The system prompt from here on."""
        self._append("system", text=text)

    def message(self, text: str) -> None:
        """What a person said."""
        self._append("message", text=text)

    def answer(self, answer: Answer) -> None:
        """An answer begins, made by these models."""
        self._append("answer", target=answer.target, draft=answer.draft)

    def rounds(self, steps: list[Step], tokens: list[Token]) -> None:
        """Some more rounds and tokens of the answer that was begun last."""
        self._append(
            "rounds",
            rounds=[[*_round_values(step.round), list(step.guesses)] for step in steps],
            tokens=[[token.id, token.provenance.value[0], token.text] for token in tokens],
        )

    def end(self, answer: Answer) -> None:
        """How an answer ended; from here on it survives a power cut."""
        stats = asdict(answer.stats) if answer.stats is not None else None
        self._append("end", reason=answer.reason, text=answer.text, note=answer.note, stats=stats)
        with self._lock, suppress(OSError):
            if self._file is not None:
                os.fsync(self._file.fileno())

    def keep(self, turns: int) -> None:
        """Turns from this one on were taken back."""
        self._append("keep", turns=turns)

    def skip(self, turns: int) -> None:
        """So many of the first turns are left out of what the model reads."""
        self._append("skip", turns=turns)

    def title(self, title: str) -> None:
        """The conversation's name from here on."""
        self._append("title", title=title)

    def close(self) -> None:
        """Whatever comes later is not written."""
        with self._lock:
            self._closed = True
            self._let_go()

    def _let_go(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _append(self, kind: str, **values: Any) -> None:
        with self._lock:
            if not self.fault and not self._closed:
                self._write({"kind": kind} | values)

    def _write(self, value: dict[str, Any]) -> None:
        try:
            if self._file is None:
                self._file = _open_for_appending(self.path)
                if self._file.tell() == 0:
                    self._file.write(_line({"kind": "session", "schema": SCHEMA} | asdict(self.meta)))
            self._file.write(_line(value))
        except (OSError, InvalidInput) as error:
            reason = error.message if isinstance(error, InvalidInput) else error.strerror or error
            self.fault = f"this conversation is not being saved: {reason}"
            self._let_go()


def read_session(path: Path) -> SavedSession:
    """Everything in the file but the rounds, which their answers load on demand. Raises UnreadableFile."""
    try:
        reader = _Reader(path)
        with open(path, "rb") as file:
            for number, (offset, line) in enumerate(_lines(file)):
                reader.take(number, offset, line)
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror}", "See: localspec chat, then Ctrl+O") from None
    return reader.done()


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._meta: SessionMeta | None = None
        self._conversation = Conversation()
        self._pending: list[tuple[int, int]] | None = None
        """Places of the `rounds` lines of an answer without an end yet."""
        self._models = ("", "")

    def take(self, number: int, offset: int, line: bytes) -> None:
        if line.startswith(_ROUNDS):
            if self._pending is not None:
                self._pending.append((offset, len(line)))
            return
        try:
            value = parse_json(line)
            kind = value["kind"]
        except (ValueError, KeyError, TypeError):
            value, kind = {}, ""
        if number == 0:
            self._meta = self._checked_meta(value, kind)
        elif kind:
            with suppress(*_DAMAGE):  # one damaged line costs that line
                self._apply(kind, value)

    def done(self) -> SavedSession:
        if self._meta is None:
            raise UnreadableFile(f"{self._path} is no session of localspec", "See: localspec chat, then Ctrl+O")
        incomplete = self._pending is not None
        if self._pending is not None:
            self._add_cut_answer(self._pending)
        return SavedSession(self._meta, self._conversation, incomplete)

    def _checked_meta(self, value: Any, kind: str) -> SessionMeta:
        if kind != "session":
            raise UnreadableFile(f"{self._path} is no session of localspec", "See: localspec chat, then Ctrl+O")
        if value.get("schema") != SCHEMA:
            raise UnreadableFile(f"{self._path} was written by another version of localspec", "Update localspec")
        return SessionMeta(str(value.get("created", "")), str(value.get("pair", "")), str(value.get("draft", "")))

    def _apply(self, kind: str, value: dict[str, Any]) -> None:
        conversation = self._conversation
        match kind:
            case "message":
                self._close_cut_answer()
                conversation.turns.append(Turn("user", str(value["text"])))
            case "answer":
                self._close_cut_answer()
                self._pending = []
                self._models = (str(value.get("target") or ""), str(value.get("draft") or ""))
            case "end" if self._pending is not None:
                conversation.turns.append(Turn("assistant", answer=self._answer(value, self._pending)))
                self._pending = None
            case "keep":
                self._close_cut_answer()
                del conversation.turns[max(0, int(value["turns"])) :]
                conversation.skipped = min(conversation.skipped, len(conversation.turns))
            case "skip":
                conversation.skipped = max(0, min(int(value["turns"]), len(conversation.turns)))
            case "title":
                conversation.title = str(value["title"])
            case "system":
                conversation.system = str(value["text"])

    def _answer(self, value: dict[str, Any], places: list[tuple[int, int]]) -> Answer:
        answer = Answer(str(value["text"]), self._loader(places))
        answer.target, answer.draft = self._models
        answer.reason = str(value["reason"])
        answer.note = str(value.get("note") or "")
        answer.stats = _stats(value.get("stats"))
        return answer

    def _loader(self, places: list[tuple[int, int]]) -> Any:
        path = self._path
        return lambda: _load_details(path, places)

    def _close_cut_answer(self) -> None:
        if self._pending is not None:
            self._add_cut_answer(self._pending)
            self._pending = None

    def _add_cut_answer(self, places: list[tuple[int, int]]) -> None:
        tokens, steps = _load_details(self._path, places)
        if not tokens:
            return
        answer = Answer("".join(token.text for token in tokens), lambda: (tokens, steps))
        answer.target, answer.draft = self._models
        answer.reason = "failed"
        answer.note = "localspec ended in the middle of this answer"
        self._conversation.turns.append(Turn("assistant", answer=answer))


def _load_details(path: Path, places: list[tuple[int, int]]) -> Details:
    tokens: list[Token] = []
    steps: list[Step] = []
    with suppress(OSError), open(path, "rb") as file:
        for offset, length in places:
            file.seek(offset)
            with suppress(*_DAMAGE):
                value = parse_json(file.read(length))
                steps += [_step(row) for row in value["rounds"]]
                tokens += [Token(int(id_), _LETTERS[letter], str(text)) for id_, letter, text in value["tokens"]]
    return tokens, steps


def _round_values(round_: Round) -> list[Any]:
    values: list[Any] = []
    for name in _ROUND_FIELDS:
        value = getattr(round_, name)
        if name == "provenance":
            value = "".join(origin.value[0] for origin in value)
        elif name == "confidences":
            value = [round(confidence, 4) for confidence in value]
        elif isinstance(value, float):
            value = round(value, 6)
        values.append(value)
    return values


def _step(row: list[Any]) -> Step:
    values = dict(zip(_ROUND_FIELDS, row[:-1], strict=True))
    values["provenance"] = tuple(_LETTERS[letter] for letter in values["provenance"])
    for name in ("drafted", "confidences", "emitted"):
        values[name] = tuple(values[name])
    return Step(Round(**values), tuple(map(str, row[-1])))


def _stats(value: Any) -> GenerationStats | None:
    """Tolerant of fields that another version has or lacks; None when it cannot be made."""
    if not isinstance(value, dict):
        return None
    try:
        return GenerationStats(**stats_values(value))
    except TypeError:
        return None


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    offset = 0
    for line in file:
        yield offset, line
        offset += len(line)


def _open_for_appending(path: Path) -> BinaryIO:
    """Locked against a second writer; after a torn line on a new one. Raises InvalidInput, OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = open(path, "a+b", buffering=0)  # noqa: SIM115 - the writer closes it
    try:
        _lock(file, path)
    except BaseException:
        file.close()
        raise
    end = file.seek(0, os.SEEK_END)
    if end:
        file.seek(end - 1)
        if file.read(1) != b"\n":
            file.write(b"\n")
    return file


def _lock(file: Any, path: Path) -> None:
    if not try_lock(file):
        raise InvalidInput(f"{path.name} is open in another localspec", "Close it there, or start a new chat")
