"""The one place that spells server-sent events (WHATWG HTML, section 9.2.5, "Parsing an event
stream"): what is written here is one `data:` line, LF, and a blank line for each event.
"""

from __future__ import annotations

import json
from typing import Any

CONTENT_TYPE = b"text/event-stream; charset=utf-8"
FIELD = b"data: "
END = b"\n\n"
SENTINEL = b"[DONE]"

# Legal inside JSON and inside an event, but several clients split lines at them.
_LINE_BREAKERS = {"\u0085": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def dumps(document: Any) -> str:
    """Compact strict JSON on one line. Raises ValueError for NaN and infinities."""
    text = _encode(document)
    if not text.isascii():
        for breaker, escape in _LINE_BREAKERS.items():
            text = text.replace(breaker, escape)
    return text


def event(document: Any) -> bytes:
    """One event whose data is `document` as JSON."""
    return FIELD + dumps(document).encode() + END


def done() -> bytes:
    """The sentinel that ends a chat or completions stream."""
    return FIELD + SENTINEL + END


def comment(text: str) -> bytes:
    """A comment block: clients ignore it, proxies see that the connection lives."""
    return b": " + text.encode() + END
