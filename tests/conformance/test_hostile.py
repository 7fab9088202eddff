"""`run` against servers that mean harm: each gets its verdict or one line, in time and in memory.

An attack either takes every connection over, so that there is nothing to test, or only the
streamed answers, so that there is. Loopback sockets and virtual time, but where memory is measured.
"""

from __future__ import annotations

import json
import re
import ssl
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest
import trio
import trustme

from conformance import cli
from conformance.errors import TargetError
from conformance.findings import Verdict
from conformance.report import console, json_report, junit, markdown, story
from conformance.report.escape import terminal
from conformance.report.model import Report
from conformance.run import execute
from conformance.run_report import Recorded, judged, report_from
from tests.conformance.attacks import (
    ATTACKS,
    CHUNKED,
    TOKEN,
    endless,
    error,
    framed_chunk,
    holds,
    says,
)
from tests.conformance.hostile_server import (
    EVENTS,
    JSON,
    Asked,
    Attack,
    HostileServer,
    chunk,
    framed,
    head,
    stream_answer,
)
from tests.conformance.test_run import setup, virtually

TIMEOUT = 20  # seconds, --timeout; an exchange is over after five of them
EVIL = (
    "\x1b]0;owned\x07\x1b[2J<script>alert(1)</script><img src=x onerror=alert(1)>=cmd|'/c calc'!A1"
    "]]>&`|\x00\x08\x85\u2028\u202e\u2066[a](javascript:alert(1)) @everyone ![i](http://127.0.0.1)"
)


@dataclass(slots=True)
class Ran:
    """A run that came to its end."""

    report: Report
    recorded: Recorded
    forms: dict[str, str]
    took: float  # virtual seconds
    asked: list[Asked]


def everything(asked: Asked) -> bool:
    return True


def streams(asked: Asked) -> bool:
    return asked.streams


def hostile_run(attack: Attack, strikes: Callable[[Asked], bool], *words: str) -> Ran:
    """`attack` has every connection from the first request on that `strikes`."""
    return run_against(lambda asked: attack if strikes(asked) else None, *words)


def run_against(choose: Callable[[Asked], Attack | None], *words: str) -> Ran:
    """Raises TargetError as `run` does."""
    out: list[Ran] = []
    refusals: list[TargetError] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            server = HostileServer(choose)
            url = await server.start(nursery)
            made = setup(url, "--api", "chat", "--timeout", str(TIMEOUT), *words)
            recorded, start, log = Recorded(), trio.current_time(), list[str]()
            try:
                await execute(made, recorded, log.append)
                took = trio.current_time() - start
                report = report_from(made, recorded)
                cases = {case.id: case for case in made.known}
                forms = rendered(report, story.Context(cases, ("conformance",)), judged(recorded))
                forms["log"] = "\n".join(map(terminal, log))
                out.append(Ran(report, recorded, forms, took, server.asked))
            except TargetError as refusal:  # out of the nursery's group
                refusals.append(refusal)
            nursery.cancel_scope.cancel()

    virtually(main)
    if refusals:
        raise refusals[0]
    return out[0]


def rendered(report: Report, context: story.Context, what: str) -> dict[str, str]:
    return {
        "console": console.render(report, context, what),
        "json": json_report.dumps(report),
        "junit": junit.HEAD + junit.suite(report, context) + junit.TAIL,
        "markdown": markdown.render(report, context),
    }


def failed(report: Report) -> set[str]:
    return {each.id for each in report.results if each.verdict is Verdict.FAIL}


def assert_harmless(forms: dict[str, str]) -> None:
    """No control, no reordering, no markup that anything would act on."""
    for name, text in forms.items():
        strange = {c for c in text if c != "\n" and not c.isprintable()}
        assert not strange, f"{name}: {strange}"
    json.loads(forms["json"])
    ElementTree.fromstring(forms["junit"])
    assert "<script" not in forms["junit"]
    outside = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", forms["markdown"])
    assert "<" not in outside
    assert "](" not in outside
    assert "@everyone" not in outside


@pytest.mark.parametrize("name", ATTACKS)
def test_a_hostile_stream_gets_its_own_verdict_in_time(name: str) -> None:
    attack, check, _ = ATTACKS[name]
    ran = hostile_run(attack, streams, "--quick", "--min-conclusive", "0")
    broken = [each for each in ran.report.results if each.verdict is Verdict.HARNESS_ERROR]
    assert not broken
    assert check in failed(ran.report)
    assert ran.report.exit == 1
    assert ran.report.complete
    assert ran.took <= 5 * TIMEOUT + 1
    assert_harmless(ran.forms)


