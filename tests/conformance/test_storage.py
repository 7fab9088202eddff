"""storage: what is written comes back exactly, and no file makes the reader crash, lie or swell."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import tracemalloc
from dataclasses import fields, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from conformance import storage
from conformance.capture import Capture, End, Given, How, Layer, Mask, Read, Segment
from conformance.dossier import Action, Dossier, Sample
from conformance.errors import RecordError
from conformance.storage import writing
from tests.strategies import captures, dossiers

CAPTURE = Capture(
    received=b"HTTP/1.1 200 OK\r\n\r\ndata: \xc3\xa9\n\ndata: \xff",
    layer=Layer.UNFRAMED,
    reads=(Read(19, 0.25, False), Read(29, 0.5, True)),
    request=(Segment(b"POST / HTTP/1.1\r\n\r\n", 0.125), Segment(b"{}")),
    url="http://127.0.0.1/v1",
    connection=3,
    ordinal=0,
    early=b"e",
    late=b"l\x00",
    connected_at=0.0,
    sent_at=0.1,
    end=End(How.CLOCK, 1.5, "progress", "rst", 12),
    clock="user",
    wall=1e9,
    given=Given(200, "text/event-stream", "/v1", {"stream": True}),
    masks=(Mask("received", 0, 4, "env:K"),),
)
DOSSIER = Dossier(
    scenario="stream",
    roles={"stream": (CAPTURE, Capture(b"")), "plain": (Capture(b"x"),), "none": ()},
    api="chat",
    parameters={"n": 2},
    seed=-7,
    trial=1,
    picked={"plain_text": "é"},
    samples=(Sample(0.5, {"running": 1.0}),),
    actions=(Action(0.75, "fin", "stream"),),
    dialect="azure",
    name="stream-1",
)


@given(dossiers())
@example(DOSSIER)
@settings(max_examples=150, deadline=None)
def test_a_dossier_comes_back_exactly(dossier: Dossier) -> None:
    data = storage.write(dossier)
    again = storage.read(data)
    assert again == dossier
    assert list(again.roles) == list(dossier.roles)
    assert storage.write(again) == data


@given(captures())
@example(CAPTURE)
@settings(max_examples=100, deadline=None)
def test_a_capture_comes_back_exactly(capture: Capture) -> None:
    data = storage.write_capture(capture)
    assert storage.read_capture(data) == capture
    assert storage.read(data) == Dossier("file", {"stream": (capture,)})


def test_no_field_of_a_record_is_left_at_its_default_in_these_tests() -> None:
    for record in (CAPTURE, DOSSIER):
        for item in fields(record):
            if item.name not in ("received", "scenario", "roles"):
                assert getattr(record, item.name) not in (None, (), "", b"", {}), item.name


def test_the_file_reads_as_a_transcript() -> None:
    rows = [json.loads(line) for line in storage.write_capture(CAPTURE).splitlines()]
    assert rows[0] == {"streamproof": "capture", "version": 1}
    assert rows[1]["capture"] == "stream"
    assert rows[2:] == [
        {"sent": "POST / HTTP/1.1\r\n\r\n", "at": 0.125},
        {"sent": "{}"},
        {"early": "e"},
        {"read": "HTTP/1.1 200 OK\r\n\r\n", "at": 0.25, "emptied": False},
        {"read": "data: é\n\n", "at": 0.5, "emptied": True},
        {"data": {"base64": base64.b64encode(b"data: \xff").decode()}},
        {"late": {"base64": "bAA="}},
        {"streamproof": "end", "lines": 9},
    ]


@given(st.binary(max_size=20) | st.text(max_size=10).map(lambda t: t.encode("utf-8", "replace")))
def test_a_file_holds_no_control_characters_for_the_terminal(data: bytes) -> None:
    text = storage.write_capture(Capture(data)).decode("utf-8")
    assert all(char == "\n" or ord(char) >= 32 for char in text)
    assert not any("\x7f" <= char <= "\x9f" for char in text)


def test_long_segments_and_reads_go_over_several_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "BLOCK", 4)
    data = storage.write_capture(CAPTURE)
    assert data.count(b'"more": true') == 4
    assert storage.read_capture(data) == CAPTURE


def test_metrics_may_be_nan(tmp_path: Path) -> None:
    dossier = Dossier("s", {}, samples=(Sample(0.0, {"a": float("nan"), "b": float("-inf")}),))
    values = storage.read(storage.write(dossier)).samples[0].values
    assert values["a"] != values["a"]
    assert values["b"] == float("-inf")


def test_files_and_streams_are_read_like_bytes(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(storage.write(DOSSIER))
    assert storage.read(path) == DOSSIER
    with path.open("rb") as file:
        assert storage.read(file) == DOSSIER
    assert storage.read(BytesIO(path.read_bytes())) == DOSSIER
    assert storage.sniff(path) == "dossier"


@pytest.mark.parametrize(
    ("first", "kind"),
    [
        (storage.write(DOSSIER), "dossier"),
        (storage.write_capture(CAPTURE), "capture"),
        (b'{"streamproof":"dossier"', "dossier"),
        (b' { "streamproof" : "capture"', "capture"),
        (b'{"streamproof":"end"', None),
        (b'{"id": 1}', None),
        (b"HTTP/1.1 200 OK", None),
        (b"", None),
    ],
)
def test_a_file_is_known_by_its_first_bytes(first: bytes, kind: str | None) -> None:
    assert storage.sniff(first) == kind


# Hostile files

LINES = storage.write(DOSSIER).decode().splitlines()


def put(number: int, text: str) -> str:
    """The good file with line `number` (from 1) exchanged."""
    return "\n".join([*LINES[: number - 1], text, *LINES[number:]]) + "\n"


def changed(number: int, **members: Any) -> str:
    """The good file with members of line `number` set; `...` takes one out."""
    row = json.loads(LINES[number - 1])
    row.update(members)
    return put(number, json.dumps({k: v for k, v in row.items() if v is not ...}))


def end_with(**members: Any) -> str:
    return changed(2, end={"how": "clock", **members})


HOSTILE = [
    # the header
    ("", "1: line: the file ends early"),
    ("\n", "1: line: not JSON"),
    ("[]", "1: line: expected a JSON object, found an array"),
    ("null", "1: line: expected a JSON object, found null"),
    ("{}", "1: streamproof: missing"),
    ('{"streamproof": "dossier"}', "1: version: missing"),
    (
        changed(1, streamproof="song"),
        "1: streamproof: expected one of dossier, capture, found song",
    ),
    (changed(1, version=2), "1: version: 2 is not 1; a newer streamproof may read it"),
    (changed(1, version=True), "1: version: expected an integer, found true"),
    (changed(1, version="1"), "1: version: expected an integer, found text"),
    (changed(1, future=1), "1: future: not known here"),
    (changed(1, scenario=...), "1: scenario: missing"),
    (changed(1, scenario=None), "1: scenario: expected text, found null"),
    (changed(1, scenario="\ud800"), "1: scenario: holds a lone surrogate"),
    (changed(1, api="song"), "1: api: expected one of chat, completions, found song"),
    (changed(1, seed=1.5), "1: seed: expected an integer, found a number"),
    (changed(1, trial=-1), "1: trial: expected at least 0"),
    (changed(1, parameters=[]), "1: parameters: expected an object, found an array"),
    (changed(1, roles=...), "1: roles: missing"),
    (changed(1, roles={"stream": "2"}), "1: roles.stream: expected an integer, found text"),
    (changed(1, roles={"\udfff": 1}), "1: roles.\\udfff: holds a lone surrogate"),
    (changed(1, roles={"stream": 3}), "11: capture: expected take 2 of role stream"),
    (changed(1, roles={"stream": 10**30}), "11: capture: expected take 2"),
    (changed(1, roles={"x\n\x1b[2J": 1}), "2: capture: expected take 0 of role x\\n\\x1b[2J"),
    # any line
    (put(2, '{"capture": NaN}'), "2: line: NaN is no JSON"),
    (put(2, '{"capture": -Infinity}'), "2: line: -Infinity is no JSON"),
    (put(2, '{"capture": 1e999}'), "2: line: 1e999 is too large a number"),
    (put(2, '{"capture": ' + "9" * 5000 + "}"), "2: line: an integer of thousands of digits"),
    (put(2, '{"capture": "a", "capture": "b"}'), "2: capture: given twice"),
    (put(2, '{"a": {"b": 1, "b": 1}}'), "2: b: given twice"),
    (put(2, '{"a": "\x01"}'), "2: line: not JSON: Invalid control character"),
    (put(2, "{}{}"), "2: line: not JSON: Extra data"),
    (put(2, '{"a": ' + "[" * 99999), "2: line: nested too deeply"),
    (put(2, '{"a": ' + "[" * 300 + "]" * 300 + "}"), "2: line: nested more than 100 deep"),
    (put(2, '{"capture": "stream"'), "2: line: not JSON"),
    (put(2, ""), "2: line: not JSON"),
    # a capture's line
    (changed(2, capture="plain"), "2: capture: expected take 0 of role stream"),
    (changed(2, take=1), "2: capture: expected take 0 of role stream"),
    (
        changed(2, layer="wires"),
        "2: layer: expected one of wire, unframed, body, text, found wires",
    ),
    (changed(2, url=5), "2: url: expected text, found a number"),
    (changed(2, connection=-1), "2: connection: expected at least 0"),
    (changed(2, sent_at="0"), "2: sent_at: expected a number, found text"),
    (changed(2, wall=10**400), "2: wall: too large a number"),
    (changed(2, wall=False), "2: wall: expected a number, found false"),
    (changed(2, end=...), "2: end: missing"),
    (changed(2, end="framed"), "2: end: expected an object, found text"),
    (end_with(how="died"), "2: end.how: expected one of framed, closed"),
    (end_with(left="ran"), "2: end.left: expected one of fin, rst, half, found ran"),
    (end_with(unread=0.5), "2: end.unread: expected an integer, found a number"),
    (end_with(why="x"), "2: end.why: not known here"),
    (changed(2, given={"status": "200"}), "2: given.status: expected an integer, found text"),
    (changed(2, given={"request": 1}), "2: given.request: expected an object, found a number"),
    (changed(2, masks={}), "2: masks: expected an array, found an object"),
    (changed(2, masks=[1]), "2: masks[0]: expected an object, found a number"),
    *(
        (
            changed(2, masks=[{"where": where, "start": start, "length": length, "secret": "s"}]),
            f"2: masks[0]{problem}",
        )
        for where, start, length, problem in [
            ("nowhere", 0, 1, ".where: expected one of request"),
            ("received", 36, 1, ": not within the 36 bytes of received"),
            ("received", 0, 37, ": not within the 36 bytes of received"),
            ("received", 0, 0, ": not within"),
            ("received", -1, 1, ".start: expected at least 0"),
            ("url", 19, 1, ": not within the 19 bytes of url"),
        ]
    ),
    # the transcript
    (put(3, '{"sent": 1}'), '3: sent: expected text or {"base64": ...}, found a number'),
    (put(3, '{"sent": "\\ud800"}'), "3: sent: holds a lone surrogate"),
    (put(3, '{"sent": {"base64": "Q"}}'), "3: sent.base64: bad base64"),
    (put(3, '{"sent": {"base64": "QR=="}}'), "3: sent.base64: bad base64: stray bits"),
    (put(3, '{"sent": {"base64": "QQ==\\n"}}'), "3: sent.base64: bad base64"),
    (put(3, '{"sent": {"base64": "é==="}}'), "3: sent.base64: bad base64"),
    (put(3, '{"sent": {"base64": 1}}'), "3: sent.base64: expected text, found a number"),
    (put(3, '{"sent": {}}'), "3: sent.base64: missing"),
    (put(3, '{"sent": {"base64": "", "x": 1}}'), "3: sent.x: not known here"),
    (put(3, '{"sent": "", "read": ""}'), "3: sent: not known here"),
    (put(3, '{"sent": "", "at": true}'), "3: at: expected a number, found true"),
    (put(3, '{"sent": "x", "more": true, "at": 1}'), "3: more: expected bytes and no time"),
    (put(3, '{"sent": "", "more": true}'), "3: more: expected bytes"),
    (put(4, '{"sent": "x", "more": true}'), "5: early: expected the rest of the segment"),
    (put(6, '{"read": "", "emptied": 1}'), "6: emptied: expected true or false, found a number"),
    (put(5, '{"late": ""}'), "6: read: out of order"),
    (put(8, '{"sent": ""}'), "8: sent: out of order"),
    # what follows
    (put(11, '{"sample": {"at": 1}}'), "11: capture: expected take 0 of role plain"),
    (put(13, '{"sample": {"at": 1}}'), "13: sample.values: missing"),
    (put(13, '{"sample": {"at": 1, "values": {"a": "1"}}}'), "13: sample.values.a: expected a num"),
    (put(13, '{"sample": {"values": {}}}'), "13: sample.at: missing"),
    (put(14, '{"action": {"at": 1, "what": "x"}}'), "14: action.role: missing"),
    (put(14, '{"song": 1}'), "14: song: not expected here"),
    (put(14, "{}"), "14: line: not expected here"),
    ("\n".join(LINES[:-1]) + "\n", "15: line: the file ends early"),
    (
        "\n".join(LINES[:5]),
        "6: line: the file ends early",
    ),
    (put(15, '{"streamproof": "end", "lines": 13}'), "15: lines: 14 came before"),
    (put(15, LINES[14] + "\n{}"), "16: line: nothing may follow the end"),
]


@pytest.mark.parametrize(("text", "expected"), HOSTILE)
def test_a_damaged_file_is_refused_in_one_line_with_line_and_field(
    text: str, expected: str
) -> None:
    data = text.encode("utf-8")
    with pytest.raises(RecordError) as refusal:
        storage.read(data, "d")
    message = str(refusal.value)
    assert message.startswith(f"d:{expected}")
    assert message.isprintable()
    assert len(message) < 200


def test_what_is_not_utf8_is_refused() -> None:
    with pytest.raises(RecordError, match=r"^d:1: line: not UTF-8 at byte 0$"):
        storage.read(b"\xff", "d")


@pytest.mark.parametrize("at", range(0, len(storage.write(DOSSIER)) - 1, 3))
def test_a_file_cut_anywhere_is_refused(at: int) -> None:
    with pytest.raises(RecordError):
        storage.read(storage.write(DOSSIER)[:at])


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_a_file_with_changed_bytes_is_read_or_refused(data: st.DataObject) -> None:
    good = storage.write(DOSSIER)
    at = data.draw(st.integers(0, len(good) - 1))
    length = data.draw(st.integers(0, 8))
    put_in = data.draw(st.binary(max_size=8) | st.sampled_from([b'"', b"{", b"}", b"[", b"\n"]))
    bad = good[:at] + put_in + good[at + length :]
    try:
        dossier = storage.read(bad)
    except RecordError:
        with pytest.raises(RecordError, match=r"^[ -~]{1,200}$"):
            storage.read(bad)
    else:
        assert storage.read(storage.write(dossier)) == dossier


def test_records_that_contradict_themselves_are_not_written() -> None:
    for capture in (
        replace(CAPTURE, reads=(Read(5), Read(4))),
        replace(CAPTURE, reads=(Read(99),)),
        replace(CAPTURE, masks=(Mask("late", 1, 2, "s"),)),
        replace(CAPTURE, masks=(Mask("late", -1, 1, "s"),)),
        replace(CAPTURE, sent_at=float("nan")),
        replace(CAPTURE, url="\ud800"),
        replace(CAPTURE, end=End(How.LEFT, left="ran")),
    ):
        with pytest.raises(ValueError, match=r".+"):
            storage.write_capture(capture)
    with pytest.raises(ValueError, match="no such API"):
        storage.write(replace(DOSSIER, api="song"))


def test_a_file_of_several_captures_is_no_capture() -> None:
    with pytest.raises(RecordError, match=r"^d: expected one capture, found 3$"):
        storage.read_capture(storage.write(DOSSIER), "d")


# Bounds

_HEAD = b'{"streamproof": "capture", "version": 1}\n{"capture": "stream", "take": 0, '
_END = b'"end": {"how": "unknown"}'


def test_too_many_values_lines_or_levels_are_refused_before_they_take_memory() -> None:
    values = _HEAD + b'"given": {"request": {"a": [' + b"[]," * 300_000 + b"[]]}}, " + _END + b"}\n"
    tracemalloc.start()
    try:
        with pytest.raises(RecordError, match="more than 400000 JSON values"):
            storage.read(values)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    many = b'{"sample": {"at": 0, "values": {"a": 0, "b": 0, "c": 0}}}\n' * 50_000
    with pytest.raises(RecordError, match="more than 400000 JSON values"):
        storage.read(
            b'{"streamproof": "dossier", "version": 1, "scenario": "", "roles": {}}\n' + many
        )
    lines = _HEAD + _END + b"}\n" + b'{"read": ""}\n' * 400_000
    with pytest.raises(RecordError, match="more than 400000 lines"):
        storage.read(lines)


def test_commas_and_colons_inside_text_are_no_values() -> None:
    dossier = Dossier("s", {}, picked={"plain_text": ',:[{"\\' * 200_000})
    assert storage.read(storage.write(dossier)) == dossier


def test_what_would_be_refused_is_not_written() -> None:
    for record in (
        Dossier("s", {}, picked={"a": "x" * (9 << 20)}),
        Dossier("s", {}, picked={"a": [[]] * 400_000}),
        Dossier("s", {"stream": (Capture(b"", reads=(Read(0),) * 400_000),)}),
    ):
        with pytest.raises(RecordError, match="a record"):
            storage.write(record)


# Not getrusage: its peak survives exec, so it would also count the test run's own memory.
_CHILD = """
import re, sys
from pathlib import Path
from conformance import storage
from conformance.errors import RecordError
try:
    source = sys.stdin.buffer if sys.argv[1] == "-" else Path(sys.argv[1])
    print("read", len(storage.read(source, "big").roles))
