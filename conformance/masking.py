"""Secrets leave a capture before it is kept: overwritten in place by as many `*`.

Looked for are the secrets we were told, and what stands where credentials stand in a request: the
values of `CREDENTIAL_FIELDS` (an authentication scheme's name stays readable), credentials in the
URL's query or before its host. Each is overwritten wherever it occurs, both directions, also split
over segments or HTTP chunks, and also JSON-escaped, percent-encoded or inside base64. Pure.

`Mask.secret` says what stood there: the secret's name, `#encoding` where it was not written as it
is, and `@n` where the stretch starts at byte n of it.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, groupby
from typing import Final
from urllib.parse import quote, quote_plus

from conformance import http1
from conformance.capture import Capture, Layer, Mask, Segment

CREDENTIAL_FIELDS: Final = (
    "authorization",
    "proxy-authorization",
    "api-key",
    "x-api-key",
    "x-goog-api-key",
    "ocp-apim-subscription-key",
    "cookie",
)
# A key such as `x` or `EMPTY`, as local servers want them, also occurs in ordinary text. To mask it
# there would change the text under test, so a shorter one is masked only where credentials stand.
SHORTEST_ANYWHERE: Final = 8

_FIELD = re.compile(
    rb"(?im)^(" + "|".join(map(re.escape, CREDENTIAL_FIELDS)).encode() + rb")[ \t]*:[ \t]*"
    rb"([^\r\n]*(?:\r?\n[ \t][^\r\n]*)*)"
)
# Scheme names stay; any other first word may be the key itself.
_SCHEME = re.compile(
    rb"(?i)(?:bearer|basic|digest|negotiate|ntlm|token|api-?key|key|aws4-hmac-sha256)[ \t]+(?=\S)"
)
_QUERY = re.compile(rb"(?i)[?&](key|api[-_]?key|access_token|token|sig)=([^&#\s]+)")
_USERINFO = re.compile(rb"\A[A-Za-z][A-Za-z0-9+.-]*://([^/?#@\s]+)@")
_HEAD_END = re.compile(rb"\n\r?\n")
_REFERENCE = re.compile(r"(?s)(.*?)(?:#([a-z0-9-]+))?(?:@([0-9]{1,9}))?")
_WHERES = ("request", "received", "early", "late", "url")


@dataclass(frozen=True, slots=True)
class Secret:
    """`name` says where to get it again: "env:OPENAI_API_KEY", "header:authorization"."""

    name: str
    value: bytes


@dataclass(frozen=True, slots=True)
class _Found:
    """Bytes [start, end) of an area hold `reference` from its byte `skip` on."""

    start: int
    end: int
    reference: str
    skip: int = 0


def mask(capture: Capture, secrets: Iterable[Secret] = ()) -> Capture:
    """The capture without the secrets and without the request's credentials. Idempotent."""
    areas = _areas(capture)
    credentials = {where: list(_credentials(where, areas[where])) for where in ("request", "url")}
    known = [secret for secret in secrets if secret.value]
    seen = [
        Secret(found.reference, areas[where][found.start : found.end])
        for where, stretches in credentials.items()
        for found in stretches
        if not found.skip
    ]
    needles = _needles(*known, *seen)
    masks = list(capture.masks)
    for where, data in areas.items():
        gaps = [_Found(m.start, m.start + m.length, "") for m in capture.masks if m.where == where]
        found = [_search(data, [n for n in needles if where != "url" or _is_text(n[0])])]
        if where == "received" and capture.layer is Layer.WIRE and needles:
            found.append(_search_chunks(data, needles))
        if where == "request":
            found.append(_search_fields(data, known))
        masks += _claim(where, len(data), gaps, chain(*found, credentials.get(where, ())))
    if len(masks) == len(capture.masks):
        return capture
    masks.sort(key=lambda m: (_WHERES.index(m.where), m.start))
    stars = {where: bytearray(data) for where, data in areas.items()}
    for gap in masks:
        stars[gap.where][gap.start : gap.start + gap.length] = b"*" * gap.length
    return _with(capture, stars, tuple(masks))


