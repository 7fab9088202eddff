"""`run` from end to end: offered is what was asked for, and the figures have closed forms."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from loadgen.load import Limits
from loadgen.outcome import Fate
from tests.conformance.attacks import says
from tests.conformance.hostile_server import EVENTS, Asked, Attack, head, stream_answer
from tests.loadgen.playing import STEP, against, against_reference

WHOLE = stream_answer()


def after(seconds: float) -> Attack:
    """A whole answer, so long after the request."""

    async def attack(stream: trio.SocketStream) -> None:
        await trio.sleep(seconds)
        await stream.send_all(head(EVENTS, b"Connection: close") + WHOLE)

    return attack


def slow(seconds: float) -> Callable[[Asked], Attack | None]:
    return lambda asked: after(seconds) if asked.method == "POST" else None


class Freezing:
    """Answers after `service` seconds; between two moments after the first request it is frozen."""

    def __init__(self, service: float, frozen: float, thawed: float) -> None:
        self.service, self.frozen, self.thawed = service, frozen, thawed
        self.start: float | None = None

    def __call__(self, asked: Asked) -> Attack | None:
        if asked.method != "POST":
            return None
        now = trio.current_time()
        self.start = now if self.start is None else self.start
        since = now - self.start
        wait = self.thawed - since if self.frozen <= since < self.thawed else 0.0
        return after(wait + self.service)


def test_a_frozen_server_moves_the_percentiles_as_the_closed_form_says() -> None:
    """10/s for 30 s, frozen from 10 s to 15 s: 250 requests wait 0.1 s, 50 wait 0.2, 0.3, … 5.1."""
    ran = against(Freezing(0.1, 9.95, 15.0), "--rate", "10", "--duration", "30")
    ttft = ran.result.summary.metrics["ttft"]
    assert (ttft.n, ran.outcomes) == (300, {"complete": 300})
    found = {each.q: each.value for each in ttft.quantiles}
    assert found[0.5] == pytest.approx(0.1, abs=1e-6)
    assert found[0.9] == pytest.approx(0.1 * (1 + 270 - 250), abs=1e-6)
    assert found[0.95] == pytest.approx(0.1 * (1 + 285 - 250), abs=1e-6)
    assert found[0.99] == pytest.approx(0.1 * (1 + 297 - 250), abs=1e-6)
    assert ttft.most == pytest.approx(5.1, abs=1e-6)
    assert ttft.mean == pytest.approx((250 * 0.1 + sum(0.1 * k for k in range(2, 52))) / 300)


def test_a_client_that_is_late_shows_from_the_intended_start_and_not_from_the_send() -> None:
    """Five places for 20/s of one second each would omit; here what does not fit is dropped."""
    ran = against(slow(1.0), "--rate", "20", "--duration", "10", limits=Limits(in_flight=5))
    books = ran.result.summary.books
    assert (books.scheduled, books.sent, books.dropped) == (200, 50, 150)
    assert [doubt.reason for doubt in ran.result.doubts] == ["client_limited", "rate_not_achieved"]
    assert ran.result.exit == 3
    assert ran.result.summary.goodput == pytest.approx(50 / 200)


def test_an_open_loop_keeps_its_schedule_whatever_the_server_does() -> None:
    ran = against(slow(7.0), "--rate", "8", "--duration", "5", "--arrivals", "poisson")
    rows = ran.result.rows
    starts = [row.intended - rows[0].intended for row in rows]
    sends = [row.sent - rows[0].intended for row in rows if row.sent is not None]
    assert sends == pytest.approx(starts, abs=1e-6)
    assert max(row.lateness or 0.0 for row in rows) < 1e-6
    assert ran.took == pytest.approx(starts[-1] + rows[0].intended + 7.0, abs=0.1)


def test_a_closed_loop_holds_its_number_of_clients() -> None:
    """Three clients, one second a request, ten seconds: each begins at 0, 1, … 9."""
    ran = against(slow(1.0), "--concurrency", "3", "--duration", "9.5")
    starts = sorted(row.intended for row in ran.result.rows)
    assert [round(at - starts[0], 6) for at in starts] == [k for k in range(10) for _ in range(3)]
    assert ran.result.summary.rates["in-flight"] == pytest.approx(3.0, abs=1e-3)


def test_a_closed_loop_ends_with_its_requests() -> None:
    ran = against(slow(1.0), "--concurrency", "4", "--requests", "10")
    assert (len(ran.asked), ran.outcomes) == (10, {"complete": 10})
    assert sorted(row.index for row in ran.result.rows) == list(range(10))


@pytest.mark.parametrize("load", [("--rate", "10"), ("--concurrency", "2")])
def test_no_more_is_sent_than_allowed_and_the_rest_is_dropped(load: tuple[str, ...]) -> None:
    ran = against(slow(0.1), *load, "--requests", "30", "--max-requests", "12")
    assert len(ran.asked) == 12
    assert ran.outcomes == {"complete": 12, "dropped": 18}


def test_a_trace_is_played_at_its_times(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text('{"at": 0.5, "output_tokens": 3}\n{"at": 0.25}\n{"at": 2}\n')
    ran = against(slow(0.1), "--trace", str(file), "--output-tokens", "44")
    starts = [row.intended for row in ran.result.rows]
    assert [round(at - starts[0], 6) for at in starts] == [0.0, 0.25, 1.75]
    assert sorted(a.body["max_tokens"] for a in ran.asked if a.body) == [3, 44, 44]


def test_the_same_seed_sends_the_same_bytes() -> None:
    load = ("--rate", "10", "--requests", "15", "--seed", "4")
    words = (*load, "--input-tokens", "5..9", "--tokenizer", "words")
    first, second = (against(slow(0.1), *words) for _ in range(2))
    assert [asked.body for asked in first.asked] == [asked.body for asked in second.asked]
    assert len({str(asked.body) for asked in first.asked}) == 15


async def interrupt(_: trio.CancelScope) -> None:
    await trio.sleep(5.0)
    signal.raise_signal(signal.SIGINT)


def test_an_interruption_leaves_a_report_of_what_was_measured() -> None:
    ran = against(slow(1.0), "--rate", "10", "--duration", "60", meanwhile=interrupt)
    books = ran.result.summary.books
    assert books.scheduled == books.sent + books.cancelled == 600
    assert books.of[Fate.LEFT] == 10
    assert books.of[Fate.COMPLETE] == books.sent - 10
    assert 38 <= books.of[Fate.COMPLETE] <= 40
    assert (ran.result.complete, ran.result.failed) == (False, 0)
    assert [doubt.reason for doubt in ran.result.doubts] == ["interrupted"]
    assert ran.took < 5.1


def test_an_interrupted_closed_loop_keeps_its_books_too() -> None:
    ran = against(slow(1.0), "--concurrency", "2", "--requests", "50", meanwhile=interrupt)
    assert ran.outcomes == {"complete": 8, "left": 2, "cancelled": 40}
    assert ran.result.exit == 3


def test_connections_are_kept_and_used_again() -> None:
    ran = against(lambda asked: None, "--rate", "5", "--requests", "10")
    assert [row.reused for row in ran.result.rows] == [False, *[True] * 9]
    assert ran.result.summary.metrics["connect"].n == 1


def test_a_connection_that_the_server_closed_after_all_is_not_used_again() -> None:
    numbers = itertools.count()

    def choose(asked: Asked) -> Attack | None:
        promises = asked.method == "POST" and next(numbers) % 2 == 0
        answer = head(EVENTS, b"Content-Length: %d" % len(WHOLE)) + WHOLE
        return says(answer) if promises else None

    ran = against(choose, "--rate", "5", "--requests", "20")
    assert ran.outcomes == {"complete": 20}


def test_the_warm_up_counts_in_no_figure() -> None:
    ran = against(
        slow(0.1), "--rate", "10", "--duration", "10", "--warmup", "4", "--max-requests", "100"
    )
    assert ran.result.summary.metrics["ttft"].n == 60
    assert ran.result.summary.books.scheduled == 100
    assert ran.result.summary.window.seconds == pytest.approx(6.0)


def test_the_reference_server_is_measured_as_its_step_says() -> None:
    """A token each 20 ms: TTFT within two steps, TPOT one, no MUST broken."""
    ran = against_reference("--rate", "7", "--requests", "20", "--output-tokens", "20")
    result = ran.result
    assert (ran.outcomes, result.failed, result.exit) == ({"complete": 20}, 0, 0)
    assert (result.tally.judged, result.tally.broken) == (20, set())
    assert all(row.completion_tokens == 20 for row in result.rows)
    tpot, ttft = result.summary.metrics["tpot"], result.summary.metrics["ttft"]
    assert tpot.most == pytest.approx(STEP, rel=0.06)
    assert ttft.most is not None
    assert ttft.most <= 2 * STEP + 1e-6


def test_a_queue_shows_in_ttft() -> None:
    """Two places for four clients: half of every answer's time is spent waiting."""
    ran = against_reference(
        "--concurrency", "4", "--requests", "16", "--output-tokens", "10", batch=2
    )
    ttft = ran.result.summary.metrics["ttft"]
    assert ttft.most is not None
    assert ttft.most >= 9 * STEP


def test_completions_are_loaded_as_well() -> None:
    ran = against_reference("--api", "completions", "--rate", "10", "--requests", "5")
    assert (ran.outcomes, ran.result.exit) == ({"complete": 5}, 0)
    assert ran.result.tally.judged == 5
