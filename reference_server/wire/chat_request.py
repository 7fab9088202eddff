"""The chat route's own parameters: messages, tools, response_format, logprobs."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from reference_server.engine.interface import Message, Sampling
from reference_server.engine.script import chat_prompt, last_message
from reference_server.wire import constrained, fields, request, sse_writer
from reference_server.wire.errors import invalid
from reference_server.wire.fields import Object
from reference_server.wire.request import Ask, Call

_ROLES = ("developer", "system", "user", "assistant", "tool", "function")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_TOKENS = 2**31
_MOST_CALLS = 4
# Asked for and not there is told, never passed over.
_UNSUPPORTED = ("functions", "function_call", "audio", "web_search_options", "prediction")


def chat(body: Object) -> Ask:
    """Raises ApiError(400)."""
    model = request.model_of(body)
    for name in _UNSUPPORTED:
        if body.get(name) is not None:
            raise invalid(f"{name} is not supported", name, "unsupported_parameter")
    messages = messages_of(body)
    prompt = chat_prompt(messages)
    calls = _calls(body, prompt)
    answer = None if calls else _formatted(body, prompt)
    sampling = _sampling(body, bool(calls))
    ask = Ask("chat", model, (prompt,), sampling, calls=calls, answer=answer, messages=messages)
    return request.common(ask, body)


def _sampling(body: Object, calling: bool) -> Sampling:
    limit = fields.integer(body, "max_tokens", 1, _TOKENS)
    newer = fields.integer(body, "max_completion_tokens", 1, _TOKENS)
    base = request.sampling(body, limit if newer is None else newer)
    top = fields.integer(body, "top_logprobs", 0, 20)
    wanted = fields.boolean(body, "logprobs")
    if top is not None and not wanted:
        raise invalid("top_logprobs needs logprobs to be true", "top_logprobs")
    # A stop string is about text; cutting a call's arguments would leave no valid JSON.
    stop = () if calling else base.stop
    return replace(base, stop=stop, logprobs=(top or 0) if wanted else None)


# -- messages ------------------------------------------------------------------------------------


def messages_of(body: Object) -> tuple[Message, ...]:
    """What was said. Raises ApiError(400)."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise fields.wrong("messages", "a non-empty array of messages", messages)
    return tuple(_message(message, f"messages[{i}]") for i, message in enumerate(messages))


def _message(message: Any, path: str) -> Message:
    if not isinstance(message, dict):
        raise fields.wrong(path, "an object", message)
    role = message.get("role")
    if role not in _ROLES:
        raise fields.wrong(f"{path}.role", f"one of {', '.join(_ROLES)}", role)
    if role == "tool":
        fields.text(message, "tool_call_id", f"{path}.tool_call_id")
    return Message(role, _content(message, role, path))


def _content(message: Object, role: str, path: str) -> str:
    content = message.get("content")
    if content is None and role == "assistant":
        calls = fields.items(message, "tool_calls", 128, f"{path}.tool_calls")
        return sse_writer.dumps(calls) if calls else ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise fields.wrong(f"{path}.content", "a string or an array of text parts", content)
    return "".join(_part(part, f"{path}.content[{i}]") for i, part in enumerate(content))


def _part(part: Any, path: str) -> str:
    if not isinstance(part, dict):
        raise fields.wrong(path, "an object", part)
    if part.get("type") != "text":
        raise fields.wrong(f"{path}.type", '"text"', part.get("type"))
    return fields.text(part, "text", f"{path}.text")


# -- tools ---------------------------------------------------------------------------------------


def _calls(body: Object, prompt: str) -> tuple[Call, ...]:
    """The calls to make: forced by tool_choice, or the model's wish under `auto`."""
    declared = _tools(body)
    parallel = fields.boolean(body, "parallel_tool_calls") is not False
    choice = body.get("tool_choice")
    if not declared:
        if choice not in (None, "none", "auto"):
            raise invalid("tool_choice is only allowed with tools", "tool_choice")
        return ()
    name = _chosen(choice, declared, prompt)
    if name is None:
        return ()
    schema = declared[name]
    asked = last_message(prompt)
    count = min(constrained.mentioned(schema, asked), _MOST_CALLS) if parallel else 1
    path = "tools"
    values = [constrained.value(schema, asked, path, which) for which in range(count)]
    return tuple(Call(name, sse_writer.dumps(value)) for value in values)


def _tools(body: Object) -> dict[str, Any]:
    """Declared functions: name → schema of the arguments."""
    declared: dict[str, Any] = {}
    for i, tool in enumerate(fields.items(body, "tools", 128) or ()):
        path = f"tools[{i}]"
        if not isinstance(tool, dict) or tool.get("type") != "function":
            raise fields.wrong(f"{path}.type", '"function"', tool)
        function = fields.mapping(tool, "function", f"{path}.function") or {}
        name = fields.text(function, "name", f"{path}.function.name")
        if not _NAME.match(name):
            raise fields.wrong(f"{path}.function.name", "letters, digits, _ or -", name)
        schema = fields.mapping(function, "parameters", f"{path}.function.parameters")
        declared[name] = schema or {"type": "object", "properties": {}}
    return declared


def _chosen(choice: Any, declared: dict[str, Any], prompt: str) -> str | None:
    """The tool to call, or None. `auto` calls unless a tool has just answered."""
    asked = last_message(prompt)
    wished = next((name for name in declared if name in asked), next(iter(declared)))
    if choice in (None, "auto"):
        return None if "<|tool|>" in prompt.rpartition("<|user|>")[2] else wished
    if choice in ("none", "required"):
        return wished if choice == "required" else None
    if not isinstance(choice, dict) or choice.get("type") != "function":
        raise fields.wrong("tool_choice", "none, auto, required or a function", choice)
    function = fields.mapping(choice, "function", "tool_choice.function") or {}
    name = fields.text(function, "name", "tool_choice.function.name")
    if name not in declared:
        raise invalid(f"tool_choice names {name!r}, which is no declared tool", "tool_choice")
    return name


# -- response_format -----------------------------------------------------------------------------


def _formatted(body: Object, prompt: str) -> str | None:
    """The JSON text the answer must be, or None for free text."""
    wanted = fields.mapping(body, "response_format")
    if wanted is None or wanted.get("type") == "text":
        return None
    if wanted.get("type") == "json_object":
        return sse_writer.dumps({"answer": last_message(prompt)[:200]})
    if wanted.get("type") != "json_schema":
        expected = "text, json_object or json_schema"
        raise fields.wrong("response_format.type", expected, wanted.get("type"))
    path = "response_format.json_schema"
    named = fields.mapping(wanted, "json_schema", path)
    if named is None or "schema" not in named:
        raise invalid(f"{path}.schema is required", f"{path}.schema")
    return sse_writer.dumps(constrained.value(named["schema"], last_message(prompt), path))
