"""masking: no secret is left in a capture, nothing else changes, and a replay gets it back."""

from __future__ import annotations

import base64
import itertools
import json
import time
from dataclasses import replace
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance import storage
from conformance.capture import Capture, Layer, Mask, Segment
from conformance.masking import CREDENTIAL_FIELDS, Secret, mask, unmask

KEY = Secret("env:KEY", b'sk-ab/c+d\xc3\xa9"f?1234')
PLAIN = Secret("env:PLAIN", b"sk-secret1234")


def request(*fields: str, target: str = "/v1", body: str = "{}") -> tuple[Segment, ...]:
    text = "\r\n".join([f"POST {target} HTTP/1.1", *fields, "", body])
    return (Segment(text.encode(), 0.5),)


def sent(capture: Capture) -> bytes:
    return b"".join([segment.data for segment in capture.request])


FORMS = {
    "": KEY.value,
    "json": json.dumps(KEY.value.decode())[1:-1].encode(),
    "json-utf8": json.dumps(KEY.value.decode(), ensure_ascii=False)[1:-1].encode(),
    "json-slash": json.dumps(KEY.value.decode())[1:-1].replace("/", "\\/").encode(),
    "percent": quote(KEY.value, safe="").encode(),
    "percent-lower": b"sk-ab%2fc%2bd%c3%a9%22f%3f1234",
}


@pytest.mark.parametrize("where", ["received", "early", "late", "url", "request"])
@pytest.mark.parametrize(("encoding", "text"), FORMS.items())
def test_a_secret_is_overwritten_wherever_and_however_it_stands(
    where: str, encoding: str, text: bytes
) -> None:
    data = b"<" + text + b"> <" + text + b">"
    capture = {
        "received": Capture(data),
        "early": Capture(b"", early=data),
        "late": Capture(b"", late=data),
        "url": Capture(b"", url=data.decode()),
        "request": Capture(b"", request=(Segment(data),)),
    }[where]
    masked = mask(capture, [KEY])
    stars = b"<" + b"*" * len(text) + b"> <" + b"*" * len(text) + b">"
    got = {
        "received": masked.received,
        "early": masked.early,
        "late": masked.late,
        "url": (masked.url or "").encode(),
        "request": sent(masked),
    }[where]
    assert got == stars
    reference = "env:KEY" + (f"#{encoding}" if encoding else "")
    assert masked.masks == (
        Mask(where, 1, len(text), reference),
        Mask(where, 4 + len(text), len(text), reference),
    )
    assert unmask(masked, [KEY]) == capture


