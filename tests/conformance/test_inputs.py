"""Recorded files of every kind become dossiers, told apart by content alone."""

from __future__ import annotations

import base64
import io
import json
import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance import boundedjson, inputs, storage
from conformance.capture import Capture, End, Given, How, Layer
from conformance.dossier import Dossier
from conformance.errors import RecordError
from conformance.inputs import Hints, Item, items, plain_from_file, request_from_file

SSE = b'data: {"choices":[]}\n\ndata: [DONE]\n\n'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
FRAMED = b"%x\r\n%s\r\n" % (len(SSE), SSE)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "record"


def read(file: Path, data: bytes, hints: Hints | None = None) -> list[Item]:
    file.write_bytes(data)
    return list(items(str(file), hints or Hints()))


def one(file: Path, data: bytes, hints: Hints | None = None) -> tuple[Dossier, Capture]:
    (item,) = read(file, data, hints)
    assert item.dossier.scenario == "file"
    (capture,) = item.dossier.roles["stream"]
    return item.dossier, capture


def refusal(file: Path, data: bytes, hints: Hints | None = None) -> str:
    with pytest.raises(RecordError) as caught:
        read(file, data, hints)
    message = str(caught.value)
    assert message.startswith(str(file))
    assert "\n" not in message
    return message.removeprefix(f"{file}: ")


# Response dumps


@pytest.mark.parametrize(
    ("dump", "layer"),
    [
        (CHUNKED + FRAMED + b"0\r\n\r\n", Layer.WIRE),
        (CHUNKED + FRAMED, Layer.WIRE),
        (CHUNKED + FRAMED[:9], Layer.WIRE),
        (CHUNKED + b"0\r\n\r\n", Layer.WIRE),
        (CHUNKED + b"5;name=value\r\ndata:\r\n", Layer.WIRE),
        (CHUNKED + b"5\ndata:\n", Layer.WIRE),
        (CHUNKED.replace(b"\r\n", b"\n") + FRAMED, Layer.WIRE),
        (CHUNKED.replace(b"Transfer-Encoding", b"transfer-ENCODING") + FRAMED, Layer.WIRE),
        (HEAD + b"Content-Length: 38\r\n\r\n" + SSE, Layer.WIRE),
        (HEAD + b"\r\n" + SSE, Layer.WIRE),
        (HEAD, Layer.WIRE),
        (CHUNKED + SSE, Layer.UNFRAMED),
        (CHUNKED, Layer.UNFRAMED),
        (CHUNKED + b"dead\nbeef, and more than two bytes of text " * 2000, Layer.UNFRAMED),
        (b"HTTP/2 200 \r\ncontent-type: text/event-stream\r\n\r\n" + SSE, Layer.UNFRAMED),
        (b"HTTP/3 200 \r\ncontent-type: text/event-stream\r\n\r\n" + SSE, Layer.UNFRAMED),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED + FRAMED, Layer.WIRE),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED + SSE, Layer.UNFRAMED),
    ],
)
def test_a_dump_is_on_the_wire_unless_its_framing_was_taken_off(
    file: Path, dump: bytes, layer: Layer
) -> None:
    _, capture = one(file, dump)
    assert (capture.layer, capture.received) == (layer, dump)


def test_only_framing_that_is_complete_says_how_the_answer_ended(file: Path) -> None:
    assert one(file, CHUNKED + FRAMED + b"0\r\n\r\n")[1].end.how is How.FRAMED
    assert one(file, CHUNKED + FRAMED)[1].end.how is How.UNKNOWN
    assert one(file, CHUNKED + SSE)[1].end.how is How.UNKNOWN


def test_interim_answers_stay_but_those_of_proxies_and_redirects_go(file: Path) -> None:
    tunnel = b"HTTP/1.1 200 Connection established\r\n\r\n"
    moved = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /v1/x\r\nContent-Length: 0\r\n\r\n"
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    final = interim + CHUNKED + FRAMED
    assert one(file, tunnel + moved + final)[1].received == final


def test_what_the_caller_knows_is_added_to_a_dump(file: Path) -> None:
    request: Any = {"messages": [], "stream": True}
    hints = Hints(request, "the text", dialect="azure")
    dossier, capture = one(file, CHUNKED + SSE, hints)
    assert capture.given is not None
    assert (capture.given.request, capture.given.status) == (request, None)
    assert (dossier.api, dossier.dialect) == ("chat", "azure")
    assert dossier.picked == {"plain_text": "the text"}


# Bare bodies