def unmask(capture: Capture, secrets: Iterable[Secret]) -> Capture:
    """Put back what is known, for a replay; the masks of what is not known stay."""
    values = {secret.name: secret.value for secret in secrets}
    areas = {where: bytearray(data) for where, data in _areas(capture).items()}
    left = []
    for gap in capture.masks:
        piece = _piece(gap, values)
        start, end = gap.start, gap.start + gap.length
        if piece is None or areas[gap.where][start:end] != b"*" * gap.length:
            left.append(gap)
        else:
            areas[gap.where][start:end] = piece
    return _with(capture, areas, tuple(left))


def _areas(capture: Capture) -> dict[str, bytes]:
    return {
        "request": b"".join([segment.data for segment in capture.request]),
        "received": capture.received,
        "early": capture.early,
        "late": capture.late,
        "url": (capture.url or "").encode("utf-8", "surrogatepass"),
    }


def _with(capture: Capture, areas: Mapping[str, bytearray], masks: tuple[Mask, ...]) -> Capture:
    segments, at = [], 0
    for segment in capture.request:
        data = bytes(areas["request"][at : at + len(segment.data)])
        segments.append(Segment(data, segment.at))
        at += len(segment.data)
    url = areas["url"].decode("utf-8", "surrogatepass") if capture.url is not None else None
    return replace(
        capture,
        request=tuple(segments),
        received=bytes(areas["received"]),
        early=bytes(areas["early"]),
        late=bytes(areas["late"]),
        url=url,
        masks=masks,
    )


# Where credentials stand


def _credentials(where: str, data: bytes) -> Iterator[_Found]:
    """Stretches of a request head or URL that are secret whatever they hold."""
    head = data
    if where == "request":
        head = _head(data)
        for field in _FIELD.finditer(head):
            yield from _of_field(field)
        head = head[: head.find(b"\n") + 1 or len(head)]  # the request line: its query
    elif userinfo := _USERINFO.match(head):
        yield _Found(*userinfo.span(1), "url:userinfo")
    for item in _QUERY.finditer(head):
        yield _Found(*item.span(2), f"query:{item[1].decode().lower()}")


def _head(data: bytes) -> bytes:
    end = _HEAD_END.search(data)
    return data[: end.end()] if end else data


def _of_field(field: re.Match[bytes]) -> Iterator[_Found]:
    name = field[1].decode().lower()
    start = field.start(2)
    if name.endswith("authorization") and (scheme := _SCHEME.match(field[2])):
        start += scheme.end()
    for line in re.finditer(rb"[^\r\n \t][^\r\n]*", field[2][start - field.start(2) :]):
        text = line[0].rstrip(b" \t")
        at = start + line.start()
        if text.strip(b"*"):  # stars only: masked before
            yield _Found(at, at + len(text), f"header:{name}", line.start())


# What a secret looks like


@lru_cache(maxsize=16)
def _needles(*secrets: Secret) -> Sequence[tuple[bytes, str]]:
    """What to search for and what to call it; longer ones first, each text once.

    Remembered: a load asks thousands of times with one key.
    """
    found: dict[bytes, str] = {}
    for secret in secrets:
        if len(secret.value) >= SHORTEST_ANYWHERE:
            for encoding, text in _forms(secret.value).items():
                found.setdefault(text, secret.name + (f"#{encoding}" if encoding else ""))
    return sorted(found.items(), key=lambda item: -len(item[0]))