@pytest.mark.parametrize("name", ATTACKS)
def test_where_everything_is_hostile_one_line_says_what_came(name: str) -> None:
    attack, _, words = ATTACKS[name]
    with pytest.raises(TargetError) as refusal:
        hostile_run(attack, everything, "--quick")
    line = str(refusal.value)
    assert "/v1 lists no model: GET /v1/models answered " in line or "got no answer: " in line
    assert words in line
    assert len(terminal(line)) < 400
    assert len(line.splitlines()) == 1


@pytest.mark.parametrize("name", ["silence", "HTTP/2", "a head of endless fields", "SSH"])
def test_a_model_by_name_does_not_send_the_whole_plan_to_what_is_no_api(name: str) -> None:
    with pytest.raises(TargetError, match=r"POST /v1/chat/completions (got|answered with)"):
        hostile_run(ATTACKS[name][0], everything, "--model", "m")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (error("no such key", b"401 Unauthorized"), "answered 401: no such key; give a key with"),
        (error("not yours", b"403 Forbidden"), "answered 403: not yours; give a key with"),
        (error("slow down", b"429 Too Many", b"Retry-After: 20"), "slow down (Retry-After: 20)"),
        (error("overloaded", b"503 Unavailable"), "answered 503: overloaded"),
        (error(EVIL, b"400 Bad Request"), "answered 400: \x1b]0;owned"),
        (framed(b"<html>log in</html>", status=b"404 Not Found"), "answered 404; name one with"),
        (framed(b"", status=b"204 No Content"), "answered 204"),
    ],
)
def test_an_answer_that_is_no_models_list_is_told(answer: bytes, words: str) -> None:
    with pytest.raises(TargetError) as refusal:
        hostile_run(says(answer), everything)
    assert words in str(refusal.value)
    assert len(terminal(str(refusal.value)).splitlines()) == 1


REFUSALS = [
    (error("overloaded", b"503 Unavailable"), "answered 503: overloaded"),
    (error("slow", b"429 Too Many", b"Retry-After: 9"), "answered 429: slow (Retry-After: 9)"),
    (error(EVIL, b"500 Oh"), "answered 500: \\x1b]0;owned"),
]


@pytest.mark.parametrize(("answer", "words"), REFUSALS)
def test_where_every_request_is_refused_nothing_is_tested_and_the_reason_is_told(
    answer: bytes, words: str
) -> None:
    ran = hostile_run(says(answer), lambda asked: asked.method == "POST")
    assert ran.report.exit == 2
    (problem,) = ran.report.problems
    assert problem.startswith("not tested: ")
    assert f"; most others {words}" in terminal(problem)
    assert_harmless(ran.forms)


@pytest.mark.parametrize(("answer", "words"), REFUSALS)
def test_where_every_stream_is_refused_each_check_of_a_stream_says_so(
    answer: bytes, words: str
) -> None:
    ran = hostile_run(says(answer), streams, "--quick")
    assert ran.report.exit == 1
    reasons = {each.id: each.reason or "" for each in ran.report.results}
    assert terminal(reasons["sse.bom"]).startswith(f"not-seen: every stream {words}")
    assert f"inconclusive (not-seen: every stream {words[:12]}" in ran.forms["console"]
    assert_harmless(ran.forms)


@pytest.mark.parametrize(
    ("strikes", "words"),
    [(everything, "answered 307 to URL, which is not followed"), (streams, "http.status")],
)
def test_a_redirect_is_told_and_never_followed(
    strikes: Callable[[Asked], bool], words: str
) -> None:
    visits: list[int] = []
    told: list[str] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:

            async def visited(stream: trio.SocketStream) -> None:
                visits.append(1)

            listeners = await nursery.start(trio.serve_tcp, visited, 0)
            elsewhere = b"http://127.0.0.1:%d/v1" % listeners[0].socket.getsockname()[1]
            away = framed(b"", b"Location: " + elsewhere, status=b"307 Temporary Redirect")
            server = HostileServer(lambda asked: says(away) if strikes(asked) else None)
            made = setup(await server.start(nursery), "--api", "chat", "--quick")
            recorded = Recorded()
            try:
                await execute(made, recorded, lambda line: None)
                told.extend(failed(report_from(made, recorded)))
            except TargetError as refusal:
                told.append(str(refusal).replace(elsewhere.decode(), "URL"))
            nursery.cancel_scope.cancel()

    virtually(main)
    assert words in " ".join(told)
    assert visits == []