@pytest.mark.parametrize("user", ["", "a", "ab", "abc"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_secret_inside_base64_is_overwritten_at_any_alignment(user: str, encode: object) -> None:
    assert callable(encode)
    coded = encode(user.encode() + KEY.value + b":tail")
    masked = mask(Capture(coded), [KEY])
    assert masked.received.strip(b"*") != coded
    left = base64.urlsafe_b64decode(masked.received.replace(b"*", b"A"))
    assert KEY.value[1:-1] not in left
    assert masked.received.count(b"*") >= len(KEY.value)
    assert unmask(masked, [KEY]).received == coded


def test_a_secret_over_two_segments_is_overwritten_in_both() -> None:
    capture = Capture(b"", request=(Segment(b"x sk-sec", 1.0), Segment(b"ret1234 y", 2.0)))
    masked = mask(capture, [PLAIN])
    assert masked.request == (Segment(b"x ******", 1.0), Segment(b"******* y", 2.0))
    assert masked.masks == (Mask("request", 2, 13, "env:PLAIN"),)
    assert unmask(masked, [PLAIN]) == capture


def test_a_secret_over_chunks_is_overwritten_in_each() -> None:
    head = b"HTTP/1.1 401 No\r\nTransfer-Encoding: chunked\r\n\r\n"
    received = head + b"4\r\n sk-\r\n3\r\nsec\r\n9\r\nret1234! \r\n0\r\n\r\n"
    masked = mask(Capture(received), [PLAIN])
    assert masked.received == head + b"4\r\n ***\r\n3\r\n***\r\n9\r\n*******! \r\n0\r\n\r\n"
    assert [gap.secret for gap in masked.masks] == ["env:PLAIN", "env:PLAIN@3", "env:PLAIN@6"]
    assert unmask(masked, [PLAIN]).received == received
    assert mask(Capture(received, Layer.UNFRAMED), [PLAIN]).received == received


@pytest.mark.parametrize(
    ("field", "shown"),
    [
        ("Authorization: Bearer abc.def", "Authorization: Bearer *******"),
        ("authorization:Basic dTpw", "authorization:Basic ****"),
        ("AUTHORIZATION:  Bearer  x y ", "AUTHORIZATION:  Bearer  *** "),
        ("Authorization: sk-1 sk-2", "Authorization: *********"),
        ("Authorization: justakey", "Authorization: ********"),
        ("Proxy-Authorization: Basic dTpw", "Proxy-Authorization: Basic ****"),
        ("api-key: k", "api-key: *"),
        ("X-Api-Key : k1 k2", "X-Api-Key : *****"),
        ("Cookie: a=b; c=d", "Cookie: ********"),
        ("Cookie: a=b;\r\n c=d", "Cookie: ****\r\n ***"),
        ("X-Other: abc", "X-Other: abc"),
    ],
)
def test_values_of_credential_fields_are_overwritten_unknown_or_not(field: str, shown: str) -> None:
    capture = Capture(b"", request=request("Host: h", field, "Accept: */*"))
    masked = mask(capture)
    assert masked.request == request("Host: h", shown, "Accept: */*")
    if "*" in shown.replace("*/*", ""):
        name = field.partition(":")[0].strip().lower()
        assert {gap.secret.partition("@")[0] for gap in masked.masks} == {f"header:{name}"}


@pytest.mark.parametrize("name", CREDENTIAL_FIELDS)
@pytest.mark.parametrize("cut", [" HTTP", "\r\nbody", ""])
def test_even_a_request_that_is_no_http_loses_its_credentials(name: str, cut: str) -> None:
    data = f"garbage\n{name}: topsecret{cut}".encode()
    assert b"topsecret" not in sent(mask(Capture(b"", request=(Segment(data),))))


def test_only_the_head_of_a_request_has_credential_fields() -> None:
    capture = Capture(b"", request=request(body="\r\nCookie: a=b"))
    assert mask(capture) == capture


def test_a_credential_of_the_request_is_overwritten_where_the_server_repeats_it() -> None:
    capture = Capture(
        b"HTTP/1.1 401 No\r\n\r\nbad key: unknown-key-1", request=request("Api-Key: unknown-key-1")
    )
    masked = mask(capture)
    assert masked.received.endswith(b"bad key: *************")
    assert unmask(masked, [Secret("header:api-key", b"unknown-key-1")]) == capture


def test_the_secret_we_know_goes_by_its_own_name() -> None:
    for value in (b"x", b"sk-secret1234"):
        capture = Capture(b"", request=request(f"Authorization: Bearer {value.decode()}"))
        masked = mask(capture, [Secret("env:OPENAI_API_KEY", value)])
        assert [gap.secret for gap in masked.masks] == ["env:OPENAI_API_KEY"]
        assert unmask(masked, [Secret("env:OPENAI_API_KEY", value)]) == capture


def test_what_stands_beside_a_known_secret_in_a_credential_is_overwritten_too() -> None:
    capture = Capture(b"", request=request("Cookie: a=sk-secret1234; b=c"))
    masked = mask(capture, [PLAIN])
    assert masked.request == request("Cookie: " + "*" * 20)
    assert [gap.secret for gap in masked.masks] == ["header:cookie"]
    assert unmask(masked, [PLAIN]) == masked
    assert unmask(masked, [Secret("header:cookie", b"a=sk-secret1234; b=c")]) == capture


def test_a_short_secret_is_overwritten_in_fields_but_not_in_text() -> None:
    short = Secret("env:KEY", b"test")
    capture = Capture(
        b"data: this is a test\n\n",
        request=request("X-Key: test", "X-Auth: Token test", "X-Test: testing", body="a test"),
    )
    masked = mask(capture, [short])
    assert masked.received == capture.received
    assert masked.request == request(
        "X-Key: ****", "X-Auth: Token ****", "X-Test: testing", body="a test"
    )
    assert unmask(masked, [short]) == capture


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://u:p@h/v1", "http://***@h/v1"),
        ("http://h/v1?key=abc&n=1", "http://h/v1?key=***&n=1"),
        ("http://h/v1?a=1&API_KEY=abc#f", "http://h/v1?a=1&API_KEY=***#f"),
        ("http://h/v1?monkey=abc", "http://h/v1?monkey=abc"),
        ("http://h/@v1?n=1", "http://h/@v1?n=1"),
    ],
)
def test_credentials_in_a_url_are_overwritten(url: str, shown: str) -> None:
    target = url.removeprefix("http://h")
    capture = Capture(b"", url=url, request=request(target=target) if target != url else ())
    masked = mask(capture)
    assert masked.url == shown
    if target != url:
        assert masked.request == request(target=shown.removeprefix("http://h"))


def test_the_longer_secret_wins_and_what_overlaps_is_overwritten_whole() -> None:
    secrets = [
        Secret("a", b"12345678"),
        Secret("b", b"1234567890"),
        Secret("c", b"7890abcdef"),
    ]
    capture = Capture(b"-1234567890abcdef-")
    masked = mask(capture, secrets)
    assert masked.received == b"-" + b"*" * 16 + b"-"
    assert [(gap.start, gap.length, gap.secret) for gap in masked.masks] == [
        (1, 10, "b"),
        (11, 6, "c@4"),
    ]
    assert unmask(masked, secrets) == capture


def test_an_empty_secret_and_no_secret_change_nothing() -> None:
    capture = Capture(b"abc", request=request("Host: h"))
    assert mask(capture, [Secret("env:K", b"")]) is capture
    assert unmask(capture, [Secret("env:K", b"")]) == capture


