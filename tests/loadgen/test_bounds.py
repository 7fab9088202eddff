"""A figure that the times leave open is not told, and one that is told is right."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from conformance.reading import read
from loadgen import compare_console, console, page, together
from loadgen.archive import dumps
from loadgen.bounds import WITHIN, Known, allowed, is_first_value, known
from loadgen.compare_console import BY_READS, Comparison
from loadgen.formulas import METRICS
from loadgen.looking import Tally
from loadgen.measure import Row, row_from
from loadgen.played import Played
from loadgen.provenance import NO_SELFTEST, lines
from loadgen.reload import loads
from loadgen.result import Ran, Result, Target, result_of
from loadgen.slo import parse_slo
from loadgen.summary import Summary, Window, summarise
from loadgen.workload import Ask
from tests.loadgen.captures import HEAD, capture, text
from tests.loadgen.rows import failed, row
from tests.loadgen.simulator import run

ASK = Ask(0, b"", "h")
ALL = Window(0.0, 1000.0)


def told(summary: Summary, metric: str, statistic: str) -> float | None:
    """Its value; None where the sample is too small for it or the times leave it open."""
    is_open = statistic in summary.between.get(metric, {})
    return None if is_open else summary.metrics[metric].statistics[statistic]


def clumped(index: int, share: float) -> Row:
    """A token each 0.1 s, of which a share came with the next one's read."""
    made = row(index, float(index), chunks=101)
    times, earliest = list(made.token_times), list(made.token_times)
    for n in range(1, int(share * 100), 2):
        earliest[n] = times[n - 1]
        times[n] = times[n + 1]
    bounds = sum(a != b for a, b in zip(times, earliest, strict=True))
    return replace(made, token_times=tuple(times), earliest=tuple(earliest), bounds=bounds)


def result(
    rows: Sequence[Row], selftest: Any = None, slos: Sequence[str] = (), **load: Any
) -> Result:
    ran = Ran(
        target=Target("http://h/v1", "chat", "m"),
        load={"kind": "open", "clock": "kernel", "recorder": "fast", **load},
        rows=rows,
        tally=Tally(),
        gates=(),
        window=ALL,
        lags=(0.001,),
        complete=True,
        steady=False,
        selftest=selftest,
    )
    return result_of(ran, list(map(parse_slo, slos)), 0, "0")


def test_a_few_bounds_leave_no_percentile_open_and_many_do() -> None:
    few = summarise([clumped(n, 0.04) for n in range(3)], ALL)
    assert {"p50", "p90"}.isdisjoint(few.between["gap"])
    assert told(few, "gap", "p90") == pytest.approx(0.1)
    many = summarise([clumped(n, 0.9) for n in range(3)], ALL)
    assert told(many, "gap", "p50") is None
    assert many.between["gap"]["p50"] == pytest.approx((0.0, 0.2))
    assert told(many, "ttft", "p50") == pytest.approx(0.5)


def test_what_is_open_is_null_between_its_limits_in_every_report() -> None:
    made = result([clumped(n, 0.9) for n in range(3)])
    found: Any = json.loads("".join(dumps([made], "1")))
    gap = found["metrics"]["gap"]
    assert gap["quantiles"]["p50"] == {"value": None, "low": None, "high": None}
    assert (gap["max"], gap["mean"], gap["deviation"]) == (None, None, None)
    assert gap["between"]["p50"] == [pytest.approx(0.0), pytest.approx(0.2)]
    assert found["times"]["bounds"] == sum(each.bounds or 0 for each in made.rows) > 0
    table = {line.split()[0]: line for line in console.render(made).splitlines() if line}
    assert "≤ 200.00" in table["gap"]
    assert "≤" not in table["ttft"]
    assert "≤ 200.00" in "".join(page.parts([made], ["A"]))


def test_a_stored_run_keeps_what_is_open() -> None:
    made = result([clumped(n, 0.9) for n in range(3)], {"at": "t", "loads": []})
    assert loads("".join(dumps([made], "1")), "run.json") == (made,)


