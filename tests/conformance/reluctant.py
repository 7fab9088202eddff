"""Servers that are in order and hard to test: too fast, too busy, thinking aloud, never the same.

Each is the reference server with one habit. What the habit touches must neither pass nor fail.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import trio
import trio.testing

from conformance.report.model import Report
from conformance.run import execute
from conformance.run_report import Recorded, report_from
from reference_server.bridge import Bridge
from reference_server.engine.interface import Work
from reference_server.engine.scripted import ScriptedEngine
from reference_server.seams import Act, Document, Part, Seams
from reference_server.wire.connection import Request
from reference_server.wire.errors import ApiError, invalid
from reference_server.wire.server import Server
from tests.conformance.test_run import setup

OPTIONAL = (
    "temperature",
    "seed",
    "stop",
    "stream_options",
    "logprobs",
    "top_logprobs",
    "n",
    "tools",
    "tool_choice",
    "response_format",
    "echo",
)
_MOODS = ("well", "maybe", "rather", "never", "often", "a bit", "so", "and then", "or", "hardly")
_ROUTES = ("/v1/chat/completions", "/v1/completions")
SeamsFor = Callable[[Request, dict[str, Any]], Seams]


@dataclass(frozen=True, slots=True)
class Reluctant:
    """A habit. `step`: seconds for one token."""

    seams: Callable[[], SeamsFor]
    step: float = 0.01


def always(make: Callable[[], Seams]) -> Callable[[], SeamsFor]:
    """The same habit in every answer."""
    return lambda: lambda request, memory: make()


class Ignoring(Seams):
    """Members that are optional are not looked at."""

    def request(self, body: bytes) -> bytes:
        try:
            document = json.loads(body)
        except ValueError:
            return body
        if not isinstance(document, dict):
            return body
        return json.dumps({k: v for k, v in document.items() if k not in OPTIONAL}).encode()


class Honest(Seams):
    """Members that are optional are refused, each by its name."""

    def request(self, body: bytes) -> bytes:
        try:
            document = json.loads(body)
        except ValueError:
            return body
        for name in OPTIONAL:
            if isinstance(document, dict) and name in document:
                raise invalid(f"{name} is not supported", name, "unsupported_parameter")
        return body


class Thinking(Seams):
    """Every chat answer is a thought, and the limit comes before the answer does."""

    def work(self, work: Work) -> Work:
        return replace(work, answer=work.answer or "So, what is wanted here? " * 400)

    def chunk(self, part: Part, chunk: Document) -> Iterable[Document]:
        for choice in chunk["choices"]:
            if choice.get("delta", {}).get("content"):
                choice["delta"]["reasoning_content"] = choice["delta"].pop("content")
        return (chunk,)

    def plain(self, document: Document) -> Document:
        for choice in document["choices"]:
            if message := choice.get("message"):
                message["reasoning_content"], message["content"] = message["content"], None
        return document


class Moody(Seams):
    """No answer is the same twice, whatever temperature and seed say."""

    _count = itertools.count()

    def work(self, work: Work) -> Work:
        rng = random.Random(next(self._count))
        answer = " ".join(rng.choice(_MOODS) for _ in range(400))
        return replace(work, answer=answer if work.answer is None else work.answer)


class AtOnce(Seams):
    """Nothing is sent before everything is there."""

    def __init__(self) -> None:
        self._kept: list[bytes] = []

    def frame(self, part: Part, raw: bytes) -> Iterable[bytes | Act]:
        self._kept.append(raw)
        if part is not Part.END:
            return ()
        whole, self._kept = b"".join(self._kept), []
        return (whole,)


def busy(every: int, free: int = 0) -> Callable[[], SeamsFor]:
    """A 429 for every so-manieth generation, the first few apart."""

    def made() -> SeamsFor:
        count = 0

        def seams(request: Request, memory: dict[str, Any]) -> Seams:
            nonlocal count
            count += request.path in _ROUTES
            if request.path in _ROUTES and count > free and count % every == 0:
                raise ApiError(
                    429, "slow down", code="rate_limit", fields=((b"retry-after", b"1"),)
                )
            return Seams()

        return seams

    return made


RELUCTANT: Mapping[str, Reluctant] = {
    "429 on every third request": Reluctant(busy(3, free=2)),
    "429 on every request": Reluctant(busy(1, free=2)),
    "honest 4xx": Reluctant(always(Honest)),
    "silent ignore": Reluctant(always(Ignoring)),
    "reasoning only": Reluctant(always(Thinking)),
    "non-repeatable": Reluctant(always(Moody)),
    "one burst": Reluctant(always(AtOnce)),
    "too fast": Reluctant(always(Seams), step=0.0),
}


def run(name: str, *words: str) -> tuple[Recorded, Report]:
    """One `conformance run` against that server, in virtual time."""
    habit, recorded = RELUCTANT[name], Recorded()
    out: list[Report] = []

    async def main() -> None:
        bridge = Bridge(ScriptedEngine(16, seed=7), habit.step)
        server = Server(bridge, seams=habit.seams())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bridge.run)
            listeners = await nursery.start(trio.serve_tcp, server.serve_connection, 0)
            port = listeners[0].socket.getsockname()[1]
            made = setup(f"http://127.0.0.1:{port}/v1", *words)
            await execute(made, recorded, lambda line: None)
            out.append(report_from(made, recorded))
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return recorded, out[0]
