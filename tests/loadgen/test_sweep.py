"""The knee of a server whose capacity is known, over real sockets and a virtual clock."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

import pytest

from conformance.options import OneLineParser
from loadgen import cli
from loadgen.knee import Outcome, Search, Trial
from loadgen.load import Open
from loadgen.setup import Setup
from loadgen.sweep import sweep
from loadgen.sweep_command import document, exit_of, heading, maker, render
from loadgen.sweep_options import configure
from tests.loadgen.playing import STEP, reference, virtually

BATCH, TOKENS = 4, 10
SLO = "ttft:p90<400ms"


def swept(*words: str, batch: int = BATCH) -> Search:
    """By a load of constant arrivals, each request TOKENS steps long."""
    parser = OneLineParser()
    configure(parser)
    out: list[Search] = []

    async def main() -> None:
        async with reference(batch=batch) as url:
            fixed = (url, "--output-tokens", str(TOKENS), "--input-tokens", "8", "--checks", "none")
            args = parser.parse_args([*fixed, "--slo", SLO, *words])
            whole = maker(args)

            def make(rate: float, number: int) -> Setup:
                return replace(whole(rate, number), clock="user", paced=False)

            out.append(Search(args.least, args.most, args.resolution / 100, args.trials))
            await sweep(make, out[0], args.settle, lambda trial: None)

    virtually(main)
    return out[0]


def capacity(batch: int = BATCH) -> float:
    """Requests a second of a server that works on so many at once, a step for each token."""
    return batch / (TOKENS * STEP)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_known_capacity_of_a_scripted_server_is_found_within_a_twentieth() -> None:
    found = swept("--from", "8", "--resolution", "4")
    assert found.met is not None
    assert found.missed is not None
    assert found.met == pytest.approx(capacity(), rel=0.05)
    assert found.missed == pytest.approx(capacity(), rel=0.05)


def test_it_is_found_roughly_in_short_trials() -> None:
    found = swept("--from", "5", "--resolution", "15", "--duration", "10", "--trials", "1", batch=2)
    assert found.met == pytest.approx(capacity(2), rel=0.15)


def test_a_load_far_above_is_stopped_before_its_end() -> None:
    words = ("--from", "40", "--to", "40", "--duration", "8", "--resolution", "100")
    found = swept(*words, "--trials", "1")
    assert found.told[0].outcome is Outcome.SATURATED
    assert "in flight, and growing" in found.told[0].detail


def test_the_trials_are_repeated_with_other_seeds_and_percentiles_get_their_requests() -> None:
    parser = OneLineParser()
    configure(parser)
    args = parser.parse_args(["http://h/v1", "--slo", "ttft:p99<1s", "--duration", "10"])
    first, second = maker(args)(2.0, 0), maker(args)(50.0, 1)
    assert (first.workload.seed, second.workload.seed) == (7, 8)
    assert isinstance(first.load, Open)
    assert isinstance(second.load, Open)
    assert (first.load.seconds, second.load.seconds) == (60.0, 10.0)


def test_the_result_begins_with_what_was_looked_for_and_where() -> None:
    parser = OneLineParser()
    configure(parser)
    args = parser.parse_args(["http://h/v1", "--slo", "ttft:p50<1s", "--slo", "tpot:p50<9ms"])
    assert heading(args) == (
        "http://h/v1: ttft:p50<1s, tpot:p50<9ms; 1 to 10000 requests a second, within 5 %\n"
    )


# -- the command -----------------------------------------------------------------------------------


def search_with(*trials: Trial) -> Search:
    search = Search(1.0, 100.0, 0.5, 1)
    for trial in trials:
        search.tell(trial)
    return search


@pytest.mark.parametrize(
    ("trials", "code", "said"),
    [
        ([(1, "MET"), (2, "MISSED"), (2**0.5, "MET")], 0, "met up to 1.414 requests a second"),
        ([(1, "UNTOLD")], 3, "not valid: at 1/s cannot be told: why"),
        ([(2.0**-n, "MISSED") for n in range(7)], 1, "no rate that was tried meets"),
    ],
)
def test_the_exit_code_says_whether_there_is_a_rate(
    trials: list[tuple[float, str]], code: int, said: str
) -> None:
    search = search_with(*(Trial(rate, Outcome[name], "why") for rate, name in trials))
    assert search.rate is None
    assert exit_of(search, complete=True) == code
    assert said in render(search, complete=True)
    assert exit_of(search, complete=False) == 3


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "needs at least one --slo"),
        (("--slo", SLO, "--from", "9", "--to", "3"), "--from 9 is above --to 3"),
        (("--slo", SLO, "--trials", "2"), "expected an odd number"),
        (("--slo", SLO, "--rate", "2"), "unrecognized arguments: --rate"),
        (("--slo", SLO), "cannot reach http://127.0.0.1:9/v1: ECONNREFUSED"),
    ],
)
def test_what_cannot_be_swept_is_one_line_and_exit_2(
    words: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = cli.main(["sweep", "http://127.0.0.1:9/v1", *words])
    except SystemExit as exit:
        code = int(exit.code or 0)
    text = capsys.readouterr().err
    assert (code, len(text.splitlines())) == (2, 1)
    assert expected in text


def test_the_trials_stand_in_the_document() -> None:
    search = search_with(Trial(1.0, Outcome.UNTOLD, "why"))
    args = argparse.Namespace(url="http://h", slo=[SLO])
    found = json.loads(json.dumps(document(search, args, complete=True)))
    assert found["trials"] == [{"rate": 1.0, "outcome": "cannot be told", "detail": "why"}]
    assert (found["valid"], found["met"], found["exit"]) == (False, None, 3)
