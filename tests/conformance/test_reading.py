"""Reading: what kind of answer a capture holds, and where its body bytes stand on the wire."""

from __future__ import annotations

import pytest

from conformance.capture import Capture, End, Given, How, Json, Layer, Segment
from conformance.reading import Form, read

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"7\r\n: hi\n\n \r\n0\r\n\r\n"
)
REFUSED = PLAIN.replace(b"200 OK", b"400 no")


def sent(request: bytes, received: bytes, how: How = How.FRAMED) -> Capture:
    return Capture(received, request=(Segment(request),), end=End(how))


def post(body: bytes, path: bytes = b"/v1/chat/completions") -> bytes:
    return b"POST " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n" + body


@pytest.mark.parametrize(
    ("capture", "form"),
    [
        (sent(post(b'{"stream": true}'), STREAM), Form.STREAM),
        (sent(post(b'{"stream": true}'), PLAIN), Form.STREAM),
        (sent(post(b'{"stream": false}'), STREAM), Form.PLAIN),
        (sent(post(b"{}"), PLAIN), Form.PLAIN),
        (sent(post(b"{}"), STREAM), Form.PLAIN),
        (sent(post(b"not json"), REFUSED), Form.REFUSAL),
        (sent(post(b'{"stream": true}'), REFUSED), Form.REFUSAL),
        (sent(post(b'{"stream": true}'), b"", How.CLOSED), Form.NOTHING),
        (sent(post(b'{"stream": true}'), b"SSH-2.0\r\n", How.CLOSED), Form.NOTHING),
        (sent(post(b"{}", b"/v1/embeddings"), PLAIN), Form.OTHER),
        (Capture(STREAM), Form.STREAM),
        (Capture(PLAIN), Form.PLAIN),
        (Capture(b": hi\n\n", Layer.BODY), Form.STREAM),
        (Capture(b"{}", Layer.BODY, given=Given(content_type="application/json")), Form.PLAIN),
        (Capture(b"{}", Layer.BODY, given=Given(status=500)), Form.REFUSAL),
    ],
)
def test_the_form_follows_the_request_then_the_label(capture: Capture, form: Form) -> None:
    assert read(capture).form is form


def test_a_listing_of_models_is_no_answer_of_the_api_it_was_asked_for() -> None:
    listing = sent(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", PLAIN)
    assert read(listing, api="chat").form is Form.OTHER


def test_body_offsets_map_through_the_chunk_framing() -> None:
    reading = read(Capture(STREAM))
    assert reading.body == b": hi\n\n "
    assert [STREAM[reading.place(i)] for i in range(7)] == list(reading.body)


@pytest.mark.parametrize(
    ("request_body", "n"),
    [
        ({}, 1),
        ({"n": 3}, 3),
        ({"prompt": ["a", "b"], "n": 2}, 4),
        ({"prompt": [1, 2, 3]}, 1),
        ({"prompt": [[1, 2], [3]]}, 2),
        ({"n": "3"}, 1),
    ],
)
def test_a_request_expects_prompts_times_n_choices(request_body: dict[str, Json], n: int) -> None:
    given = Given(path="/v1/completions", request={"stream": True, **request_body})
    assert read(Capture(b"", Layer.BODY, given=given)).n == n


def test_without_a_request_the_number_of_choices_is_unknown() -> None:
    assert read(Capture(b": hi\n\n", Layer.BODY)).n is None
