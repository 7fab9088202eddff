"""The page stands alone, says what the run says, and lets nothing of a server's become markup."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from loadgen import archive, cli
from loadgen.page import numbered, parts
from loadgen.plots import rates
from loadgen.reload import loads
from loadgen.svg import Plot, Series, plot, thin, ticks
from tests.conformance.browser import CHROMIUM
from tests.loadgen.simulator import run
from tests.loadgen.test_reload import result, text

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\x1b[31m"


def page(*results: object) -> str:
    return "".join(parts(results, numbered(results)))  # type: ignore[arg-type]


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def tags(html: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Tags()
    parser.feed(html)
    return parser.seen


def test_there_is_no_script_and_nothing_from_elsewhere() -> None:
    seen = tags(page(result()))
    assert not {tag for tag, _ in seen} & {"script", "link", "img", "iframe", "object"}
    assert not [a for _, attributes in seen for a in attributes if a in ("src", "href")]
    assert "http" not in "".join(re.findall(r"url\([^)]*\)|@import[^;]*", page(result())))


def test_what_a_server_said_is_text() -> None:
    rows = tuple(replace(row, told=EVIL.encode(), detail=EVIL) for row in result().rows)
    target = replace(result().target, model=EVIL)
    (made,) = loads(text(replace(result(), rows=rows, target=target)), "x")
    html = page(made)
    assert {"script", "img"}.isdisjoint({tag for tag, _ in tags(html)})
    assert "&lt;script&gt;" in html
    assert "\x1b" not in html


def test_every_figure_is_there_and_runs_are_overlaid() -> None:
    html = page(run(0), run(1))
    for title in ("first token (ttft)", "Gaps between chunks", "Requests a second", "Streams"):
        assert title in html
    assert html.count("run 1</text>") == html.count("run 2</text>") == 2
    assert "exit 0" in html


def test_ticks_are_round_and_points_are_thinned_with_the_last_kept() -> None:
    assert ticks(10.0) == [0, 2, 4, 6, 8, 10]
    assert ticks(0.0) == [0.0]
    thinned = thin([(float(n), 0.0) for n in range(10_000)])
    assert len(thinned) <= 602
    assert thinned[-1] == (9999.0, 0.0)


def test_rates_of_few_requests_are_not_drawn_one_by_one() -> None:
    def bins(step: int) -> int:
        made = replace(run(0), rows=run(0).rows[::step])
        return len(rates(made, "t").series[0].points) - 1

    assert bins(1) == 60
    assert 3 < bins(30) < 8


def test_an_empty_plot_is_no_error() -> None:
    assert "<svg" in plot(Plot("t", "x", "y", [Series("s", [])]))


def test_report_and_compare_write_it(tmp_path: Path) -> None:
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    a.write_text(text(run(0)))
    b.write_text("".join(archive.dumps([run(3, 1.15)], "1")))
    out = tmp_path / "out.html"
    assert cli.main(["report", str(a), "--html", str(out)]) == 0
    assert "<figure>" in out.read_text()
    assert cli.main(["compare", str(a), str(b), "--html", str(out)]) == 1
    assert "tpot mean worse" in out.read_text()


@pytest.mark.chromium
@pytest.mark.slow
def test_a_browser_shows_it(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page(run(0)))
    words = [*CHROMIUM, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", file.as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=90, check=True)
    assert done.stdout.count("<svg") == 5
    assert "</html>" in done.stdout
