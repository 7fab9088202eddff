"""HTTP/1.1 answers read incrementally, with the offset of everything; strict in what it reports.

`Reader` takes the bytes of one answer as they come, in any pieces, and gives back the body's bytes.
It never raises and never repairs silently: whatever RFC 9112 forbids becomes an `Anomaly`, and
reading goes on wherever the message still has an evident end. Offsets count the bytes fed, plus
`start`. Memory is bounded by `max_head` and, for spans, by 16 bytes a chunk.

The kinds of anomaly, each with the section that forbids it (RFC 9112 unless another is named):

    bad-status-line      4        not `HTTP/1.x SP 3DIGIT SP [reason]`; an empty line before it
    bad-field            5, 5.1   no colon, no token before it, white space around the name, a
                                  control character in the value (RFC 9110 5.5)
    obs-fold             5.2      a value continued on a line that starts with white space
    bare-lf              2.2      a head, chunk-size or trailer line ends in LF alone
    head-too-long        -        more than `max_head` bytes of heads (ours; the reader is dead)
    head-incomplete      8        closed inside the head
    length-and-chunked   6.2      Content-Length beside Transfer-Encoding
    framing-forbidden    6.1      Transfer-Encoding in an HTTP/1.0 answer, or in a 1xx or 204;
                                  Content-Length in a 1xx or 204 (RFC 9110 8.6)
    repeated-length      6.3      Content-Length given more than once, every time the same
    conflicting-length   6.3      Content-Length given more than once with different values
    bad-length           6.3      Content-Length that is no decimal number
    unknown-coding       6.1, 7   a transfer coding that nobody asked for, chunked with parameters,
                                  chunked twice or not last
    bad-chunk-size       7.1      not `1*HEXDIG [ chunk-ext ]`, or longer than `max_head`
    bad-chunk-ending     7.1      chunk-data is not followed by CRLF
    bad-trailer          7.1.2    what bad-field is, in the trailer section; a framing field there
                                  (RFC 9110 6.5.1); longer than `max_head`; cut off after chunk 0
    body-incomplete      8        closed before the length or the zero chunk was reached
"""

from __future__ import annotations

from .framing import FRAMING_TABLE, Framing
from .message import Anomaly, Field, Head, RequestHead, parse_request_head
from .reader import Reader, Span

__all__ = [
    "FRAMING_TABLE",
    "Anomaly",
    "Field",
    "Framing",
    "Head",
    "Reader",
    "RequestHead",
    "Span",
    "parse_request_head",
]