def drawn(rng: random.Random) -> tuple[Row, Row]:
    """A row as it was measured, and as it truly was."""
    true = [1.0]
    for _ in range(rng.randint(2, 60)):
        true.append(true[-1] + rng.choice((0.0, 0.001, 0.05, rng.expovariate(20))))
    times: list[float] = []
    earliest: list[float] = []
    n = 0
    while n < len(true):
        size = rng.choice((1, 1, 1, 2, 5))
        read_at = true[min(n + size, len(true)) - 1]
        since = times[-1] if times else 0.5
        size = min(size, len(true) - n)
        times += [read_at] * size
        earliest += [*[since] * (size - 1), read_at]
        n += size
    made = row(0, 0.2, token_times=tuple(times), earliest=tuple(earliest), bounds=1, sent=0.5)
    made = replace(made, completion_tokens=len(true), first_answer=times[0])
    return made, replace(made, token_times=tuple(true), earliest=(), first_answer=true[0])


def test_a_figure_that_is_told_is_right_and_one_that_is_not_lies_between_its_limits() -> None:
    values = untold = 0
    for seed in range(60):
        rng = random.Random(seed)
        pairs = [drawn(rng) for _ in range(rng.randint(1, 30))]
        seen = summarise([each for each, _ in pairs], ALL)
        true = summarise([each for _, each in pairs], ALL)
        for name in WITHIN:
            for statistic, right in true.metrics[name].statistics.items():
                if right is None:
                    continue
                if (limits := seen.between.get(name, {}).get(statistic)) is not None:
                    assert limits[0] - 1e-9 <= right <= limits[1] + 1e-9, (seed, name, statistic)
                    untold += 1
                    continue
                value = told(seen, name, statistic)
                assert value is not None
                off = 1.06 * allowed(name, statistic, max(value, right))
                assert abs(value - right) <= off + 1e-9, (seed, name, statistic)
                values += 1
    assert min(values, untold) > 300


def test_limits_are_of_as_many_values_as_the_metric_has() -> None:
    rng = random.Random(1)
    for made in [drawn(rng)[0] for _ in range(50)] + [row(0, 1.0, chunks=1), failed(1, 2.0)]:
        for name, within in WITHIN.items():
            pairs = zip(within(made), METRICS[name].values(made), strict=True)
            assert all(low - 1e-9 <= value <= high + 1e-9 for (low, high), value in pairs)


def test_failures_stay_infinite_where_the_times_leave_the_others_open() -> None:
    rows = [clumped(n, 0.9) for n in range(3)] + [failed(9, 9.0)]
    found = summarise(rows, ALL)
    assert "p50" not in found.adjusted_between.get("ttft", {})
    assert found.adjusted["ttft"].most == float("inf")
    assert found.adjusted_between["stall"]["p50"][1] < 1.0
    lost = summarise(rows + [failed(9 + n, 9.0) for n in range(1, 9)], ALL)
    assert "p50" not in lost.adjusted_between["stall"]
    assert "p50" in lost.between["stall"]


def test_a_row_counts_its_bounds() -> None:
    """Two words in one read: the first came then or before, and not before the read that was
    before it; the second is the one whose stamp it is."""
    pieces = [(1.0, text("a")), (2.0, text("b") + text("c")), (3.0, text("d"))]
    made = replace(capture(pieces, head=HEAD, sent=0.5), clock="kernel")
    found = row_from(Played(0, 0.0, 0.0, made), ASK, "chat", read(made, api="chat"))
    assert (found.token_times, found.bounds) == ((1.0, 2.0, 2.0, 3.0), 1)
    assert found.earliest == (1.0, 1.0, 2.0, 3.0)
    assert is_first_value(found)
    user = replace(made, clock="user")
    plain = row_from(Played(0, 0.0, 0.0, user), ASK, "chat", read(user, api="chat"))
    assert (plain.bounds, plain.earliest, is_first_value(plain)) == (4, (), False)
    assert known([found, plain]) == Known(8, 5, 2, 1)
    assert known([failed(0, 1.0)]) == Known(0, 0, 0, 0)