EVIL_STREAMS = {
    "content": chunk({"role": "assistant", "content": EVIL}) + chunk({}, "stop"),
    "finish reason": chunk({"role": "assistant", "content": "a"}) + chunk({}, EVIL),
    "ids and members": chunk({"role": EVIL, EVIL: EVIL}, "stop", id=EVIL, model=EVIL, object=EVIL),
    "error": b"data: " + json.dumps({"error": {"message": EVIL, "type": EVIL}}).encode() + b"\n\n",
    "bare error": b"data: " + json.dumps({"error": EVIL}).encode() + b"\n\n",
    "lines": EVIL.encode() + b"\n\n" + stream_answer(),
    "fields": EVIL.encode() + b": x\n\n" + b"event: " + EVIL.encode() + b"\n" + stream_answer(),
    "call": chunk({"tool_calls": [{"index": 0, "id": EVIL, "type": EVIL, "function": {
        "name": EVIL, "arguments": EVIL}}]}) + chunk({}, "tool_calls"),
}  # fmt: skip


@pytest.mark.parametrize("place", EVIL_STREAMS)
def test_nothing_that_a_stream_says_is_executable_in_any_report(place: str) -> None:
    body = EVIL_STREAMS[place] + b"data: [DONE]\n\n"
    ran = hostile_run(says(framed(body, EVENTS, b"X: " + EVIL.encode())), streams)
    assert failed(ran.report)
    assert_harmless(ran.forms)


def test_nothing_that_a_header_a_model_or_a_refusal_says_is_executable_in_any_report() -> None:
    def choose(asked: Asked) -> Attack | None:
        if asked.method == "GET":
            return says(framed(json.dumps({"data": [{"id": EVIL}]}).encode(), JSON))
        if asked.body is not None and {"n", "tools", "logprobs", "stop"} & set(asked.body):
            return says(error(EVIL, b"400 Bad Request"))
        evil_type = b"Content-Type: text/" + EVIL.encode()
        return says(framed(stream_answer(), evil_type)) if asked.streams else None

    ran = run_against(choose)
    assert ran.report.target["model"] == EVIL
    assert "http.content-type" in failed(ran.report)
    assert any(EVIL[:9] in (each.reason or "") for each in ran.report.results)
    assert_harmless(ran.forms)


def test_a_models_list_of_100_mb_is_cut_off_and_told() -> None:
    start = head(JSON, b"Content-Length: 100000000") + b'{"data": ['
    with pytest.raises(TargetError, match=r"answered 200 with more than 2[0-9]{6} bytes; name one"):
        hostile_run(endless(start, b'{"id": "m"},' * 2000), everything)


def test_a_server_that_falls_silent_on_the_way_costs_a_clock_for_each_request_and_no_more() -> None:
    count = 0

    def later(asked: Asked) -> bool:
        nonlocal count
        count += 1
        return count > 20

    ran = hostile_run(holds(), later, "--concurrency", "1")
    assert ran.report.complete
    assert "http.no-answer" in failed(ran.report)
    assert ran.took <= (len(ran.asked) - 20) * (TIMEOUT + 1)


# -- TLS -------------------------------------------------------------------------------------------


def server_context(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


def old_context(authority: trustme.CA) -> ssl.SSLContext:
    """Speaks TLS 1.0 and nothing newer."""
    context = server_context(authority, "localhost")
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1
    return context


@pytest.mark.parametrize(
    ("context", "known", "words"),
    [
        (lambda ca: old_context(ca), True, "closed the connection during the handshake"),
        (lambda ca: server_context(ca, "other.example"), True, "Hostname mismatch"),
        (
            lambda ca: server_context(ca, "localhost"),
            False,
            "certificate verify failed: unable to get local issuer",
        ),
    ],
    ids=["TLS 1.0", "another name", "unknown authority"],
)
def test_what_is_wrong_with_tls_is_one_line(
    context: Callable[[trustme.CA], ssl.SSLContext], known: bool, words: str
) -> None:
    authority = trustme.CA()
    serving = context(authority)

    async def handshake(raw: trio.SocketStream) -> None:
        stream = trio.SSLStream(raw, serving, server_side=True, https_compatible=True)
        with suppress(trio.BrokenResourceError):  # refused, as it should be
            await stream.do_handshake()

    with authority.cert_pem.tempfile() as file:
        line = tls_refusal(handshake, ("--cacert", file) if known else ())
    assert line.startswith("cannot reach https://localhost:")
    assert words in line
    assert len(line.splitlines()) == 1


async def hears_and_closes(stream: trio.SocketStream) -> None:
    """Who closes with the hello unread resets."""
    await stream.receive_some()


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (says(framed(b"plain text")), "TLS: wrong version number (is it http://?)"),
        (holds(), "no connection after 10 s"),
        (hears_and_closes, "closed the connection during the handshake"),
        (endless(b"\x16\x03\x03\x40\x00", b"\x02" * 9000), "TLS: "),
    ],
    ids=["plain HTTP", "silence", "a close", "an endless handshake"],
)
def test_what_is_no_tls_is_one_line(handler: Attack, words: str) -> None:
    assert words in tls_refusal(handler, ())


