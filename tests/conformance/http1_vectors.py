"""Answers of all kinds, right and broken, with what must be said about each."""

from __future__ import annotations

from dataclasses import dataclass

from conformance.http1 import Framing


def answer(*fields: str, body: str = "", start: str = "HTTP/1.1 200 OK") -> bytes:
    return "\r\n".join([start, *fields, "", body]).encode("latin-1")


CHUNKED, LEN9 = "Transfer-Encoding: chunked", "Content-Length: 9"


@dataclass(frozen=True)
class Vector:
    name: str
    wire: bytes
    body: bytes = b""
    framing: Framing | None = Framing.LENGTH
    whole: bool = True  # complete after the close
    broken: tuple[tuple[str, str], ...] = ()  # kind, and text with § at its place
    dead: bool = False
    excess: int = 0
    method: str = "POST"


NONE, LENGTH, CLOSE = Framing.NONE, Framing.LENGTH, Framing.CLOSE

VECTORS = [
    # 6.3: where the body ends
    Vector("length", answer("Content-Length: 5", body="hello"), b"hello"),
    Vector("length of zero", answer("Content-Length: 0")),
    Vector("bytes after the length", answer("Content-Length: 2", body="hello"), b"he", excess=3),
    Vector(
        "length cut off",
        answer("Content-Length: 9", body="hello"),
        b"hello",
        whole=False,
        broken=(("body-incomplete", ""),),
    ),
    Vector("up to the close", answer("X: y", body="hel\r\nlo"), b"hel\r\nlo", CLOSE),
    Vector("up to the close, empty", answer(), b"", CLOSE),
    Vector("HEAD", answer("Content-Length: 5"), b"", NONE, method="HEAD"),
    Vector("HEAD of a chunked resource", answer(CHUNKED), b"", NONE, method="head"),
    Vector("204", answer(start="HTTP/1.1 204 No Content"), b"", NONE),
    Vector("204 with a body", answer(start="HTTP/1.1 204 No", body="x"), b"", NONE, excess=1),
    Vector("304", answer("Content-Length: 5", start="HTTP/1.1 304 Not"), b"", NONE),
    Vector("101", answer(start="HTTP/1.1 101 Switching", body="\x81"), b"", NONE, excess=1),
    Vector("tunnel", answer(CHUNKED, LEN9, body="\x16"), b"", NONE, excess=1, method="CONNECT"),
    Vector("tunnel refused", answer(start="HTTP/1.1 407 No"), b"", CLOSE, method="CONNECT"),
    Vector(
        "chunked beside a length: chunked wins",
        answer("Content-Length: 3", CHUNKED, body="1\r\na\r\n0\r\n\r\n"),
        b"a",
        Framing.CHUNKED,
        broken=(("length-and-chunked", "Content-Length"),),
    ),
    Vector(
        "a coding beside a length: up to the close",
        answer("Transfer-Encoding: gzip", "Content-Length: 3", body="abcdef"),
        b"abcdef",
        CLOSE,
        broken=(("unknown-coding", "Transfer"), ("length-and-chunked", "Content-L")),
    ),
    Vector(
        "the same length twice",
        answer("Content-Length: 5", "content-length: 5", body="hello"),
        b"hello",
        broken=(("repeated-length", "content-length"),),
    ),
    Vector(
        "the same length twice in one field",
        answer("Content-Length: 5, 5", body="hello"),
        b"hello",
        broken=(("repeated-length", "Content-L"),),
    ),
    Vector(
        "two lengths",
        answer("Content-Length: 5", "content-length: 4", body="hello"),
        b"hello",
        CLOSE,
        broken=(("conflicting-length", "content-l"),),
    ),
    *(
        Vector(
            f"length {value!r}",
            answer(f"Content-Length: {value}", body="hi"),
            b"hi",
            CLOSE,
            broken=(("bad-length", "Content-L"),),
        )
        for value in ("", "+2", "-2", "0x2", "2.0", "2 0", "2,", "two", "9" * 5000)
    ),
    Vector("length with leading zeros", answer("Content-Length: 0002", body="hi"), b"hi"),
    Vector(
        "length beyond all numbers",
        answer(f"Content-Length: {'9' * 3999}", body="hi"),
        b"hi",
        whole=False,
        broken=(("body-incomplete", ""),),
    ),
    *(
        Vector(
            f"coding {coding!r}",
            answer(f"Transfer-Encoding: {coding}", body="1\r\na\r\n0\r\n\r\n"),
            b"a" if chunked else b"1\r\na\r\n0\r\n\r\n",
            Framing.CHUNKED if chunked else CLOSE,
            broken=(("unknown-coding", "Transfer"),),
        )
        for coding, chunked in [
            ("gzip, chunked", True),
            ("chunked, chunked", True),
            ("chunked;q=1", True),
            ("chunked, gzip", False),
            ("identity", False),
            ("xchunked", False),
            ("", False),
        ]
    ),
    Vector(
        "chunked, in capitals, with empty elements",
        answer("TRANSFER-ENCODING: , CHUNKED,", body="1\r\na\r\n0\r\n\r\n"),
        b"a",
        Framing.CHUNKED,
    ),
    Vector(
        "chunked in an HTTP/1.0 answer",
        answer(CHUNKED, start="HTTP/1.0 200 OK", body="1\r\na\r\n0\r\n\r\n"),
        b"a",
        Framing.CHUNKED,
        broken=(("framing-forbidden", "Transfer"),),
    ),
    Vector(
        "framing in a 204",
        answer(CHUNKED, "Content-Length: 0", start="HTTP/1.1 204 No"),
        b"",
        NONE,
        broken=(
            ("length-and-chunked", "Content"),
            ("framing-forbidden", "Transfer"),
            ("framing-forbidden", "Content"),
        ),
    ),
    # 7.1: chunks
    Vector(
        "chunks",
        answer(CHUNKED, body="5\r\nhello\r\n00A\r\n01234\r\n789\r\n000\r\n\r\nHTTP"),
        b"hello01234\r\n789",
        Framing.CHUNKED,
        excess=4,
    ),
    Vector(
        "chunk extensions",
        answer(CHUNKED, body='1;a\r\nx\r\n1 ; b = "q;\\"" ;c=d\r\ny\r\n0;z=1\r\n\r\n'),
        b"xy",
        Framing.CHUNKED,
    ),
    *(
        Vector(
            f"chunk-size line {line!r} still says where the chunk ends",
            answer(CHUNKED, body=f"{line}\r\nx\r\n0\r\n\r\n"),
            b"x",
            Framing.CHUNKED,
            broken=(("bad-chunk-size", f"\r\n\r\n§{line}\r\nx"),),
        )
        for line in ("1 ", " 1", "1;", "1;=", '1;a="', "1;a b", "1 \x01", "1;a=\r")
    ),
    *(
        Vector(
            f"chunk-size line {line!r} is unreadable",
            answer(CHUNKED, body=f"1\r\na\r\n{line}\r\nx\r\n0\r\n\r\n"),
            b"a",
            Framing.CHUNKED,
            False,
            (("bad-chunk-size", f"a\r\n§{line}\r\nx"),),
            dead=True,
        )
        for line in ("", "0x1", "-1", "+1", "g", "1_0", "data: x", "1\r", "1\x00")
    ),
    Vector(
        "chunk-size lines ending in LF",
        answer(CHUNKED, body="1\nx\r\n0\n\n"),
        b"x",
        Framing.CHUNKED,
        broken=(("bare-lf", "§1\nx"), ("bare-lf", "§0\n\n"), ("bare-lf", "0\n§\n")),
    ),
    Vector(
        "chunk-data followed by LF",
        answer(CHUNKED, body="1\r\nx\n0\r\n\r\n"),
        b"x",
        Framing.CHUNKED,
        broken=(("bad-chunk-ending", "\n0"),),
    ),
    *(
        Vector(
            f"chunk-data followed by {rest!r}",
            answer(CHUNKED, body=f"1\r\nX{rest}"),
            b"X",
            Framing.CHUNKED,
            False,
            (("bad-chunk-ending", f"X§{rest}"),),
            dead=True,
        )
        for rest in ("Y\r\n0\r\n\r\n", "\rZ\r\n0\r\n\r\n", "0\r\n\r\n", "\r\r\n")
    ),
    *(
        Vector(
            f"chunked, closed after {body!r}",
            answer(CHUNKED, body=body),
            b"xy"[: body.count("x") + body.count("y")],
            Framing.CHUNKED,
            False,
            (("body-incomplete", rest),),
        )
        for body, rest in [
            ("", ""),
            ("2", "\r\n§2"),
            ("2\r", "\r\n§2\r"),
            ("2\r\n", ""),
            ("2\r\nx", ""),
            ("2\r\nxy", ""),
            ("2\r\nxy\r", "xy§\r"),
            ("2\r\nxy\r\n", ""),
            ("2\r\nxy\r\n0", "y\r\n§0"),
        ]
    ),
    Vector(
        "closed after the zero chunk: the body is complete, the message lacks its last line",
        answer(CHUNKED, body="0\r\nA: b\r\n"),
        b"",
        Framing.CHUNKED,
        broken=(("bad-trailer", ""),),
    ),
    Vector("trailers", answer(CHUNKED, body="0\r\nA: b\r\n\r\n"), b"", Framing.CHUNKED),
    Vector(
        "bad trailers",
        answer(CHUNKED, body="0\r\nA\r\nB: c\r\n d\r\nContent-Length: 7\r\n\r\n"),
        b"",
        Framing.CHUNKED,
        broken=(("bad-trailer", "A\r"), ("obs-fold", " d"), ("bad-trailer", "Content-L")),
    ),
    # 4: status lines
    Vector("no reason", answer(start="HTTP/1.1 200 "), b"", CLOSE),
    Vector("a reason in Latin-1", answer(start="HTTP/1.1 200 \xfcber"), b"", CLOSE),
    *(
        Vector(
            f"status line {line!r} is understood",
            answer("Content-Length: 1", start=line, body="x"),
            b"x",
            broken=(("bad-status-line", line),),
        )
        for line in (
            "HTTP/1.1 200",
            "HTTP/1.1  200 OK",
            "HTTP/1.1\t200\tOK",
            "http/1.1 200 OK",
            "HTTP/2 200 ",
            "HTTP/2.0 200 OK",
            "HTTP/1.1 200 O\x00K",
            "HTTP/1.1 099 Low",
        )
    ),
    *(
        Vector(
            f"status line {line!r} is unreadable",
            answer("Content-Length: 1", start=line, body="x"),
            b"",
            None,
            False,
            (("bad-status-line", line),),
            dead=True,
        )
        for line in (
            "hello",
            "HTTP/1.1",
            "HTTP/1.1 20",
            "HTTP/1.1 2000 OK",
            "HTTP/1.1 200OK",
            "HTTP/1.1 OK 200",
            "ICY 200 OK",
            " HTTP/1.1 200 OK",
            "POST / HTTP/1.1",
            '{"error": 1}',
            "HTTP/١.١ 200 OK".encode().decode("latin-1"),
        )
    ),
    Vector(
        "empty lines before the status line",
        b"\r\n\n" + answer(),
        b"",
        CLOSE,
        broken=(
            ("bad-status-line", "§\r\n\n"),
            ("bare-lf", "\r\n§\n"),
            ("bad-status-line", "\r\n§\n"),
        ),
    ),
    Vector("nothing at all", b"", b"", None, False),
    *(
        Vector(f"closed after {wire!r}", wire, b"", None, False, (("head-incomplete", at),))
        for wire, at in [
            (b"H", "H"),
            (b"HTTP/1.1 200 OK\r\n", ""),
            (b"HTTP/1.1 200 OK\r\nA: b", "A: b"),
            (b"HTTP/1.1 100 C\r\n\r\nHTTP/1", "\r\n\r\n§HTTP/1"),
        ]
    ),
    # 5: field lines
    Vector("an empty value", answer("A:", "B: \t "), b"", CLOSE),
    Vector("odd but legal", answer("!#$%&'*+.^_`|~09aZ:\t\xff: x\t y \t"), b"", CLOSE),
    *(
        Vector(
            f"field line {line!r}",
            answer("X: y", line, "Content-Length: 1", body="x"),
            b"x",
            broken=(("bad-field", f"y\r\n§{line}\r\n"),),
        )
        for line in (
            "A",
            ": b",
            "A : b",
            "A\t: b",
            "A B: c",
            "A\x00: b",
            "A: \x00",
            "A: b\rc",
            "A: \x7f",
            "A: \x0b",
            "\xc3\xa4: b",
            "\r",
        )
    ),
    Vector(
        "white space around a framing field's name does not hide it",
        answer("Transfer-Encoding : chunked", body="1\r\na\r\n0\r\n\r\n"),
        b"a",
        Framing.CHUNKED,
        broken=(("bad-field", "Transfer"),),
    ),
    Vector(
        "a folded value",
        answer("Content-Length:", " ", "\t1", body="x"),
        b"x",
        broken=(("obs-fold", "\n§ \r\n\t"), ("obs-fold", "\t1")),
    ),
    Vector(
        "white space before the first field",
        answer(" Content-Length: 9", "Content-Length: 1", body="x"),
        b"x",
        broken=(("bad-field", "§ Content-Length: 9"),),
    ),
    Vector(
        "LF alone everywhere",
        b"HTTP/1.1 200 OK\nContent-Length: 1\n\nx",
        b"x",
        broken=(("bare-lf", "HTTP"), ("bare-lf", "Content"), ("bare-lf", "1\n§\nx")),
    ),
]
