"""Requests before they are rendered: templates that speak an endpoint's request dialect. Pure.

Everything a scenario sends is made here or by `invalid`, so the plan can count requests and tokens
without sending any.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from conformance.capture import Json
from conformance.dossier import APIS, CHAT, COMPLETIONS
from conformance.material import CHARACTERS, CODE, LINE
from conformance.target import Endpoint, json_bytes

SHORT, LONG, MUCH = 16, 64, 256
PROMPT_MEMBERS = ("messages", "prompt", "tools", "response_format")
TEMPLATE_TOKENS = 64
OTHER = "get_time"  # a tool that is offered, and named, and not what the question is about

COUNT = {
    CHAT: "Count from 1 to 300, separated by commas.",
    COMPLETIONS: "Count from 1 to 300: 1, 2,",
}
HI = dict.fromkeys(APIS, "Say only: hi")
REPEAT = {
    CHAT: f"Repeat exactly: {LINE}",
    COMPLETIONS: f"{LINE}\n" * 6,
}
# What a stop string is taken out of: words around the characters, so that it can begin inside one.
WORDY = f"between {CHARACTERS} gardens"
REPEAT_WORDY = {CHAT: f"Repeat exactly: {WORDY}", COMPLETIONS: f"{WORDY}\n" * 6}
REPEAT_CODE = dict.fromkeys(APIS, f"Repeat exactly:\n{CODE}")
STORY = dict.fromkeys(APIS, "Write one sentence about a river.")
CITIES: tuple[str, ...] = ("Paris", "東京")  # of each of which one call may ask
WEATHER = dict.fromkeys(APIS, f"What is the weather in {' and in '.join(CITIES)}? Use the tool.")


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: its role in the dossier, the body (JSON, or bytes sent as they are), its form.

    `generates`: False for a request that ought to be refused. `attempt`: it may be refused, and
    then another of these is sent in its place. `spare`: sent only where a dearer one is not.
    `wrong_key`: with another credential than the user's.
    """

    role: str
    body: Mapping[str, Json] | bytes
    stream: bool = True
    generates: bool = True
    attempt: bool = False
    spare: bool = False
    wrong_key: bool = False

    def rendered(self) -> bytes:
        """The body's bytes."""
        return self.body if isinstance(self.body, bytes) else json_bytes(dict(self.body))

    @property
    def tokens(self) -> int:
        """The most tokens this can cost: what it asks for, and its prompt.

        A token holds at least one byte, so the bytes of what the prompt is made from bound it; the
        chat template's own part is bounded by TEMPLATE_TOKENS.
        """
        if not self.generates or self.attempt or isinstance(self.body, bytes):
            return 0
        limits = (self.body.get("max_tokens"), self.body.get("max_completion_tokens"))
        most = max((each for each in limits if isinstance(each, int)), default=0)
        n = self.body.get("n")
        prompt = sum(len(json.dumps(self.body.get(name), ensure_ascii=False).encode())
                     for name in PROMPT_MEMBERS if name in self.body)  # fmt: skip
        return most * (n if isinstance(n, int) else 1) + prompt + TEMPLATE_TOKENS


def template(
    endpoint: Endpoint,
    prompt: str,
    limit: int,
    members: Mapping[str, Json] | None = None,
    *,
    stream: bool = True,
) -> dict[str, Json]:
    """A request in the endpoint's dialect, with `members` added or put in place of ours."""
    body: dict[str, Json] = {"model": endpoint.model}
    if endpoint.api == CHAT:
        body["messages"] = [{"role": "user", "content": prompt}]
    else:
        body["prompt"] = prompt
    body[endpoint.limit] = limit
    settled: dict[str, Json] = {"temperature": 0, "seed": endpoint.seed}
    body |= {key: value for key, value in settled.items() if key not in endpoint.omit}
    if stream:
        body["stream"] = True
    return body | dict(members or {}) | dict(endpoint.extra)


def counting(endpoint: Endpoint, role: str) -> Ask:
    """The answer that all of an API's scenarios have for a control: sent once, if it came whole."""
    usage = usage_members() if endpoint.has("usage") else {}
    return Ask(role, request_for({"answer": "long"}, endpoint, usage))


