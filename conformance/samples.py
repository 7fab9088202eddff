"""JSON lines of recorded bodies: one object a line, its body in base64, with what it answered.

Members: `id`, `body_base64` (required), `request` (`path` and the parts of the body that matter),
`status`, `content_type`, `end` (in words), `plain_text`, `dialect`. Others are not looked at.
"""

from __future__ import annotations

import base64
import binascii
from typing import TypeGuard

from conformance.boundedjson import Unreadable
from conformance.capture import Capture, End, Given, How, Json, Layer
from conformance.dialects import api_of
from conformance.dossier import Dossier
from conformance.errors import RecordError

# What the server did after the last byte; the first row whose words occur decides.
_ENDS: tuple[tuple[str, End], ...] = (
    ("stays open", End(How.CLOCK, detail="progress")),
    ("clean end", End(How.FRAMED)),
    ("reset", End(How.RESET)),
    ("close", End(How.CLOSED)),
)


def is_sample(value: Json | Unreadable) -> TypeGuard[dict[str, Json]]:
    return isinstance(value, dict) and "body_base64" in value


def dossier_from_sample(value: Json | Unreadable, where: str) -> tuple[str, Dossier]:
    """The sample's id and its record; `where` is `file:line`, for errors and as a stand-in id."""
    if isinstance(value, Unreadable):
        raise RecordError(f"{where}: {value.why}")
    if not is_sample(value):
        raise RecordError(f"{where}: expected an object with body_base64")
    sample = _text(value, "id", where) or where
    request, path = _request(value, where)
    given = Given(_status(value, where), _content_type(value, where), path, request)
    end = _end(_text(value, "end", where))
    capture = Capture(_body(value, where), Layer.BODY, end=end, given=given)
    plain = _text(value, "plain_text", where)
    dossier = Dossier(
        scenario="file",
        roles={"stream": (capture,)},
        api=api_of(path),
        picked={} if plain is None else {"plain_text": plain},
        dialect=_text(value, "dialect", where),
    )
    return sample, dossier


def _end(words: str | None) -> End:
    if words is None:
        return End(How.UNKNOWN)
    return next((end for phrase, end in _ENDS if phrase in words), End(How.UNKNOWN, detail=words))


def _body(value: dict[str, Json], where: str) -> bytes:
    text = _text(value, "body_base64", where) or ""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise RecordError(f"{where}: body_base64: expected base64") from None


def _request(value: dict[str, Json], where: str) -> tuple[dict[str, Json] | None, str | None]:
    request = value.get("request")
    if request is None:
        return None, None
    if not isinstance(request, dict):
        raise RecordError(f"{where}: request: expected an object")
    path = _text(request, "path", where)
    body = {key: each for key, each in request.items() if key != "path"}
    tools = body.get("tools")
    if isinstance(tools, list):
        body["tools"] = [_tool(tool) for tool in tools]
    return body, path


def _tool(tool: Json) -> Json:
    """A tool given by its name alone, in the API's own shape."""
    if not isinstance(tool, str):
        return tool
    return {"type": "function", "function": {"name": tool}}


def _status(value: dict[str, Json], where: str) -> int | None:
    status = value.get("status")
    if status is None or (isinstance(status, int) and 100 <= status <= 999):
        return status
    raise RecordError(f"{where}: status: expected an HTTP status")


def _content_type(value: dict[str, Json], where: str) -> str | None:
    """As recorded. A null that stands there says that the answer had none: "", not unknown."""
    said = _text(value, "content_type", where)
    return "" if said is None and "content_type" in value else said


def _text(value: dict[str, Json], key: str, where: str) -> str | None:
    text = value.get(key)
    if text is None or isinstance(text, str):
        return text
    raise RecordError(f"{where}: {key}: expected text")
