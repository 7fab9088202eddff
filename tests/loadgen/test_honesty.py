"""Whatever the server does: the outcome is right, the sums are exact, and the run ends in time."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable

import pytest
import trio

from conformance.capture import Json
from conformance.masking import Secret
from loadgen import archive, console, export
from reference_server.seams import Document, Part, Seams
from tests.conformance.attacks import CHUNKED, TOKEN, endless, framed_chunk, holds, resets, says
from tests.conformance.hostile_server import (
    EVENTS,
    JSON,
    Asked,
    Attack,
    chunk,
    framed,
    head,
    plain_answer,
    stream_answer,
)
from tests.loadgen.playing import Ran, against, against_reference

ROLE = chunk({"role": "assistant", "content": ""})
FINISH, DONE = chunk({}, "stop"), b"data: [DONE]\n\n"
ERROR = b'data: {"error": {"message": "out of memory"}}\n\n'
OPEN = head(EVENTS)
CUT = head(EVENTS, b"Content-Length: 99999")
WHOLE = ROLE + TOKEN + FINISH + DONE
TIMEOUT = 4.0  # seconds
REQUESTS = 12
LOAD = ("--rate", "20", "--requests", str(REQUESTS), "--timeout", str(TIMEOUT))


async def half_open(stream: trio.SocketStream) -> None:
    """Says FIN after a token and reads on for ever."""
    await stream.send_all(CUT + ROLE + TOKEN)
    await stream.send_eof()
    await trio.sleep_forever()


# name → what the server does, the outcome, the most seconds that a request may take
SERVERS: dict[str, tuple[Attack, str, float]] = {
    "silent": (holds(), "no-answer", TIMEOUT),
    "silent after the head": (holds(OPEN), "stalled", TIMEOUT),
    "silent after a token": (holds(OPEN + ROLE + TOKEN), "stalled", TIMEOUT),
    "silent after the sentinel": (holds(OPEN + WHOLE), "complete", 5.0),
    "heartbeats for ever": (endless(OPEN, b": ping\n\n", 1.0), "stalled", TIMEOUT),
    "tokens for ever, slowly": (endless(OPEN + ROLE, TOKEN, 1.0), "stalled", 5 * TIMEOUT),
    "tokens for ever, fast": (endless(OPEN + ROLE, TOKEN * 100), "over-long", 5 * TIMEOUT),
    "an event for ever": (endless(OPEN + b"data: ", b"x" * 65536), "over-long", 5 * TIMEOUT),
    "half open": (half_open, "truncated", 1.0),
    "reset at once": (resets(), "no-answer", 1.0),
    "reset after a token": (resets(OPEN + ROLE + TOKEN), "truncated", 1.0),
    "closed at once": (says(), "no-answer", 1.0),
    "closed inside the head": (says(b"HTTP/1.1 200 O"), "unreadable", 1.0),
    "no HTTP": (says(b"SSH-2.0-OpenSSH_9.2\r\n"), "unreadable", 1.0),
    "error first": (says(OPEN + ERROR), "error-before-token", 1.0),
    "error later": (says(OPEN + ROLE + TOKEN + ERROR + DONE), "error-after-token", 1.0),
    "empty": (says(head(EVENTS, b"Content-Length: 0")), "empty", 1.0),
    "empty, by close": (says(OPEN), "empty", 1.0),
    "cut": (says(CUT + ROLE + TOKEN), "truncated", 1.0),
    "cut inside a chunk": (says(head(EVENTS, CHUNKED) + b"ff\r\ndata"), "truncated", 1.0),
    "no finish, no sentinel": (says(OPEN + ROLE + TOKEN), "truncated", 1.0),
    "no finish": (says(OPEN + ROLE + TOKEN + DONE), "unfinished", 1.0),
    "no token": (says(OPEN + ROLE + FINISH + DONE), "tokenless", 1.0),
    "refused": (says(framed(ERROR[6:], JSON, status=b"503 Busy")), "refused", 1.0),
    "plain JSON with 200": (says(framed(plain_answer(), JSON)), "empty", 1.0),
}


def generations(attack: Attack) -> Callable[[Asked], Attack | None]:
    return lambda asked: attack if asked.method == "POST" else None


def books_are_exact(ran: Ran, requests: int = REQUESTS) -> None:
    books, rows = ran.result.summary.books, ran.result.rows
    assert [row.index for row in rows] == list(range(requests))
    assert books.scheduled == requests == books.sent + books.dropped + books.cancelled
    assert sum(books.of.values()) == requests
    assert Counter(row.fate for row in rows) == books.of


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_is_what_its_outcomes_say_and_the_run_ends(name: str) -> None:
    attack, outcome, most = SERVERS[name]
    ran = against(generations(attack), *LOAD)
    assert ran.outcomes == {outcome: REQUESTS}
    books_are_exact(ran)
    assert ran.took <= (REQUESTS - 1) / 20 + most + 0.5
    assert ran.result.exit == (0 if outcome == "complete" else 1)


def test_two_hundred_failures_of_two_hundred_are_exit_1() -> None:
    words = ("--rate", "100", "--requests", "200", "--slo", "ttft:p99<10s")
    ran = against(generations(says(OPEN + ERROR)), *words)
    assert (ran.outcomes, ran.result.exit) == ({"error-before-token": 200}, 1)
    assert (ran.result.failed, ran.result.summary.metrics["ttft"].n) == (200, 0)
    assert [each.met.value for each in ran.result.judged] == ["missed"]


def test_a_server_that_does_something_else_each_time_is_counted_one_by_one() -> None:
    attacks = [attack for attack, _, _ in SERVERS.values()]
    expected = Counter(outcome for _, outcome, _ in SERVERS.values())
    numbers = iter(range(10**6))

    def choose(asked: Asked) -> Attack | None:
        return attacks[next(numbers) % len(attacks)] if asked.method == "POST" else None

    n = len(attacks)
    ran = against(choose, "--rate", "20", "--requests", str(2 * n), "--timeout", str(TIMEOUT))
    assert ran.outcomes == {name: 2 * count for name, count in expected.items()}
    books_are_exact(ran, 2 * n)
    assert sum(each.count for each in ran.result.failures) == 2 * n - 2 * expected["complete"]


async def dies(scope: trio.CancelScope) -> None:
    await trio.sleep(0.32)
    scope.cancel()


def test_a_server_that_dies_under_the_load_is_not_connected_from_then_on() -> None:
    """Requests 0 to 5 begin before its end at 0.32 s."""
    ran = against(generations(holds(OPEN + ROLE)), *LOAD, meanwhile=dies)
    assert ran.outcomes == {"truncated": 6, "not-connected": 6}
    assert [row.detail for row in ran.result.rows[6:]] == ["ECONNREFUSED"] * 6
    assert ran.result.exit == 1


@pytest.mark.parametrize(("allowed", "code"), [("2", 1), ("3", 0), ("24%", 1), ("25%", 0)])
def test_failures_may_be_allowed(allowed: str, code: int) -> None:
    numbers = iter(range(10**6))

    def choose(asked: Asked) -> Attack | None:
        if asked.method != "POST":
            return None
        return says(OPEN) if next(numbers) % 4 == 0 else says(OPEN + WHOLE)

    ran = against(choose, *LOAD, "--max-failures", allowed)
    assert (ran.outcomes, ran.result.exit) == ({"empty": 3, "complete": 9}, code)


class OtherIds(Seams):
    """Every chunk has an id of its own."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def chunk(self, part: Part, chunk: Document) -> Iterable[Document]:
        return ({**chunk, "id": f"c-{next(self._numbers)}"},)


