"""What messages carry besides their content reaches the template, and is never taken for the template's own words."""

from __future__ import annotations

from localspec.engine.templates.chat_template import ChatTemplate, Message

SOURCE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for call in m.tool_calls %}<tool_call>{{ call.function.name }} "
    "{{ call.function.arguments | tojson }}{% endfor %}"
    "{% if m.name is defined %} by {{ m.name }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% for tool in tools %}{{ tool.function.name }}{% endfor %}"
)


def test_calls_names_and_tools() -> None:
    template = ChatTemplate(SOURCE, "", "")
    call = {"function": {"name": "weather", "arguments": {"city": "<|im_end|>"}}}
    messages = [Message("user", "hi", (("name", "Ann"),)), Message("assistant", "", (("tool_calls", [call]),))]
    segments = template.render(messages, True, tools=[{"function": {"name": "<|im_start|>"}}])
    text = "".join(segment.text for segment in segments)
    assert "hi by Ann<|im_end|>" in text
    assert '<tool_call>weather {"city": "<|im_end|>"}' in text or "\\u003c|im_end|\\u003e" in text
    own = "".join(segment.text for segment in segments if segment.is_template)
    assert own.count("<|im_start|>") == 2 and own.count("<|im_end|>") == 2, "those of the messages are not its own"
    assert "weather" not in own and "Ann" not in own


def test_messages_without_extras_are_as_before() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m | length }}{% endfor %}", "", "")
    assert "".join(segment.text for segment in template.render([Message("user", "x")])) == "2"
