"""`response_format` -> the grammar that the answer has to follow."""

from __future__ import annotations

from localspec.engine.grammar import json_grammar
from localspec.ground.errors import InvalidInput
from localspec.serve.fields import Fields, checked_tree
from localspec.serve.problems import Problem

_PARAM = "response_format"


def grammar_of(fields: Fields) -> str | None:
    """GBNF, or None for plain text."""
    wanted = fields.fields(_PARAM)
    if wanted is None:
        return None
    kind = wanted.choice("type", ["text", "json_object", "json_schema"])
    holder = wanted.fields("json_schema")
    wanted.finish()
    if kind == "text" and holder is None:
        return None
    if kind == "json_object" and holder is None:
        return json_grammar.any_object()
    if kind != "json_schema" or holder is None:
        raise Problem(
            400,
            "response_format needs type json_schema and a json_schema",
            param=_PARAM,
            code="invalid_value",
        )
    schema = holder.take("schema")
    for name in ("name", "description"):
        holder.text(name, limit=4096)
    holder.flag("strict")
    holder.finish()
    if schema is None:
        raise Problem(400, "response_format.json_schema.schema is missing", param=_PARAM, code="invalid_value")
    try:
        return json_grammar.from_schema(checked_tree(schema, f"{_PARAM}.json_schema.schema", depth=128))
    except InvalidInput as error:
        raise Problem(400, error.message, param=_PARAM, code="invalid_value") from None
