"""Any body, asked for in any way, is judged: no check breaks, and two judgements agree."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

from conformance.capture import Capture, End, Given, How, Json, Layer
from conformance.dossier import Dossier
from conformance.findings import Verdict
from conformance.inputs import Hints, items
from conformance.judge import judge
from conformance.specs import known_cases
from tests.fuzz.harness import Target

SAMPLES = Path(__file__).parents[1] / "data" / "wire-samples.jsonl"
CASES = known_cases()
TOKENS = (
    b"null", b"true", b"0", b"-1", b"1e999", b"[]", b"{}", b'""', b'"\\ud83d"', b"NaN", b"[DONE]",
    b"data: ", b"\n\n", b"\r", b'"choices":', b'"delta":', b'"index":', b'"finish_reason":',
    b'"tool_calls":[', b'"function":', b'"arguments":', b'"logprobs":', b'"content":', b'"bytes":',
    b'"top_logprobs":', b'"usage":', b'"prompt_tokens":', b'"error":', b'"text":', b'"tokens":',
    b'"text_offset":', b'"role":', b'"id":', b"99999999999999999999", b"\xf0\x9f", b"\xff",
)  # fmt: skip
_ODD: tuple[Json, ...] = (
    None,
    True,
    0,
    -1,
    2,
    10**30,
    0.5,
    "",
    "a",
    [],
    ["a"],
    [[1]],
    {},
    {"a": 1},
)
_MEMBERS = (
    "stream", "stream_options", "n", "stop", "max_tokens", "max_completion_tokens", "prompt",
    "messages", "echo", "logprobs", "top_logprobs", "tools", "tool_choice", "temperature", "suffix",
    "parallel_tool_calls", "response_format", "seed",
)  # fmt: skip


def _examples() -> Sequence[bytes]:
    found = [item.dossier.roles["stream"][0].received for item in items(str(SAMPLES), Hints())]
    plain = {"id": "c", "object": "chat.completion", "choices": [{"index": 0, "message": {}}]}
    return [*found, json.dumps(plain).encode()]


def _request(chance: random.Random) -> dict[str, Json]:
    body: dict[str, Json] = {"stream": chance.random() < 0.8}
    for member in chance.sample(_MEMBERS, chance.randrange(4)):
        body[member] = chance.choice(_ODD)
    if chance.random() < 0.3:
        body["stream_options"] = {"include_usage": chance.choice(_ODD)}
    return body


def check(data: bytes, chance: random.Random) -> None:
    path = chance.choice(("/v1/chat/completions", "/v1/completions", "/x", None))
    status = chance.choice((200, 200, 200, 201, 400, 500, None))
    label = chance.choice(("text/event-stream", "application/json", "", None))
    given = Given(status, label, path, _request(chance) if chance.random() < 0.9 else None)
    end = End(chance.choice(tuple(How)))
    layer = chance.choice(tuple(Layer))
    capture = Capture(data, layer, end=end, given=given)
    plain = chance.choice(("", "a", "Hi 😀", None))
    dossier = Dossier(
        "file",
        {"stream": (capture,)},
        picked={} if plain is None else {"plain_text": plain},
        dialect=chance.choice(("azure", "vllm", None)),
    )
    results = judge([dossier], CASES)
    broken = [(r.id, r.reason) for r in results if r.verdict is Verdict.HARNESS_ERROR]
    assert not broken, broken
    assert results == judge([dossier], CASES)


TARGET = Target(_examples, TOKENS, check)