def usage_members() -> dict[str, Json]:
    """The member that asks for usage in a stream."""
    return {"stream_options": {"include_usage": True}}


def logprobs_members(endpoint: Endpoint, top: int) -> dict[str, Json]:
    """Log-probabilities of the chosen token and `top` alternatives."""
    if endpoint.api == CHAT:
        return {"logprobs": True, "top_logprobs": top}
    return {"logprobs": top}


def tool_members() -> dict[str, Json]:
    """One tool whose only argument is one of two words, and the demand to call it."""
    return _required(_tool("get_weather", "Weather of a city.", "city", [*CITIES]))


def other_tool_members() -> dict[str, Json]:
    """That tool and a second one, which nobody needs."""
    other = _tool(OTHER, "Local time of a city.", "city", [*CITIES])
    return _required(_tool("get_weather", "Weather of a city.", "city", [*CITIES]), other)


def named_members() -> dict[str, Json]:
    """The demand to call that second one."""
    return {"tool_choice": {"type": "function", "function": {"name": OTHER}}}


def said_members(text: str) -> dict[str, Json]:
    """A tool whose only argument is this text, and the demand to call it."""
    return _required(_tool("say", "Say", "it", [text]))


def _required(*tools: Json) -> dict[str, Json]:
    return {"tools": [*tools], "tool_choice": "required"}


def _tool(name: str, description: str, argument: str, values: list[Json]) -> Json:
    parameters: Json = {
        "type": "object",
        "properties": {argument: {"type": "string", "enum": values}},
        "required": [argument],
        "additionalProperties": False,
    }
    function: Json = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def enum_members(text: str) -> dict[str, Json]:
    """Constrained decoding that leaves the model one answer: a JSON object with `text` in it."""
    schema: Json = {
        "type": "object",
        "properties": {"text": {"type": "string", "enum": [text]}},
        "required": ["text"],
        "additionalProperties": False,
    }
    format_: Json = {
        "type": "json_schema",
        "json_schema": {"name": "exact", "strict": True, "schema": schema},
    }
    return {"response_format": format_}


def members_for(given: Mapping[str, Json], endpoint: Endpoint) -> dict[str, Json]:
    """What a scenario's parameters add to a request: n, logprobs, tools, echo, characters."""
    members: dict[str, Json] = {}
    if given.get("n", 1) != 1:
        members["n"] = given["n"]
        # Equal choices would hide a mix-up of two of them.
        members |= {} if "temperature" in endpoint.omit else {"temperature": 1}
    top = given.get("logprobs")
    if isinstance(top, int):
        members |= logprobs_members(endpoint, top)
    if given.get("tools"):
        members |= tool_members()
    if given.get("echo"):
        members["echo"] = True
    return members | exact_members(str(given.get("answer")), endpoint)


def exact_members(answer: str, endpoint: Endpoint) -> dict[str, Json]:
    """What best makes a model say exactly the text that it is asked for, where it is accepted.

    A schema with one answer, else a tool with one argument, else the plain instruction; in
    completions the echo of the prompt. Code stands between line breaks, which no schema keeps.
    """
    if endpoint.api == COMPLETIONS:
        wanted = answer in ("characters", "code") and endpoint.has("echo")
        return {"echo": True} if wanted else {}
    if answer != "characters":
        return {}
    if endpoint.has("response_format"):
        return enum_members(LINE)
    return said_members(LINE) if endpoint.has("tools") else {}


def request_for(
    given: Mapping[str, Json],
    endpoint: Endpoint,
    members: Mapping[str, Json],
    *,
    stream: bool = True,
) -> dict[str, Json]:
    """The request for the answer that a scenario's parameters name, with `members` added."""
    answer = "tools" if given.get("tools") else given.get("answer", "short")
    prompt, limit = {
        "long": (COUNT, LONG),
        "natural": (HI, LONG),
        # A schema's answer ends by itself; lines go on for ever, and one of them is enough.
        "characters": (REPEAT, MUCH if endpoint.api == CHAT else 2 * LONG),
        "code": (REPEAT_CODE, 2 * LONG),
        "tools": (WEATHER, 2 * LONG),  # for two calls
    }.get(str(answer), (STORY, SHORT))
    return template(endpoint, prompt[endpoint.api], limit, members, stream=stream)