def test_a_whole_stream_that_breaks_a_must_has_failed() -> None:
    ran = against_reference("--rate", "10", "--requests", "6", fault=OtherIds())
    assert ran.outcomes == {"complete": 6}
    assert (ran.result.failed, ran.result.exit) == (6, 1)
    assert ran.result.tally.told["chunk.id-changes"].bad == 6
    assert ran.result.summary.goodput == 0.0
    lenient = against_reference(
        "--rate", "10", "--requests", "6", "--checks", "none", fault=OtherIds()
    )
    assert (lenient.result.failed, lenient.result.exit) == (0, 0)


UNTERMINATED = head(EVENTS, CHUNKED) + framed_chunk(ROLE + TOKEN + FINISH)


@pytest.mark.parametrize(
    ("checks", "failed", "code"), [("wire,shape", REQUESTS, 1), ("none", 0, 0)]
)
def test_a_whole_answer_without_its_sentinel_fails_by_the_checks_and_counts_without_them(
    checks: str, failed: int, code: int
) -> None:
    """Its user has every token and the reason of its end; what is missing is `done.missing`'s."""
    ran = against(generations(says(UNTERMINATED + b"0\r\n\r\n")), *LOAD, "--checks", checks)
    assert ran.outcomes == {"complete-unterminated": REQUESTS}
    assert (ran.result.failed, ran.result.exit) == (failed, code)
    assert set(ran.result.tally.told) == ({"done.missing"} if failed else set())


