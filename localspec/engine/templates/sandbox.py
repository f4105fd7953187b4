"""A Jinja environment for templates that nobody vouches for: bounded time, bounded memory, no way out.

jinja2's own sandbox stops attribute escapes, not `{{ 'a' * 10**10 }}`. Here every loop round, call, operation
and output spends from a budget that grows with the conversation, and what a template may call is on a list.
Text is `Marked` throughout, so that the template's words and the people's words stay apart.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from html import escape as html_escape
from types import BuiltinMethodType, MethodType
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import loopcontrols
from jinja2.filters import FILTERS as DEFAULT_FILTERS
from jinja2.runtime import Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from localspec.engine.templates import origin_text
from localspec.engine.templates.guard import GenerationTag, Guard
from localspec.engine.templates.origin_text import Marked

TEXT_LIMIT = 1 << 20
"""Characters of one string, and of the output, beyond what the conversation itself brings."""
STEPS = 50_000
"""Loop rounds, calls and operations of one rendering, beyond what the conversation's length allows."""
CPU_SECONDS = 0.6
NODE_LIMIT = 8_000
"""Parts of a parsed template; the longest published ones have about 3,000."""
ITEM_LIMIT = 10_000
NUMBER_LIMIT = 1 << 63
CHARACTERS_A_STEP = 64
CELL = 64
"""Characters that one list element is charged as."""


class TooMuch(Exception):
    """The template spent its budget; the text says on what."""


class TemplateSays(Exception):
    """The template called raise_exception."""


