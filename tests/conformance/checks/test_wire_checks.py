"""Wire checks: for each, a record that passes it and records that fail it, through the judge."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.capture import Capture, End, Given, How, Json, Layer, Read, Segment
from conformance.dossier import Dossier
from conformance.findings import Level, Result, Verdict
from conformance.judge import judge
from conformance.specs import known_cases

CASES = {case.id: case for case in known_cases()}


def chunk(delta: Mapping[str, Json], finish: str | None = None) -> str:
    choice = {"index": 0, "delta": dict(delta), "finish_reason": finish}
    return json.dumps(
        {
            "id": "c1",
            "object": "chat.completion.chunk",
            "created": 1700000000,
            "model": "m",
            "choices": [choice],
        }
    )


ROLE = chunk({"role": "assistant", "content": ""})
TEXT = chunk({"content": "a"})
STOP = chunk({}, "stop")
CHUNKS = (ROLE, TEXT, STOP)
ERROR = '{"error": {"message": "worker lost", "type": "server_error", "param": null, "code": null}}'


def sse(*data: str, tail: str = "data: [DONE]\n\n") -> bytes:
    return ("".join(f"data: {text}\n\n" for text in data) + tail).encode()


CLEAN = sse(*CHUNKS)


def chunked(body: bytes, size: int = 50) -> bytes:
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"


def head(status: int = 200, kind: str = "text/event-stream", *fields: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", *fields]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


CUT = "Content-Length: 9"
TE = "Transfer-Encoding: chunked"


def wire(received: bytes, *, stream: bool = True, how: How = How.FRAMED, **more: object) -> Capture:
    body = json.dumps({"stream": stream, "messages": []}).encode()
    request = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n\r\n" + body
    end = more.pop("end", End(how))
    return Capture(received, request=(Segment(request),), end=end, **more)  # type: ignore[arg-type]


def bare(body: bytes, how: How = How.FRAMED, layer: Layer = Layer.BODY) -> Capture:
    detail = "progress" if how is How.CLOCK else None
    given = Given(200, "text/event-stream", "/v1/chat/completions", {"stream": True})
    return Capture(body, layer, end=End(how, detail=detail), given=given)


def result(check: str, *captures: Capture, scenario: str = "file", role: str = "stream") -> Result:
    dossier = Dossier(scenario, {role: captures}, name="d")
    found = judge([dossier], tuple(CASES.values()))
    return next(r for r in found if r.id == check)


GOOD = wire(head(200, "text/event-stream", TE) + chunked(CLEAN))
PLAIN = wire(head(200, "application/json", "Content-Length: 2") + b"{}", stream=False)
REFUSED = wire(head(400, "application/json", f"Content-Length: {len(ERROR)}") + ERROR.encode())
ENDLESS = Capture(
    sse(ROLE, *[TEXT] * 500, tail=""),
    Layer.BODY,
    end=End(How.BOUND, detail="body"),
    given=Given(200, "text/event-stream", None, {"stream": True, "max_tokens": 4}),
)
IN_BAND = bare(sse(ROLE, TEXT, ERROR))


def length(kind: str, body: bytes, *fields: str, status: int = 200, **more: object) -> Capture:
    framed = head(status, kind, f"Content-Length: {len(body)}", *fields) + body
    return wire(framed, **more)  # type: ignore[arg-type]


BOM = b"\xef\xbb\xbf"
PASSES: dict[str, Capture] = {
    "http.plain-json": PLAIN,
    "err.content-type": REFUSED,
    "err.envelope": REFUSED,
    "err.code-type": REFUSED,
    "err.shape": IN_BAND,
    "err.followed": IN_BAND,
    "err.not-terminated": IN_BAND,
}
FAILS: dict[str, list[Capture]] = {
    "http.no-answer": [
        wire(b"", end=End(How.CLOCK, detail="first-byte")),
        wire(b"SSH-2.0-x\r\n\r\n", how=How.CLOSED),
    ],
    "http.status": [wire(head(201, "text/event-stream", TE) + chunked(CLEAN))],
    "http.content-type": [
        wire(head(200, "text/plain", TE) + chunked(CLEAN)),
        wire(b"HTTP/1.1 200 OK\r\n" + TE.encode() + b"\r\n\r\n" + chunked(CLEAN)),
    ],
    "http.charset": [wire(head(200, "text/event-stream; charset=latin-1", TE) + chunked(CLEAN))],
    "http.content-type-once": [
        wire(head(200, "text/event-stream", TE, "content-type: text/plain") + chunked(CLEAN))
    ],
    "http.plain-json": [
        length("text/event-stream", CLEAN, stream=False),
        length("application/json", b"{} {}", stream=False),
        length("application/json", b"[]", stream=False),
    ],
    "http.length-and-chunked": [
        wire(head(200, "text/event-stream", TE, "Content-Length: 9") + chunked(CLEAN))
    ],
    "http.chunked-framing": [
        wire(head(200, "text/event-stream", TE) + b"zz\r\n" + CLEAN, how=How.CLOSED),
        wire(head(200, "text/event-stream", TE) + b"4\r\ndataX\r\n0\r\n\r\n", how=How.CLOSED),
    ],
    "http.end-of-body": [
        wire(head(200, "text/event-stream", TE) + chunked(CLEAN)[:-5], how=How.CLOSED),
        wire(head(200, "text/event-stream", TE) + chunked(CLEAN)[:-5], how=How.RESET),
        wire(head(200, "text/event-stream") + CLEAN, how=How.RESET),
        wire(head(200, "text/event-stream") + CLEAN, how=How.TLS_CUT),
        wire(head(200, "application/json", CUT) + b"{}", stream=False, how=How.CLOSED),
        bare(CLEAN, How.RESET),
    ],
    "http.close-delimited": [wire(head(200, "text/event-stream") + CLEAN, how=How.CLOSED)],
    "http.bytes-after-end": [
        wire(head(200, "text/event-stream", TE) + chunked(CLEAN) + b"x"),
        wire(head(200, "text/event-stream", TE) + chunked(CLEAN), late=b"data: x\n\n"),
    ],
    "http.content-encoding": [
        wire(head(200, "text/event-stream", TE, "Content-Encoding: gzip") + chunked(b"\x1f\x8b"))
    ],
    "http.head-syntax": [
        wire(head(200, "text/event-stream", TE).replace(b"\r\n", b"\n") + chunked(CLEAN)),
        wire(head(200, "text/event-stream", TE, "A: b\r\n c") + chunked(CLEAN)),
        wire(head(200, "text/event-stream", "Content-Length: 1", "Content-Length: 2") + b"x"),
    ],
    "sse.invalid-utf8": [bare(CLEAN.replace(b'"a"', b'"\xf0\x9f"'))],
    "sse.unterminated-event": [bare(CLEAN[:-1]), bare(sse(*CHUNKS, tail="data: {"))],
    "sse.bom": [bare(BOM + CLEAN), bare(CLEAN.replace(b"\n\ndata", b"\n\n" + BOM + b"data", 1))],
    "sse.mixed-endings": [bare(CLEAN.replace(b"\n", b"\r\n", 3))],
    "sse.bare-cr": [bare(CLEAN.replace(b"\n", b"\r"))],
    "sse.empty-data-event": [bare(b"data:\n\n" + CLEAN)],
    "sse.dataless-block": [bare(b"retry: 5\n\n" + CLEAN)],
    "sse.sticky-id": [bare(b"id: 1\n" + CLEAN.replace(b"\n\n", b"\n\n: ping\n\n", 1))],
    "sse.id-retry-event": [
        bare(b"id: 1\n" + CLEAN),
        bare(b"retry: 1\n" + CLEAN),
        bare(b"event: chunk\n" + CLEAN),
    ],
    "sse.unprefixed-line": [
        bare(CLEAN + b"Internal Server Error\n\n"),
        bare(CLEAN + b"[DONE]\n\n"),
    ],
    "sse.unknown-field": [bare(b"foo: bar\n" + CLEAN)],
    "sse.multi-line-data": [bare(CLEAN.replace(b', "object"', b',\ndata: "object"'))],
    "sse.no-space": [bare(CLEAN.replace(b"data: ", b"data:"))],
    "sse.raw-line-separator": [bare(CLEAN.replace(b'"a"', b'"\xe2\x80\xa8"'))],
    "sse.missing-blank-line": [bare(CLEAN.replace(b"\n\ndata: [DONE]", b"\ndata: [DONE]"))],
    "sse.event-size": [bare(CLEAN.replace(b'"a"', b'"' + b"a" * 70000 + b'"'))],
    "json.invalid": [bare(sse(ROLE, TEXT[:40], STOP)), bare(sse(ROLE, TEXT + "x", STOP))],
    "json.nonfinite": [bare(sse(ROLE, TEXT[:-1] + ', "x": -Infinity}', STOP))],
    "json.duplicate-key": [bare(sse(ROLE, TEXT[:-1] + ', "id": "c1"}', STOP))],
    "json.control-character": [bare(CLEAN.replace(b'"a"', b'"\t"'))],
    "json.not-object": [bare(sse(ROLE, "[]", STOP)), bare(sse(ROLE, "null", STOP))],
    "json.lone-surrogate": [bare(CLEAN.replace(b'"a"', b'"\\ud83d"'))],
    "done.missing": [bare(sse(*CHUNKS, tail="")), bare(sse(*CHUNKS, tail="[DONE]\n\n"))],
    "done.malformed": [bare(sse(*CHUNKS, tail='data: "[DONE]"\n\n')), bare(sse(*CHUNKS, "[done]"))],
    "done.duplicate": [bare(sse(*CHUNKS, "[DONE]"))],
    "done.data-after": [bare(sse(ROLE, STOP, "[DONE]", TEXT))],
    "stream.empty": [bare(b""), bare(sse()), bare(b": ping\n\n")],
    "stream.truncated": [
        bare(sse(ROLE, TEXT, tail="")),
        bare(sse(*CHUNKS, tail=""), How.RESET),
        wire(head(200, "text/event-stream", TE) + chunked(sse(ROLE, tail=""))[:-5], how=How.RESET),
    ],
    "stream.no-progress": [bare(sse(ROLE, TEXT, tail=""), How.CLOCK), ENDLESS],
    "stream.not-closed": [
        bare(CLEAN, How.CLOCK),
        Capture(
            GOOD.received,
            request=GOOD.request,
            reads=(Read(len(GOOD.received) - 5, 1.0), Read(len(GOOD.received), 3.0)),
            end=End(How.FRAMED, at=3.0),
            clock="user",
        ),
    ],
    "err.content-type": [
        length("text/html", b"<h1>no</h1>", status=502),
        length("text/event-stream", sse(ERROR), status=400),
        length("application/json", b"no", status=500),
        length("application/json", b"", status=500),
    ],
    "err.envelope": [
        length("application/json", b'{"detail": "no"}', status=422),
        length("application/json", b'{"error": {"message": ""}}', status=400),
    ],
    "err.code-type": [
        length("application/json", b'{"error": {"message": "no", "code": 400}}', status=400)
    ],
    "err.prestream-200": [bare(sse(ERROR)), bare(sse(ROLE, ERROR))],
    "err.shape": [bare(sse(ROLE, TEXT, '{"error": "no"}')), bare(sse(ROLE, TEXT, '{"error": {}}'))],
    "err.followed": [bare(sse(ROLE, TEXT, ERROR, STOP))],
    "err.not-terminated": [bare(sse(ROLE, TEXT, ERROR, tail=""), How.CLOCK)],
    "err.as-unknown-field": [
        bare(sse(ROLE, TEXT, tail=f"error: {ERROR}\n\n")),
        bare(sse(ROLE, TEXT, tail=f": {ERROR}\n\n")),
    ],
    "err.in-band": [IN_BAND],
}  # fmt: skip
_RANK = {Level.MUST: Verdict.FAIL, Level.SHOULD: Verdict.NON_STRICT, Level.MAY: Verdict.INFO}


@pytest.mark.parametrize("check", sorted(FAILS))
def test_the_clean_record_passes(check: str) -> None:
    assert result(check, PASSES.get(check, GOOD)).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("check", "capture"), [(c, capture) for c, found in FAILS.items() for capture in found]
)
def test_the_broken_record_is_found_at_its_level(check: str, capture: Capture) -> None:
    found = result(check, capture)
    assert found.findings, found
    assert found.verdict is _RANK[found.level]
    assert all(f.rule and f.message and f.dossier == "d" for f in found.findings)


def test_an_offset_points_at_the_bytes_on_the_wire_through_chunked_framing() -> None:
    broken = CLEAN.replace(b'"a"', b'"\xff"')
    received = head(200, "text/event-stream", TE) + chunked(broken, size=7)
    finding = result("sse.invalid-utf8", wire(received)).findings[0]
    assert finding.offset is not None
    assert received[finding.offset] == 0xFF


def test_only_the_lost_sentinel_is_a_should() -> None:
    assert result("sse.unterminated-event", bare(CLEAN[:-1])).level is Level.SHOULD
    cut = bare(sse(ROLE, TEXT, tail=f"data: {STOP}\n"))
    assert result("sse.unterminated-event", cut).level is Level.MUST


def test_an_error_event_may_be_named_error() -> None:
    named = bare(sse(ROLE, TEXT, tail=f"event: error\ndata: {ERROR}\n\n"))
    assert result("sse.id-retry-event", named).verdict is Verdict.PASS


def test_framing_rules_abstain_where_the_framing_was_taken_off() -> None:
    for check in ("http.chunked-framing", "http.end-of-body", "http.bytes-after-end"):
        found = result(check, bare(CLEAN))
        assert found.verdict is Verdict.INCONCLUSIVE
        assert found.reason == "not-recorded: the record has no HTTP framing"


def test_byte_rules_abstain_on_text_that_somebody_else_decoded() -> None:
    found = result("sse.invalid-utf8", bare(CLEAN, layer=Layer.TEXT))
    assert found.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("how", [How.LEFT, How.BOUND])
def test_what_we_left_is_no_truncation(how: How) -> None:
    found = result("stream.truncated", bare(sse(ROLE, TEXT, tail=""), how))
    assert found.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("how", [How.LEFT, How.BOUND])
@pytest.mark.parametrize("check", ["sse.unterminated-event", "sse.invalid-utf8"])
def test_an_event_that_we_cut_is_not_pending(check: str, how: How) -> None:
    cut = bare(sse(ROLE, TEXT, tail="") + 'data: {"a": "\u20ac'.encode()[:-1], how)
    assert result(check, cut).verdict is Verdict.PASS


@pytest.mark.parametrize("how", [How.LEFT, How.BOUND, How.CLOCK])
def test_a_document_that_we_cut_is_not_judged(how: How) -> None:
    cut = wire(PLAIN.received[:-1], stream=False, how=how)
    assert result("http.plain-json", cut).verdict is Verdict.INCONCLUSIVE


def second(received: bytes, how: How = How.FRAMED, early: bytes = b"") -> Capture:
    return wire(received, how=how, connection=1, ordinal=1, early=early)


AGAIN = wire(head(200, "text/event-stream", TE) + chunked(CLEAN.replace(b'"c1"', b'"c2"')))


def test_a_connection_that_carries_its_own_second_answer_passes() -> None:
    for check in ("http.keep-alive", "http.keep-alive-own-answer"):
        assert result(check, GOOD, AGAIN, scenario="discovery").verdict is Verdict.PASS


def test_a_connection_that_dies_without_a_word_is_found() -> None:
    dead = second(b"", how=How.CLOSED)
    found = result("http.keep-alive", GOOD, dead, scenario="discovery")
    assert found.verdict is Verdict.NON_STRICT


@pytest.mark.parametrize("reused", [False, None])
def test_a_close_after_a_whole_answer_has_to_be_announced(reused: bool | None) -> None:
    picked: dict[str, Json] = {} if reused is None else {"reused": reused}
    dossier = Dossier("discovery", {"stream": (GOOD,)}, picked=picked, name="d")
    (found,) = judge([dossier], (CASES["http.keep-alive"],))
    assert found.verdict is (Verdict.NON_STRICT if picked else Verdict.INCONCLUSIVE)


def test_an_announced_close_is_no_fault() -> None:
    closing = wire(head(200, "text/event-stream", TE, "Connection: close") + chunked(CLEAN))
    found = result("http.keep-alive", closing, second(b"", how=How.CLOSED), scenario="discovery")
    assert found.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    "capture",
    [second(AGAIN.received, early=b"0\r\n\r\n"), second(GOOD.received)],
    ids=["left-over bytes", "the first answer again"],
)
def test_a_second_answer_that_is_not_its_own_is_found(capture: Capture) -> None:
    found = result("http.keep-alive-own-answer", GOOD, capture, scenario="discovery")
    assert found.verdict is Verdict.FAIL


@pytest.mark.parametrize("request_body", [{"stream": True}, {"stream": True, "max_tokens": 99}])
def test_what_our_own_bound_cut_off_may_be_long_by_right(request_body: dict[str, Json]) -> None:
    given = Given(200, "text/event-stream", None, request_body)
    found = result("stream.no-progress", replace(ENDLESS, given=given))
    assert found.verdict is Verdict.INCONCLUSIVE


def test_every_wire_case_has_a_record_that_breaks_it() -> None:
    here = {"http.yaml", "sse.yaml", "json.yaml", "end.yaml", "err.yaml"}
    written = {case.id for case in CASES.values() if Path(case.file).name in here}
    assert written - set(FAILS) == {"http.keep-alive", "http.keep-alive-own-answer"}
