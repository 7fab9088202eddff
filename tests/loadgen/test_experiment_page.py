"""The page of an experiment stands alone, says what its table says, and draws what was played."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from loadgen.experiments.figures import Shot
from loadgen.experiments.outcome import Gates, Outcome, outcome_of
from loadgen.experiments.page import parts
from loadgen.experiments.reports import REPORTS
from loadgen.experiments.spec import find
from loadgen.experiments.table import parse_bound
from loadgen.measure import Row
from loadgen.svg import Plot, Series, plot
from tests.conformance.browser import CHROMIUM
from tests.loadgen.rows import failed, row
from tests.loadgen.shots import level, shot
from tests.loadgen.test_experiment_reports import capture, gone, streams
from tests.loadgen.test_page import EVIL, tags

URL = "http://h/v1"


def outcome(name: str, shots: list[Shot], *slo: str) -> Outcome:
    experiment = find(name)
    gates = Gates((), tuple(map(parse_bound, slo)), "0", most=0)
    return outcome_of(experiment, experiment.options, shots, gates, complete=True)


def page(name: str, shots: list[Shot], *slo: str) -> str:
    return "".join(parts(outcome(name, shots, *slo), shots, URL))


def more_and_more(clock: str = "kernel") -> list[Shot]:
    return [
        shot("at once", streams(n, gap=0.01 * n), n=n, described={"clock": clock})
        for n in (1, 2, 4, 8)
    ]


# Experiment → loads of it that nobody played, and titles of what is drawn of them.
LOADS: dict[str, tuple[list[Shot], tuple[str, ...]]] = {
    "overlap": (
        more_and_more(),
        ("Throughput", "Gaps between chunks", "Time to the first token", "Streams · 8 at once"),
    ),
    "many-streams": (
        [*more_and_more(), shot("at once", [row(0, 0.0), failed(1, 0.0)], n=16)],
        ("Throughput", "What became of the requests", "Streams · 16 at once"),
    ),
    "joiners": (
        [shot("control", streams(2)), shot("joined", [*streams(2), row(9, 0.1, client="joiner")])],
        ("Gaps between chunks of the ordinary streams", "Streams · control", "Streams · joined"),
    ),
    "long-prompt": (
        [shot("control", streams(2)), shot("long", [*streams(2), row(9, 0.1, client="long")])],
        ("Gaps between chunks of the ordinary streams", "Streams · long"),
    ),
    "slow-readers": (
        [shot("control", streams(7)), shot("slow", [*streams(7), row(9, 0.0, client="reader")])],
        ("Gaps between chunks of the ordinary streams", "Streams · slow"),
    ),
    "hang-ups": (
        [
            shot("control", [row(0, 0.0)]),
            shot("mid-decode", [row(0, 0.0), gone(1, 2.0)], how="rst",
                 samples=[level(0.0, 0), level(1.9, 2), level(2.1, 1)]),
        ],
        ("Requests, by the server · mid-decode rst",),
    ),
    "leaks": (
        [
            shot("before", [row(0, 0.0)]),
            shot("quiet", [], samples=[level(30.0, 0), level(31.0, 0)]),
        ],
        ("Requests, by the server · quiet",),
    ),
    "buffers": (
        [
            shot("control", [row(0, 0.0)], captures={0: capture((500, 0.5), (1000, 1.0))}),
            shot("never", [row(0, 0.0)], captures={0: capture((1000, 9.0))}),
        ],
        ("Bytes of the answer that were read",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(LOADS))
def test_every_experiment_draws_what_it_is_about(name: str) -> None:
    shots, titles = LOADS[name]
    found = re.findall("<figcaption>(.*?)</figcaption>", page(name, shots))
    assert set(titles) <= set(found)


def test_every_experiment_is_tried_here() -> None:
    assert set(LOADS) == set(REPORTS)


@pytest.mark.parametrize("name", list(REPORTS))
def test_what_was_not_played_is_a_page_all_the_same(name: str) -> None:
    html = page(name, [])
    assert html.endswith("</html>\n")
    assert "exit 0" in html


def test_the_page_says_what_the_table_says_and_by_which_formula() -> None:
    html = page("overlap", more_and_more(), "gap-p50<15ms")
    assert "<td>80.0</td>" in html
    assert "bound missed: gap-p50&lt;15ms (2: 20.0 ms; 4: 40.0 ms; 8: 80.0 ms)" in html
    assert '<td class="words">tokens-s / tokens-s of the first line</td>' in html
    assert '<p class="verdict bad">' in html
    assert '<td class="words">complete 8</td>' in html


def test_figures_by_the_user_clock_are_marked_on_the_page_too() -> None:
    assert "<td>≈ 80.0</td>" in page("overlap", more_and_more("user"))
    assert "≈" not in page("overlap", more_and_more())


def test_there_is_no_script_and_what_a_server_said_is_text() -> None:
    lost = replace(failed(1, 0.0), told=EVIL.encode(), detail=EVIL)
    played = shot("at once", [row(0, 0.0), lost], n=2)
    target = replace(played.result.target, model=EVIL)
    html = page("overlap", [replace(played, result=replace(played.result, target=target))])
    seen = tags(html)
    assert {"script", "img", "link", "iframe"}.isdisjoint({tag for tag, _ in seen})
    assert not [a for _, attributes in seen for a in attributes if a in ("src", "href")]
    assert "&lt;script&gt;" in html
    assert "\x1b" not in html


def test_times_are_drawn_from_the_first_request_on() -> None:
    """The window of an experiment begins long before it."""
    (html,) = re.findall("<svg.*?Streams.*?</svg>", page("joiners", [shot("joined", late())]))[-1:]
    numbers = [float(each) for each in re.findall(r'<text class="mid"[^>]*>([0-9.]+)<', html)]
    assert max(numbers) < 2


def late() -> list[Row]:
    return [row(n, 1000.0) for n in range(2)]


def test_an_axis_that_doubles_gives_each_doubling_the_same_room() -> None:
    points = [(n, n) for n in (1.0, 2.0, 4.0, 8.0)]
    html = plot(Plot("t", "x", "y", [Series("s", points, 0, "marked")], is_doubling=True))
    places = [float(each) for each in re.findall(r'<circle cx="([0-9.]+)"', html)]
    steps = [b - a for a, b in pairwise(places)]
    assert steps == [pytest.approx(steps[0], abs=0.2)] * 3
    assert re.findall(r'<text class="mid"[^>]*>([0-9]+)<', html) == ["1", "2", "4", "8"]
    assert "<circle" in plot(
        Plot("t", "x", "y", [Series("s", [(1.0, 5.0)], 0, "marked")], is_doubling=True)
    )


@pytest.mark.chromium
@pytest.mark.slow
def test_a_browser_shows_it(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page("overlap", more_and_more()))
    words = [*CHROMIUM, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", file.as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=90, check=True)
    assert done.stdout.count("<svg") == 4
    assert "</html>" in done.stdout