def tls_refusal(
    handler: Callable[[trio.SocketStream], Awaitable[None]], words: tuple[str, ...]
) -> str:
    lines: list[str] = []

    async def guarded(stream: trio.SocketStream) -> None:
        try:
            await handler(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # we hung up on it
        finally:
            await trio.aclose_forcefully(stream)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(trio.serve_tcp, guarded, 0)
            port = listeners[0].socket.getsockname()[1]
            made = setup(
                f"https://localhost:{port}/v1", "--connect-to", f"127.0.0.1:{port}", *words
            )
            try:
                await execute(made, Recorded(), lambda line: None)
            except TargetError as refusal:
                lines.append(str(refusal))
            nursery.cancel_scope.cancel()

    virtually(main)
    return lines[0]


# -- mistakes of the caller ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("127.0.0.1:1",), "did you mean http://127.0.0.1:1?"),
        (("localhost/v1",), "did you mean http://localhost/v1?"),
        (("htp://h",), "expected http://HOST…, https://HOST… or unix:PATH"),
        (("http://name.invalid/v1",), "the name does not resolve (EAI_NONAME)"),
        (("unix:/nowhere",), "http://unix:/nowhere: there is no such socket file"),
        (("http://h.invalid", "--proxy", "http://127.0.0.1:1"), "the proxy 127.0.0.1:1: ECONNREF"),
        (("--target", "/nowhere.yaml"), "/nowhere.yaml:1: file: expected an existing file"),
        (("--target", "/dev/null"), "expected a regular file"),
    ],
)
def test_a_mistake_is_answered_by_one_line_that_names_it(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_url_given_to_judge_is_sent_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["judge", "http://127.0.0.1:1/v1"]) == 2
    assert "(an endpoint is checked by `conformance run`)" in capsys.readouterr().err


# -- memory, in real time --------------------------------------------------------------------------

CHILD = """
import re, sys
from pathlib import Path
from conformance import cli
code = cli.main(sys.argv[1:])
print("kB", re.search("VmHWM:\\\\s+([0-9]+) kB", Path("/proc/self/status").read_text())[1])
sys.exit(code)
"""
MOST = 300 * 1024  # kB


def peak(attack: Attack, strikes: Callable[[Asked], bool], *words: str) -> tuple[int, int, str]:
    """(peak memory in kB, exit code, stderr) of the command in a process of its own."""
    out: list[tuple[int, int, str]] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            server = HostileServer(lambda asked: attack if strikes(asked) else None)
            command = [sys.executable, "-c", CHILD, "run", await server.start(nursery), *words]
            done = await trio.run_process(
                [*command, "--api", "chat"], capture_stdout=True, capture_stderr=True, check=False
            )
            shown = done.stdout.decode()
            assert all(c == "\n" or c.isprintable() for c in shown + done.stderr.decode())
            kilobytes = int(shown.split()[-1])
            out.append((kilobytes, done.returncode, done.stderr.decode()))
            nursery.cancel_scope.cancel()

    trio.run(main)
    return out[0]


GIGABYTE = endless(head(EVENTS, b"Content-Length: 1073741824") + b"data: ", b"x" * 65536)
TOKENS = endless(head(EVENTS, CHUNKED), framed_chunk(TOKEN) * 300)
MEMORY: dict[str, tuple[Attack, Callable[[Asked], bool], int]] = {
    "a line of 1 GB": (GIGABYTE, streams, 1),
    "tokens without end": (TOKENS, streams, 1),
    "a list of 100 MB": (
        endless(head(JSON, b"Content-Length: 100000000") + b"[", b'{"id": "m"},' * 2000),
        everything,
        2,
    ),
}


@pytest.mark.parametrize("name", MEMORY)
def test_memory_stays_bounded_whatever_is_sent(name: str) -> None:
    attack, strikes, code = MEMORY[name]
    kilobytes, exit_code, errors = peak(attack, strikes, "--quick")
    assert exit_code == code
    assert kilobytes < MOST
    assert "Traceback" not in errors


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_memory_stays_bounded_over_a_whole_plan_of_endless_streams() -> None:
    kilobytes, exit_code, errors = peak(TOKENS, streams)
    assert exit_code == 1
    assert kilobytes < MOST
    assert "Traceback" not in errors