@pytest.mark.parametrize(
    "body",
    [
        SSE,
        b"\xef\xbb\xbfdata: x\n\n",
        b": ping\n\n",
        b"event: error\ndata: x\n\n",
        b"\r\rdata: x\r\r",
        b"junk first\ndata: x\n\n",
        b"\xff\xfe\ndata:\n",
    ],
)
def test_a_body_with_a_field_of_an_event_stream_is_one(file: Path, body: bytes) -> None:
    dossier, capture = one(file, body)
    assert (capture.layer, capture.received, capture.given) == (
        Layer.BODY, body, Given(None, None, None, None),
    )  # fmt: skip
    assert dossier.name == str(file)


@pytest.mark.parametrize(
    "body", [b"", b'{"error": {}}', b"Internal Server Error", b'{"a":1}\n{}\n']
)
def test_a_body_of_any_shape_is_judged_when_the_caller_says_what_it_was(
    file: Path, body: bytes
) -> None:
    _, capture = one(file, body, Hints(status=200, content_type="text/event-stream"))
    assert capture.given is not None
    assert (capture.received, capture.given.status) == (body, 200)
    assert capture.given.content_type == "text/event-stream"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "an empty file; if it is an empty answer"),
        (b"hello world\n", "expected a dossier, a response dump"),
        (b'{"a": 1}', "expected a dossier, a response dump"),
        (b"\x1f\x8b\x08rest", "a gzip file; unpack it first"),
        (b"PK\x03\x04rest", "a zip file"),
        (b"\xd4\xc3\xb2\xa1rest", "a packet capture"),
        (b"* Connected to x\n> POST / HTTP/1.1\n", "looks like `curl -v`"),
        (bytes(range(256)) * 20, "expected a dossier"),
        (b'{"log": {"entries": []}}', "a HAR file without an entry"),
    ],
)
def test_anything_else_is_refused_with_what_was_expected(
    file: Path, data: bytes, words: str
) -> None:
    assert words in refusal(file, data)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="nothing: No such file"):
        list(items(str(tmp_path / "nothing"), Hints()))


def test_stdin_is_read_where_the_name_is_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SSE)))
    (item,) = items("-", Hints())
    assert item.dossier.roles["stream"][0].received == SSE
    assert item.dossier.name == "stdin"


# Dossiers and captures


STORED = Dossier(
    "pair",
    {"stream": (Capture(CHUNKED, end=End(How.LEFT)),), "plain": (Capture(HEAD),)},
    api="chat",
    name="as run",
)


def test_a_dossier_file_is_the_record_it_was_but_named_after_the_file(file: Path) -> None:
    (item,) = read(file, storage.write(STORED))
    assert item.dossier == replace(STORED, name=str(file))


def test_a_capture_file_is_a_stream_of_a_file(file: Path) -> None:
    dossier, capture = one(file, storage.write_capture(Capture(CHUNKED, connection=3)))
    assert (capture.received, capture.connection) == (CHUNKED, 3)
    assert dossier.name == str(file)


def test_a_dossier_may_come_through_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as writer:
        writer.write(storage.write(STORED))
    monkeypatch.setattr(sys, "stdin", os.fdopen(reading))
    (item,) = items("-", Hints())
    sys.stdin.close()
    assert item.dossier == replace(STORED, name="stdin")


def test_a_damaged_dossier_is_refused(file: Path) -> None:
    assert refusal(file, storage.write(STORED)[:-20])


def test_a_folder_gives_its_dossiers_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    for name in ("b", "a", "inner/c"):
        (tmp_path / name).write_bytes(storage.write(STORED))
    (tmp_path / "notes.txt").write_text("data: not a record of ours")
    names = [item.dossier.name for item in items(str(tmp_path), Hints())]
    assert names == [str(tmp_path / name) for name in ("a", "b", "inner/c")]


def test_a_folder_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="expected dossier or capture files"):
        list(items(str(tmp_path), Hints()))


# JSON lines of samples


def sample(**fields: Any) -> bytes:
    full = {"id": "W1", "body_base64": base64.b64encode(SSE).decode()} | fields
    return json.dumps(full).encode() + b"\n"


def test_a_sample_line_becomes_a_dossier_with_all_it_says(file: Path) -> None:
    line = sample(
        request={"path": "/v1/chat/completions", "stream": True, "tools": ["f", {"type": "x"}]},
        status=200,
        content_type="text/event-stream",
        end="clean end of body",
        plain_text="Hi",
        dialect="azure",
    )
    (item,) = read(file, line)
    (capture,) = item.dossier.roles["stream"]
    assert (item.sample, item.dossier.name) == ("W1", f"{file}#W1")
    assert (item.dossier.api, item.dossier.dialect) == ("chat", "azure")
    assert item.dossier.picked == {"plain_text": "Hi"}
    assert (capture.received, capture.layer, capture.end.how) == (SSE, Layer.BODY, How.FRAMED)
    given_ = capture.given
    assert given_ is not None
    assert (given_.status, given_.path) == (200, "/v1/chat/completions")
    assert given_.content_type == "text/event-stream"
    named = {"type": "function", "function": {"name": "f"}}
    assert given_.request == {"stream": True, "tools": [named, {"type": "x"}]}


