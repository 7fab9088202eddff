"""Dossier files: any bytes give a dossier that comes back exactly, or one line that says where."""

from __future__ import annotations

import random

from conformance import storage
from conformance.capture import Capture, End, Given, How, Layer, Mask, Read, Segment
from conformance.dossier import Action, Dossier, Sample
from conformance.errors import RecordError
from conformance.masking import Secret, mask, unmask
from tests.fuzz.harness import Target

TOKENS = (
    *(b"\n", b"{", b"}", b"[", b"]", b'"', b":", b",", b"null", b"true", b"1e999", b"NaN", b"-1"),
    *(b"9" * 30, b"9" * 5000, b"[" * 2000, b'"more": true, ', b'"base64"', b"\\ud800", b"\\u0000"),
    *(b'{"sent": ""}\n', b'{"read": ""}\n', b'{"data": {"base64": "QQ=="}}\n', b'{"late": "x"}\n'),
    *(b'"take"', b'"roles"', b'"end"', b'"masks"', b'"streamproof"', b"\xff", b"\x00", b"=="),
)
SECRET = Secret("env:K", b"sk-secret1234")


def examples() -> list[bytes]:
    capture = Capture(
        received=b"HTTP/1.1 200 OK\r\n\r\ndata: sk-secret1234\n\n\xff",
        layer=Layer.UNFRAMED,
        reads=(Read(19, 0.25, False), Read(40)),
        request=(Segment(b"POST / HTTP/1.1\r\nCookie: a\r\n\r\n", 0.5), Segment(b"{}")),
        url="http://127.0.0.1/v1?key=abc",
        connection=3,
        early=b"e",
        late=b"l\x00",
        end=End(How.CLOCK, 1.5, "progress", "rst", 12),
        given=Given(200, "text/event-stream", "/v1", {"stream": True}),
        masks=(Mask("early", 0, 1, "env:K"),),
    )
    dossier = Dossier(
        scenario="pair",
        roles={"stream": (capture, Capture(b"")), "none": ()},
        parameters={"n": [1, {"a": None}]},
        samples=(Sample(0.5, {"a": float("nan")}),),
        actions=(Action(0.75, "fin", "stream"),),
    )
    return [storage.write(dossier), storage.write_capture(capture)]


def check(data: bytes, chance: random.Random) -> None:
    try:
        dossier = storage.read(data, "fuzz")
    except RecordError as error:
        text = str(error)
        if not (text.startswith("fuzz") and text.isprintable() and len(text) < 300):
            raise AssertionError(f"not one line with its place: {text!r}") from error
        return
    # NaN is unequal to itself, so it is the bytes that are compared.
    assert storage.write(storage.read(storage.write(dossier))) == storage.write(dossier)
    for captures in dossier.roles.values():
        for capture in captures:
            _check_masking(capture)


def _check_masking(capture: Capture) -> None:
    masked = mask(capture, [SECRET])
    assert SECRET.value not in masked.received
    assert len(masked.received) == len(capture.received)
    assert mask(masked, [SECRET]) == masked
    back = unmask(masked, [SECRET])
    assert len(back.received) == len(capture.received)
    assert all(not gap.secret.startswith("env:K") or gap in capture.masks for gap in back.masks)
    storage.read_capture(storage.write_capture(masked))


TARGET = Target(examples, TOKENS, check)
