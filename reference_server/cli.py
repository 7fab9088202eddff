"""The command `reference-server`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack

import trio

from reference_server.bridge import Bridge
from reference_server.bridge.policy import POLICIES
from reference_server.engine.interface import Engine
from reference_server.engine.scripted import CONTEXT, ScriptedEngine
from reference_server.faults.table import find, listing, seams_for
from reference_server.options import SCRIPTED, parser, problem
from reference_server.personalities import find as personality
from reference_server.wire.server import SeamsFor, Server, Settings
from reference_server.write_log import logging_to

DRAIN_SECONDS = 10.0
STEP_MS = 2.0
_GIVEN = ("device", "dtype", "kv_blocks", "prefill_chunk")  # else as `models.load` has it


class Unready(Exception):
    """The server cannot start; the message is one line."""


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 after a shutdown, 2 when it could not start."""
    options = parser().parse_args(argv)
    if options.list_faults:
        print(listing())
        return 0
    try:
        if wrong := problem(options):
            raise Unready(wrong)
        with ExitStack() as opened:
            seams = _seams(options, opened)
            return trio.run(_serve, options, _engine(options), seams)
    except Unready as error:
        _tell(str(error))
        return 2


def _tell(line: str) -> None:
    print(f"reference-server: {line}", file=sys.stderr, flush=True)


def _engine(options: argparse.Namespace) -> Engine:
    """The scripted one, or a model with its libraries: they are imported only here."""
    if options.model == SCRIPTED:
        return ScriptedEngine(options.max_batch, context=options.context or CONTEXT)
    try:
        from reference_server.engine import models
    except ImportError as error:
        wanted = f"--model {options.model} needs torch and transformers ({error.name} is missing)"
        hint = "install streamproof[reference], or use --model scripted"
        raise Unready(f"{wanted}: {hint}") from None
    try:
        return models.load(
            options.model,
            max_batch=options.max_batch,
            prefix_sharing=not options.no_prefix_sharing,
            batch_invariant=options.batch_invariant,
            threads=options.threads,
            tell=_tell,
            **{name: value for name in _GIVEN if (value := getattr(options, name)) is not None},
        )
    except models.ModelError as error:
        raise Unready(str(error)) from None


def _bridge(options: argparse.Namespace, engine: Engine) -> Bridge:
    """The scripted engine keeps the pace it is told; one that computes gets a thread."""
    scripted = options.model == SCRIPTED
    step_ms = STEP_MS if options.step_ms is None else options.step_ms
    pace = step_ms / 1000 if scripted else 0.0
    slow = POLICIES[options.slow_client]
    return Bridge(engine, pace, threaded=not scripted, slow=slow)


def _seams(options: argparse.Namespace, opened: ExitStack) -> SeamsFor:
    """What is broken for each request, or only looked at."""
    if options.log_writes:
        try:
            log = open(options.log_writes, "w", encoding="ascii")  # noqa: SIM115
        except OSError as error:
            raise Unready(f"--log-writes {options.log_writes}: {error.strerror}") from None
        return logging_to(opened.enter_context(log))
    faults = [find(name) for name in options.fault]
    faults += personality(options.personality).parts() if options.personality else ()
    return seams_for(faults, options.allow_faults)


async def _serve(options: argparse.Namespace, engine: Engine, seams: SeamsFor) -> int:
    bridge = _bridge(options, engine)
    settings = Settings(
        model=options.model,
        context=options.context,
        max_waiting=options.max_waiting,
        start_within=options.start_within,
        heartbeat=options.heartbeat,
        api_key=os.environ[options.api_key_env] if options.api_key_env else None,
    )
    server = Server(bridge, settings, seams=seams)
    listeners = await _listening(options.host, options.port)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bridge.run)
        accepting = trio.CancelScope()
        nursery.start_soon(_accept, server, listeners, accepting)
        # Whoever reads the first line may send a signal at once.
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            _announce(listeners, settings.model)
            await _until_told_to_leave(server, accepting, signals)
        nursery.cancel_scope.cancel()
    return 0


async def _listening(host: str, port: int) -> list[trio.SocketListener]:
    try:
        return await trio.open_tcp_listeners(port, host=host)
    except OSError as error:
        raise Unready(f"cannot listen on {host}:{port}: {error.strerror}") from None


async def _until_told_to_leave(
    server: Server, accepting: trio.CancelScope, signals: AsyncIterator[int]
) -> None:
    """The first signal drains, the second one stops."""
    await anext(signals)
    accepting.cancel()
    async with trio.open_nursery() as leaving:
        leaving.start_soon(_drain, server, leaving.cancel_scope)
        await anext(signals)
        leaving.cancel_scope.cancel()


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
