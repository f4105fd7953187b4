"""What was said so far, and what the model may call: the parts of a chat request that its template renders."""

from __future__ import annotations

from typing import Any

from localspec.engine.templates.chat_template import Message
from localspec.serve.fields import Fields, checked_list, checked_object, checked_text, checked_tree, parse, wrong
from localspec.serve.problems import Problem

MAX_MESSAGES = 4096
MAX_TOOLS = 128
_GIVEN_ELSEWHERE = ("messages", "tools", "add_generation_prompt", "bos_token", "eos_token")
"""What a template takes, and `chat_template_kwargs` cannot say."""


def messages(fields: Fields) -> tuple[Message, ...]:
    """`messages`, at least one."""
    said = fields.items("messages", limit=MAX_MESSAGES)
    if not said:
        raise Problem(400, "messages must be a list of at least one message", param="messages", code="invalid_value")
    return tuple(_message(one, f"messages[{index}]") for index, one in enumerate(said))


def template_arguments(fields: Fields) -> tuple[tuple[str, object], ...]:
    """Tools, and whatever else the chat template takes by name."""
    arguments: dict[str, object] = {}
    extra = fields.take("chat_template_kwargs")
    if extra is not None:
        for key, value in checked_object(extra, "chat_template_kwargs").items():
            if not key.isidentifier() or key in _GIVEN_ELSEWHERE:
                wrong("chat_template_kwargs", "has a name that cannot be given", key)
            arguments[key] = checked_tree(value, f"chat_template_kwargs.{key}")
    tools = fields.items("tools", limit=MAX_TOOLS)
    choice = fields.take("tool_choice")
    if choice not in (None, "auto", "none"):
        raise Problem(
            400,
            'tool_choice is not supported except "auto" and "none"',
            param="tool_choice",
            code="unsupported_parameter",
        )
    fields.refuse("parallel_tool_calls", "the model decides", True)
    if tools and choice != "none":
        for index, tool in enumerate(tools):
            _check_tool(tool, f"tools[{index}]")
        arguments["tools"] = tools
    return tuple(arguments.items())


def _check_tool(tool: Any, where: str) -> None:
    fields = Fields(checked_object(tool, where), where)
    if fields.choice("type", ["function"]) is None:
        wrong(f"{where}.type", "must be function", None)
    function = fields.take("function")
    fields.finish()
    named = Fields(checked_object(function, f"{where}.function"), f"{where}.function")
    if not named.text("name", limit=256):
        wrong(f"{where}.function.name", "must be a string", None)
    checked_tree(function, f"{where}.function")


def _message(value: Any, where: str) -> Message:
    fields = Fields(checked_object(value, where), where)
    role = fields.choice("role", ["system", "developer", "user", "assistant", "tool"])
    if role is None:
        wrong(f"{where}.role", "must be one of system, developer, user, assistant, tool", None)
    content = fields.take("content")
    extras: dict[str, object] = {}
    if role == "assistant":
        calls = fields.items("tool_calls", limit=MAX_TOOLS)
        if calls:
            extras["tool_calls"] = [
                _tool_call(call, f"{where}.tool_calls[{index}]") for index, call in enumerate(calls)
            ]
        reasoning = fields.text("reasoning_content")
        if reasoning:
            extras["reasoning_content"] = reasoning
        fields.refuse("refusal", "a model here says what it says")
        for name in ("audio", "annotations", "function_call"):
            fields.refuse(name, "only text can be sent back", [])
    if role == "tool":
        call = fields.text("tool_call_id", limit=256)
        if call:
            extras["tool_call_id"] = call
    speaker = fields.text("name", limit=256)
    if speaker:
        extras["name"] = speaker
    fields.finish()
    text = "" if content is None and "tool_calls" in extras else _content(content, f"{where}.content")
    return Message("system" if role == "developer" else role, text, tuple(extras.items()))


def _tool_call(value: Any, where: str) -> dict[str, Any]:
    """A call that the model made. Templates want its arguments as an object, OpenAI sends them as a string."""
    call = checked_object(checked_tree(value, where), where)
    function = checked_object(call.get("function"), f"{where}.function")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            function = {**function, "arguments": parse(arguments.encode())}
        except Problem:
            wrong(f"{where}.function.arguments", "must be a JSON object", arguments)
    return {**call, "function": function}


def _content(value: Any, where: str) -> str:
    """A string, or a list of text parts."""
    if isinstance(value, str):
        return checked_text(value, where, 1 << 20)
    if not isinstance(value, list) or not value:
        wrong(where, "must be a string or a list of text parts", value)
    texts = []
    for index, part in enumerate(checked_list(value, where, 1024)):
        name = f"{where}[{index}]"
        fields = Fields(checked_object(part, name), name)
        kind = fields.take("type")
        if kind != "text":
            shown = kind[:40] if isinstance(kind, str) else "a part without a type"
            raise Problem(
                400,
                f"{name}.type: {shown} is not supported, only text is",
                param=f"{name}.type",
                code="unsupported_content",
            )
        text = fields.text("text")
        if text is None:
            wrong(f"{name}.text", "must be a string", None)
        fields.finish()
        texts.append(text)
    return "".join(texts)
