"""Clients that leave and clients that read slowly, over real sockets and a virtual clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import trio

from loadgen.clients import parse_clients
from loadgen.outcome import Fate
from loadgen.recovered import Recovery
from loadgen.recovery import WITHIN
from loadgen.reload import loads
from tests.conformance.hostile_server import EVENTS, Asked, Attack, chunk, framed, head
from tests.loadgen.playing import STEP, Ran, against, against_reference
from tests.loadgen.test_reload import text

LOAD = ("--rate", "5", "--duration", "4", "--output-tokens", "40")


def fates(ran: Ran, name: str | None) -> set[Fate]:
    return {row.fate for row in ran.result.rows if row.client == name}


def steady(ran: Ran) -> bool:
    """Did the ordinary clients get all they asked for?"""
    rows = [row for row in ran.result.rows if row.client is None]
    return bool(rows) and all(row.fate is Fate.COMPLETE for row in rows)


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("way", ["events:3", "time:0.2", "headers"])
def test_those_who_leave_are_left_and_nobody_failed(way: str, how: str) -> None:
    ran = against_reference(*LOAD, "--leave", f"40%:{way}:{how}", "--seed", "3")
    name = f"leave {way.partition(':')[0]} {how}"
    assert fates(ran, name) == {Fate.LEFT}
    assert steady(ran)
    books = ran.result.summary.books
    assert books.sent == books.succeeded + books.of[Fate.LEFT]
    assert (books.failed, ran.result.failed, ran.result.exit) == (0, 0, 0)


def test_after_three_events_one_has_three_of_them() -> None:
    ran = against_reference(*LOAD, "--leave", "40%:events:3", "--seed", "3")
    left = [row for row in ran.result.rows if row.client is not None]
    assert left
    assert all(row.first_event is not None and len(row.token_times) <= 3 for row in left)
    assert all((row.ended or 0) - (row.sent or 0) <= 4 * STEP for row in left)


def test_who_leaves_before_the_headers_saw_none() -> None:
    ran = against_reference(*LOAD, "--leave", "40%:headers", "--seed", "3")
    left = [row for row in ran.result.rows if row.client is not None]
    assert {(row.status, row.first_byte) for row in left} == {(None, None)}


def first_token_after(seconds: float) -> Attack:
    async def attack(stream: trio.SocketStream) -> None:
        await stream.send_all(head(EVENTS, b"Connection: close"))
        await trio.sleep(seconds)
        await stream.send_all(chunk({"role": "assistant", "content": "x"}))
        await stream.send_all(chunk({}, "stop") + b"data: [DONE]\n\n")

    return attack


@pytest.mark.parametrize(("wait", "fate"), [(3.0, Fate.LEFT), (1.0, Fate.COMPLETE)])
def test_patience_ends_before_the_first_token_or_not_at_all(wait: float, fate: Fate) -> None:
    ran = against(
        lambda asked: first_token_after(wait) if asked.method == "POST" else None,
        "--rate", "5", "--duration", "4", "--leave", "40%:patience:2", "--seed", "3",
    )  # fmt: skip
    assert fates(ran, "leave patience") == {fate}
    assert steady(ran)


def test_who_leaves_between_requests_gets_a_whole_answer_on_a_line_of_its_own() -> None:
    ran = against_reference(*LOAD, "--leave", "40%:between", "--seed", "3")
    rows = [row for row in ran.result.rows if row.client == "leave between"]
    assert {(row.fate, row.reused) for row in rows} == {(Fate.COMPLETE, False)}
    assert any(row.reused for row in ran.result.rows)


@pytest.mark.parametrize(
    ("way", "slower"),
    [("rate:4000", 0.5), ("stall:3:2", 1.2), ("burst:0.5", 0.1)],
)
def test_those_who_read_slowly_get_all_of_it_later_and_the_others_do_not_wait(
    way: str, slower: float
) -> None:
    ran = against_reference(*LOAD, "--read", f"40%:{way}", "--seed", "3")
    name = f"read {way.partition(':')[0]}"
    assert fates(ran, name) == {Fate.COMPLETE}
    assert steady(ran)
    slow = [row for row in ran.result.rows if row.client == name]
    rest = [row for row in ran.result.rows if row.client is None]
    quickest = min((row.ended or 0) - (row.sent or 0) for row in slow)
    slowest = max((row.ended or 0) - (row.sent or 0) for row in rest)
    assert quickest >= slowest + slower
    assert ran.result.summary.metrics["e2e"].n == len(rest)
    assert {row.completion_tokens for row in slow} == {40}


def test_figures_are_those_of_ordinary_clients() -> None:
    ran = against_reference(*LOAD, "--read", "40%:stall:0:3", "--seed", "3")
    rows = [row for row in ran.result.rows if row.client is None]
    summary = ran.result.summary
    assert summary.metrics["ttft"].n == summary.counted == len(rows) < len(ran.result.rows)
    assert (summary.metrics["ttft"].most or 9) < 1
    assert summary.goodput == 1.0


# -- afterwards ------------------------------------------------------------------------------------

LEAVE = ("--leave", "40%:events:3", "--seed", "3")


def test_the_reference_server_is_as_it_was() -> None:
    recovery = against_reference(*LOAD, *LEAVE).result.recovery
    assert recovery is not None
    assert recovery.gauges_before == {"running": 0.0, "waiting": 0.0}
    assert (recovery.by_gauges, recovery.by_contrast, recovery.recovered) == (True, True, True)


def test_a_load_without_such_clients_is_not_checked_afterwards() -> None:
    assert against_reference(*LOAD).result.recovery is None


def leaking(seconds: float) -> Any:
    """Its gauge counts every stream ever begun, until so many seconds after the last."""
    begun: list[float] = []

    def choose(asked: Asked) -> Attack | None:
        if asked.target == "/metrics":
            return shown
        if asked.streams:
            begun.append(trio.current_time())
        return None

    async def shown(stream: trio.SocketStream) -> None:
        running = sum(at + seconds > trio.current_time() for at in begun)
        body = b"vllm:num_requests_running %d\nvllm:num_requests_waiting 0\n" % running
        await stream.send_all(framed(body, b"Content-Type: text/plain", b"Connection: close"))

    return choose


@pytest.mark.parametrize(("seconds", "recovered"), [(5.0, True), (900.0, False)])
def test_gauges_that_stay_up_are_no_recovery(seconds: float, recovered: bool) -> None:
    ran = against(leaking(seconds), "--rate", "5", "--duration", "4", "--leave", "40%:between")
    recovery = ran.result.recovery
    assert recovery is not None
    assert recovery.by_gauges is recovered
    assert ran.result.exit == (0 if recovered else 1)
    if not recovered:
        assert "not recovered: its gauges were running" in str(recovery)
        assert ran.took >= WITHIN


def test_a_server_that_slows_down_for_good_has_not_recovered() -> None:
    def choose(asked: Asked) -> Attack | None:
        if not asked.streams:
            return None
        served.append(asked)
        return first_token_after(0.1 if len(served) < 20 else 1.0)

    served: list[Asked] = []
    ran = against(choose, "--rate", "5", "--duration", "4", "--leave", "10%:headers")
    recovery = ran.result.recovery
    assert recovery is not None
    assert (recovery.by_gauges, recovery.by_contrast, recovery.recovered) == (None, False, False)


@pytest.mark.parametrize(
    ("before", "after", "recovered"),
    [
        (None, 1.0, None),
        (0.1, None, False),
        (0.1, 0.19, True),
        (0.1, 0.21, False),
        (1.0, 1.5, True),
    ],
)
def test_contrast_is_half_as_much_again_and_a_little(
    before: float | None, after: float | None, recovered: bool | None
) -> None:
    assert Recovery(None, None, None, 10.0, before, after).recovered is recovered


def test_a_stored_recovery_comes_back() -> None:
    ran = against_reference(*LOAD, *LEAVE).result
    assert loads(text(ran), "x.json") == (replace(ran, load=dict(ran.load)),)


def test_a_line_of_ones_own_is_closed_after_its_answer() -> None:
    clients = parse_clients(["50%:between"], [])
    seed = next(n for n in range(99) if clients.of(n, 0).own and not clients.of(n, 1).own)
    words = ("--concurrency", "1", "--requests", "2", "--seed", str(seed))
    ran = against_reference(*words, "--leave", "50%:between")
    assert [row.reused for row in ran.result.rows] == [False, False]
