"""The tap on the wire: what passes, when it passes, how it ends, and what is known of it."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trustme

from conformance import storage
from conformance.capture import How
from conformance.connect import Door, tls_context
from conformance.judge import Policy, judge
from conformance.masking import Secret
from conformance.script import Exchange, Leave
from conformance.tap.judging import Job, Judge, Told
from conformance.tap.taking import Budget
from reference_server.wire.server import Settings
from tests.conformance.tapped import (
    JOB,
    KNOWN,
    PASSIVE,
    Tapped,
    reset,
    tap_before,
    tap_before_reference,
    tap_to,
    virtually,
)

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def asking(stream: bool = True, tokens: int = 8, path: str = "chat/completions") -> bytes:
    body = json.dumps(
        {
            "model": "scripted",
            "messages": [{"role": "user", "content": "hi"}],
            "stream": stream,
            "max_tokens": tokens,
        }
    ).encode()
    head = (
        f"POST /v1/{path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def until(stream: trio.SocketStream, end: bytes) -> bytes:
    data = b""
    while not data.endswith(end):
        piece = bytes(await stream.receive_some())
        assert piece, data
        data += piece
    return data


# What passes


def test_bytes_pass_both_ways_as_they_are() -> None:
    pieces = [STREAM[:20], STREAM[20:] + b"data: {\xff\x00", b"}\n\n", b"\r\n garbage"]
    body = bytes(range(256)) * 4
    request = b"POST /x?y HTTP/1.1\r\nHost: a\r\nContent-Length: 1024\r\n\r\n" + body
    got: list[bytes] = []

    async def upstream(stream: trio.SocketStream) -> None:
        got.append(await until(stream, body[-256:] * 4))
        for piece in pieces:
            await stream.send_all(piece)
            await trio.sleep(0.1)

    async def main() -> None:
        async with tap_before(upstream) as tapped:
            client = await tapped.dial()
            await client.send_all(request)
            answer = b"".join([bytes(part) async for part in client])
            await tapped.settled(1)
            (taken,) = tapped.taken
            assert answer == b"".join(pieces) == taken.received
            wanted = request.replace(b"Host: a", f"Host: 127.0.0.1:{tapped.upstream}".encode())
            assert got == [wanted]
            assert b"".join(data for data, _ in taken.request) == wanted
            assert taken.end.how is How.CLOSED

    virtually(main)


def test_a_piece_passes_at_once_and_its_time_is_kept() -> None:
    async def upstream(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        for piece in (STREAM, b"data: 1\n\n", b"data: 2\n\n"):
            await stream.send_all(piece)
            await trio.sleep(5)

    async def main() -> None:
        async with tap_before(upstream) as tapped:
            client = await tapped.dial()
            start = trio.current_time()
            await client.send_all(GET)
            times = [trio.current_time() - start async for _ in client]
            assert times == pytest.approx([0, 5, 10], abs=0.01)
            await tapped.settled(1)
            reads = tapped.taken[0].times
            assert [at - reads[0] for at in reads] == pytest.approx([0, 5, 10], abs=0.01)

    virtually(main)


def test_a_request_in_pieces_is_not_held_back() -> None:
    async def upstream(stream: trio.SocketStream) -> None:
        await until(stream, b"\n\r\n")
        await stream.send_all(b"HTTP/1.1 100 Continue\r\n\r\n")
        await until(stream, b"0\r\n\r\n")
        await stream.send_all(OK)

    async def main() -> None:
        async with tap_before(upstream) as tapped:
            client = await tapped.dial()
            head = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
            await client.send_all(head + b"Transfer-Encoding: chunked\r\n\r\n")
            await until(client, b"100 Continue\r\n\r\n")
            await trio.sleep(3)
            await client.send_all(b"3\r\nabc\r\n0\r\n\r\n")
            assert await until(client, b"ok") == OK
            await tapped.settled(1)
            (taken,) = tapped.taken
            assert taken.received == b"HTTP/1.1 100 Continue\r\n\r\n" + OK
            (_, first), (_, second) = taken.request
            assert second - first == pytest.approx(3, abs=0.01)
            assert taken.sent_at == second

    virtually(main)


def test_what_is_no_http_passes_too() -> None:
    async def upstream(stream: trio.SocketStream) -> None:
        await stream.send_all(bytes(await stream.receive_some())[::-1])

    async def main() -> None:
        async with tap_before(upstream) as tapped:
            client = await tapped.dial()
            await client.send_all(b"\x16\x03\x01")
            assert await client.receive_some() == b"\x01\x03\x16"
            await client.aclose()
            await tapped.settled(1)
            assert (tapped.told[0].method, tapped.told[0].api) == ("?", None)

    virtually(main)


# Connections


def test_a_connection_carries_several_exchanges_also_ahead_of_the_answers() -> None:
    async def upstream(stream: trio.SocketStream) -> None:
        for _ in range(2):
            await until(stream, b"\r\n\r\n")
            await stream.send_all(OK)
        await until(stream, GET[-4:])
        await stream.send_all(OK[:10])
        await stream.send_all(OK[10:] + OK)

    async def main() -> None:
        async with tap_before(upstream) as tapped:
            client = await tapped.dial()
            for _ in range(2):
                await client.send_all(GET)
                assert await until(client, b"ok") == OK
            await client.send_all(GET + GET)
            assert b"".join([bytes(part) async for part in client]) == OK + OK
            await tapped.settled(4)
            places = [(t.connection, t.ordinal, t.received, t.end.how) for t in tapped.taken]
            assert places == [(0, n, OK, How.FRAMED) for n in range(4)]

    virtually(main)


def test_bytes_after_an_answer_are_kept_as_late_or_early() -> None:
    async def upstream(stream: trio.SocketStream) -> None:
        await until(stream, b"\r\n\r\n")
        await stream.send_all(OK + b"late")
        await trio.sleep(1)
        await stream.send_all(b"early")
        await until(stream, b"\r\n\r\n")
        await stream.send_all(OK)

    async def main() -> None:
        async with tap_before(upstream) as tapped:
            client = await tapped.dial()
            await client.send_all(GET)
            await until(client, b"early")
            await client.send_all(GET)
            await until(client, b"ok")
            await tapped.settled(2)
            first, second = tapped.taken
            assert (first.late, second.early) == (b"late", b"early")

    virtually(main)


def test_twenty_streams_at_once_all_arrive_whole_and_pass() -> None:
    async def main() -> None:
        async with tap_before_reference() as tapped, trio.open_nursery() as nursery:
            received: list[bytes] = []

            async def one() -> None:
                script = Exchange((asking(tokens=40),), events=True)
                received.append((await tapped.recorder().exchange(script)).received)

            for _ in range(20):
                nursery.start_soon(one)
            await tapped.settled(20)
            assert sorted(received) == sorted(taken.received for taken in tapped.taken)
            assert len({taken.connection for taken in tapped.taken}) == 20
            assert [(each.outcome, each.failed) for each in tapped.told] == [("complete", ())] * 20
            assert all(each.events > 5 for each in tapped.told)

    virtually(main)


# Leaving


async def leaves(how: str, tapped: Tapped) -> None:
    script = Exchange((asking(tokens=4000),), events=True, leave=Leave(how, events=3))
    await tapped.recorder().exchange(script)


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_a_hang_up_reaches_the_upstream_and_is_in_the_record(how: str) -> None:
    async def main() -> None:
        async with tap_before_reference() as tapped:
            assert tapped.engine is not None
            await leaves(how, tapped)
            await tapped.settled(1)
            await trio.sleep(0.1)
            assert (tapped.engine.gauges.aborted, tapped.engine.gauges.running) == (1, 0)
            (taken,) = tapped.taken
            assert (taken.end.how, taken.end.left) == (How.LEFT, how)
            assert tapped.told[0].outcome.startswith(f"client left ({how})")
            assert tapped.told[0].failed == ()

    virtually(main)


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_fin_arrives_as_fin_and_rst_as_rst_at_the_upstream(how: str) -> None:
    seen: list[str] = []

    async def upstream(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        try:
            seen.append("fin" if not await stream.receive_some() else "data")
        except trio.BrokenResourceError:
            seen.append("rst")

    async def main() -> None:
        async with tap_before(upstream) as tapped:
            client = await tapped.dial()
            await client.send_all(GET)
            await trio.sleep(1)
            reset(client) if how == "rst" else await client.aclose()
            await tapped.settled(1)
            await trio.sleep(0.1)
            assert seen == [how]

    virtually(main)


def test_a_client_that_says_nothing_is_seen_by_the_upstream_and_is_no_exchange() -> None:
    seen: list[str] = []

    async def upstream(stream: trio.SocketStream) -> None:
        seen.append("connected")
        seen.append("left" if not await stream.receive_some() else "spoke")

    async def main() -> None:
        async with tap_before(upstream) as tapped:
            client = await tapped.dial()
            await trio.sleep(1)
            assert seen == ["connected"]
            await client.aclose()
            await trio.sleep(1)
        assert (seen, tapped.taken) == (["connected", "left"], [])

    virtually(main)


def test_a_client_that_half_closes_still_gets_its_answer() -> None:
    async def upstream(stream: trio.SocketStream) -> None:
        request = b"".join([bytes(part) async for part in stream])
        assert request.endswith(b"\r\n\r\n")
        await trio.sleep(1)
        await stream.send_all(OK)

    async def main() -> None:
        async with tap_before(upstream) as tapped:
            client = await tapped.dial()
            await client.send_all(GET)
            await client.send_eof()
            assert b"".join([bytes(part) async for part in client]) == OK
            await tapped.settled(1)
            end = tapped.taken[0].end
            assert (end.how, end.left) == (How.FRAMED, "half")

    virtually(main)


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_the_end_by_the_upstream_arrives_as_it_was(how: str) -> None:
    async def upstream(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(STREAM + b"data: {")
        await trio.sleep(1)
        if how == "rst":
            reset(stream)

    async def main() -> None:
        async with tap_before(upstream) as tapped:
            client = await tapped.dial()
            await client.send_all(GET)
            assert await client.receive_some()
            if how == "fin":
                assert await client.receive_some() == b""
            else:
                with pytest.raises(trio.BrokenResourceError):
                    await client.receive_some()
            await tapped.settled(1)
            wanted = How.RESET if how == "rst" else How.CLOSED
            assert tapped.taken[0].end.how is wanted

    virtually(main)


def test_a_client_that_never_closes_is_let_go_some_time_after_the_upstream_did() -> None:
    async def upstream(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(OK)

    async def main() -> None:
        async with tap_before(upstream) as tapped:
            client = await tapped.dial()
            await client.send_all(GET)
            await until(client, b"ok")
            assert await client.receive_some() == b""
            await trio.sleep(61)
            await client.send_all(b"x")
            await trio.sleep(1)
            with pytest.raises(trio.BrokenResourceError):
                await client.send_all(b"x")

    virtually(main)


def test_exchanges_that_are_open_at_the_end_of_the_tap_are_no_fault_of_the_server() -> None:
    async def main() -> None:
        async with tap_before_reference() as tapped:
            client = await tapped.dial()
            await client.send_all(asking(tokens=4000))
            await until(client, b"}\n\n\r\n")
        assert tapped.told[0].outcome.startswith("the tap ended after")
        assert tapped.told[0].failed == ()

    virtually(main)


def test_clients_that_the_system_has_no_socket_for_wait_and_are_let_in_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accept, refusals = socket.socket.accept, [errno.ECONNABORTED, errno.EMFILE, errno.EMFILE]

    def scarce(listening: socket.socket) -> tuple[socket.socket, object]:
        if refusals and listening.getsockname()[1] == tapped_port[0]:
            raise OSError(number := refusals.pop(0), os.strerror(number))
        return accept(listening)

    async def answer(stream: trio.SocketStream) -> None:
        await until(stream, b"\r\n\r\n")
        await stream.send_all(OK)

    tapped_port: list[int] = []
    monkeypatch.setattr(socket.socket, "accept", scarce)

    async def main() -> None:
        async with tap_before(answer) as tapped:
            tapped_port.append(tapped.port)
            client = await tapped.dial()
            await client.send_all(GET)
            assert await until(client, b"ok") == OK
            assert refusals == []
            assert tapped.logged == ["a client has to wait: Too many open files"]
            tapped.logged.clear()

    virtually(main)


# The upstream


def test_an_upstream_that_is_down_is_answered_with_502_in_the_envelope() -> None:
    async def main() -> None:
        with trio.socket.socket() as nobody:
            await nobody.bind(("127.0.0.1", 0))
            port = nobody.getsockname()[1]
        async with tap_to(port) as tapped:
            capture = await tapped.recorder().exchange(Exchange((asking(),)))
            head, _, body = capture.received.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 502 ")
            error = json.loads(body)["error"]
            assert error["code"] == "upstream_unreachable"
            assert "ECONNREFUSED" in error["message"]
            assert capture.end.how is How.FRAMED
            await tapped.settled(1)
            (one,) = tapped.told
            assert (one.outcome, one.unreached) == ("not-connected (ECONNREFUSED)", True)
            assert (one.status, one.api, one.failed) == (None, None, ())
            assert tapped.taken[0].received == b""

    virtually(main)


def test_before_a_502_a_request_is_read_to_its_end_or_until_it_pauses() -> None:
    async def main() -> None:
        with trio.socket.socket() as nobody:
            await nobody.bind(("127.0.0.1", 0))
            port = nobody.getsockname()[1]
        async with tap_to(port) as tapped:
            silent, slow, waiting = [await tapped.dial() for _ in range(3)]
            await slow.send_all(asking()[:-5])
            await trio.sleep(0.3)
            await slow.send_all(asking()[-5:])
            assert (await slow.receive_some()).startswith(b"HTTP/1.1 502 ")
            await waiting.send_all(b"POST / HTTP/1.1\r\nExpect: 100-continue\r\n")
            await waiting.send_all(b"Content-Length: 9\r\n\r\n")
            assert (await waiting.receive_some()).startswith(b"HTTP/1.1 502 ")
            await silent.aclose()
            await tapped.settled(2)
            assert b"".join(data for data, _ in tapped.taken[0].request).endswith(asking()[-9:])
            assert [each.unreached for each in tapped.told] == [True, True]

    virtually(main)


def tls_upstream(authority: trustme.CA, name: str, main: Callable[[int], object]) -> None:
    import ssl

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)

    async def handler(raw: trio.SocketStream) -> None:
        stream = trio.SSLStream(raw, context, server_side=True, https_compatible=True)
        try:
            await stream.receive_some()
            await stream.send_all(OK)
            await stream.receive_some()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the tap refused the certificate
        finally:
            await trio.aclose_forcefully(stream)

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(trio.serve_tcp, handler, 0)
            await main(listeners[0].socket.getsockname()[1])  # type: ignore[misc]
            nursery.cancel_scope.cancel()

    virtually(run)


@pytest.mark.parametrize(
    ("name", "insecure", "wanted"),
    [
        ("127.0.0.1", False, b"200"),
        ("other.example", False, b"502"),
        ("other.example", True, b"200"),
    ],
)
def test_an_upstream_behind_tls_is_trusted_as_told(
    name: str, insecure: bool, wanted: bytes
) -> None:
    authority = trustme.CA()

    async def main(port: int) -> None:
        with authority.cert_pem.tempfile() as path:
            context = tls_context(cacert=path, insecure=insecure)
        door = Door("127.0.0.1", port, tls=context)
        async with tap_to(port, door=door, scheme="https") as tapped:
            capture = await tapped.recorder().exchange(Exchange((GET,), method="GET"))
            assert capture.received.split()[1] == wanted
            await tapped.settled(1)
            assert tapped.told[0].outcome.startswith("tls-failed") is (wanted == b"502")

    tls_upstream(authority, name, main)


# Judging


@pytest.mark.parametrize("fault", ["done.missing", "sse.bom", "chunk.id-changes", "plain.shape"])
def test_a_fault_behind_the_tap_is_found(fault: str) -> None:
    async def main() -> None:
        async with tap_before_reference([fault]) as tapped:
            script = Exchange((asking(stream=fault != "plain.shape"),))
            await tapped.recorder().exchange(script)
            await tapped.settled(1)
            (one,) = tapped.told
            assert fault in one.failed + one.noted
            assert one.api == "chat"

    virtually(main)


def test_what_the_tap_says_is_what_judge_says_of_the_kept_file(tmp_path: Path) -> None:
    async def main() -> None:
        async with tap_before_reference(["done.missing"], job=replace(JOB, captures=tmp_path)) as t:
            await t.recorder().exchange(Exchange((asking(),)))
            await t.settled(1)
            told.append(t.told[0])

    told: list[Told] = []
    virtually(main)
    (file,) = tmp_path.iterdir()
    again = judge([replace(storage.read(file), name=str(file))], PASSIVE, known=KNOWN)
    assert told[0].results == again
    assert told[0].failed == ("done.missing",)


def test_other_routes_pass_unjudged() -> None:
    async def main() -> None:
        async with tap_before_reference() as tapped:
            script = Exchange((b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n",), method="GET")
            capture = await tapped.recorder().exchange(script)
            assert b'"scripted"' in capture.received
            await tapped.settled(1)
            (one,) = tapped.told
            assert (one.status, one.outcome, one.api, one.results) == (200, "whole", None, ())

    virtually(main)


def test_the_key_of_a_request_is_neither_shown_nor_kept(tmp_path: Path) -> None:
    key = "sk-not-for-anybody-else"
    job = replace(JOB, captures=tmp_path, secrets=(Secret("env:K", key.encode()),))
    asked = asking(path=f"chat/completions?key={key}").replace(
        b"Host:", f"Authorization: Bearer {key}\r\nHost:".encode()
    )

    async def main() -> None:
        async with tap_before_reference(settings=Settings(api_key=key), job=job) as tapped:
            capture = await tapped.recorder().exchange(Exchange((asked,)))
            assert b"200 OK" in capture.received
            await tapped.settled(1)
            assert key not in repr(tapped.told)
            assert tapped.told[0].path == f"/v1/chat/completions?key={'*' * len(key)}"

    virtually(main)
    (file,) = tmp_path.iterdir()
    assert key not in file.read_text()
    masks = storage.read(file).roles["stream"][0].masks
    assert {mask.secret for mask in masks} >= {"env:K"}


# Bounds


def test_the_copy_stops_at_a_bound_while_the_bytes_flow_and_room_comes_back() -> None:
    body = b"data: {}\n\n" * 1000
    budget = Budget(5000)

    async def upstream(stream: trio.SocketStream) -> None:
        while await stream.receive_some():
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
            for at in range(0, len(body), 1000):
                await stream.send_all(body[at : at + 1000])
                await trio.sleep(0.1)

    async def main() -> None:
        async with tap_before(upstream, budget=budget) as tapped:
            client = await tapped.dial()
            for count in (1, 2):  # the reader knows the end of what is not kept
                await client.send_all(asking())
                head = len(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
                got = b""
                while len(got) < head + len(body):
                    got += await client.receive_some()
                assert got[head:] == body
                await tapped.settled(count)
                taken = tapped.taken[-1]
                assert (taken.end.how, taken.end.detail) == (How.BOUND, "body")
                assert 1000 < len(taken.received) < 5000
                await trio.sleep(0.01)
                assert budget.left == 5000

    virtually(main)


def test_a_dossier_of_the_tap_is_one_exchange_in_the_role_of_a_stream(tmp_path: Path) -> None:
    async def main() -> None:
        async with tap_before_reference(job=replace(JOB, captures=tmp_path)) as tapped:
            await tapped.recorder().exchange(Exchange((asking(),)))
            await tapped.settled(1)

    virtually(main)
    (file,) = tmp_path.iterdir()
    assert file.name == "tap-000001.jsonl"
    dossier = storage.read(file)
    assert (dossier.scenario, dossier.api, list(dossier.roles)) == ("tap", "chat", ["stream"])
    (capture,) = dossier.roles["stream"]
    assert capture.url is not None
    assert capture.url.endswith("/v1/chat/completions")


def test_a_signal_to_the_judging_process_as_well_loses_no_verdict() -> None:
    """As `timeout` and service managers send it to all of a group: to judge what is left is the
    parent's order."""
    with Judge(Job((), (), Policy())) as judging:
        judging.ready()
        for process in multiprocessing.active_children():
            assert process.pid is not None
            os.kill(process.pid, signal.SIGTERM)
        judging.ready()
