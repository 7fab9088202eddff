"""One log, six sets of definitions: each column equals its own formula, by hand."""

from __future__ import annotations

import json

import pytest

from loadgen import archive, definitions_console, together
from loadgen.definitions import QUANTITIES, TOOLS, Line, inverse, linear, lines, truncated
from loadgen.measure import Row, row_from
from loadgen.outcome import Fate
from loadgen.played import Played
from loadgen.workload import Workload
from tests.loadgen.captures import DONE, capture, chunk, text, usage
from tests.loadgen.rows import failed, row
from tests.loadgen.test_reload import result

ASK = Workload("chat", "m", 7).ask(0)


def played() -> Row:
    """Due at 0, taken up at 1, sent at 1.1; the role at 1.5, reasoning at 2, text at 3, 5 and 5,
    the finish at 6, usage of 8 tokens at 6.5, closed at 7."""
    pieces = [
        (1.5, chunk({"role": "assistant", "content": ""})),
        (2.0, chunk({"reasoning_content": "hm"})),
        (3.0, text("a")),
        (5.0, text("b") + text("c")),
        (6.0, chunk({}, "stop")),
        (6.5, chunk(None, **usage(8)) + DONE),
        (7.0, b""),
    ]
    made = capture(pieces, sent=1.1)
    return row_from(Played(0, 0.0, 1.0, made), ASK, "chat")


def of(name: str, *rows: Row) -> Line:
    return next(line for line in lines(rows or (played(),)) if line.tool.name == name)


# Tool → TTFT, TPOT, ITL (mean), E2E of that one request, in seconds.
BY_HAND = {
    "streamproof": (2.0, 3 / 7, 1.0, 6.5),
    "vLLM bench": (0.5, 4.5 / 7, 4.5 / 5, 5.0),
    "GuideLLM": (1.0, 4 / 8, 3 / 7, 6.0),
    "AIPerf": (1.0, 3 / 7, 3 / 7, 4.0),
    "inference-perf": (2.0, 3 / 7, 3 / 7, 6.0),
    "MLPerf": (2.0, 3 / 7, None, 5.0),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_each_tool_has_its_own_figures_of_one_request(name: str) -> None:
    line = of(name)
    means = [line.of[key][0] if key in line.of else None for key in QUANTITIES]
    assert means == [None if v is None else pytest.approx(v) for v in BY_HAND[name]]
    assert (line.succeeded, line.counted) == (1, 1)


def test_an_error_in_the_stream_is_a_success_for_those_that_do_not_look() -> None:
    lost = row(0, 1.0, fate=Fate.ERROR_AFTER_TOKEN, detail="framed")
    passes = {line.tool.name for line in lines([lost]) if line.succeeded}
    assert passes == {"vLLM bench", "AIPerf", "inference-perf"}


def test_a_stream_without_finish_is_a_success_for_all_of_them_and_not_for_us() -> None:
    lost = row(0, 1.0, fate=Fate.UNFINISHED, detail="framed")
    passes = {line.tool.name for line in lines([lost]) if line.succeeded}
    assert passes == {"vLLM bench", "GuideLLM", "AIPerf", "inference-perf"}


def test_nobody_takes_a_refusal_or_a_reset_for_a_success() -> None:
    lost = [failed(0, 1.0), row(1, 2.0, fate=Fate.TRUNCATED, detail="ECONNRESET")]
    assert {line.succeeded for line in lines(lost)} == {0}


def test_percentiles_are_three_kinds() -> None:
    values = [float(n) for n in range(1, 11)]
    assert [linear(values, 0.5), inverse(values, 0.5), truncated(values, 0.5)] == [5.5, 5.0, 6.0]
    assert linear(values, 0.99) == pytest.approx(9.91)
    assert [inverse(values, 0.99), truncated(values, 0.99)] == [10.0, 10.0]
    assert [kind([], 0.5) for kind in (linear, inverse, truncated)] == [None] * 3


def test_throughput_is_tokens_over_that_tools_seconds() -> None:
    assert of("vLLM bench").tokens_a_second == pytest.approx(8 / 6)
    assert of("MLPerf").tokens_a_second == pytest.approx(8 / 7)
    assert of("GuideLLM").tokens_a_second is None


def test_every_tool_says_what_it_means_and_nothing_is_made_up_for_an_empty_run() -> None:
    shown = definitions_console.render(lines(()))
    for tool in TOOLS:
        assert tool.name in shown
        assert tool.success in shown
        assert all(quantity.formula in shown for quantity in tool.quantities.values())
    assert {v for line in lines(()) for figures in line.of.values() for v in figures} == {None}


def test_the_definitions_stand_in_the_report_only_where_they_were_asked_for() -> None:
    made = result()
    stored = json.loads("".join(archive.dumps([made], "1", definitions=True)))
    assert [each["tool"] for each in stored["definitions"]] == list(BY_HAND)
    assert stored["definitions"][0]["ttft"]["n"] == len([r for r in made.measured if r.success])
    assert "definitions" not in json.loads("".join(archive.dumps([made], "1")))
    assert "inference-perf" in together.render([made], definitions=True)
    assert "inference-perf" not in together.render([made])