def test_the_second_line_of_a_folded_value_is_named_by_its_place_in_it() -> None:
    capture = Capture(b"", request=request("Cookie: a=b;\r\n second-line"))
    masked = mask(capture)
    assert [gap.secret for gap in masked.masks] == ["header:cookie", "header:cookie@7"]
    assert unmask(masked, [Secret("header:cookie", b"a=b;\r\n second-line")]) == capture


def test_stars_that_were_there_before_are_no_secret() -> None:
    capture = Capture(b"abcd1234 ********", request=request("Api-Key: abcd1234"))
    masked = mask(capture)
    assert masked.received == b"*" * 8 + b" " + b"*" * 8
    assert len(masked.masks) == 2
    assert mask(masked) == masked


def test_what_was_changed_since_is_not_put_back() -> None:
    masked = mask(Capture(b"sk-secret1234"), [PLAIN])
    changed = replace(masked, received=b"other  " + masked.received[7:])
    assert unmask(changed, [PLAIN]) == changed
    assert unmask(masked, [Secret("env:PLAIN", b"short")]) == masked


SECRETS = [KEY, PLAIN, Secret("env:B", b"\xff\xfe\x00binary"), Secret("env:S", b"ab")]
FORMS_OF_ALL = [
    form
    for secret in SECRETS[:3]
    for form in (
        secret.value,
        quote(secret.value).encode(),
        quote_plus(secret.value).encode(),
        base64.b64encode(b"u:" + secret.value),
    )
]


@st.composite
def talkative_captures(draw: st.DrawFn) -> Capture:
    """Captures in which secrets stand anywhere, also beside and inside each other."""
    bit = st.sampled_from([*FORMS_OF_ALL, b"sk-sec", b"ret1234", b"\r\n", b"ab", b"&key="])
    bits = st.lists(bit, max_size=5).map(b"".join)
    field = draw(st.sampled_from([b"", b"Authorization: Bearer ", b"Cookie: x=", b"X-K: "]))
    head = draw(
        st.sampled_from([b"", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n"])
    )
    return Capture(
        received=head + draw(bits),
        request=(
            Segment(b"POST /?key="),
            Segment(draw(bits)),
            Segment(b" HTTP/1.1\r\n" + field),
            Segment(draw(bits) + b"\r\n\r\n" + draw(bits)),
        ),
        url="http://h/" + draw(bits).decode("latin-1"),
        early=draw(bits),
    )


WHERES = ("request", "received", "early", "late", "url")


def _texts(capture: Capture) -> list[bytes]:
    url = (capture.url or "").encode("utf-8", "surrogatepass")
    return [sent(capture), capture.received, capture.early, capture.late, url]


@given(talkative_captures())
@settings(max_examples=200, deadline=None)
def test_no_secret_is_left_and_nothing_moves(capture: Capture) -> None:
    masked = mask(capture, SECRETS)
    for before, after in zip(_texts(capture), _texts(masked), strict=True):
        assert len(before) == len(after)
        assert all(secret.value not in after for secret in SECRETS[:3])
        changed = [at for at in range(len(before)) if before[at] != after[at]]
        assert all(after[at] == ord("*") for at in changed)
    for where, after in zip(WHERES, _texts(masked), strict=True):
        covered = sorted((gap.start, gap.length) for gap in masked.masks if gap.where == where)
        for (start, length), (following, _) in itertools.pairwise(covered):
            assert start + length <= following
        assert all(after[start : start + length].strip(b"*") == b"" for start, length in covered)
    assert [len(segment.data) for segment in masked.request] == [
        len(segment.data) for segment in capture.request
    ]
    assert mask(masked, SECRETS) == masked
    assert storage.read_capture(storage.write_capture(masked)) == masked


@given(talkative_captures())
@settings(max_examples=100, deadline=None)
def test_what_is_known_comes_back(capture: Capture) -> None:
    masked = mask(capture, SECRETS)
    back = unmask(masked, SECRETS)
    known = {secret.name for secret in SECRETS}
    assert all(gap.secret.partition("#")[0].partition("@")[0] not in known for gap in back.masks)
    for where, before, after in zip(WHERES, _texts(capture), _texts(back), strict=True):
        stars = bytearray(before)
        for gap in back.masks:
            if gap.where == where:
                stars[gap.start : gap.start + gap.length] = b"*" * gap.length
        assert after == stars


@pytest.mark.parametrize("chunk", [0, 4])
def test_a_server_that_repeats_the_key_for_ever_costs_linear_time(chunk: int) -> None:
    received = PLAIN.value * 8_000
    if chunk:
        pieces = [received[at : at + chunk] for at in range(0, len(received), chunk)]
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        received = head + b"".join([b"%x\r\n%s\r\n" % (len(p), p) for p in pieces])
    start = time.process_time()
    masked = mask(Capture(received), [PLAIN])
    assert time.process_time() - start < 5
    assert b"sec" not in masked.received