@pytest.mark.parametrize(
    ("words", "how", "detail"),
    [
        ("clean end of body", How.FRAMED, None),
        ("socket stays open", How.CLOCK, "progress"),
        ("connection reset", How.RESET, None),
        ("closed in the middle of a chunk", How.CLOSED, None),
        ("something new", How.UNKNOWN, "something new"),
        (None, How.UNKNOWN, None),
    ],
)
def test_the_words_for_the_end_become_facts(
    file: Path, words: str | None, how: How, detail: str | None
) -> None:
    (item,) = read(file, sample(end=words))
    end = item.dossier.roles["stream"][0].end
    assert (end.how, end.detail) == (how, detail)


@pytest.mark.parametrize(
    ("path", "api"),
    [
        ("/v1/chat/completions", "chat"),
        ("/v1/completions?x=1", "completions"),
        ("/openai/deployments/x/chat/completions/", "chat"),
        ("/v1/embeddings", None),
    ],
)
def test_the_path_says_which_api_is_spoken(file: Path, path: str, api: str | None) -> None:
    (item,) = read(file, sample(request={"path": path}))
    assert item.dossier.api == api


def test_samples_are_read_one_by_one_and_blank_lines_are_none(file: Path) -> None:
    file.write_bytes(sample(id="a") + b"\n" + sample(id="b") + b"broken\n")
    found = items(str(file), Hints())
    assert [next(found).sample, next(found).sample] == ["a", "b"]
    with pytest.raises(RecordError, match=r":4: not JSON"):
        next(found)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"body_base64": "%%"}, "body_base64: expected base64"),
        ({"body_base64": 1}, "body_base64: expected text"),
        ({"status": "200"}, "status: expected an HTTP status"),
        ({"status": True}, "status: expected an HTTP status"),
        ({"request": []}, "request: expected an object"),
        ({"request": {"path": 1}}, "path: expected text"),
        ({"end": 1}, "end: expected text"),
        ({"plain_text": []}, "plain_text: expected text"),
    ],
)
def test_a_sample_with_a_wrong_member_is_refused_with_its_line(
    file: Path, fields: dict[str, Any], words: str
) -> None:
    file.write_bytes(sample() + sample(**fields))
    found = items(str(file), Hints())
    next(found)
    with pytest.raises(RecordError) as caught:
        next(found)
    assert str(caught.value) == f"{file}:2: {words}"


# HAR


def entry(url: str = "https://x/v1/chat/completions", **content: Any) -> dict[str, Any]:
    return {
        "request": {
            "url": url,
            "postData": {"text": '{"stream": true}'},
        },
        "response": {
            "status": 200,
            "headers": [{"name": "Content-Type", "value": "text/event-stream; charset=utf-8"}],
            "content": {"text": SSE.decode(), "mimeType": "text/event-stream"} | content,
        },
    }


def har(*entries: Any) -> bytes:
    return json.dumps({"log": {"version": "1.2", "entries": entries}}, indent=1).encode()


def test_each_entry_of_a_har_file_that_is_a_stream_becomes_a_dossier(file: Path) -> None:
    other = entry("https://x/app.css")
    other["response"]["headers"] = []
    other["response"]["content"]["mimeType"] = "text/css"
    encoded = entry(
        "https://x/v1/completions", text=base64.b64encode(SSE).decode(), encoding="base64"
    )
    first, second = read(file, har(entry(), other, encoded))
    assert (first.dossier.api, second.dossier.api) == ("chat", "completions")
    assert (first.dossier.name, second.dossier.name) == (f"{file}#0", f"{file}#2")
    for item in (first, second):
        (capture,) = item.dossier.roles["stream"]
        assert (capture.layer, capture.received) == (Layer.TEXT, SSE)
        assert capture.given is not None
        assert capture.given.request == {"stream": True}
        assert capture.given.status == 200
        assert capture.given.content_type == "text/event-stream; charset=utf-8"


@pytest.mark.parametrize(
    "damaged",
    [None, [], {}, {"request": 1, "response": []}, {"request": {"url": "http://[x"}}, "x",
     {"request": {"url": "x/chat/completions"}, "response": {"headers": {"a": 1}, "content": 3}}],
)  # fmt: skip
def test_a_damaged_har_entry_is_no_reason_to_fail(file: Path, damaged: Any) -> None:
    assert len(read(file, har(damaged, entry()))) in (1, 2)


# What goes with a record