def test_an_answer_that_is_cut_behind_its_finish_is_truncated_whatever_is_checked() -> None:
    ran = against(generations(says(UNTERMINATED)), *LOAD)
    assert (ran.outcomes, ran.result.exit) == ({"truncated": REQUESTS}, 1)


class Hanging:
    """Promises to keep the connection, and closes it when the next request is there: unanswered."""

    def __init__(self) -> None:
        self.answered = 0

    def __call__(self, asked: Asked) -> Attack | None:
        if asked.method != "POST":
            return None
        return self.attack

    async def attack(self, stream: trio.SocketStream) -> None:
        self.answered += 1
        await stream.send_all(head(EVENTS, b"Content-Length: %d" % len(WHOLE)) + WHOLE)
        await stream.receive_some()  # the next request


def test_a_kept_connection_that_is_closed_on_the_next_request_is_that_requests_failure() -> None:
    """Nobody may send a generation twice on a guess that the first was not begun."""
    server = Hanging()
    ran = against(server, *LOAD)
    assert ran.outcomes == {"complete": REQUESTS // 2, "no-answer": REQUESTS // 2}
    assert server.answered == REQUESTS // 2
    lost = [row for row in ran.result.rows if not row.success]
    assert all(row.reused for row in lost)
    books_are_exact(ran)


HOSTILE = b'data: {"error": {"message": "\x1b[2J=cmd|\xe2\x80\xae\xff"}}\n\n'


def test_what_a_hostile_server_says_cannot_leave_its_place_in_a_report() -> None:
    ran = against(generations(says(OPEN + HOSTILE)), *LOAD)
    text = console.render(ran.result)
    document = "".join(archive.dumps([ran.result], "0"))
    table = "".join(export.csv_lines(ran.result))
    for report in (text, document, table):
        assert "\x1b" not in report
        assert "\u202e" not in report
    told: Json = json.loads(document)["failures"][0]["told"]
    assert isinstance(told, str)
    assert "\\x1b[2J=cmd|\\u{202e}" in told


def test_a_key_that_the_server_says_back_is_in_no_report() -> None:
    key = "sk-very-secret-0123456789"
    said = b'data: {"error": {"message": "bad key %b"}}\n\n' % key.encode()
    secret = Secret("env:OPENAI_API_KEY", key.encode())
    fields = (("Authorization", f"Bearer {key}"),)
    attack = generations(says(OPEN + said))
    ran = against(attack, *LOAD, secrets=(secret,), fields=fields)
    reports = [
        "".join(archive.dumps([ran.result], "0")),
        *export.json_lines(ran.result),
        *export.csv_lines(ran.result),
        console.render(ran.result),
    ]
    assert ran.outcomes == {"error-before-token": REQUESTS}
    assert any("bad key ***" in report for report in reports)
    assert not any(key in report for report in reports)


def test_an_endless_answer_takes_bounded_memory() -> None:
    ran = against(generations(endless(OPEN + ROLE, TOKEN * 1000)), *LOAD)
    assert ran.outcomes == {"over-long": REQUESTS}
    assert max(len(row.token_times) for row in ran.result.rows) < 20_000


def test_a_stream_in_small_chunks_is_read_whole() -> None:
    pieces = b"".join(framed_chunk(bytes([b])) for b in stream_answer()) + b"0\r\n\r\n"
    ran = against(generations(says(head(EVENTS, CHUNKED) + pieces)), *LOAD)
    assert ran.outcomes == {"complete": REQUESTS}
