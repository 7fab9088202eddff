"""An objective is read as written, and met only if the sample says so."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.errors import UsageError
from loadgen.formulas import METRICS
from loadgen.measure import Row
from loadgen.outcome import Fate
from loadgen.slo import Met, Slo, parse_slo
from loadgen.verdict import judge_slo
from tests.loadgen.rows import failed, row, unsent

HUNDRED = [row(n, float(n), ttft=(n + 1) / 1000) for n in range(100)]


def met(text: str, rows: list[Row], good: int = 0, broken: frozenset[int] = frozenset()) -> Met:
    return judge_slo(parse_slo(text), rows, good, broken).met


@pytest.mark.parametrize(
    ("text", "slo"),
    [
        ("ttft:p99<500ms", ("ttft", "p99", "<", 0.5)),
        (" e2e@sent : p99.9 <= 2.5s ", ("e2e@sent", "p99.9", "<=", 2.5)),
        ("gap:max<250us", ("gap", "max", "<", 250e-6)),
        ("tpot:mean>1µs", ("tpot", "mean", ">", 1e-6)),
        ("goodput:share>=95%", ("goodput", "share", ">=", 0.95)),
        ("failed:share<=0.01", ("failed", "share", "<=", 0.01)),
    ],
)
def test_an_objective_is_read_as_written(text: str, slo: tuple[str, str, str, float]) -> None:
    read = parse_slo(text)
    assert (read.metric, read.stat, read.op) == slo[:3]
    assert read.value == pytest.approx(slo[3])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "METRIC:STAT OP VALUE"),
        ("ttft<500ms", "METRIC:STAT OP VALUE"),
        ("ttft:p99=500ms", "METRIC:STAT OP VALUE"),
        ("itl:p99<5ms", "no metric is named itl"),
        ("ttft:p100<5ms", "expected a percentile"),
        ("ttft:p0<5ms", "expected a percentile"),
        ("ttft:median<5ms", "expected a percentile"),
        ("ttft:p99<500", "expected a unit"),
        ("ttft:p99<5%", "expected a unit"),
        ("goodput:p99<5%", "expected a share"),
        ("goodput:share>101%", "expected a share"),
    ],
)
def test_another_objective_is_refused_in_one_line(text: str, expected: str) -> None:
    with pytest.raises(UsageError, match=r"^--slo .*" + expected):
        parse_slo(text)


@given(st.text(alphabet="tfgap:9.<=>0%msu @-é\x00", max_size=20))
def test_any_text_is_an_objective_or_one_line(text: str) -> None:
    try:
        slo = parse_slo(text)
    except UsageError:
        return
    assert slo.metric in METRICS


def test_a_percentile_is_met_or_missed_by_its_own_value() -> None:
    assert met("ttft:p99<99.1ms", HUNDRED) is Met.YES
    assert met("ttft:p99<98.9ms", HUNDRED) is Met.NO
    assert met("ttft:p50<51ms", HUNDRED) is Met.YES
    assert judge_slo(parse_slo("ttft:p99<1s"), HUNDRED, 0, frozenset()).value == pytest.approx(
        0.099
    )


def test_failures_are_infinitely_slow() -> None:
    rows = [*HUNDRED[:98], failed(98, 98.0), unsent(99, 99.0)]
    found = judge_slo(parse_slo("ttft:p99<1s"), rows, 0, frozenset())
    assert (found.met, found.value, found.n) == (Met.NO, math.inf, 100)
    assert met("ttft:mean<1s", rows) is Met.NO


def test_two_hundred_failures_of_two_hundred_miss_and_are_not_undecided() -> None:
    rows = [failed(n, float(n), Fate.NO_ANSWER) for n in range(200)]
    assert met("ttft:p99<10s", rows) is Met.NO
    assert met("gap:p99<10s", rows) is Met.UNDECIDED


def test_the_clients_own_metrics_are_of_whoever_has_them() -> None:
    rows = [row(0, 1.0, connecting=0.004), row(1, 2.0), failed(2, 3.0)]
    assert met("connect:max<5ms", rows) is Met.YES
    assert met("connect:max<3ms", rows) is Met.NO


def test_too_few_samples_are_undecided_unless_even_the_lower_bound_misses() -> None:
    few = HUNDRED[:99]
    assert met("ttft:p99<10s", few) is Met.UNDECIDED
    assert met("ttft:p99<10ms", few) is Met.NO
    assert met("ttft:max<10s", few) is Met.YES
    assert met("ttft:max<10s", []) is Met.UNDECIDED


def test_shares_are_over_everybody_and_broken_streams_have_failed() -> None:
    rows = [*HUNDRED[:8], failed(8, 8.0), unsent(9, 9.0), unsent(10, 9.5, Fate.CANCELLED)]
    assert met("failed:share<=20%", rows) is Met.YES
    assert met("failed:share<=20%", rows, broken=frozenset({0})) is Met.NO
    assert met("goodput:share>=0.7", rows, good=7) is Met.YES
    assert met("goodput:share>0.7", rows, good=7) is Met.NO


def test_a_percentile_of_a_stat_is_a_share_of_one() -> None:
    assert Slo("", "ttft", "p99.9", "<", 1.0).q == pytest.approx(0.999)
    assert Slo("", "ttft", "max", "<", 1.0).q is None