class Budget:
    """What one rendering may still spend. `size`: characters of the conversation; `messages`: how many."""

    def __init__(self, size: int = 0, messages: int = 0) -> None:
        self.text_limit = TEXT_LIMIT + 2 * size
        self.steps = STEPS + 200 * messages + size // 4
        self.characters = 8 * TEXT_LIMIT + 16 * size
        self.until = time.thread_time() + CPU_SECONDS + size / 4e6

    def tick(self, steps: int = 1) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise TooMuch("it does not come to an end")
        if time.thread_time() > self.until:
            raise TooMuch("it takes too long")

    def read(self, value: object) -> None:
        """Charge for looking at a value."""
        self.tick(1 + len(value) // CHARACTERS_A_STEP if isinstance(value, str) else 1)

    def make(self, characters: int) -> None:
        """Charge for a value about to be made, before it is."""
        if characters > self.text_limit:
            raise TooMuch(f"it makes a text of {characters:,} characters")
        self.characters -= characters
        if self.characters < 0:
            raise TooMuch("it makes too much text")
        self.tick(1 + characters // (CHARACTERS_A_STEP * 16))

    def container(self, value: Any) -> Any:
        """Check that a list or dictionary is small when written out, shared parts counted each time."""
        self.make(CELL * _weight(value, ITEM_LIMIT + self.text_limit // CELL, 40))
        return value


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """jinja2 as Transformers sets it up, with a budget. One rendering at a time per environment."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[GenerationTag, loopcontrols],
            finalize=self.text,
            optimized=False,
            cache_size=0,
        )
        self.budget = Budget()
        self.concat = self.joined  # type: ignore[method-assign]
        self.globals = {
            "range": self.counted_range,
            "namespace": Namespace,
            "dict": self.dictionary,
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
        }
        self.own = frozenset(map(id, self.globals.values()))
        self.filters = {**{name: DEFAULT_FILTERS[name] for name in _HARMLESS_FILTERS}, **self._filters()}

    # --- compiling ------------------------------------------------------------------------------

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        if sum(1 for _ in source.find_all(nodes.Node)) > NODE_LIMIT:
            raise TooMuch("it is too large a program")
        return super()._generate(Guard().visit(source), *args, **kwargs)

    # --- what guarded nodes call ------------------------------------------------------------------

    def ticking(self, iterable: Any) -> Iterator[Any]:
        """The same elements, one step each."""
        for item in iterable:
            self.budget.tick()
            yield item

    def tick(self) -> None:
        self.budget.tick()

    def operand(self, value: Any) -> Any:
        self.budget.read(value)
        return value

    def sliced(self, value: Any) -> Any:
        if isinstance(value, str):
            self.budget.make(len(value))
            return value
        return self.container(value)

    def container(self, value: Any) -> Any:
        return self.budget.container(value)

    def concatenate(self, *values: Any) -> str:
        """`a ~ b`."""
        return self.joined(map(self.text, values))

    def joined(self, parts: Iterable[str], separator: str = "") -> str:
        listed, size = [], 0
        for part in parts:
            size += len(part) + len(separator)
            if size > self.budget.text_limit:
                break
            listed.append(part)
        self.budget.make(size)
        return origin_text.join(separator, listed)

    def text(self, value: Any) -> str:
        """What `{{ value }}` prints."""
        if isinstance(value, str):
            self.budget.read(value)
            return value
        if value is None or isinstance(value, bool | int | float | Undefined):
            return str(value)
        if isinstance(value, list | tuple | dict):
            self.container(value)
            return origin_text.like(repr(value), *_texts(value))
        raise SecurityError(f"a {type(value).__name__} cannot be printed")

    # --- operators, attributes, calls ---------------------------------------------------------------

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        self.budget.tick()
        if operator == "+" and isinstance(left, str) and isinstance(right, str):
            return self.joined((left, right))
        if operator == "+" and isinstance(left, list | tuple) and type(left) is type(right):
            self.budget.make(CELL * (len(left) + len(right)))
            return self.container(left + right)  # type: ignore[operator]
        if operator == "*" and isinstance(left, str) and isinstance(right, int):
            self.budget.make(len(left) * max(0, right))
            return self.joined([left] * max(0, right))
        if operator == "%" and isinstance(left, str):
            return self.formatted(left, right)
        for value in (left, right):
            if isinstance(value, Undefined):
                value._fail_with_undefined_error()
            if not isinstance(value, int | float):
                raise SecurityError(f"{operator} on a {type(value).__name__} is not supported")
        if operator == "**" and (abs(left) > 1000 or abs(right) > 16):
            raise TooMuch("it raises a number to a large power")
        return _number(super().call_binop(context, operator, left, right))

    def formatted(self, pattern: str, values: Any) -> str:
        """`pattern % values`, without widths that could fill the memory."""
        if re.search(r"%[^%a-zA-Z]*(\d{3}|\*)", pattern):
            raise TooMuch("it pads text to a large width")
        texts = _texts([values])
        self.budget.make(len(pattern) * 100 + sum(map(len, texts)) * (1 + pattern.count("%")))
        self.container([values])
        return origin_text.like(str.__mod__(pattern, values), pattern, *texts)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str):
            return attr in origin_text.METHODS or attr in origin_text.QUESTIONS
        if isinstance(obj, dict):
            return attr in ("items", "keys", "values", "get")
        if isinstance(obj, list | tuple):
            return attr in ("index", "count")
        return isinstance(obj, LoopContext | Namespace) and not attr.startswith("_")

    def wrap_str_format(self, value: Any) -> Any:
        return None  # str.format is simply not on the list

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        __self.budget.tick()
        if isinstance(__obj, Macro | Undefined):
            return __context.call(__obj, *args, **kwargs)
        kwargs.pop("_loop_vars", None)
        kwargs.pop("_block_vars", None)
        owner = getattr(__obj, "__self__", None)
        if isinstance(__obj, BuiltinMethodType) and isinstance(owner, str):
            return __self.method(owner, __obj.__name__, args, kwargs)
        method = isinstance(__obj, BuiltinMethodType | MethodType) and (
            owner is __self or isinstance(owner, dict | list | tuple | LoopContext)
        )
        if not method and id(__obj) not in __self.own:
            raise SecurityError(f"calling a {type(__obj).__name__} is not supported")
        return __obj(*args, **kwargs)

    def method(self, text: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A method of a string, with its flags and at its price."""
        for value in (text, *args):
            self.budget.read(value)
        if name in origin_text.QUESTIONS:
            return getattr(str, name)(text, *args, **kwargs)
        if name == "join":
            return self.joined(map(self.text, self.ticking(*args)), text)
        if name == "replace":
            return self.replaced(text, *args, **kwargs)
        self.budget.make(3 * len(text) if name in ("upper", "title", "capitalize") else len(text))
        result = origin_text.METHODS[name](text, *args, **{_KEYWORDS.get(k, k): v for k, v in kwargs.items()})
        if isinstance(result, list):
            self.budget.make(CELL * len(result))
        return result

    def replaced(self, text: str, old: str, new: str, count: int | None = -1) -> str:
        self.budget.read(text)
        count = -1 if count is None else count
        found = str.count(text, old) if count < 0 else min(count, str.count(text, old))
        self.budget.make(len(text) + found * len(new))
        self.budget.make(found * 4)
        return origin_text.replace(text, old, new, count)

    # --- globals and filters ------------------------------------------------------------------------

    def counted_range(self, *args: int) -> range:
        numbers = range(*args)
        if len(numbers) > ITEM_LIMIT:
            raise TooMuch(f"it counts over {len(numbers):,} numbers")
        return numbers

    def dictionary(self, *args: Any, **kwargs: Any) -> Any:
        return self.container(dict(*args, **kwargs))

    def listed(self, value: Any) -> list[Any]:
        """`value | list`, charged element by element."""
        items = []
        for item in self.ticking(value):
            self.budget.make(CELL * 4)
            items.append(item)
        return items

    def to_json(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: Any = None,
        sort_keys: bool = False,
    ) -> str:
        """`value | tojson` as Transformers has it: no HTML escapes, spaces after `:` and `,`."""
        if indent is not None and not 0 <= indent <= 16:
            raise TooMuch(f"it indents JSON by {indent}")
        self.container(value)
        encoder = json.JSONEncoder(
            ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )
        return origin_text.like(self.joined(self.ticking(encoder.iterencode(_plain(value)))), *_texts(value))

    def indented(self, text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
        """`text | indent`."""
        if (len(width) if isinstance(width, str) else abs(width)) > 200:
            raise TooMuch("it indents text by a large width")
        self.budget.make(len(text) + str.count(text, "\n") * 200)
        return origin_text.like(DEFAULT_FILTERS["indent"](text, width, first, blank), text)

    def _filters(self) -> dict[str, Callable[..., Any]]:
        def method(name: str) -> Callable[..., Any]:
            return lambda value, *args: self.method(self.text(value), name, args, {})

        def join(value: Any, d: str = "", attribute: str | None = None) -> str:
            items = value if attribute is None else (self.getitem(item, attribute) for item in value)
            return self.joined(map(self.text, self.ticking(items)), self.text(d))

        def escape(value: Any) -> str:
            text = self.text(value)
            self.budget.make(len(text) * 6)
            return origin_text.like(html_escape(text), text)

        def rounded(value: float, precision: int = 0, method: str = "common") -> Any:
            if abs(precision) > 16:
                raise TooMuch("it rounds to a large precision")
            return DEFAULT_FILTERS["round"](value, precision, method)

        bounded = {name: self._materialised(DEFAULT_FILTERS[name]) for name in _SEQUENCE_FILTERS}
        own = {name: method(name) for name in ("upper", "lower", "title", "capitalize")}
        return {
            **bounded,
            **own,
            "trim": method("strip"),
            "replace": lambda value, old, new, count=None: self.replaced(
                self.text(value), self.text(old), self.text(new), count
            ),
            "string": self.text,
            "safe": self.text,
            "escape": escape,
            "e": escape,
            "join": join,
            "list": self.listed,
            "tojson": self.to_json,
            "indent": self.indented,
            "round": rounded,
        }

    def _materialised(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter that goes over a whole sequence at once: count and charge the sequence first."""

        def filtered(*args: Any, **kwargs: Any) -> Any:
            passed = args[0] if args and isinstance(args[0], Context | BoundedEnvironment) else None
            head, rest = (args[:1], args[1:]) if passed is not None else ((), args)
            if isinstance(rest[0], dict | Undefined):
                self.budget.tick(1 + len(rest[0]))
                return function(*args, **kwargs)
            return function(*head, self.listed(rest[0]), *rest[1:], **kwargs)

        if hasattr(function, "jinja_pass_arg"):
            filtered.jinja_pass_arg = function.jinja_pass_arg  # type: ignore[attr-defined]
        return filtered


_HARMLESS_FILTERS = (
    "abs", "count", "d", "default", "first", "float", "int", "items", "last", "length",
    "map", "reject", "rejectattr", "select", "selectattr",
)  # fmt: skip
_SEQUENCE_FILTERS = ("dictsort", "max", "min", "reverse", "sort", "unique")
_KEYWORDS = {"sep": "separator"}


def _raise_exception(message: object) -> None:
    raise TemplateSays(str(message)[:400])


def _strftime_now(pattern: str) -> str:
    # The C library's strftime pads to any width it is told.
    if len(pattern) > 100 or not re.fullmatch(r"(%[-_0]?[A-Za-z%]|[^%])*", pattern):
        raise SecurityError("this date format is not supported")
    return origin_text.like(datetime.now().strftime(str.__str__(pattern)), pattern)


def _number(value: Any) -> Any:
    if isinstance(value, complex) or (isinstance(value, int) and abs(value) > NUMBER_LIMIT):
        raise TooMuch("its numbers grow without bound")
    return value


def _weight(value: Any, limit: int, depth: int) -> int:
    """Elements in `value`, nested ones included; raises TooMuch above `limit` or below `depth` levels."""
    if isinstance(value, dict):
        children: Iterable[Any] = [part for pair in value.items() for part in pair]
    elif isinstance(value, list | tuple):
        children = value
    else:
        return 1 + (len(value) // CELL if isinstance(value, str) else 0)
    total = 1
    for child in children:
        if depth <= 0:
            raise TooMuch("it nests lists too deeply")
        total += _weight(child, limit - total, depth - 1)
        if total > limit:
            raise TooMuch("it makes too large a list")
    return total


def _texts(value: Any) -> list[str]:
    """Every string in a container that was already weighed."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in _texts(part)]
    if isinstance(value, list | tuple):
        return [text for part in value for text in _texts(part)]
    return []


def _plain(value: Any) -> Any:
    """The same value as plain JSON types."""
    if isinstance(value, Marked):
        return "".join((value,))
    if isinstance(value, dict):
        return {_plain(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value
