"""Bodies of streamed and plain answers, built from parts, and what the judge says of them.

`CHUNKS` is a clean chat stream; tests change one thing in it at a time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from conformance.capture import Capture, End, Given, How, Layer
from conformance.dossier import CHAT, PATHS, Dossier
from conformance.findings import Finding, Level, Result
from conformance.judge import judge
from conformance.reading import Reading, read
from conformance.specs import known_cases

CASES = known_cases()
Record = dict[str, Any]
USAGE: Record = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
ASKS_USAGE: Record = {"stream_options": {"include_usage": True}}


def envelope(choices: Any, **extra: Any) -> Record:
    """A chat chunk around any choices."""
    record: Record = {"id": "c1", "object": "chat.completion.chunk", "created": 1700000000}
    return record | {"model": "m", "choices": choices} | extra


def choice(delta: Any, finish: Any = None, index: Any = 0, **extra: Any) -> Record:
    return {"index": index, "delta": delta, "finish_reason": finish, **extra}


def chunk(delta: Any = None, finish: Any = None, index: Any = 0, **extra: Any) -> Record:
    """A chat chunk with one choice; `extra` stands at the top level."""
    return envelope([choice({} if delta is None else delta, finish, index)], **extra)


def role(index: int = 0) -> Record:
    return chunk({"role": "assistant", "content": ""}, index=index)


def say(text: Any, index: int = 0, **extra: Any) -> Record:
    return chunk({"content": text}, index=index, **extra)


def finish(reason: Any = "stop", index: int = 0, **extra: Any) -> Record:
    return chunk({}, reason, index, **extra)


def usage_chunk(counts: Any = None) -> Record:
    return envelope([], usage=USAGE if counts is None else counts)


def without(record: Mapping[str, Any], *keys: str) -> Record:
    return {key: value for key, value in record.items() if key not in keys}


def texts(*parts: str, reason: str = "stop") -> list[Record]:
    """A clean stream that says these parts."""
    return [role(), *(say(part) for part in parts), finish(reason)]


CHUNKS = texts("Hi", " there")
WITH_USAGE = [{**record, "usage": None} for record in CHUNKS] + [usage_chunk()]


def completion(text: Any, finish: Any = None, index: int = 0, **extra: Any) -> Record:
    """A completions chunk; `extra` stands in the choice."""
    one: Record = {"index": index, "text": text, "logprobs": None, "finish_reason": finish, **extra}
    return envelope([one]) | {"id": "cmpl-1", "object": "text_completion"}


COMPLETIONS_CHUNKS = [completion("Hi"), completion(" there"), completion("", "stop")]


def body(records: Sequence[Record | str], *, done: bool = True) -> bytes:
    """Server-sent events; a string is written as it is."""
    data = [r if isinstance(r, str) else json.dumps(r, ensure_ascii=False) for r in records]
    data += ["[DONE]"] * done
    return "".join(f"data: {each}\n\n" for each in data).encode()


def streamed(
    records: Sequence[Record | str],
    *,
    api: str = CHAT,
    done: bool = True,
    how: How = How.FRAMED,
    **request: Any,
) -> Capture:
    """A streamed answer to a request with these members."""
    given = Given(200, "text/event-stream", "/v1" + PATHS[api], {"stream": True, **request})
    detail = "progress" if how is How.CLOCK else None
    return Capture(body(records, done=done), Layer.BODY, end=End(how, detail=detail), given=given)


def plain_chat(text: Any = "Hi there", **extra: Any) -> Record:
    message: Record = {"role": "assistant", "content": text}
    record = envelope([{"index": 0, "message": message, "finish_reason": "stop"}], usage=USAGE)
    return record | {"object": "chat.completion"} | extra


def plain(record: Any, *, api: str = CHAT, **request: Any) -> Capture:
    """A non-streamed answer."""
    given = Given(200, "application/json", "/v1" + PATHS[api], {"stream": False, **request})
    received = json.dumps(record, ensure_ascii=False).encode()
    return Capture(received, Layer.BODY, end=End(How.FRAMED), given=given)


def dossier(*captures: Capture, control: str | None = None, **fields: Any) -> Dossier:
    picked = {} if control is None else {"plain_text": control}
    fields = {"scenario": "file", "picked": picked, **fields}
    return Dossier(roles={"stream": captures}, name="d", **fields)


def judged(*dossiers: Dossier) -> dict[str, Result]:
    """Every check's result on these records."""
    return {result.id: result for result in judge(dossiers, CASES)}


def result(check: str, *captures: Capture, control: str | None = None) -> Result:
    return judged(dossier(*captures, control=control))[check]


def broken(*captures: Capture, control: str | None = None) -> dict[str, Level]:
    """The checks with findings above information, and their levels."""
    found = judged(dossier(*captures, control=control))
    return {r.id: r.level for r in found.values() if r.findings and r.level is not Level.MAY}


def only(check: str, *captures: Capture, control: str | None = None) -> Finding:
    """The first finding of the check; fails when there is none."""
    findings = result(check, *captures, control=control).findings
    assert findings, f"{check} found nothing"
    return findings[0]


def reading(records: Sequence[Record | str], **how: Any) -> Reading:
    return read(streamed(records, **how))


MUST, SHOULD = Level.MUST, Level.SHOULD
Row = tuple[str, Capture, dict[str, Level]]


def named(row: Any) -> str:
    """A row's test id: its sentence."""
    return row[0] if isinstance(row, tuple) else str(row)