def test_the_clock_the_share_of_bounds_and_the_selftest_are_told() -> None:
    quote = {
        "at": "2026-11-30T07:00:00Z",
        "loads": [
            {"clock": "kernel", "streams": 100, "events_a_second": 20, "valid": True,
             "errors": {"ttft": {"all": {"p99": 0.00015}}, "gap": {"all": {"p99": None}}}},
        ],
    }  # fmt: skip
    made = result([clumped(n, 0.9) for n in range(3)], quote)
    assert list(lines(made)) == [
        "times: clock kernel, recorder fast; 135 of 303 chunks' times are bounds (44.55%), "
        "first tokens 0 of 3; the others are values",
        "selftest of 2026-11-30T07:00:00Z, 100 streams × 20 events/s: p99 of the error: "
        "ttft 0.150 ms, gap –",
    ]
    hidden = replace(made, target=replace(made.target, url="https://h/v1"))
    assert list(lines(hidden))[1].startswith("selftest of 2026-11-30T07:00:00Z without TLS, 100 ")
    rows = [row(0, 1.0)]
    user = result(rows, quote, clock="user", recorder="plain", clock_because="TLS")
    told = list(lines(user))
    assert told[0].startswith("times: clock user, recorder plain (not the kernel's: TLS); each is")
    assert told[1:] == [NO_SELFTEST]
    assert set(told) <= set(console.render(user).splitlines())


@pytest.mark.parametrize("quote", [None, 1, [], {}, {"loads": [3, None, {"clock": "kernel"}]}])
def test_a_quote_that_is_none_breaks_nothing(quote: Any) -> None:
    assert len(list(lines(result([row(0, 1.0)], quote)))) == 2


def by_the_user_clock(*slos: str, clock: str = "user") -> Result:
    """A hundred requests, the last of which fails."""
    rows = [row(n, float(n), ttft=0.1 + n / 1000, client=None) for n in range(99)]
    return result([*rows, failed(99, 99.0)], slos=slos, clock=clock)


def test_by_the_user_clock_a_latency_is_at_most_and_a_gap_is_as_it_was_read() -> None:
    made = by_the_user_clock()
    table = {line.split()[0]: line for line in console.render(made).splitlines() if line}
    assert "≤ 149.00" in table["ttft"]
    assert "≤ 549.00" in table["e2e"]
    assert "≈ 100.00" in table["gap"]
    assert "≈ 100.00" in table["tpot"]
    assert table["ttft"].endswith("≤ 198.00")
    assert re.findall("[≤≈]", table["lateness"]) == []
    shown = "".join(page.parts([made], ["A"]))
    assert "<td>≤ 149.00</td>" in shown
    assert "<td>≈ 100.00</td>" in shown


def test_by_the_user_clock_no_figure_of_the_server_is_a_value_in_the_document() -> None:
    found: Any = json.loads("".join(dumps([by_the_user_clock()], "1")))["metrics"]
    for name in METRICS:
        is_own = name in ("lateness", "connect")
        assert (found[name]["quantiles"]["p50"]["value"] is None) is not (name == "lateness")
        assert bool(found[name]["between"]) is not is_own
    assert found["ttft"]["between"]["p50"] == [0.0, pytest.approx(0.149)]
    assert found["ttft"]["as_read"]["p50"] == pytest.approx(0.149)
    assert found["gap"]["between"]["p50"] == [0.0, None]
    assert found["gap"]["as_read"]["p50"] == pytest.approx(0.1)


def test_who_failed_stays_infinite_by_the_user_clock() -> None:
    found: Any = json.loads("".join(dumps([by_the_user_clock()], "1")))
    adjusted = found["metrics"]["ttft"]["adjusted"]
    assert "max" not in adjusted["between"]
    assert adjusted["between"]["p99"][1] == pytest.approx(0.198)


def test_other_clocks_leave_figures_as_they_are() -> None:
    told = console.render(by_the_user_clock("ttft:p50<100ms", clock="packet"))
    assert re.findall("[≤≈]", told) == []


