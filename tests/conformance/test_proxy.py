"""`--proxy`: who is asked, who we say that we are, and that nobody else gets to know it."""

from __future__ import annotations

import argparse
import base64
from pathlib import Path

import pytest
import trio
import trustme

from conformance import storage
from conformance.connect import Door
from conformance.errors import UsageError
from conformance.options import OneLineParser
from conformance.reach import door_from_args, shown_proxy
from conformance.recorder import Recorder
from conformance.report import json_report
from conformance.run import execute
from conformance.run_options import configure
from conformance.run_report import Recorded, command_line, report_from
from conformance.script import Exchange
from conformance.target import parse_url
from tests.conformance.test_run import reference, setup, virtually

USER, PASSWORD = "us@r", "open:sesame 42"
LOGIN = "us%40r:open%3Asesame%2042"
TOKEN = base64.b64encode(f"{USER}:{PASSWORD}".encode())


class Proxy:
    """Passes on what CONNECT asks for, to those who give the right user and password."""

    def __init__(self, port: int) -> None:
        self.port, self.asked = port, list[bytes]()

    async def serve(self, client: trio.SocketStream) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += await client.receive_some(1)
        self.asked.append(head)
        if b"\r\nProxy-Authorization: Basic " + TOKEN + b"\r\n" not in head:
            await client.send_all(b"HTTP/1.1 407 Who?\r\nProxy-Authenticate: Basic realm=x\r\n\r\n")
            return
        upstream = await trio.open_tcp_stream("127.0.0.1", self.port)
        await client.send_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
        async with upstream, trio.open_nursery() as both:
            both.start_soon(_pass_on, client, upstream)
            both.start_soon(_pass_on, upstream, client)


async def _pass_on(source: trio.SocketStream, sink: trio.SocketStream) -> None:
    try:
        async for data in source:
            await sink.send_all(data)
        await sink.send_eof()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # one of the ends is gone, which ends the other as well


def parsed(*words: str) -> argparse.Namespace:
    parser = OneLineParser()
    configure(parser)
    return parser.parse_args(["http://models.test/v1", *words])


def door(text: str, **environment: str) -> Door:
    return door_from_args(parsed("--proxy", text), parse_url("http://models.test"), environment)


@pytest.mark.parametrize(
    ("url", "words", "said"),
    [
        ("http://h", ("--cacert", "/nonexistent"), r"cannot load TLS files \(/nonexistent\)"),
        ("http://h", ("--cert", "/nonexistent"), r"cannot load TLS files \(/nonexistent\)"),
        ("https://h", ("--key", "/nonexistent"), "--key is .*: give it with --cert"),
        ("unix:/run/x", ("--proxy", "h:1"), "needs no --proxy and no --connect-to"),
        ("unix:/run/x", ("--connect-to", "h:1"), "needs no --proxy and no --connect-to"),
    ],
)
def test_an_option_that_can_do_nothing_is_not_ignored(
    url: str, words: tuple[str, ...], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        door_from_args(parsed(*words), parse_url(url), {})


def test_trust_that_is_meant_for_another_url_makes_no_tls_of_a_plain_one(tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    given = parsed("--cacert", str(tmp_path / "ca.pem"))
    assert door_from_args(given, parse_url("http://h"), {}).tls is None
    assert door_from_args(given, parse_url("https://h"), {}).tls is not None


def test_a_whole_run_goes_through_it_and_tells_its_password_to_nobody_else() -> None:
    async def main() -> None:
        async with reference() as server, trio.open_nursery() as nursery:
            proxy = Proxy(int(server.url.removesuffix("/v1").rpartition(":")[2]))
            listeners = await nursery.start(trio.serve_tcp, proxy.serve, 0)
            address = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
            words = ("--quick", "--api", "chat", "--proxy")
            url = f"http://{LOGIN}@{address}"
            made = setup("http://models.test/v1", *words, "env:MINE", environment={"MINE": url})
            recorded = Recorded()
            await execute(made, recorded, lambda line: None)
            report = report_from(made, recorded)
            assert report.exit == 0
            assert {request.headers["host"] for request in server.got} == {"models.test"}
            assert proxy.asked
            assert all(each.startswith(b"CONNECT models.test:80 HTTP/1.1") for each in proxy.asked)
            kept = b"".join(storage.write(each) for each in recorded.dossiers)
            shown = json_report.dumps(report).encode() + repr(made).encode()
            for secret in (PASSWORD.encode(), TOKEN, b"open%3Asesame"):
                assert secret not in kept + shown
            nursery.cancel_scope.cancel()

    virtually(main)


def test_a_password_that_a_server_repeats_is_masked() -> None:
    async def main() -> None:
        async def echo(stream: trio.SocketStream) -> None:
            await stream.receive_some(65536)
            body = b"they said " + PASSWORD.encode() + b" and " + TOKEN
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
            await stream.send_all(body)

        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(trio.serve_tcp, echo, 0)
            proxy = Proxy(listeners[0].socket.getsockname()[1])
            listeners = await nursery.start(trio.serve_tcp, proxy.serve, 0)
            address = ("127.0.0.1", listeners[0].socket.getsockname()[1])
            to = Door("models.test", 80, proxy=address, login=(USER, PASSWORD))
            capture = await Recorder(to).exchange(Exchange((b"GET / HTTP/1.1\r\n\r\n",), "GET"))
            assert capture.received.partition(b"they said ")[2].startswith(b"*" * len(PASSWORD))
            assert PASSWORD.encode() not in capture.received
            assert base64.b64decode(TOKEN[8:]) not in capture.received
            nursery.cancel_scope.cancel()

    virtually(main)


@pytest.mark.parametrize(
    ("text", "proxy", "login"),
    [
        ("http://p:81", ("p", 81), None),
        ("http://p", ("p", 80), None),
        (f"http://{LOGIN}@p:81", ("p", 81), (USER, PASSWORD)),
        ("http://only@[::1]:81", ("::1", 81), ("only", "")),
        ("http://a:b@c@p:81", ("p", 81), ("a", "b@c")),
        ("env:MINE", ("p", 82), ("u", "v")),
    ],
)
def test_where_and_as_whom(text: str, proxy: tuple[str, int], login: tuple[str, str]) -> None:
    made = door(text, MINE="http://u:v@p:82")
    assert (made.proxy, made.login) == (proxy, login)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("socks5://u:hidden@p:1", "--proxy socks5://…@p:1: expected http://HOST:PORT, or"),
        ("u:hidden@p:1", "--proxy …@p:1: expected"),
        ("http://u:hidden@p:1/path", "--proxy http://…@p:1/path: expected"),
        ("http://u%3Ax:hidden@p:1", "no colon in the user's name"),
        ("http://u:hidden@", "expected"),
        ("env:NONE", "--proxy env:NONE: the environment variable NONE is not set"),
        ("env:BAD", "--proxy env:BAD: expected http://HOST:PORT"),
    ],
)
def test_a_mistake_is_named_without_the_password(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        door(text, BAD="https://u:hidden@p")
    assert said in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_the_line_that_runs_it_again_hides_the_password() -> None:
    words = command_line(parsed("--proxy", f"http://{LOGIN}@p:81"))
    assert words[words.index("--proxy") + 1] == "http://…@p:81"
    assert shown_proxy("http://p:81") == "http://p:81"
