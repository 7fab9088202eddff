"""`replay`: a failure provoked again from its record, against servers in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing

from conformance import storage
from conformance.capture import Capture, End, How, Segment
from conformance.cli import build_parser, main
from conformance.dossier import Dossier
from conformance.errors import RecordError, StreamproofError, UsageError
from conformance.findings import Finding, Level, Result, Verdict
from conformance.masking import Secret, mask
from conformance.replay.command import Setup, again, judged, outcome, setup_from_args
from conformance.replay.script import authorization, groups, put_back, readdressed
from conformance.report import console, story
from conformance.report.model import Gating, make_report
from conformance.script import Clocks
from conformance.selection import find_case
from conformance.specs import known_cases
from conformance.target import parse_url
from reference_server.bridge import Bridge
from reference_server.engine.scripted import ScriptedEngine
from reference_server.faults.table import find, seams_for
from reference_server.wire.connection import Request
from reference_server.wire.server import Server, Settings
from tests import fault_matrix

KEY = "sk-a-key-of-some-length-1234"
OTHER = "sk-another-key-which-is-longer-5678"
CLOCKS = Clocks()


def record(folder: Path, fault: str, scenario: str = "") -> Path:
    """A dossier in which the check of that name is broken, as `--captures` keeps it."""
    check = fault.partition(":")[0]
    recorded = fault_matrix.run([find(fault)], "--select", check, "--api", "chat")
    known = known_cases()
    dossier = next(
        each for each in recorded.dossiers
        if each.scenario == (scenario or each.scenario)
        and (result := judged(each, find_case(known, check), known)) and result.findings
    )  # fmt: skip
    path = folder / "dossier.jsonl"
    path.write_bytes(storage.write(dossier))
    return path


class Replayed:
    """One replay: its word, its reason, the new dossier, and what the server read."""

    def __init__(self, word: str, detail: str, dossier: Dossier, got: list[Request]) -> None:
        self.word, self.detail, self.dossier, self.got = word, detail, dossier, got


def parse(*words: str, environment: dict[str, str] | None = None) -> Setup:
    return setup_from_args(build_parser().parse_args(["replay", *words]), environment or {})


def replay(
    what: str,
    faults: Sequence[str] = (),
    *words: str,
    settings: Settings | None = None,
    environment: dict[str, str] | None = None,
) -> Replayed:
    """Against a server of today with these faults."""
    out: list[Replayed] = []
    got: list[Request] = []

    async def run() -> None:
        bridge = Bridge(ScriptedEngine(16, seed=7), 0.01)
        seams = seams_for([find(each) for each in faults])

        def keep(request: Request, memory: dict[str, object]) -> object:
            got.append(request)
            return seams(request, memory)

        server = Server(bridge, settings or Settings(), seams=keep)  # type: ignore[arg-type]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bridge.run)
            listeners = await nursery.start(trio.serve_tcp, server.serve_connection, 0)
            port = listeners[0].socket.getsockname()[1]
            url = f"http://127.0.0.1:{port}"
            setup = parse(what, "--url", url, *words, environment=environment)
            dossier = await again(setup)
            out.append(Replayed(*outcome(dossier, setup), dossier, got))
            nursery.cancel_scope.cancel()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
    return out[0]


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("broken"), "done.missing", "discovery")


def test_a_failure_that_is_still_there_is_failed_and_one_that_is_gone_fixed(broken: Path) -> None:
    what = f"{broken}#done.missing"
    assert replay(what, ["done.missing"]).word == "FAILED"
    assert "no [DONE]" in replay(what, ["done.missing"]).detail
    assert replay(what).word == "FIXED"


def test_the_same_request_is_sent_to_the_new_address(broken: Path) -> None:
    (before,) = storage.read(broken).roles["stream"]
    done = replay(f"{broken}#done.missing")
    (after,) = done.dossier.roles["stream"]
    old, new = (b"".join(s.data for s in each.request) for each in (before, after))
    assert old.partition(b"\r\n\r\n")[2] == new.partition(b"\r\n\r\n")[2]
    host = done.got[0].headers["host"].encode()
    assert new == old.replace(b"Host: " + _host(old), b"Host: " + host)
    assert host != _host(old)


def _host(request: bytes) -> bytes:
    return request.partition(b"Host: ")[2].partition(b"\r\n")[0]


def test_a_connection_that_carried_two_exchanges_carries_two_again(tmp_path: Path) -> None:
    path = record(tmp_path, "http.keep-alive", "discovery")
    done = replay(f"{path}#http.keep-alive")
    roles = done.dossier.roles
    captures = (*roles["stream"], *roles["control"])
    assert [each.ordinal for each in captures] == [0, 1]
    assert len({each.connection for each in captures}) == 1
    assert done.word == "FIXED"
    assert replay(f"{path}#http.keep-alive", ["http.keep-alive"]).word == "FAILED"


WATCHED = ("abort.fin", "abort.before-headers", "abort.storm")


@pytest.mark.parametrize("fault", ["slow.others-unharmed", "slow.intact", *WATCHED])
def test_what_needs_a_slow_reader_or_metrics_is_told_too(fault: str, tmp_path: Path) -> None:
    what = f"{record(tmp_path, fault)}#{fault}"
    assert replay(what, [fault]).word == "FAILED"
    fixed = replay(what)
    assert (fixed.word, fixed.detail) == ("FIXED", "the same requests pass today")
    assert bool(fixed.dossier.samples) is (fault in WATCHED)
    if fault in WATCHED:
        blind = replay(what, (), "--metrics", "none")
        assert blind.word == ("FIXED" if fault == "abort.storm" else "ERROR")
        assert "/metrics" not in [request.path for request in blind.got]


def test_a_server_that_refuses_today_cannot_tell(broken: Path) -> None:
    done = replay(f"{broken}#done.missing", settings=Settings(api_key="wanted"))
    assert done.word == "ERROR"
    assert "the server answered 401" in done.detail


def test_nobody_at_the_address_is_an_error(
    broken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", f"{broken}#done.missing", "--url", "http://127.0.0.1:1"]) == 2
    out = capsys.readouterr().out
    assert out.startswith(f"ERROR  {broken}#done.missing: ")
    assert "ECONNREFUSED" in out
    assert out.count("\n") == 1


def test_the_new_dossier_can_be_kept(broken: Path, tmp_path: Path) -> None:
    main(["replay", f"{broken}#done.missing", "--url", "http://127.0.0.1:1",
          "--captures", str(tmp_path)])  # fmt: skip
    kept = storage.read(tmp_path / "replay-dossier.jsonl")
    assert kept.roles["stream"][0].end.how is How.NOT_CONNECTED


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("{file}#done.duplicate", "done.duplicate is not broken in this record: it says pass"),
        ("{file}#done.mising", "no such check (did you mean done.missing?)"),
        ("{file}", "expected DOSSIER#ID"),
        ("absent#done.missing", "absent: No such file"),
        ("{file}#err.context", "not broken in this record: it says inconclusive (not-seen)"),
    ],
)
def test_what_cannot_be_replayed_is_told_in_one_line(
    broken: Path, what: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", what.format(file=broken)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


# Secrets

REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: old.example\r\nAuthorization: Bearer "
    + KEY.encode() + b"\r\nContent-Length: 2\r\n\r\n{}"
)  # fmt: skip


def masked(*pieces: bytes, secrets: tuple[Secret, ...] = ()) -> Capture:
    segments = tuple(Segment(piece) for piece in pieces)
    return mask(Capture(b"", request=segments), secrets)


@pytest.mark.parametrize("value", [KEY, OTHER, "short"])
@pytest.mark.parametrize("name", ["env:OPENAI_API_KEY", "header:authorization"])
@pytest.mark.parametrize("cut", [0, 95])
def test_a_key_is_put_back_whatever_its_length_today(value: str, name: str, cut: int) -> None:
    known = (Secret(name, KEY.encode()),) if name.startswith("env:") else ()
    pieces = (REQUEST[:cut], REQUEST[cut:]) if cut else (REQUEST,)
    capture = masked(*pieces, secrets=known)
    assert KEY.encode() not in b"".join(s.data for s in capture.request)
    back = put_back(capture, [Secret(name, value.encode())])
    whole = b"".join(segment.data for segment in back.request)
    assert whole == REQUEST.replace(KEY.encode(), value.encode())


def test_another_key_does_not_fit_into_a_body() -> None:
    request = REQUEST[:-2] + b'{"key": "' + KEY.encode() + b'"}'
    capture = masked(request, secrets=(Secret("env:K", KEY.encode()),))
    assert put_back(capture, [Secret("env:K", KEY.encode())]).request[0].data == request
    with pytest.raises(RecordError, match="env:K is not the key that was recorded"):
        put_back(capture, [Secret("env:K", OTHER.encode())])


@pytest.fixture
def keyed(broken: Path, tmp_path: Path) -> Path:
    """The broken dossier with a key in its request."""
    dossier = storage.read(broken)
    (capture,) = dossier.roles["stream"]
    head, _, body = capture.request[0].data.partition(b"\r\n\r\n")
    request = head + b"\r\nAuthorization: Bearer " + KEY.encode() + b"\r\n\r\n" + body
    secrets = [Secret("env:OPENAI_API_KEY", KEY.encode())]
    with_key = mask(replace(capture, request=(Segment(request, 0.0),)), secrets)
    path = tmp_path / "keyed.jsonl"
    path.write_bytes(storage.write(replace(dossier, roles={"stream": (with_key,)})))
    assert KEY not in path.read_text()
    return path


@pytest.mark.parametrize(
    ("variable", "words"), [("OPENAI_API_KEY", []), ("MINE", ["--api-key-env", "MINE"])]
)
def test_the_key_comes_from_the_environment_and_is_masked_again(
    keyed: Path, variable: str, words: list[str]
) -> None:
    what = f"{keyed}#done.missing"
    settings = Settings(api_key=OTHER)
    done = replay(what, (), *words, settings=settings, environment={variable: OTHER})
    assert done.word == "FIXED"
    assert done.got[0].headers["authorization"] == f"Bearer {OTHER}"
    assert OTHER.encode() not in storage.write(done.dossier)


def test_whoever_scrapes_beside_the_api_shows_the_same_key(keyed: Path) -> None:
    setup = parse(f"{keyed}#done.missing", environment={"OPENAI_API_KEY": OTHER})
    assert authorization(setup.groups) == (("Authorization", f"Bearer {OTHER}"),)


def test_a_key_that_is_not_set_is_named(keyed: Path) -> None:
    with pytest.raises(UsageError, match="OPENAI_API_KEY is not set"):
        parse(f"{keyed}#done.missing")
    with pytest.raises(UsageError, match="--api-key-env: the environment variable MINE"):
        parse(f"{keyed}#done.missing", "--api-key-env", "MINE")


# Order, leaving, addresses


def exchange(connection: int, ordinal: int, began: float, ended: float) -> Capture:
    segment = Segment(REQUEST, began + 0.1)
    end = End(How.FRAMED, ended)
    return Capture(
        b"", request=(segment,), connection=connection, ordinal=ordinal, end=end,
        connected_at=None if ordinal else began, sent_at=began + 0.1,
    )  # fmt: skip


def test_connections_that_overlapped_are_played_at_once_and_others_in_turn() -> None:
    crowd = (exchange(1, 0, 5.0, 9.0), exchange(2, 0, 6.0, 8.0))
    control = (exchange(0, 0, 1.0, 2.0), exchange(0, 1, 2.0, 3.0), exchange(3, 0, 9.5, 10.0))
    dossier = Dossier("crowd", {"control": control, "stream": crowd}, api="chat")
    played = groups(dossier, CLOCKS, None, [Secret("header:authorization", b"k")])
    assert [[(round(line.after, 6), [(t.role, t.take) for t in line.turns]) for line in group]
            for group in played] == [
        [(0.0, [("control", 0), ("control", 1)])],
        [(0.0, [("stream", 0)]), (1.0, [("stream", 1)])],
        [(0.0, [("control", 2)])],
    ]  # fmt: skip


def test_our_side_leaves_as_it_left() -> None:
    event = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {}\n\ndata: {}\n\n"
    asked = REQUEST[:-2] + b'{"stream": true}'
    segments = (Segment(asked, 1.1),)
    left = replace(
        exchange(0, 0, 1.0, 4.1), request=segments, end=End(How.LEFT, 4.1, "leave", "rst")
    )
    leaves = []
    for received in (b"", event):
        dossier = Dossier("abort", {"treated": (replace(left, received=received),)}, api="chat")
        ((line,),) = groups(dossier, CLOCKS, None, [Secret("header:authorization", b"k")])
        leave = line.turns[0].script.leave
        assert leave is not None
        leaves.append((leave.how, leave.events, leave.seconds))
    assert leaves == [("rst", None, pytest.approx(3.0)), ("rst", 2, None)]


def test_a_record_without_requests_cannot_be_sent_again() -> None:
    with pytest.raises(StreamproofError, match="holds no request"):
        groups(Dossier("file", {"stream": (Capture(b""),)}), CLOCKS, None, [])


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("http://new.example:81", b"POST /v1/chat/completions HTTP/1.1\r\nHost: new.example:81"),
        ("http://new.example/api", b"POST /api/chat/completions HTTP/1.1\r\nHost: new.example\r"),
    ],
)
@pytest.mark.parametrize("cut", [0, 50])
def test_a_request_is_readdressed(url: str, line: bytes, cut: int) -> None:
    pieces = (REQUEST[:cut], REQUEST[cut:]) if cut else (REQUEST,)
    whole = b"".join(readdressed(pieces, parse_url(url)))
    assert whole.startswith(line)
    assert whole.partition(b"Authorization")[2] == REQUEST.partition(b"Authorization")[2]


def test_a_failure_whose_dossier_is_kept_names_the_line_that_replays_it() -> None:
    finding = Finding("Z07", "no [DONE]", dossier="chat-stream")
    result = Result(
        "done.missing", "A title", Level.MUST, "wire", "chat", ("Z07",), Verdict.FAIL,
        findings=(finding,),
    )  # fmt: skip
    report = make_report([result], Gating(), target={})
    line = "  replay   conformance replay 'my dossiers/chat-stream.jsonl#done.missing'"
    assert line in console.render(report, story.Context({}, (), "my dossiers"), "").splitlines()
    assert "replay" not in console.render(report, story.Context({}), "")
