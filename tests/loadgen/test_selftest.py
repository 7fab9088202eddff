"""The tool's error, held against errors that are known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.reading import Reading, read
from loadgen import cli, selftest_record
from loadgen.selftest import (
    Errors,
    Figures,
    errors_of,
    figures,
    outside,
    shares,
    together,
    writes_from,
    zero_of,
)
from tests.loadgen.captures import HEAD, capture, chunk, text

ORIGIN = 100.0
NAMED = HEAD.replace(b"\r\n\r\n", b"\r\nX-Request-Id: chatcmpl-1\r\n\r\n")
ROLE = chunk({"role": "assistant", "content": ""})


def reading(*times: float) -> Reading:
    """The role at 0, then a word at each of the times, by the kernel's clock."""
    pieces = [(0.0, ROLE), *((at, text("w")) for at in times)]
    return read(replace(capture(pieces, head=NAMED), clock="kernel"), api="chat")


def log(*begun: float, name: str = "chatcmpl-1", took: float = 0.001) -> list[str]:
    writes = [
        ["head", 1.0, 1.0, 9],
        *(["body", at, at + took, 9] for at in begun),
        ["end", 9, 9, 5],
    ]
    return [json.dumps({"id": name, "writes": writes})]


def test_an_error_is_the_time_less_the_beginning_of_the_write() -> None:
    found = errors_of(reading(0.5, 0.7), writes_from(log(100.0, 100.497, 100.6995)), ORIGIN)
    assert [error.seconds for error in found.ttft] == [pytest.approx(0.003)]
    assert [error.seconds for error in found.gaps] == [pytest.approx(-0.0025)]
    assert [error.outside for error in found.instants] == [pytest.approx(0.002), 0.0]
    assert (found.events, found.unmatched) == (3, 0)
    assert all(error.is_value for error in (*found.ttft, *found.gaps))
    n, most = outside(found)
    assert n == 1
    assert most == pytest.approx(0.002)


def test_an_answer_that_the_log_does_not_tell_of_is_counted_and_measures_nothing() -> None:
    for lines in ([], log(100.0, 100.5, name="chatcmpl-2"), log(100.0)):
        found = errors_of(reading(0.5), writes_from(lines), ORIGIN)
        assert found == Errors(unmatched=1)


def test_bounds_are_told_apart_from_values() -> None:
    """Two words in one read, whose stamp is the second's."""
    pieces = [(0.0, ROLE), (0.7, text("a") + text("b")), (0.9, text("c"))]
    made = replace(capture(pieces, head=NAMED), clock="kernel")
    found = errors_of(read(made, api="chat"), writes_from(log(100.0, 100.5, 100.7, 100.9)), ORIGIN)
    assert [error.is_value for error in found.instants] == [False, True, True]
    assert [error.is_value for error in found.gaps] == [False, True]
    every, values = shares(together([found]))["ttft"]
    assert every.n == 1
    assert every.most == pytest.approx(0.2)
    assert values == Figures(0, None, None, None, None)
    assert outside(found) == (0, 0.0)


def test_figures_are_of_the_size_and_bias_is_not() -> None:
    found = errors_of(
        reading(*(n / 10 for n in range(1, 102))),
        writes_from(
            log(100.0, *(100 + n / 10 + (0.004 if n % 2 else -0.004) for n in range(1, 102)))
        ),
        ORIGIN,
    )
    told = figures(found.instants)
    assert told.n == 101
    assert told.bias == pytest.approx(-0.004 / 101)
    assert [told.p50, told.p99, told.most] == [pytest.approx(0.004)] * 3


def test_the_last_selftest_of_this_machine_is_quoted_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert selftest_record.quoted() is None
    selftest_record.store({"machine": "another", "at": "t", "loads": []})
    assert selftest_record.quoted() is None
    selftest_record.store({"machine": selftest_record.machine(), "at": "t", "loads": [1]})
    assert selftest_record.quoted() == {"at": "t", "loads": [1]}
    selftest_record.path().write_text("{")
    assert selftest_record.quoted() is None


def test_the_command_measures_its_own_error_and_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether the load was valid is the machine's affair, and is said."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    report = tmp_path / "selftest.json"
    code = cli.main(["selftest", "--seconds", "1", "--json", str(report)])
    (load,) = json.loads(report.read_text())["loads"]
    assert code == (0 if load["valid"] else 3)
    assert load["unmatched"] == 0
    assert load["events"] > 20 * load["requests"]
    assert load["errors"]["ttft"]["all"]["n"] == load["requests"] > 20
    assert selftest_record.quoted() is not None
    assert "100 streams × 20 events/s" in capsys.readouterr().out


def test_a_stop_between_two_looks_at_the_clock_moves_no_time() -> None:
    ticks = iter(100.0 + 1e-6 * n + (0.05 if n else 0.0) for n in range(100))
    zero = zero_of(lambda: next(ticks), lambda: next(ticks) - 90.0)
    assert zero == pytest.approx(90.0, abs=2e-6)
