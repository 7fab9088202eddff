"""Dialling the same door again and again: by the address that answered, not by the name."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

import pytest
import trio
import trio.testing

from conformance.connect import Dialler, Door, NotConnected
from conformance.connect.dialling import FRESH, PATIENCE
from conformance.connect.wire import Plain

NAME = "upstream.invalid"
HERE, THERE = "127.0.0.1", "127.0.0.2"


class Resolver(trio.abc.HostnameResolver):
    """Knows `address` of every name, and how often it was asked; None is no such name."""

    def __init__(self, address: str | None) -> None:
        self.address, self.asked = address, 0

    async def getaddrinfo(self, host: object, port: object, *_: int, **__: int):  # type: ignore[no-untyped-def]
        self.asked += 1
        if self.address is None:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (self.address, port))]

    async def getnameinfo(self, sockaddr: object, flags: int) -> tuple[str, str]:
        raise AssertionError("nobody asks for a name")


def dialling(
    main: Callable[[Dialler, Resolver], Awaitable[None]], port: int, host: str = NAME
) -> Resolver:
    """Run `main` with a dialler of a name that stands for `HERE`."""
    resolver = Resolver(HERE)

    async def run() -> None:
        trio.socket.set_custom_hostname_resolver(resolver)
        async with trio.open_nursery() as nursery:
            await main(Dialler(Door(host, port), nursery.start_soon), resolver)

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
    return resolver


def listener(host: str = HERE, port: int = 0, backlog: int = 50) -> tuple[socket.socket, int]:
    sock = socket.create_server((host, port), backlog=backlog)
    return sock, sock.getsockname()[1]


def host_of(plain: Plain) -> str:
    """Whom it reached; hangs up."""
    address = plain.peer()
    plain.close()
    assert address is not None
    return str(address[1][0])


def test_a_name_is_looked_up_once_and_again_after_a_time_beside_the_way() -> None:
    async def main(dialler: Dialler, resolver: Resolver) -> None:
        for _ in range(3):
            assert host_of(await dialler.dial()) == HERE
        assert resolver.asked == 1
        await trio.sleep(FRESH)
        assert host_of(await dialler.dial()) == HERE
        assert resolver.asked == 1  # dialled first, asked afterwards
        await trio.testing.wait_all_tasks_blocked()
        assert resolver.asked == 2
        assert host_of(await dialler.dial()) == HERE

    server, port = listener()
    with server:
        assert dialling(main, port).asked == 2


def test_a_name_that_moved_is_followed() -> None:
    async def main(dialler: Dialler, resolver: Resolver) -> None:
        host_of(await dialler.dial())
        resolver.address = THERE
        assert host_of(await dialler.dial()) == HERE
        await trio.sleep(FRESH)
        assert host_of(await dialler.dial()) == HERE
        await trio.testing.wait_all_tasks_blocked()
        assert host_of(await dialler.dial()) == THERE

    with ExitStack() as stack:
        port = stack.enter_context(listener()[0]).getsockname()[1]
        stack.enter_context(listener(THERE, port)[0])
        dialling(main, port)


def test_a_resolver_that_fails_later_changes_nothing() -> None:
    async def main(dialler: Dialler, resolver: Resolver) -> None:
        host_of(await dialler.dial())
        resolver.address = None
        await trio.sleep(FRESH)
        host_of(await dialler.dial())
        await trio.testing.wait_all_tasks_blocked()
        assert host_of(await dialler.dial()) == HERE

    server, port = listener()
    with server:
        assert dialling(main, port).asked == 2


def test_an_address_that_refuses_is_forgotten_and_the_name_asked_at_once() -> None:
    async def main(dialler: Dialler, resolver: Resolver) -> None:
        host_of(await dialler.dial())
        server.close()
        resolver.address = THERE
        assert host_of(await dialler.dial()) == THERE

    server, port = listener()
    with server, listener(THERE, port)[0]:
        dialling(main, port)


def test_an_address_that_falls_silent_costs_a_quarter_of_a_second() -> None:
    async def main(dialler: Dialler, resolver: Resolver) -> None:
        host_of(await dialler.dial())
        # The queue of those who wait for accept() is full: the next SYN is dropped.
        host_of(await dialler.dial())
        resolver.address = THERE
        start = trio.current_time()
        assert host_of(await dialler.dial()) == THERE
        assert trio.current_time() - start == pytest.approx(PATIENCE)

    server, port = listener(backlog=1)
    with server, listener(THERE, port)[0]:
        dialling(main, port)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_address_in_numbers_is_dialled_as_it_is(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def by_name(*_: object) -> None:
        raise AssertionError("not through names")

    async def main(dialler: Dialler, resolver: Resolver) -> None:
        assert host_of(await dialler.dial()) == host

    monkeypatch.setattr(trio, "open_tcp_stream", by_name)

    try:
        server = socket.create_server(
            (host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as error:
        pytest.skip(f"no {host} on this machine: {error}")
    with server:
        assert dialling(main, server.getsockname()[1], host).asked == 0


def test_who_is_not_there_is_not_connected_with_the_reason() -> None:
    async def main(dialler: Dialler, resolver: Resolver) -> None:
        with pytest.raises(NotConnected, match="ECONNREFUSED"):
            await dialler.dial()

    server, port = listener()
    server.close()
    for host in (NAME, HERE):
        dialling(main, port, host)
