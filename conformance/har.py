"""HAR 1.2 → dossiers. Its bodies are text that a browser decoded, so no byte rule can be judged."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import TypeGuard
from urllib.parse import urlsplit

from conformance.boundedjson import Unreadable, parse
from conformance.capture import Capture, Given, Json, Layer
from conformance.dialects import api_of
from conformance.dossier import Dossier
from conformance.errors import RecordError


def is_har(value: Json | Unreadable) -> TypeGuard[dict[str, Json]]:
    match value:
        case {"log": {"entries": list()}}:
            return True
        case _:
            return False


def dossiers_from_har(har: dict[str, Json], name: str) -> Iterator[Dossier]:
    """One dossier for every entry that is a stream or went to a completion route.

    Raises RecordError where the file has none.
    """
    log = har["log"]
    entries = log["entries"] if isinstance(log, dict) else []
    found = False
    for number, entry in enumerate(entries if isinstance(entries, list) else []):
        dossier = _dossier(entry, f"{name}#{number}")
        if dossier is not None:
            found = True
            yield dossier
    if not found:
        raise RecordError(f"{name}: a HAR file without an entry of a completion route or a stream")


def _dossier(entry: Json, name: str) -> Dossier | None:
    request, response = _member(entry, "request"), _member(entry, "response")
    content = _member(response, "content")
    url = _string(request, "url")
    path = _path(url)
    label = _header(response, "content-type") or _string(content, "mimeType")
    api = api_of(path)
    streamed = (label or "").split(";")[0].strip().lower() == "text/event-stream"
    if api is None and not streamed:
        return None
    given = Given(_status(response), label, path, _body(request))
    capture = Capture(_text(content, name), Layer.TEXT, url=url, given=given)
    return Dossier("file", {"stream": (capture,)}, api=api, name=name)


def _member(value: Json, key: str) -> dict[str, Json]:
    child = value.get(key) if isinstance(value, dict) else None
    return child if isinstance(child, dict) else {}


def _string(fields: dict[str, Json], key: str) -> str | None:
    value = fields.get(key)
    return value if isinstance(value, str) else None


def _path(url: str | None) -> str | None:
    try:
        return urlsplit(url).path if url is not None else None
    except ValueError:  # "Invalid IPv6 URL"
        return None


def _status(response: dict[str, Json]) -> int | None:
    """HAR writes 0 where the browser got no answer."""
    status = response.get("status")
    return status if type(status) is int and 100 <= status <= 999 else None


def _header(response: dict[str, Json], name: str) -> str | None:
    headers = response.get("headers")
    for header in headers if isinstance(headers, list) else []:
        match header:
            case {"name": str(key), "value": str(value)} if key.lower() == name:
                return value
    return None


def _body(request: dict[str, Json]) -> dict[str, Json] | None:
    text = _string(_member(request, "postData"), "text")
    value = parse(text.encode("utf-8", "surrogatepass")) if text is not None else None
    return value if isinstance(value, dict) else None


def _text(content: dict[str, Json], name: str) -> bytes:
    text = _string(content, "text") or ""
    if content.get("encoding") != "base64":
        return text.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise RecordError(f"{name}: content.text: expected base64, as its encoding says") from None