except RecordError as error:
    print("refused", error)
print(int(re.search("VmHWM:\\s+([0-9]+) kB", Path("/proc/self/status").read_text())[1]) // 1024)
"""


def _peak(path: str, stdin: int | None = None) -> tuple[str, int]:
    """What a fresh process says about a file, and its peak memory in MiB."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, path],
        stdin=stdin,
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    verdict, peak = done.stdout.splitlines()
    return verdict, int(peak)


def _large(path: Path, kind: str) -> None:
    """Files made to hurt: all but the first two are just small enough to be read."""
    room = (64 << 20) - 10_000
    good = _HEAD + _END + b"}\n"
    with path.open("wb") as file:
        file.write(good)
        if kind == "sparse":
            file.truncate(2 << 30)
        elif kind == "one line":
            file.write(b'{"data": "' + b"x" * (9 << 20))
        elif kind == "ascii":
            block = b'{"data": "' + b"x" * (1 << 20) + b'"}\n'
            file.write(block * (room // len(block)))
        elif kind == "wide":
            block = b'{"data": "' + "\U0001f600".encode() + b"x" * (8_380_000) + b'"}\n'
            file.write(block * (room // len(block)))
        elif kind == "base64":
            block = b'{"data": {"base64": "' + b"QUJD" * (1 << 20) + b'"}}\n'
            file.write(block * (room // len(block)))
        elif kind == "reads":
            block = b'{"read": "' + b"x" * 130 + b'", "at": 0.123456, "emptied": true}\n'
            file.write(block * min(room // len(block), 399_990))
        elif kind == "junk":
            file.write(b'{"data": ' + b"[[]," * 90_000 + b"[]")
        lines = path.read_bytes().count(b"\n") if kind not in ("sparse", "one line") else 0
    with path.open("r+b") as file:
        if kind not in ("sparse", "one line"):
            file.seek(0, os.SEEK_END)
            file.write(b'{"streamproof": "end", "lines": %d}\n' % lines)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        ("sparse", "refused big: larger than 64 MiB, which is all we accept"),
        ("one line", "refused big:3: line: longer than 8 MiB"),
        ("ascii", "read 1"),
        ("wide", "read 1"),
        ("base64", "read 1"),
        ("reads", "read 1"),
        ("junk", "refused big:3: line: "),
    ],
)
def test_a_huge_file_is_read_or_refused_in_less_than_300_mb(
    kind: str, verdict: str, tmp_path: Path
) -> None:
    path = tmp_path / "big"
    _large(path, kind)
    said, peak = _peak(str(path))
    assert said.startswith(verdict)
    assert peak < 280, peak


LONG = b'{"data": "' + b"x" * 60_000 + b'"}\n'


@pytest.mark.slow
@pytest.mark.parametrize("endless", [b"\0", b'{"data": ""}\n', LONG, b"\n"])
def test_an_endless_pipe_is_refused_in_less_than_300_mb(endless: bytes) -> None:
    out, into = os.pipe()

    def pour() -> None:
        with os.fdopen(into, "wb") as pipe:
            try:
                pipe.write(_HEAD + _END + b"}\n")
                while True:
                    pipe.write(endless * (65536 // len(endless)))
            except BrokenPipeError:
                pass

    thread = threading.Thread(target=pour)
    thread.start()
    try:
        said, peak = _peak("-", out)
    finally:
        os.close(out)
        thread.join()
    assert said.startswith("refused big")
    assert peak < 280, peak