def _forms(value: bytes) -> dict[str, bytes]:
    """The texts that show the secret, by the name of their encoding; "" is itself."""
    forms = {"": value}
    text = value.decode("utf-8", "replace")
    if _is_text(value):
        forms["json"] = json.dumps(text)[1:-1].encode()
        forms["json-utf8"] = json.dumps(text, ensure_ascii=False)[1:-1].encode()
        forms["json-slash"] = forms["json"].replace(b"/", b"\\/")
    percent = quote(value, safe="")
    forms["percent"] = percent.encode()
    forms["percent-path"] = quote(value).encode()
    forms["percent-lower"] = re.sub("%..", lambda m: m[0].lower(), percent).encode()
    forms["percent-plus"] = quote_plus(value).encode()
    for before in range(3):
        # Where a base64 group starts inside a longer text (`user:secret`) is unknown: three ways.
        # Characters that also hold bits of a neighbour are left out.
        coded = base64.b64encode(b"\0" * before + value)
        first, last = (before * 8 + 5) // 6, (before + len(value)) * 8 // 6
        forms[f"base64-{before}"] = coded[first:last]
        forms[f"base64url-{before}"] = coded[first:last].translate(_TO_URL_SAFE)
    return forms


def _is_text(form: bytes) -> bool:
    """Only whole characters can be overwritten in a URL, which is a str."""
    return "\ufffd" not in form.decode("utf-8", "replace")


_TO_URL_SAFE = bytes.maketrans(b"+/", b"-_")


def reference_parts(reference: str) -> tuple[str, str, int]:
    """`name#encoding@skip` of `Mask.secret`; "" and 0 where it has none."""
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        return reference, "", 0
    return match[1], match[2] or "", int(match[3] or 0)


def _piece(gap: Mask, values: Mapping[str, bytes]) -> bytes | None:
    """The bytes that a mask stands for, if its secret is known and long enough."""
    name, encoding, skip = reference_parts(gap.secret)
    if name not in values:
        return None
    form = _forms(values[name]).get(encoding, b"")
    piece = form[skip : skip + gap.length]
    return piece if len(piece) == gap.length else None


# Finding


def _search(data: bytes, needles: Sequence[tuple[bytes, str]]) -> Iterator[_Found]:
    for text, reference in needles:
        at = data.find(text)
        while at >= 0:
            yield _Found(at, at + len(text), reference)
            at = data.find(text, at + len(text))


def _search_chunks(received: bytes, needles: Sequence[tuple[bytes, str]]) -> Iterator[_Found]:
    """Secrets that a chunk boundary cuts: found in the body, traced back to the wire."""
    reader = http1.Reader()
    body = reader.feed(received)
    if reader.framing is not http1.Framing.CHUNKED:
        return
    for found in _search(body, needles):
        places = [reader.wire_offset(at) or 0 for at in range(found.start, found.end)]
        if places[-1] - places[0] < len(places):
            continue  # in one piece, and found there
        for _, run in groupby(enumerate(places), lambda pair: pair[1] - pair[0]):
            (skip, start), *rest = run
            yield _Found(start, start + 1 + len(rest), found.reference, skip)


def _search_fields(request: bytes, secrets: list[Secret]) -> Iterator[_Found]:
    """Secrets that are the whole value of a field, or all behind a scheme, however short."""
    head = _head(request)
    for secret in secrets:
        value = rb"(?m)^[^:\s]+:[ \t]*(?:[A-Za-z-]+ )?(" + re.escape(secret.value) + rb")[ \t]*\r?$"
        for match in re.finditer(value, head):
            yield _Found(*match.span(1), secret.name)


def _claim(
    where: str, size: int, gaps: Iterable[_Found], found: Iterable[_Found]
) -> Iterator[Mask]:
    """A mask for each stretch found, less what is masked already or went to an earlier one."""
    items = list(found)
    if not items:
        return
    taken = bytearray(size)
    for gap in gaps:
        taken[gap.start : gap.end] = b"\1" * (gap.end - gap.start)
    for item in items:
        for start, end in _free(taken, item.start, item.end):
            taken[start:end] = b"\1" * (end - start)
            skip = item.skip + start - item.start
            reference = item.reference + (f"@{skip}" if skip else "")
            yield Mask(where, start, end - start, reference)


def _free(taken: bytearray, start: int, end: int) -> Iterator[tuple[int, int]]:
    while (start := taken.find(0, start, end)) >= 0:
        stop = taken.find(1, start, end)
        yield start, stop if stop >= 0 else end
        start = stop if stop >= 0 else end