def test_a_request_file_is_a_json_object(file: Path) -> None:
    file.write_text('{"stream": true}')
    assert request_from_file(str(file)) == {"stream": True}
    for text in ("[]", "{", ""):
        file.write_text(text)
        with pytest.raises(RecordError, match="expected a JSON object"):
            request_from_file(str(file))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain\n", "plain\n"),
        ('{"choices":[{"message":{"content":"chat"}}]}', "chat"),
        ('{"choices":[{"text":"completion"}]}', "completion"),
        ('{"not": "an answer"}', '{"not": "an answer"}'),
        ("{broken", "{broken"),
    ],
)
def test_a_plain_file_is_the_exact_text_or_the_answer_that_holds_it(
    file: Path, content: str, text: str
) -> None:
    file.write_text(content)
    assert plain_from_file(str(file)) == text


@pytest.mark.parametrize("content", [b'{"choices":[]}', b'{"choices":[{"text":1}]}', b"\xff"])
def test_a_plain_file_without_a_text_is_refused(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(RecordError):
        plain_from_file(str(file))


def test_hints_never_override_what_the_record_says(file: Path) -> None:
    hints = Hints(plain="hint", dialect="vllm")
    (item,) = read(file, sample(plain_text="own", dialect="azure"), hints)
    assert (item.dossier.picked, item.dossier.dialect) == ({"plain_text": "own"}, "azure")
    (item,) = read(file, sample(), hints)
    assert (item.dossier.picked, item.dossier.dialect) == ({"plain_text": "hint"}, "vllm")


# Hostile files


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"data: " + b"x" * inputs.MOST_BYTES, "larger than 12 MiB"),
        (b"data:\n\n" * 200_000, "events, we accept"),
        (b"data: " + b"[" * 600_000, "JSON objects, we accept"),
    ],
)
def test_a_record_that_would_take_much_memory_is_refused(
    file: Path, data: bytes, words: str
) -> None:
    assert words in refusal(file, data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"[" * 300_000, "nested too deeply"),
        (b"[" + b"{}," * 500_000 + b"0]", "more than"),
        (b"1" * 5000, "not JSON"),
        (b"\xff", "not JSON"),
        (b" " * (boundedjson.MOST_BYTES + 1), "MiB"),
    ],
)
def test_json_that_is_too_much_is_not_parsed(data: bytes, why: str) -> None:
    value = boundedjson.parse(data)
    assert isinstance(value, boundedjson.Unreadable)
    assert why in value.why


@pytest.mark.timeout(20)
def test_a_dump_of_a_million_heads_is_read_in_linear_time(file: Path) -> None:
    head = b"HTTP/1.1 200\r\n\r\n"
    _, capture = one(file, head * (inputs.MOST_BYTES // len(head)))
    assert capture.received == head


def _peak_mb(file: Path) -> tuple[int, str]:
    """Exit code and the most memory of `conformance judge FILE`, in MiB."""
    program = (
        "import re, sys; from conformance.cli import main\n"
        "code = main(['judge', sys.argv[1], '--status', '200', '--json', '-'])\n"
        # Not getrusage: Linux keeps its maximum over exec, so that of pytest would count.
        "peak = int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]) // 1024\n"
        "print('code', code, 'peak', peak, file=sys.stderr)"
    )
    command = [sys.executable, "-c", program, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    words = done.stderr.split()
    return int(words[-1]), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [
        b'data: {"choices":[{"index":0,"delta":{"content":"a'
        + b"b" * 70
        + b'"},"finish_reason":"stop"}]}\n\n',
        b'data: {"choices":[' + b"{}," * 100 + b"{}]}\n\n",
        b"x\n",
        b"data\n",
    ],
    ids=["chunks", "choices", "lines", "empty data"],
)
def test_any_record_of_the_largest_size_is_judged_under_300_mb(file: Path, unit: bytes) -> None:
    most = (
        inputs.MOST_BYTES // len(unit),
        inputs.MOST_EVENTS // unit.count(b"\n\n") if b"\n\n" in unit else 10**9,
        inputs.MOST_OBJECTS // max(1, unit.count(b"{") + unit.count(b"[")),
    )
    file.write_bytes(unit * min(most))
    peak, errors = _peak_mb(file)
    assert "code 2" not in errors
    assert peak < 300


def test_a_file_of_two_gigabytes_is_refused_at_once_and_in_little_memory(file: Path) -> None:
    with file.open("wb") as handle:
        handle.write(b"data: x\n\n")
        handle.truncate(2 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(RecordError, match="larger than 12 MiB"):
        list(items(str(file), Hints()))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


STARTS = [b"", b"HTTP/1.1 200 OK\r\n", CHUNKED, b'{"log":{"entries":[', b'{"body_base64":']


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(STARTS), st.binary(max_size=80))
def test_no_bytes_at_all_bring_more_than_a_refusal_in_one_line(start: bytes, rest: bytes) -> None:
    found, words = [], ""
    try:
        found = list(inputs.items_of_stream(io.BytesIO(start + rest), "x", Hints()))
    except RecordError as error:
        words = str(error)
    assert bool(words) != (len(found) == 1)
    assert "\n" not in words
