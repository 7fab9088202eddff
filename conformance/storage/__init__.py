"""Dossiers and captures as files: JSON lines that a person can read, bytes kept exactly.

    {"streamproof": "dossier", "version": 1, "scenario": "stream", "roles": {"stream": 1}, …}
    {"capture": "stream", "take": 0, "end": {"how": "framed", "at": 0.41}, …}
    {"sent": "POST /v1/chat/completions HTTP/1.1\\r\\n…", "at": 0.002}
    {"read": "HTTP/1.1 200 OK\\r\\n…", "at": 0.13, "emptied": true}
    {"data": {"base64": "…"}}
    {"sample": {"at": 0.5, "values": {"running": 1.0}}}
    {"action": {"at": 0.4, "what": "fin", "role": "stream"}}
    {"streamproof": "end", "lines": 7}

The header's `roles` says how many captures each role has; they follow in that order. After a
capture's line come its bytes in wire order: `sent` (a segment of the request; `more`: the next line
continues it), `early`, then `read` (a read) or `data` (bytes of no recorded read, or the beginning
of the next read), then `late`. Bytes are the text that they are as UTF-8, or base64 where they are
none or hold control characters. A field that is left out has its default. A bare capture has the
header {"streamproof": "capture", "version": 1} and one capture of role "stream".

Equal records give equal bytes; reading gives back every field exactly (but JSON cannot tell a pair
of lone surrogates from the character they make). Files are hostile until read: every flaw is a
RecordError in one line that names file, line and field, and memory is bounded by `MOST_BYTES`.
"""

from __future__ import annotations

from .lines import MOST_BYTES, MOST_LINE, MOST_LINES, MOST_VALUES
from .reading import read, read_capture, sniff
from .writing import VERSION, write, write_capture

__all__ = [
    "MOST_BYTES",
    "MOST_LINE",
    "MOST_LINES",
    "MOST_VALUES",
    "VERSION",
    "read",
    "read_capture",
    "sniff",
    "write",
    "write_capture",
]
