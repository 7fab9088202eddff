"""The recorder under TLS: what the handshake decides, and how an encrypted connection ends."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
import trustme

from conformance.capture import Capture, How
from conformance.connect import Door, tls_context
from conformance.errors import UsageError
from conformance.recorder import Recorder
from conformance.script import Clocks, Exchange, Leave

REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
OPEN = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {}\n\n"
CLOCKS = Clocks(connect=5, first_byte=10, progress=10, total=60)
SCRIPT = Exchange((REQUEST,), clocks=CLOCKS)

Handler = Callable[["trio.SSLStream[trio.SocketStream]"], Awaitable[None]]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def cacert(authority: trustme.CA) -> Iterator[str]:
    with authority.cert_pem.tempfile() as path:
        yield path


def served(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(*names).configure_cert(context)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


async def serve(context: ssl.SSLContext, handler: Handler, nursery: trio.Nursery) -> int:
    async def guarded(raw: trio.SocketStream) -> None:
        stream = trio.SSLStream(raw, context, server_side=True, https_compatible=True)
        try:
            await handler(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # we hung up, or refused the handshake
        finally:
            await trio.aclose_forcefully(stream)

    listeners = await nursery.start(trio.serve_tcp, guarded, 0)
    port: int = listeners[0].socket.getsockname()[1]
    return port


def recorded(
    context: ssl.SSLContext,
    handler: Handler,
    tls: ssl.SSLContext,
    name: str = "service.example",
    script: Exchange = SCRIPT,
) -> Capture:
    captures: list[Capture] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            port = await serve(context, handler, nursery)
            door = Door(name, 443, connect_to=("127.0.0.1", port), tls=tls)
            captures.append(await Recorder(door).exchange(script))
            await trio.sleep(1)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return captures[0]


async def answer(stream: trio.SSLStream[trio.SocketStream]) -> None:
    await stream.receive_some(65536)
    await stream.send_all(PLAIN)
    await trio.sleep_forever()


def test_an_encrypted_answer_is_recorded_decrypted(authority: trustme.CA, cacert: str) -> None:
    capture = recorded(served(authority, "service.example"), answer, tls_context(cacert=cacert))
    assert capture.end.how is How.FRAMED
    assert capture.received == PLAIN
    assert capture.reads[-1].emptied


def test_the_name_is_sent_and_only_http11_offered(authority: trustme.CA, cacert: str) -> None:
    seen: list[str | None] = []
    context = served(authority, "service.example")
    context.sni_callback = lambda _, name, __: seen.append(name)

    async def handler(stream: trio.SSLStream[trio.SocketStream]) -> None:
        await stream.receive_some(65536)
        seen.append(stream.selected_alpn_protocol())
        await stream.send_all(PLAIN)

    recorded(context, handler, tls_context(cacert=cacert))
    assert seen == ["service.example", "http/1.1"]


def test_a_certificate_for_another_name_fails_with_the_reason(
    authority: trustme.CA, cacert: str
) -> None:
    capture = recorded(served(authority, "other.example"), answer, tls_context(cacert=cacert))
    assert capture.end.how is How.TLS_FAILED
    assert "service.example" in (capture.end.detail or "")
    assert capture.received == b""


def test_an_unknown_authority_fails_and_insecure_accepts_it(authority: trustme.CA) -> None:
    context = served(authority, "service.example")
    refused = recorded(context, answer, tls_context())
    assert refused.end.how is How.TLS_FAILED
    assert "certificate verify failed" in (refused.end.detail or "")
    assert recorded(context, answer, tls_context(insecure=True)).end.how is How.FRAMED


def test_a_server_without_tls_fails_the_handshake(cacert: str) -> None:
    captures: list[Capture] = []

    async def plain(stream: trio.SocketStream) -> None:
        await stream.receive_some(100)
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(trio.serve_tcp, plain, 0)
            port = listeners[0].socket.getsockname()[1]
            door = Door("localhost", 443, connect_to=("127.0.0.1", port))
            door = replace(door, tls=tls_context(cacert=cacert))
            captures.append(await Recorder(door).exchange(SCRIPT))
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert captures[0].end.how is How.TLS_FAILED
    assert captures[0].end.detail == "wrong version number"


def test_a_handshake_that_stalls_runs_out_of_the_connect_clock(cacert: str) -> None:
    captures: list[Capture] = []

    async def silent(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(trio.serve_tcp, silent, 0)
            port = listeners[0].socket.getsockname()[1]
            door = Door("127.0.0.1", port, tls=tls_context(cacert=cacert))
            captures.append(await Recorder(door).exchange(SCRIPT))
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert (captures[0].end.how, captures[0].end.detail) == (How.CLOCK, "connect")


def test_a_client_certificate_is_shown_when_asked_for(
    authority: trustme.CA, cacert: str, tmp_path: Path
) -> None:
    context = served(authority, "service.example")
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    mine = authority.issue_cert("client@example.org")
    pem = tmp_path / "client.pem"
    mine.private_key_and_cert_chain_pem.write_to_path(str(pem))
    with_it = recorded(context, answer, tls_context(cacert=cacert, cert=str(pem)))
    assert with_it.end.how is How.FRAMED
    without = recorded(context, answer, tls_context(cacert=cacert))
    # Under TLS 1.3 our side of the handshake is over before the server misses the certificate.
    assert without.end.how in (How.RESET, How.TLS_CUT)
    assert without.received == b""


def test_close_notify_tells_a_close_from_a_cut(authority: trustme.CA, cacert: str) -> None:
    async def closing(stream: trio.SSLStream[trio.SocketStream]) -> None:
        await stream.receive_some(65536)
        await stream.send_all(OPEN)
        await trio.sleep(1)

    async def polite(stream: trio.SSLStream[trio.SocketStream]) -> None:
        await closing(stream)
        with trio.move_on_after(1):
            await stream.unwrap()

    context = served(authority, "service.example")
    cut = recorded(context, closing, tls_context(cacert=cacert))
    assert cut.end.how is How.TLS_CUT
    assert cut.received == OPEN
    whole = recorded(context, polite, tls_context(cacert=cacert))
    assert whole.end.how is How.CLOSED


@pytest.mark.parametrize("how", ["fin", "rst", "half"])
def test_leaving_under_tls_shows_at_the_server(
    authority: trustme.CA, cacert: str, how: str
) -> None:
    seen: list[object] = []

    async def handler(stream: trio.SSLStream[trio.SocketStream]) -> None:
        await stream.receive_some(65536)
        await stream.send_all(OPEN)
        try:
            seen.append(await stream.receive_some(100))
        except trio.BrokenResourceError:
            seen.append("reset")
            return
        if how == "half":
            await stream.send_all(b"data: [DONE]\n\n")

    script = replace(SCRIPT, events=True, leave=Leave(how, events=1))
    context = served(authority, "service.example")
    capture = recorded(context, handler, tls_context(cacert=cacert), script=script)
    assert capture.end.left == how
    assert seen == ["reset" if how == "rst" else b""]
    if how == "half":
        assert capture.received.endswith(b"data: [DONE]\n\n")
    else:
        assert capture.end.how is How.LEFT


def test_files_that_cannot_be_loaded_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot load TLS files"):
        tls_context(cacert=str(tmp_path / "missing.pem"))
    broken = tmp_path / "broken.pem"
    broken.write_text("not a certificate")
    with pytest.raises(UsageError, match=r"broken\.pem"):
        tls_context(cert=str(broken))


# -- proxies ---------------------------------------------------------------------------------------


def through_proxy(
    authority: trustme.CA, tls: ssl.SSLContext, answer_of_proxy: bytes, **more: Any
) -> tuple[Capture, list[bytes]]:
    """An exchange by way of a proxy that answers so, then passes bytes on to the real server."""
    captures: list[Capture] = []
    asked: list[bytes] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            port = await serve(served(authority, "service.example"), answer, nursery)

            async def proxy(stream: trio.SocketStream) -> None:
                asked.append(bytes(await stream.receive_some(65536)))
                await stream.send_all(answer_of_proxy)
                upstream = await trio.open_tcp_stream("127.0.0.1", port)
                async with upstream, trio.open_nursery() as both:
                    both.start_soon(_pass_on, stream, upstream)
                    both.start_soon(_pass_on, upstream, stream)

            listeners = await nursery.start(trio.serve_tcp, proxy, 0)
            address = ("127.0.0.1", listeners[0].socket.getsockname()[1])
            door = Door("service.example", 443, proxy=address, tls=tls, **more)
            captures.append(await Recorder(door).exchange(SCRIPT))
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return captures[0], asked


async def _pass_on(source: trio.SocketStream, sink: trio.SocketStream) -> None:
    try:
        async for data in source:
            await sink.send_all(data)
        await sink.send_eof()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # one of the ends is gone, which ends the other as well


def test_a_proxy_is_asked_with_connect_and_the_name_is_verified_through_it(
    authority: trustme.CA, cacert: str
) -> None:
    said = b"HTTP/1.1 200 Connection established\r\nProxy-Agent: x\r\n\r\n"
    capture, asked = through_proxy(authority, tls_context(cacert=cacert), said)
    assert capture.received == PLAIN
    assert asked[0].startswith(b"CONNECT service.example:443 HTTP/1.1\r\nHost: service.example:443")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "407"),
        (b"SSH-2.0-x\r\n\r\n", "unreadable"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 5000, "unreadable"),
    ],
)
def test_a_proxy_that_refuses_is_not_connected(
    authority: trustme.CA, cacert: str, said: bytes, why: str
) -> None:
    capture, _ = through_proxy(authority, tls_context(cacert=cacert), said)
    assert capture.end.how is How.NOT_CONNECTED
    assert why in (capture.end.detail or "")


def test_a_proxy_that_wants_to_know_who_asks_is_told(authority: trustme.CA, cacert: str) -> None:
    said, login = b"HTTP/1.1 200 OK\r\n\r\n", ("Aladdin", "open sesame")
    capture, asked = through_proxy(authority, tls_context(cacert=cacert), said, login=login)
    assert capture.received == PLAIN
    # The example of RFC 7617 section 2.
    field = b"\r\nProxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n"
    assert asked[0].count(field) == 1
    assert b"Proxy-Authorization" not in b"".join(each.data for each in capture.request)


@pytest.mark.parametrize("login", [None, ("a", "wrong-password")])
def test_a_proxy_that_wants_another_login_is_told_apart(
    authority: trustme.CA, cacert: str, login: tuple[str, str] | None
) -> None:
    said = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"
    capture, _ = through_proxy(authority, tls_context(cacert=cacert), said, login=login)
    assert ("does not accept" if login else "wants a user") in (capture.end.detail or "")
    assert "wrong-password" not in (capture.end.detail or "")


@pytest.mark.parametrize("closes", [False, True])
def test_an_idle_connection_is_quiet_until_the_peer_closes_it(
    authority: trustme.CA, cacert: str, closes: bool
) -> None:
    async def handler(stream: trio.SSLStream[trio.SocketStream]) -> None:
        await stream.receive_some(65536)
        await stream.send_all(PLAIN)
        await trio.sleep(1)
        if not closes:
            await trio.sleep_forever()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            port = await serve(served(authority, "service.example"), handler, nursery)
            tls = tls_context(cacert=cacert)
            door = Door("service.example", 443, connect_to=("127.0.0.1", port), tls=tls)
            async with Recorder(door).connection() as connection:
                quiet = [connection.is_quiet]  # not connected yet
                await connection.exchange(SCRIPT)
                quiet.append(connection.is_quiet)
                await trio.sleep(2)
                quiet.append(connection.is_quiet)
                assert quiet == [False, True, not closes]
                assert connection.usable
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
