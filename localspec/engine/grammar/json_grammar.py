"""A JSON schema to a grammar in llama.cpp's GBNF, so that an answer can be nothing but JSON of that shape.

What a grammar cannot hold (number ranges, patterns, ...) is refused by name, with the place in the schema.
Members come in the order in which the schema names them, and an object has no others unless
`additionalProperties` says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn

from localspec.ground.errors import InvalidInput
from localspec.ground.terminal import one_line

_MAX_RULES = 2000
_MAX_CHARACTERS = 200_000
_MAX_DEPTH = 32
_MAX_REPEAT = 1000
"""libllama expands repetitions and refuses very long ones."""

_BASE = {
    "ws": r'| " " | "\n" [ \t]{0,20}',
    "char": r'[^"\\\x7F\x00-\x1F] | [\\] (["\\bfnrt/] | "u" [0-9a-fA-F]{4})',
    "string": r'"\"" char* "\""',
    "integer": '"-"? ("0" | [1-9] [0-9]{0,15})',
    "number": 'integer ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?',
    "boolean": '"true" | "false"',
    "null": '"null"',
    "value": "object | array | string | number | boolean | null",
    "member": 'string ws ":" ws value',
    "object": '"{" ws (member ws ("," ws member ws)*)? "}"',
    "array": '"[" ws (value ws ("," ws value ws)*)? "]"',
    "date": '[0-9]{4} "-" ("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | [12] [0-9] | "3" [01])',
    "hour": '([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9]',
    "time": 'hour ":" [0-5] [0-9] ("." [0-9]{1,6})? ("Z" | [+-] hour)',
    "uuid": '[0-9a-f]{8} "-" [0-9a-f]{4} "-" [0-9a-f]{4} "-" [0-9a-f]{4} "-" [0-9a-f]{12}',
}
_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_FORMATS = {"date": "date", "time": "time", "date-time": 'date "T" time', "uuid": "uuid"}

_WORDS = frozenset(
    (
        *(
            "$schema",
            "$id",
            "$comment",
            "$defs",
            "definitions",
            "title",
            "description",
            "default",
            "examples",
        ),
        *("deprecated", "readOnly", "writeOnly"),
    )
)
"""Keywords that do not limit a value."""
_BY_TYPE = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "prefixItems", "minItems", "maxItems"},
    "string": {"minLength", "maxLength", "format"},
}


def any_object() -> str:
    """The grammar of `{"type": "json_object"}`."""
    return from_schema({"type": "object"})


def from_schema(schema: object) -> str:
    """GBNF whose root is `schema`. Raises InvalidInput with the place of what cannot be kept."""
    return _Converter(schema).grammar()


class _Converter:
    def __init__(self, schema: object) -> None:
        self._schema = schema
        self._rules: dict[str, str] = {}
        self._by_reference: dict[str, str] = {}
        self._size = 0

    def grammar(self) -> str:
        root = self._visit(self._schema, "#", 0)
        rules = {"root": root, **self._rules, **_BASE}
        return "\n".join(f"{name} ::= {body}" for name, body in rules.items()) + "\n"

    def _rule(self, body: str) -> str:
        """Name a piece; returns the name."""
        name = f"r{len(self._rules)}"
        self._keep(name, body)
        return name

    def _keep(self, name: str, body: str) -> None:
        self._rules[name] = body
        self._size += len(body)
        if len(self._rules) > _MAX_RULES or self._size > _MAX_CHARACTERS:
            raise InvalidInput("the JSON schema is too big", "Use a smaller one")

    def _visit(self, schema: object, where: str, depth: int) -> str:
        """The expression of one schema."""
        if depth > _MAX_DEPTH:
            _refuse(where, "is nested too deeply")
        if schema is True or schema == {}:
            return "value"
        if not isinstance(schema, dict):
            _refuse(where, "is not a schema")
        for keyword, read in self._forms().items():
            if keyword in schema:
                _only(schema, {keyword, "type"} if keyword in ("enum", "const") else {keyword}, where)
                return read(schema[keyword], f"{where}/{keyword}", depth)
        kind = schema.get("type")
        if isinstance(kind, list):
            return self._types(schema, kind, where, depth)
        if kind is None:
            kind = next((name for name, words in _BY_TYPE.items() if words & schema.keys()), None)
        if kind is None:
            _only(schema, set(), where)
            return "value"
        if kind not in _TYPES:
            _refuse(f"{where}/type", f"is {one_line(json.dumps(kind), 40)}, which is no JSON type")
        _only(schema, {"type"} | _BY_TYPE.get(kind, set()), where)
        if kind == "object":
            return self._object(schema, where, depth)
        if kind == "array":
            return self._array(schema, where, depth)
        return self._string(schema, where) if kind == "string" else kind

    def _forms(self) -> dict[str, Callable[[Any, str, int], str]]:
        """Keywords that decide a schema by themselves."""
        return {
            "$ref": self._reference,
            "const": lambda value, where, depth: _literal(value),
            "enum": self._enum,
            "anyOf": self._any_of,
            "oneOf": self._any_of,
        }

    def _types(self, schema: dict[str, Any], kinds: list[Any], where: str, depth: int) -> str:
        """`"type": ["string", "null"]`: each with the keywords that concern it."""
        if not kinds or len(kinds) > len(_TYPES):
            _refuse(f"{where}/type", "must name one type or more")
        known = set().union(*(_BY_TYPE.get(kind, set()) for kind in kinds if isinstance(kind, str)))
        _only(schema, {"type"} | known, where)
        parts = []
        for kind in kinds:
            words = _BY_TYPE.get(kind, set()) if isinstance(kind, str) else set()
            own = {key: schema[key] for key in words & schema.keys()}
            parts.append(self._visit({**own, "type": kind}, where, depth + 1))
        return self._rule(" | ".join(parts))

    def _reference(self, target: Any, where: str, depth: int) -> str:
        if not isinstance(target, str) or not (target == "#" or target.startswith("#/")):
            _refuse(where, "must point into this schema, like #/$defs/name")
        if target in self._by_reference:
            return self._by_reference[target]
        found = self._schema
        for part in target.split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or part not in found:
                _refuse(where, f"points at {one_line(target, 80)}, which is not there")
            found = found[part]
        name = self._by_reference[target] = f"d{len(self._by_reference)}"
        self._keep(name, self._visit(found, target, depth + 1))
        return name

    def _enum(self, values: Any, where: str, depth: int) -> str:
        if not isinstance(values, list) or not values:
            _refuse(where, "must be a list of at least one value")
        return self._rule(" | ".join(_literal(value) for value in values))

    def _any_of(self, schemas: Any, where: str, depth: int) -> str:
        if not isinstance(schemas, list) or not schemas:
            _refuse(where, "must be a list of at least one schema")
        parts = [self._visit(part, f"{where}/{index}", depth + 1) for index, part in enumerate(schemas)]
        return self._rule(" | ".join(parts))

    def _object(self, schema: dict[str, Any], where: str, depth: int) -> str:
        if not _BY_TYPE["object"] & schema.keys():
            return "object"
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        if not isinstance(properties, dict):
            _refuse(f"{where}/properties", "must be an object")
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            _refuse(f"{where}/required", "must be a list of names")
        extra = schema.get("additionalProperties", not properties)
        unknown = [name for name in required if name not in properties]
        if unknown:
            _refuse(f"{where}/required", f"names {one_line(unknown[0], 60)}, which is no property")
        members = []
        for name, part in properties.items():
            value = self._visit(part, f"{where}/properties/{name}", depth + 1)
            members.append((self._rule(f'{_literal(name)} ws ":" ws {value} ws'), name in required))
        return self._rule(f'"{{" ws {self._members(members, extra, where, depth)} "}}"')

    def _members(self, members: list[tuple[str, bool]], extra: object, where: str, depth: int) -> str:
        """Members in order, optional ones left out or not, commas only between them: a chain from the back.

        `rest`: what may follow a member; `first`: what may stand at the beginning.
        """
        rest = first = '""'
        if extra is not False:
            value = self._visit(extra, f"{where}/additionalProperties", depth + 1)
            pair = self._rule(f'string ws ":" ws {value} ws')
            rest = self._rule(f'("," ws {pair})*')
            first = self._rule(f"({pair} {rest})?")
        for name, is_required in reversed(members):
            begin = f"{name} {rest}" if is_required else f"{name} {rest} | {first}"
            follow = f'"," ws {name} {rest}' if is_required else f'("," ws {name})? {rest}'
            first, rest = self._rule(begin), self._rule(follow)
        return first

    def _array(self, schema: dict[str, Any], where: str, depth: int) -> str:
        if "prefixItems" in schema:
            return self._tuple(schema, where, depth)
        item = self._visit(schema.get("items", True), f"{where}/items", depth + 1)
        low, high = _range(schema, "minItems", "maxItems", where)
        item = self._rule(f"{item} ws")
        if high == 0:
            return '"[" ws "]"'
        more = f'("," ws {item}){_times(max(low - 1, 0), None if high is None else high - 1)}'
        body = f"{item} {more}" if low else f"({item} {more})?"
        return self._rule(f'"[" ws {body} "]"')

    def _tuple(self, schema: dict[str, Any], where: str, depth: int) -> str:
        parts = schema["prefixItems"]
        if not isinstance(parts, list) or not parts:
            _refuse(f"{where}/prefixItems", "must be a list of at least one schema")
        if schema.get("items", False) is not False:
            _refuse(f"{where}/items", "beside prefixItems must be false")
        _range(schema, "minItems", "maxItems", where)
        if {schema.get(key, len(parts)) for key in ("minItems", "maxItems")} != {len(parts)}:
            _refuse(where, f"must have minItems and maxItems {len(parts)}, like its prefixItems")
        items = [self._visit(part, f"{where}/prefixItems/{i}", depth + 1) for i, part in enumerate(parts)]
        return self._rule('"[" ws ' + ' "," ws '.join(f"{item} ws" for item in items) + ' "]"')

    def _string(self, schema: dict[str, Any], where: str) -> str:
        if "format" in schema:
            if {"minLength", "maxLength"} & schema.keys():
                _refuse(where, "cannot have a format and a length")
            kind = schema["format"]
            if not isinstance(kind, str) or kind not in _FORMATS:
                known = ", ".join(_FORMATS)
                _refuse(f"{where}/format", f"is {one_line(json.dumps(kind), 40)}; known are {known}")
            return self._rule(rf'"\"" {_FORMATS[kind]} "\""')
        low, high = _range(schema, "minLength", "maxLength", where)
        return "string" if (low, high) == (0, None) else self._rule(rf'"\"" char{_times(low, high)} "\""')


def _only(schema: dict[str, Any], known: set[str], where: str) -> None:
    """Refuse a keyword that would go unheeded."""
    for word in schema:
        if word not in known and word not in _WORDS:
            _refuse(where, f"has the keyword {one_line(word, 60)}, which cannot be kept here")


def _range(schema: dict[str, Any], least: str, most: str, where: str) -> tuple[int, int | None]:
    """The two bounds; None = no upper one."""
    low, high = schema.get(least, 0), schema.get(most)
    for name, value in ((least, low), (most, high)):
        if value is not None and (type(value) is not int or not 0 <= value <= _MAX_REPEAT):
            _refuse(f"{where}/{name}", f"must be a whole number from 0 to {_MAX_REPEAT}")
    if high is not None and high < low:
        _refuse(f"{where}/{most}", f"is below {least}")
    return low, high


def _times(low: int, high: int | None) -> str:
    if (low, high) == (0, None):
        return "*"
    return f"{{{low},{'' if high is None else high}}}"


def _literal(value: object) -> str:
    """One JSON value, written in the one way that Python writes it."""
    text = json.dumps(value, ensure_ascii=False)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _refuse(where: str, why: str) -> NoReturn:
    raise InvalidInput(f"the JSON schema {why} (at {one_line(where, 200)})", "Change the schema")
