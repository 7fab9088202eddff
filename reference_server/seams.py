"""The places where an answer may be changed on its way out. A clean server changes nothing.

The wire passes everything it sends through one `Seams` object per exchange. `Seams` itself is the
identity; `reference_server.faults` supplies ones that break an answer on purpose.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from reference_server.engine.interface import Event, Work

Document = dict[str, Any]


class Act(Enum):
    """What a faulty server does to its connection instead of writing."""

    CLOSE = "close"  # send FIN, write nothing more
    RESET = "reset"  # send RST
    STALL = "stall"  # write nothing more and keep the socket open
    BEAT = "beat"  # from now on only comments, for ever
    FINISH = "finish"  # end the body here, rightly framed; what would follow is not written


class Part(Enum):
    """What a piece of the answer is: for event blocks and for HTTP bytes."""

    ROLE = "role"
    CONTENT = "content"
    TOOL = "tool"
    FINISH = "finish"
    USAGE = "usage"
    ERROR = "error"
    DONE = "done"
    COMMENT = "comment"
    HEAD = "head"
    BODY = "body"
    END = "end"


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer that is not streamed."""

    status: int
    body: bytes
    content_type: bytes = b"application/json"
    fields: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class After:
    """What becomes of the work when a client hangs up. The clean server ends it at once.

    `seconds`: how long it goes on (infinite: to its end). `leaks`: its places in the batch are
    never given back. `cuts`: everybody else's work is ended with it.
    """

    seconds: float = 0.0
    leaks: bool = False
    cuts: bool = False


AT_ONCE = After()


class Slow(Enum):
    """What a faulty server does about a client that does not read."""

    WAIT = "wait"  # everybody waits with it
    DROP = "drop"  # what was made meanwhile is lost
    FINISH = "finish"  # the body is ended, rightly framed


class Seams:
    """The identity. `slow` None: only the answer that is not read waits.

    Each method gets what the clean server would send and says what is sent."""

    slow: Slow | None = None

    def authorised(self, right: bool) -> bool:
        """Is the request let in? `right`: it has the key, or needs none."""
        return right

    def request(self, body: bytes) -> bytes:
        """The request's body before it is read."""
        return body

    def work(self, work: Work) -> Work:
        """What the engine is asked."""
        return work

    def event(self, event: Event) -> Iterable[Event]:
        """One engine event of this exchange."""
        return (event,)

    def chunk(self, part: Part, chunk: Document) -> Iterable[Document]:
        """One chunk object before it is serialised."""
        return (chunk,)

    def block(self, part: Part, block: bytes) -> Iterable[bytes | Act]:
        """One serialised event-stream block."""
        return (block,)

    def frame(self, part: Part, raw: bytes) -> Iterable[bytes | Act]:
        """Bytes as HTTP framed them: the head, a piece of the body, or the end."""
        return (raw,)

    def hung_up(self, how: str, began: bool) -> After:
        """The client hung up: `how` is "fin" or "rst"; `began`: the answer's head was sent."""
        return AT_ONCE

    def heartbeat(self, seconds: float | None) -> float | None:
        """After how much silence a comment is sent; None: never."""
        return seconds

    def plain(self, document: Document) -> Document:
        """The document of an answer that is not streamed."""
        return document

    def whole(self, answer: Answer) -> Answer:
        """The 2xx answer that carries such a document."""
        return answer

    def refusal(self, answer: Answer) -> Answer:
        """A 4xx or 5xx answer."""
        return answer


CLEAN = Seams()
