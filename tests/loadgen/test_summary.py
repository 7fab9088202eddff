"""A summary is arithmetic over rows, and failures have their place in it."""

from __future__ import annotations

import math

import pytest

from loadgen.formulas import METRICS
from loadgen.outcome import Fate
from loadgen.slo import parse_slo
from loadgen.summary import RATES, Window, is_good, summarise
from tests.loadgen.rows import failed, row, unsent

ALL = Window(0.0, 100.0)


def test_a_latency_has_two_origins() -> None:
    late = row(0, 1.0, ttft=0.5, late=0.25)
    values = {name: METRICS[name].values(late) for name in ("ttft", "ttft@sent", "lateness")}
    assert values == {"ttft": (0.75,), "ttft@sent": (0.5,), "lateness": (0.25,)}


def test_every_metric_gives_nothing_for_a_request_that_never_was() -> None:
    assert {m.values(unsent(0, 1.0)) for m in METRICS.values()} == {()}


def test_quantiles_are_over_successes_and_adjusted_ones_over_everybody() -> None:
    rows = [row(n, float(n), ttft=0.1 + n / 100) for n in range(80)]
    rows += [failed(80 + n, 80.0 + n / 10) for n in range(20)]
    found = summarise(rows, ALL)
    ttft, adjusted = found.metrics["ttft"], found.adjusted["ttft"]
    assert (ttft.n, adjusted.n) == (80, 100)
    assert ttft.most == pytest.approx(0.89)
    assert [q.value for q in ttft.quantiles[:2]] == pytest.approx([0.1 + 0.39, 0.1 + 0.71])
    assert [q.value for q in adjusted.quantiles[:2]] == [pytest.approx(0.1 + 0.49), math.inf]
    assert adjusted.mean == math.inf


def test_dropped_requests_count_as_infinitely_slow_and_interrupted_ones_do_not() -> None:
    rows = [row(0, 1.0), unsent(1, 2.0), unsent(2, 3.0, Fate.CANCELLED), failed(3, 4.0, Fate.LEFT)]
    found = summarise(rows, ALL)
    assert found.adjusted["e2e"].n == 2
    assert (found.good, found.goodput) == (1, 0.5)
    assert (found.books.scheduled, found.books.sent) == (4, 2)


def test_missing_is_counted_and_never_zero() -> None:
    found = summarise([row(0, 1.0, completion_tokens=None), row(1, 2.0, chunks=1)], ALL)
    tpot = found.metrics["tpot"]
    assert (tpot.n, tpot.missing, tpot.mean, tpot.most) == (0, 2, None, None)
    assert found.rates["output-tokens"] == pytest.approx(1 / 100)
    assert summarise([row(0, 1.0, completion_tokens=None)], ALL).rates["output-tokens"] is None


def test_the_warm_up_is_out_of_the_latencies_and_still_in_the_books() -> None:
    found = summarise([row(0, 1.0, ttft=9.0), row(1, 6.0)], Window(5.0, 10.0))
    assert (found.metrics["ttft"].n, found.measured.scheduled, found.books.scheduled) == (1, 1, 2)


def test_throughput_counts_tokens_by_the_time_they_came() -> None:
    """Ten chunks a second apart from 1 s on, of which the window holds five; 20 tokens."""
    crossing = row(0, 0.0, ttft=1.0, chunks=10, gap=1.0, completion_tokens=20)
    rates = summarise([crossing], Window(5.5, 10.5)).rates
    assert rates["output-tokens"] == pytest.approx(20 * 5 / 10 / 5)
    assert rates["chunks"] == pytest.approx(1.0)
    assert rates["offered"] == 0.0
    assert rates["in-flight"] == pytest.approx(4.5 / 5)
    assert set(rates) == set(RATES)


def test_tokens_of_failed_streams_count_in_throughput_where_usage_says_them() -> None:
    lost = row(0, 1.0, fate=Fate.TRUNCATED, completion_tokens=5)
    assert summarise([lost], Window(0.0, 10.0)).rates["output-tokens"] == pytest.approx(0.5)


def test_a_window_without_length_has_no_rates() -> None:
    found = summarise([row(0, 1.0)], Window(1.0, 1.0))
    assert set(found.rates.values()) == {None}
    assert found.metrics["ttft"].n == 1


def test_goodput_asks_every_request_for_every_bound() -> None:
    slos = [parse_slo("ttft:p99<600ms"), parse_slo("gap:p99<=100ms")]
    fine, slow, jerky = row(0, 1.0, gap=0.09), row(1, 2.0, ttft=0.6), row(2, 3.0, gap=0.2)
    assert [is_good(r, slos) for r in (fine, slow, jerky)] == [True, False, False]
    assert not is_good(failed(3, 4.0), slos)
    assert summarise([fine, slow, jerky, failed(3, 4.0)], ALL, slos).goodput == 0.25


def test_one_chunk_has_no_gap_to_be_missed_and_no_usage_is_not_good() -> None:
    slos = [parse_slo("tpot:p90<1s")]
    assert is_good(row(0, 1.0, chunks=1), slos)
    assert not is_good(row(0, 1.0, completion_tokens=None), slos)


def test_what_is_the_clients_own_is_not_adjusted_and_nobody_misses_it() -> None:
    rows = [row(0, 1.0, connecting=0.004), row(1, 2.0), failed(2, 3.0)]
    found = summarise(rows, ALL, [parse_slo("connect:max<1s"), parse_slo("lateness:max<1s")])
    assert not {"connect", "lateness", "gap"} & set(found.adjusted)
    assert (found.good, found.counted, found.metrics["connect"].n) == (2, 3, 1)


def test_a_stream_that_breaks_a_must_is_not_good() -> None:
    found = summarise([row(0, 1.0), row(1, 2.0)], ALL, broken=frozenset({1}))
    assert found.good == 1
    assert found.goodput_rate == pytest.approx(1 / 100)


def test_chunks_of_one_read_are_seen_as_clumped() -> None:
    clump = row(0, 1.0, token_times=(1.0, 1.0, 2.0, 2.0))
    assert summarise([clump], ALL).clumped == pytest.approx(2 / 3)
    assert summarise([], ALL).clumped is None
