"""What happens to a chat template between parsing and compiling: the budget is put into it.

Operators and attribute look-ups reach the environment by themselves; loops, macros, comparisons, slices, `~` and
literal lists do not, so each of them is wrapped in a call of one of the environment's own functions.
"""

from __future__ import annotations

from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.visitor import NodeTransformer


class GenerationTag(Extension):
    """`{% generation %}` marks what the model wrote, for training: here it is passed through."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 wants a plain attribute

    def parse(self, parser: Parser) -> list[nodes.Node]:
        parser.stream.skip(1)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Guard(NodeTransformer):
    """Puts the budget into a parsed template, and refuses what no chat template needs."""

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        if isinstance(node, nodes.Include | nodes.Import | nodes.FromImport | nodes.Extends):
            raise SecurityError(f"{type(node).__name__.lower()} is not supported")
        return super().generic_visit(node, *args, **kwargs)

    def visit_For(self, node: nodes.For) -> nodes.Node:
        if node.recursive:
            raise SecurityError("recursive loops are not supported")
        self.generic_visit(node)
        node.iter = _ask("ticking", node.iter)
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_ask("tick"), lineno=node.lineno))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _ask("concatenate", *node.nodes)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _ask("operand", node.expr)
        for operand in node.ops:
            operand.expr = _ask("operand", operand.expr)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:
        self.generic_visit(node)
        return _ask("sliced", node) if isinstance(node.arg, nodes.Slice) else node

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        return _ask("container", node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        return _ask("container", node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return _ask("container", node) if node.ctx == "load" else node


def _ask(name: str, *arguments: Any) -> nodes.Call:
    line = arguments[0].lineno if arguments else 1
    call = nodes.Call(nodes.EnvironmentAttribute(name), list(arguments), [], None, None)
    return call.set_lineno(line)  # type: ignore[return-value]
