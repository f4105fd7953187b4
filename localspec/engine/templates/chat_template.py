"""The model's own chat template: messages in, prompt out, in pieces that say who wrote them.

A prompt is rendered once, with the real messages, by jinja2 in a sandbox with a budget (`template_sandbox`).
All text that comes from outside (message contents, template arguments) carries a flag a character (`marked`),
through every operation a template may use. So the pieces joined are exactly what Transformers would render,
and `encode` can give control tokens their meaning only where the template itself wrote them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from localspec.ground.errors import InvalidInput
from localspec.ground.terminal import one_line

if TYPE_CHECKING:
    from localspec.engine.templates.sandbox import BoundedEnvironment

SOURCE_LIMIT = 64 << 10
"""Characters of a template; the longest published ones have about 30,000."""
WITHOUT = "Send the prompt without the template: --raw"


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: str
    """`system`, `user`, `assistant`, or another word the template knows."""
    content: str
    """What was said; never read as control tokens."""
    extras: tuple[tuple[str, object], ...] = ()
    """What else a template may read of a turn (`tool_calls`, `name`), as plain JSON values."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,31}", self.role):
            raise InvalidInput(f"{one_line(self.role, 40)!r} is no role", "Use system, user or assistant")


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a rendered prompt."""

    text: str
    is_template: bool
    """True: the template wrote it, and control tokens in it count. False: somebody's words, or data."""


class ChatTemplate:
    """A compiled chat template; `bos` and `eos` are token texts. InvalidInput if `source` is not one."""

    def __init__(self, source: str, bos: str, eos: str) -> None:
        from localspec.engine.templates.sandbox import BoundedEnvironment

        if not source.strip():
            raise InvalidInput("the model has no chat template", WITHOUT)
        if len(source) > SOURCE_LIMIT:
            raise InvalidInput(f"the model's chat template is too long: {len(source):,} characters", WITHOUT)
        self._lock = threading.Lock()
        self._tokens = {"bos_token": bos, "eos_token": eos}
        self._environment: BoundedEnvironment = BoundedEnvironment()
        self._template = _explained("cannot be read", lambda: self._environment.from_string(source))

    def render(
        self, messages: Sequence[Message], add_generation_prompt: bool = True, **arguments: Any
    ) -> list[Segment]:
        """The prompt for `messages`, neighbouring pieces always of different origin.

        `arguments` go to the template by name (`enable_thinking=False`). Raises InvalidInput with the
        template's own words when it refuses the conversation, and when it fails or does not come to an end.
        """
        from localspec.engine.templates.origin_text import runs

        with self._lock:
            text = _explained("failed", lambda: self._rendered(messages, add_generation_prompt, arguments))
        return [Segment(piece, by_template) for piece, by_template in runs(text)]

    def _rendered(self, messages: Sequence[Message], generate: bool, arguments: dict[str, Any]) -> str:
        from localspec.engine.templates.origin_text import user
        from localspec.engine.templates.sandbox import Budget

        size = sum(len(message.content) + len(repr(message.extras)) for message in messages)
        self._environment.budget = budget = Budget(size, len(messages))
        values = {
            "messages": [
                {"role": m.role, "content": user(m.content), **{key: _from_outside(v) for key, v in m.extras}}
                for m in messages
            ],
            "add_generation_prompt": generate,
            "tools": None,  # as in Transformers, where templates test for none
            "documents": None,
            **{name: _from_outside(value) for name, value in arguments.items()},
            **self._tokens,
        }
        budget.until += len(messages) / 1e3
        parts: list[str] = []
        total = 0
        for part in self._template.generate(**values):
            total += len(part)
            budget.tick()
            budget.make(0 if total <= budget.text_limit else total)
            parts.append(part)
        return self._environment.joined(parts)


def encode(
    segments: Iterable[Segment],
    tokenize: Callable[[str, bool], list[int]],
    is_control: Callable[[int], bool],
) -> list[int]:
    """Token ids of a rendered prompt, in which nobody but the template wrote a control token.

    `tokenize(text, parse_special)`; `is_control(id)`: an id with a meaning beyond its text. An ordinary
    prompt is tokenized whole, as every other program does. When that yields other control tokens than the
    template's pieces alone, the pieces that bring them are tokenized apart as plain text.
    """
    pieces = [segment for segment in segments if segment.text]

    def controls(ids: Iterable[int]) -> list[int]:
        return [token for token in ids if is_control(token)]

    own = [tokenize(piece.text, True) for piece in pieces if piece.is_template]
    wanted = [token for ids in own for token in controls(ids)]
    everything = tokenize("".join(piece.text for piece in pieces), True)
    if controls(everything) == wanted:
        return everything
    bringing = [not piece.is_template and bool(controls(tokenize(piece.text, True))) for piece in pieces]
    apart = _encode_apart(pieces, bringing, tokenize, is_control)
    if controls(apart) == wanted:
        return apart
    # A control token that starts in one piece and ends in the next.
    return _encode_apart(pieces, [not piece.is_template for piece in pieces], tokenize, is_control)


def _encode_apart(
    pieces: list[Segment],
    plain: list[bool],
    tokenize: Callable[[str, bool], list[int]],
    is_control: Callable[[int], bool],
) -> list[int]:
    def harmless(text: str) -> list[int]:
        # Some vocabularies hold a control token that ordinary merges also reach (`</s>` in Qwen2.5).
        ids = tokenize(text, False)
        if len(text) < 2 or not any(map(is_control, ids)):
            return ids
        half = len(text) // 2
        return harmless(text[:half]) + harmless(text[half:])

    ids: list[int] = []
    waiting = ""
    for piece, apart in zip(pieces, plain, strict=True):
        if not apart:
            waiting += piece.text
            continue
        ids += (tokenize(waiting, True) if waiting else []) + harmless(piece.text)
        waiting = ""
    return ids + (tokenize(waiting, True) if waiting else [])


def _from_outside(value: Any) -> Any:
    """`value` with every text in it marked as not the template's."""
    from localspec.engine.templates.origin_text import user

    if isinstance(value, str):
        return user(value)
    if isinstance(value, dict):
        return {_from_outside(key): _from_outside(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_from_outside(part) for part in value]
    return value


def _explained(what: str, work: Callable[[], Any]) -> Any:
    """Run `work`; whatever a template does wrong becomes one InvalidInput."""
    from jinja2.exceptions import TemplateError, TemplateSyntaxError

    from localspec.engine.templates.sandbox import TemplateSays, TooMuch

    stopped = "the model's chat template was stopped"
    try:
        return work()
    except TemplateSays as error:
        raise InvalidInput(
            f"the chat template says: {one_line(str(error))}",
            "Nothing was sent. Change the conversation, or use --raw",
        ) from None
    except TooMuch as error:
        raise InvalidInput(f"{stopped}: {error}", WITHOUT) from None
    except TemplateSyntaxError as error:
        message = f"the model's chat template {what}: {one_line(str(error.message))} (line {error.lineno})"
        raise InvalidInput(message, WITHOUT) from None
    except RecursionError:
        raise InvalidInput(f"{stopped}: it nests too deeply", WITHOUT) from None
    except MemoryError:
        raise InvalidInput(f"{stopped}: it needs too much memory", WITHOUT) from None
    except Exception as error:
        # Templates are programs: any error in them is theirs.
        name = "" if isinstance(error, TemplateError) else f"{type(error).__name__}: "
        message = f"the model's chat template {what}: {name}{one_line(str(error))}"
        raise InvalidInput(message, WITHOUT) from None
