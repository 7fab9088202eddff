"""The server's own numbers beside ours."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import trio

from conformance.metrics import parse
from loadgen.reload import loads
from loadgen.result import Ran
from loadgen.run_command import execute
from loadgen.server_metrics import Histogram, Served, histogram_from, reconcile, told
from tests.conformance.hostile_server import Asked, Attack, HostileServer, framed
from tests.loadgen.playing import STEP, against, against_reference, setup, virtually
from tests.loadgen.rows import failed, row
from tests.loadgen.test_reload import text

LOAD = ("--rate", "5", "--duration", "4", "--output-tokens", "10")
PAGE = """\
t_bucket{le="0.1"} 1
t_bucket{le="0.5"} 3
t_bucket{le="+Inf"} 4
t_sum 2.5
t_count 4
"""
FOUR = Histogram(((0.1, 1.0), (0.5, 3.0), (math.inf, 4.0)), 2.5, 4.0)


def test_a_histogram_is_read_and_tells_its_mean_and_the_bucket_of_a_quantile() -> None:
    found = histogram_from(parse(PAGE), "t")
    assert found == FOUR
    assert FOUR.mean == 0.625
    assert [FOUR.within(q) for q in (0.2, 0.5, 0.9)] == [(0.0, 0.1), (0.1, 0.5), (0.5, math.inf)]


def test_labels_are_summed_over() -> None:
    both = PAGE + PAGE.replace("{", '{model="b",').replace("t_sum", 't_sum{model="b"}').replace(
        "t_count", 't_count{model="b"}'
    )
    found = histogram_from(parse(both), "t")
    assert found is not None
    assert (found.count, found.buckets[1]) == (8.0, (0.5, 6.0))


@pytest.mark.parametrize(
    "page", ["", "t_sum 1\nt_count 1\n", PAGE.replace("0.5", "x"), "t_count 1"]
)
def test_half_a_histogram_is_none(page: str) -> None:
    assert histogram_from(parse(page), "t") is None


def test_what_a_load_added_is_the_difference_and_a_server_that_began_anew_has_no_past() -> None:
    more = Histogram(((0.1, 2.0), (0.5, 9.0), (math.inf, 10.0)), 6.5, 10.0)
    assert more.since(FOUR) == Histogram(((0.1, 1.0), (0.5, 6.0), (math.inf, 6.0)), 4.0, 6.0)
    assert FOUR.since(more) == FOUR
    assert FOUR.since(None) == FOUR


@pytest.mark.parametrize(
    ("tokens", "unsaid", "agrees"),
    [(10.0, 0, True), (11.0, 0, False), (12.0, 1, None), (9.0, 1, False), (None, 0, None)],
)
def test_tokens_agree_only_where_everybody_said_and_the_sums_are_equal(
    tokens: float | None, unsaid: int, agrees: bool | None
) -> None:
    rows = [row(0, 1.0), row(1, 2.0), *(failed(2 + n, 3.0) for n in range(unsaid))]
    found = reconcile(Served("vllm", (), tokens, None), rows)
    assert (found.usage, found.unsaid, found.agrees) == (10, unsaid, agrees)


def test_the_reference_server_and_its_clients_count_the_same_tokens() -> None:
    ran = against_reference(*LOAD).result
    assert ran.served is not None
    found = reconcile(ran.served, ran.rows)
    assert (found.tokens, found.usage, found.agrees) == (200.0, 200, True)
    assert len(ran.served.samples) >= 4
    assert max(each.values["running"] for each in ran.served.samples) >= 1
    start, end = ran.summary.window.start, ran.summary.window.end
    assert all(start - 1 <= each.at <= end + 2 for each in ran.served.samples)
    assert "they agree" in "\n".join(told(ran.served, ran.rows))


def test_client_and_server_tell_nearly_the_same_first_token() -> None:
    ran = against_reference(*LOAD).result
    assert ran.served is not None
    found = reconcile(ran.served, ran.rows)
    assert found.server_mean is not None
    assert found.client_mean is not None
    assert 0 <= found.client_mean - found.server_mean <= STEP


def test_what_the_server_said_comes_back_from_the_report() -> None:
    ran = against_reference(*LOAD).result
    assert loads(text(ran), "x")[0] == replace(ran, load=dict(ran.load))


def page(body: bytes) -> Attack:
    async def attack(stream: trio.SocketStream) -> None:
        await stream.send_all(framed(body, b"Connection: close"))

    return attack


@pytest.mark.parametrize("body", [b"", b"go_threads 3\n", b"\xff\xfe" * 40, b"vllm:x{" * 9])
def test_a_page_without_any_number_that_we_know_is_left_alone(body: bytes) -> None:
    seen: list[str] = []

    def choose(asked: Asked) -> Attack | None:
        seen.append(asked.target)
        return page(body) if asked.target == "/metrics" else None

    ran = against(choose, *LOAD).result
    assert (ran.served, ran.exit) == (None, 0)
    assert seen.count("/metrics") == 1


def test_nobody_looks_where_none_is_wanted() -> None:
    seen: list[str] = []

    def choose(asked: Asked) -> Attack | None:
        seen.append(asked.target)
        return None

    assert against(choose, *LOAD, "--metrics", "none").result.served is None
    assert not [target for target in seen if "/v1" not in target]


def test_another_page_can_be_named() -> None:
    out: list[Ran] = []

    def choose(asked: Asked) -> Attack | None:
        return page(b"vllm:num_requests_running 3\n") if asked.target == "/own?x=1" else None

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            url = await HostileServer(choose).start(nursery)
            words = (*LOAD, "--checks", "none", "--metrics", url.replace("/v1", "/own?x=1"))
            out.append(await execute(setup(url, *words)))
            nursery.cancel_scope.cancel()

    virtually(main)
    served = out[0].served
    assert served is not None
    assert (served.server, served.tokens) == ("vllm", None)
    assert {each.values["running"] for each in served.samples} == {3.0}


def test_what_was_served_before_the_load_is_not_counted() -> None:
    """The recovery check sends its small requests before the first look."""
    ran = against_reference(*LOAD, "--leave", "10%:between").result
    assert ran.served is not None
    assert ran.served.first_token is not None
    assert ran.served.first_token.count == len(ran.rows) == 20
    assert reconcile(ran.served, ran.rows).agrees is True