@pytest.mark.parametrize(
    ("slo", "line"),
    [
        ("ttft:p50<1s", "slo met: ttft:p50<1s (≤ 149.00 ms, n 100)"),
        ("ttft:p50<100ms", "missed: ttft:p50<100ms (≤ 149.00 ms: by times that are bounds, n 100)"),
        ("ttft:p80<1s", "slo met: ttft:p80<1s (≤ 179.00 ms, n 100)"),
        ("gap:p50<1s", "slo met: gap:p50<1s (≈ 100.00 ms: by times that are bounds, n 396)"),
        ("ttft:max<1s", "slo missed: ttft:max<1s (∞ ms, n 100)"),
        ("lateness:p50<1s", "slo met: lateness:p50<1s (0.00 ms, n 99)"),
        ("failed:share<=1%", "slo met: failed:share<=1% (1.00%, n 100)"),
    ],
)
def test_an_objective_is_judged_by_bounds_as_they_were_read_and_says_so(
    slo: str, line: str
) -> None:
    made = by_the_user_clock(slo)
    assert line in console.render(made)
    (found,) = json.loads("".join(dumps([made], "1")))["slo"]
    assert found["by_bounds"] is ("≤" in line or "≈" in line)
    assert loads("".join(dumps([made], "1")), "run.json") == (made,)


def test_an_objective_on_what_the_kernels_stamps_leave_open_says_so_too() -> None:
    told = console.render(result([clumped(n, 0.9) for n in range(3)], slos=("gap:p50<1s",)))
    assert "slo met: gap:p50<1s (≈ 100.00 ms: by times that are bounds, n 300)" in told
    told = console.render(result([clumped(n, 0.9) for n in range(3)], slos=("ttft:p50<1s",)))
    assert "slo met: ttft:p50<1s (500.00 ms, n 3)" in told


def test_several_runs_by_the_user_clock_bear_the_marks_in_their_names() -> None:
    told = together.render([by_the_user_clock(), by_the_user_clock()])
    assert "ttft p50, ≤ ms" in told
    assert "gap p99, ≈ ms" in told
    assert "149.00" in told


def test_parts_of_a_load_and_clients_bear_the_marks_too() -> None:
    kinds = {0: "a", 1: "b"}
    rows = [row(n, float(n), part=kinds[n % 2]) for n in range(8)]
    rows += [row(9 + n, 9.0 + n, client="slow") for n in range(2)]
    made = result(rows, clock="user")
    told = console.render(made)
    assert "ttft p50 ≤ 500.00 p99 –, tpot p50 ≈ 100.00, e2e p50 ≤ 900.00 ms" in told
    assert "ttft p50 ≤ 500.00 p99 –, stall p50 ≈ 100.00 ms" in told
    found: Any = json.loads("".join(dumps([made], "1")))
    assert found["strata"][0]["metrics"]["ttft"]["quantiles"]["p50"]["value"] is None
    assert found["clients"][0]["metrics"]["stall"]["between"]["p50"] == [0.0, None]


def test_two_runs_by_the_user_clock_are_compared_as_they_were_read_and_it_is_said() -> None:
    runs = [run(seed, clock=clock) for seed, clock in enumerate(("user", "user", "kernel"))]
    user = Comparison(("a", "b"), runs[:1], runs[1:2], None, (), 0.05, 7)
    assert BY_READS in compare_console.render(user)
    assert BY_READS in "".join(page.parts(runs[:2], ["a", "b"], user))
    stamped = Comparison(("a", "b"), runs[2:], runs[2:], None, (), 0.05, 7)
    assert BY_READS not in compare_console.render(stamped)


def test_gaps_of_one_read_are_between_nothing_and_both() -> None:
    both = clumped(0, 0.02)
    first, second, third = list(WITHIN["gap"](both))[:3]
    assert first == pytest.approx((0.0, 0.2))
    assert second == pytest.approx((0.0, 0.2))
    assert third == pytest.approx((0.1, 0.1))
    assert sum(b - a for a, b in pairwise(both.token_times)) == pytest.approx(10.0)


def test_the_end_of_an_answer_in_one_read_with_its_last_token_leaves_tpot_told() -> None:
    """One gap of twenty-four is open; it may be anything from nothing on."""
    made = row(0, 1.0, chunks=25)
    times = made.token_times
    made = replace(made, earliest=(*times[:-1], times[-2]), bounds=1)
    found = summarise([made] * 4, ALL)
    assert told(found, "tpot", "p50") == pytest.approx(0.1)
    assert told(found, "gap", "mean") == pytest.approx(0.1)
    assert told(found, "gap", "min") is None
