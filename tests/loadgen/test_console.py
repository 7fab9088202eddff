"""What a terminal shows of a run: every sign and dash is explained where it stands."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from loadgen import compare_console, console, page, together
from loadgen.compare_console import Comparison
from loadgen.measure import Row
from loadgen.outcome import Fate
from loadgen.server_metrics import Histogram, Served
from tests.loadgen.rows import failed, row
from tests.loadgen.test_bounds import clumped, result


def told(*rows: Row, **load: Any) -> list[str]:
    return console.render(result(rows, **load)).splitlines()


def begins(lines: list[str], word: str) -> list[str]:
    return [line for line in lines if line.startswith(word)]


def test_what_was_asked_for_has_its_units_and_no_warm_up_that_there_was_not() -> None:
    load = {"arrivals": "poisson", "rate": 10.0, "duration": 5.0, "warmup": 0.0}
    assert told(row(0, 1.0), **load)[1] == "arrivals poisson, rate 10/s, duration 5 s"
    assert told(row(0, 1.0), **{**load, "warmup": 2.5})[1].endswith("duration 5 s, warmup 2.5 s")
    assert told(row(0, 1.0), concurrency=4, requests=9)[1] == "concurrency 4, requests 9"


def test_a_dash_is_explained_by_how_many_values_are_needed_and_only_where_there_is_one() -> None:
    few = told(*(row(n, float(n)) for n in range(12)))
    assert begins(few, "–:") == ["–: too few values to tell (p99 100)"]
    assert begins(told(row(0, 1.0)), "–:") == ["–: too few values to tell (p50 2, p90 10, p99 100)"]
    assert not begins(told(*(row(n, float(n)) for n in range(100))), "–:")


def test_the_most_that_a_figure_can_be_is_explained_only_where_one_is_shown() -> None:
    assert begins(told(*(clumped(n, 0.9) for n in range(3))), "≤: at most; the times of some")
    assert not begins(told(*(clumped(n, 0.0) for n in range(3))), "≤")
    assert not begins(told(row(0, 1.0), clock="user"), "≤")  # a line of its own says it


def test_rates_are_per_second_and_what_is_in_flight_is_none() -> None:
    many = [row(n, 0.0, prompt_tokens=90_000) for n in range(20)]
    (line,) = begins(told(*many), "per second, over 1000.000 s: ")
    assert "prompt-tokens 1,800, " in line
    assert line.endswith("; in flight 0.018 (mean)")


def test_a_refusal_is_told_by_its_status_and_any_other_end_by_how_it_came() -> None:
    refused = replace(failed(1, 1.0), status=429, detail="framed", told=b"too many")
    cut = replace(failed(2, 2.0, Fate.TRUNCATED), status=200, detail="connection reset")
    lines = begins(told(refused, cut), "failed: ")
    assert lines[0].startswith("failed: 1 × refused (429): too many")
    assert "(200 · connection reset)" in lines[1]


def test_what_is_not_valid_is_called_so_in_the_last_line() -> None:
    late = [row(n, float(n), late=0.5) for n in range(3)]
    assert told(*late)[-1].startswith("not valid (schedule_late) · 0 failed")
    assert told(row(0, 1.0))[-1] == "valid · 0 failed, 0 allowed · exit 0"


def test_of_several_runs_figures_that_are_open_have_the_most_that_they_can_be() -> None:
    runs = [result([clumped(n, share) for n in range(3)]) for share in (0.9, 0.9)]
    (line,) = begins(together.render(runs).splitlines(), "gap p99, ≤ ms")
    assert line.split()[-4:] == ["200.00", "200.00", "200.00", "0.0%"]
    assert begins(together.render(runs).splitlines(), "ttft p50, ms")


def test_beside_the_servers_own_figure_ours_by_the_user_clock_is_at_most() -> None:
    histogram = Histogram(((math.inf, 1.0),), 0.4, 1.0)
    served = Served("streamproof", (), None, histogram)
    made = replace(result([row(0, 1.0)], clock="user"), served=served)
    ours = "mean ttft@sent ≤ 500.00 ms, the server's own 400.00 ms, ≤ +100.00 ms"
    assert ours in console.render(made)
    assert ours in "".join(page.parts([made], ["A"])).replace("&#x27;", "'")
    stamped = replace(result([row(0, 1.0)]), served=served)
    assert "mean ttft@sent 500.00 ms" in console.render(stamped)


def test_runs_that_cannot_tell_a_figure_are_counted_out_and_it_is_said() -> None:
    few = [result([row(n, float(n)) for n in range(3)])] * 2
    assert "n: runs that have enough values to tell it" in together.render(few)
    enough = [result([row(n, float(n)) for n in range(100)])] * 2
    assert "n: runs" not in together.render(enough)


def test_the_page_explains_its_signs_too() -> None:
    html = "".join(page.parts([result([clumped(n, 0.9) for n in range(12)])], ["A"]))
    assert "<p>≤: at most; the times of some" in html
    assert "<p>–: too few values to tell (p95 20, p99 100, p99.9 1000)</p>" in html


def test_runs_that_are_too_short_were_not_compared() -> None:
    short = [result([row(0, 1.0)])]
    text = compare_console.render(Comparison(("a", "b"), short, short, None, (), 0.05, 7))
    assert text.splitlines()[-1] == "not compared · exit 3"
    assert "no difference" not in text
