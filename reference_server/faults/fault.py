"""What a fault is: small changes at the seams of an answer, and the seams that apply them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reference_server.engine.interface import Event, Work
from reference_server.seams import AT_ONCE, Act, After, Answer, Document, Part, Seams, Slow

Sent = bytes | Act


@dataclass(slots=True)
class Place:
    """Where in the answer a seam stands. `memory` belongs to one fault and one exchange.

    `shared` belongs to one fault and lives as long as the server: what neighbours leave behind.
    """

    body: Document  # the request's JSON; empty where it is none
    serial: int  # number of the request in this process
    connection: Document  # remembered from one exchange to the next on this connection
    part: Part = Part.CONTENT
    n: int = 0  # items before this one at this seam
    nth: int = 0  # items of the same part before this one at this seam
    streaming: bool = False  # the answer is an event stream
    memory: Document = field(default_factory=dict)
    shared: Document = field(default_factory=dict)

    @property
    def asks_stream(self) -> bool:
        return self.body.get("stream") is True

    @property
    def asks_usage(self) -> bool:
        options = self.body.get("stream_options")
        return isinstance(options, dict) and options.get("include_usage") is True

    @property
    def choices(self) -> int:
        """The request's n."""
        n = self.body.get("n")
        return n if isinstance(n, int) else 1


@dataclass(frozen=True, slots=True)
class Fault:
    """One defect. `id` is the check that must catch it; a variant does it in another way."""

    id: str
    title: str
    variant: str = ""
    authorised: Callable[[Place, bool], bool] | None = None
    request: Callable[[Place, bytes], bytes] | None = None
    work: Callable[[Place, Work], Work] | None = None
    event: Callable[[Place, Event], Iterable[Event]] | None = None
    chunk: Callable[[Place, Document], Iterable[Document]] | None = None
    block: Callable[[Place, bytes], Iterable[Sent]] | None = None
    frame: Callable[[Place, bytes], Iterable[Sent]] | None = None
    plain: Callable[[Place, Document], Document] | None = None
    whole: Callable[[Place, Answer], Answer] | None = None
    refusal: Callable[[Place, Answer], Answer] | None = None
    hung_up: Callable[[Place, str, bool], After] | None = None
    heartbeat: float | None = None
    slow: Slow | None = None

    @property
    def name(self) -> str:
        """As `--fault` takes it."""
        return f"{self.id}:{self.variant}" if self.variant else self.id


class FaultySeams(Seams):
    """Passes one answer through some faults, in order."""

    def __init__(
        self,
        faults: Sequence[Fault],
        body: Document,
        serial: int,
        connection: Document,
        shared: Mapping[str, Document] | None = None,
    ) -> None:
        self._faults = faults
        self.slow = next((fault.slow for fault in faults if fault.slow), None)
        shared = shared or {}
        self._places = [
            Place(body, serial, connection, shared=shared.get(fault.name, {})) for fault in faults
        ]
        self._seen: Counter[tuple[int, str, Part | None]] = Counter()
        self._streaming = False

    def authorised(self, right: bool) -> bool:
        for number, fault in enumerate(self._faults):
            if fault.authorised:
                right = fault.authorised(self._at(number, "authorised", Part.HEAD), right)
        return right

    def request(self, body: bytes) -> bytes:
        for number, fault in enumerate(self._faults):
            if fault.request:
                body = fault.request(self._at(number, "request", Part.BODY), body)
        return body

    def work(self, work: Work) -> Work:
        for number, fault in enumerate(self._faults):
            if fault.work:
                work = fault.work(self._at(number, "work", Part.CONTENT), work)
        return work

    def event(self, event: Event) -> Iterable[Event]:
        return self._through("event", Part.CONTENT, event)

    def chunk(self, part: Part, chunk: Document) -> Iterable[Document]:
        return self._through("chunk", part, chunk)

    def block(self, part: Part, block: bytes) -> Iterable[Sent]:
        return self._through("block", part, block)

    def frame(self, part: Part, raw: bytes) -> Iterable[Sent]:
        if part is Part.HEAD:
            self._streaming = b"text/event-stream" in raw
        return self._through("frame", part, raw)

    def hung_up(self, how: str, began: bool) -> After:
        said = AT_ONCE
        for number, fault in enumerate(self._faults):
            if fault.hung_up:
                said = fault.hung_up(self._at(number, "hung_up", Part.END), how, began)
        return said

    def heartbeat(self, seconds: float | None) -> float | None:
        faulty = [fault.heartbeat for fault in self._faults if fault.heartbeat is not None]
        return min(faulty, default=seconds)

    def plain(self, document: Document) -> Document:
        for number, fault in enumerate(self._faults):
            if fault.plain:
                document = fault.plain(self._at(number, "plain", Part.BODY), document)
        return document

    def whole(self, answer: Answer) -> Answer:
        for number, fault in enumerate(self._faults):
            if fault.whole:
                answer = fault.whole(self._at(number, "whole", Part.BODY), answer)
        return answer

    def refusal(self, answer: Answer) -> Answer:
        for number, fault in enumerate(self._faults):
            if fault.refusal:
                answer = fault.refusal(self._at(number, "refusal", Part.ERROR), answer)
        return answer

    def _through(self, seam: str, part: Part, item: Any) -> list[Any]:
        """The item through each fault's function at this seam; what becomes of it goes on."""
        items = [item]
        for number, fault in enumerate(self._faults):
            change = getattr(fault, seam)
            if change is not None:
                items = [
                    out
                    for one in items
                    for out in (
                        (one,)
                        if isinstance(one, Act)
                        else change(self._at(number, seam, part), one)
                    )
                ]
        return items

    def _at(self, number: int, seam: str, part: Part) -> Place:
        place = self._places[number]
        place.part, place.streaming = part, self._streaming
        place.n, place.nth = self._seen[number, seam, None], self._seen[number, seam, part]
        self._seen[number, seam, None] += 1
        self._seen[number, seam, part] += 1
        return place


def request_document(body: bytes) -> Document:
    """The JSON object of a request, or an empty one."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
