"""The command `reference-server`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence

import trio

from reference_server.bridge import Bridge
from reference_server.engine.scripted import ScriptedEngine
from reference_server.faults.table import HEADER, find, listing, seams_for
from reference_server.personalities import PERSONALITIES
from reference_server.personalities import find as personality
from reference_server.wire.server import Server, Settings

DRAIN_SECONDS = 10.0
_ABOUT = "A streaming LLM server to test against, and to break on purpose (--fault)."
_EXAMPLE = "example: reference-server --model scripted --port 8000 --step-ms 20"


class _Parser(argparse.ArgumentParser):
    """One line for a bad flag, without the usage."""

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(2, f"reference-server: {message} (see --help)\n")


class _Version(argparse.Action):
    """Reads the metadata only when asked: importing its reader costs start-up time."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"streamproof {version('streamproof')}")
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 after a shutdown, 2 when it could not start."""
    options = _parser().parse_args(argv)
    if options.list_faults:
        print(listing())
        return 0
    problem = _problem(options)
    if problem:
        print(f"reference-server: {problem}", file=sys.stderr)
        return 2
    try:
        return trio.run(_serve, options)
    except OSError as error:
        where = f"{options.host}:{options.port}"
        print(f"reference-server: cannot listen on {where}: {error.strerror}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="reference-server", description=_ABOUT, epilog=_EXAMPLE)
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    parser.add_argument("--model", default="scripted", help="scripted (no torch needed)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (loopback)")
    parser.add_argument("--port", type=int, default=8000, help="0 picks a free port")
    parser.add_argument("--step-ms", type=float, default=2.0, help="time of one decode step")
    parser.add_argument("--max-batch", type=int, default=16, help="choices decoded at once")
    parser.add_argument("--max-waiting", type=int, help="refuse with 429 beyond this queue")
    parser.add_argument("--heartbeat", type=float, metavar="S", help="comment after S silent s")
    parser.add_argument("--api-key-env", metavar="NAME", help="variable that holds the API key")
    parser.add_argument(
        "--fault", action="append", default=[], metavar="ID", help="break this on purpose (repeat)"
    )
    parser.add_argument(
        "--personality", metavar="NAME",
        help=f"do as another server is documented to do: {', '.join(PERSONALITIES)}",
    )  # fmt: skip
    parser.add_argument(
        "--allow-faults", action="store_true", help=f"let requests ask for faults ({HEADER}: ID)"
    )
    parser.add_argument("--list-faults", action="store_true", help="print all faults and exit")
    return parser


def _problem(options: argparse.Namespace) -> str | None:
    """What is wrong with the options, in one line."""
    if options.model != "scripted":
        return f"--model {options.model} needs a later release; use --model scripted"
    if not 0 <= options.port <= 65535:
        return "--port: expected 0 to 65535"
    if options.step_ms < 0 or options.max_batch < 1:
        return "--step-ms must not be negative and --max-batch must be at least 1"
    if options.max_waiting is not None and options.max_waiting < 0:
        return "--max-waiting must not be negative"
    if options.heartbeat is not None and options.heartbeat <= 0:
        return "--heartbeat must be positive"
    if options.api_key_env and not os.environ.get(options.api_key_env):
        return f"--api-key-env: the environment variable {options.api_key_env} is not set"
    if options.personality and (unknown := _unknown_personality(options.personality)):
        return unknown
    return next(filter(None, map(_unknown_fault, options.fault)), None)


def _unknown_personality(name: str) -> str | None:
    try:
        personality(name)
    except KeyError as error:
        return f"--personality: {error.args[0]}"
    return None


def _unknown_fault(name: str) -> str | None:
    try:
        find(name)
    except KeyError as error:
        return f"--fault: {error.args[0]}"
    return None


async def _serve(options: argparse.Namespace) -> int:
    key = os.environ[options.api_key_env] if options.api_key_env else None
    bridge = Bridge(ScriptedEngine(options.max_batch), options.step_ms / 1000)
    settings = Settings(
        model=options.model,
        max_waiting=options.max_waiting,
        heartbeat=options.heartbeat,
        api_key=key,
    )
    faults = [find(name) for name in options.fault]
    faults += personality(options.personality).parts() if options.personality else ()
    server = Server(bridge, settings, seams=seams_for(faults, options.allow_faults))
    listeners = await trio.open_tcp_listeners(options.port, host=options.host)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bridge.run)
        accepting = trio.CancelScope()
        nursery.start_soon(_accept, server, listeners, accepting)
        _announce(listeners, settings.model)
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            await anext(signals)
            accepting.cancel()
            async with trio.open_nursery() as leaving:
                leaving.start_soon(_drain, server, leaving.cancel_scope)
                await anext(signals)
                leaving.cancel_scope.cancel()
        nursery.cancel_scope.cancel()
    return 0


async def _accept(
    server: Server, listeners: list[trio.SocketListener], accepting: trio.CancelScope
) -> None:
    """Accepting can end before the connections do."""

    async def connection(stream: trio.SocketStream) -> None:
        try:
            await server.serve_connection(stream)
        except Exception:
            # A bug of ours must not take the other connections with it, nor go unseen.
            traceback.print_exc()

    async with trio.open_nursery() as connections:
        with accepting:
            await trio.serve_listeners(connection, listeners, handler_nursery=connections)


async def _drain(server: Server, leaving: trio.CancelScope) -> None:
    await server.drain(DRAIN_SECONDS)
    leaving.cancel()


def _announce(listeners: list[trio.SocketListener], model: str) -> None:
    host, port = listeners[0].socket.getsockname()[:2]
    host = f"[{host}]" if ":" in host else host
    print(json.dumps({"url": f"http://{host}:{port}/v1", "model": model}), flush=True)
