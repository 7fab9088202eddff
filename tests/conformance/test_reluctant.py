"""Servers that cannot be judged in some respect are neither accused nor praised in it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from fnmatch import fnmatchcase

import pytest

from conformance.capture import How
from conformance.findings import Verdict
from conformance.reading import Form, read
from conformance.report import console, story
from conformance.report.model import Report
from conformance.run_report import Recorded
from conformance.specs import known_cases
from tests.conformance.reluctant import RELUCTANT, run
from tests.conformance.test_run import setup

FAILED = (Verdict.FAIL, Verdict.INCONSISTENT, Verdict.NON_STRICT, Verdict.HARNESS_ERROR)
OPEN = (Verdict.INCONCLUSIVE, Verdict.UNSUPPORTED, Verdict.BLOCKED)

# Server → what its habit touches, and the reasons that may be given for it.
TOUCHED: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "429 on every third request": (
        "rate",
        ("err.wrong-types", "err.client-mistake-5xx", "err.same-status"),
    ),
    "429 on every request": (
        "rate",
        (
            "err.context", "err.recovers", "err.wrong-types", "fin.limit", "isolation.canary",
            "isolation.aborts", "isolation.limits", "isolation.keep-alive",
            "isolation.invalid-neighbour",
        ),
    ),
    "honest 4xx": (
        "n usage stop tools logprobs echo",
        (
            "choice.missing", "usage.missing", "usage.sum", "logprobs.missing", "logprobs.value",
            "tool.args-*", "tool.id-*", "stop.*", "echo.*", "isolation.stop",
        ),
    ),
    "silent ignore": (
        "mat not-recorded",
        ("fin.tool-calls", "tool.args-*", "tool.id-*", "usage.parity", "usage.under-count"),
    ),
    "reasoning only": (
        "mat reason",
        ("stop.ignored", "isolation.canary", "isolation.stop", "fin.natural-stop"),
    ),
    "non-repeatable": ("det mat", ("isolation.stop", "isolation.canary", "abort.neighbours")),
    "one burst": ("fast", ("isolation.aborts", "abort.neighbours")),
    "too fast": ("fast oracle", ("abort.fin", "abort.rst", "abort.before-headers")),
}  # fmt: skip

# The habit itself breaks a rule: what is accepted must be delivered, and as it is produced.
BROKEN: Mapping[str, tuple[str, ...]] = {
    "silent ignore": (
        "choice.missing", "logprobs.missing", "stop.*", "usage.missing",
        "err.wrong-types",
    ),
    "one burst": ("buffering.*",),
}  # fmt: skip


@functools.cache
def ran(name: str) -> tuple[Recorded, Report]:
    """The chat route has all that is optional but the echo."""
    return run(name, *_words(name))


def _words(name: str) -> tuple[str, ...]:
    return () if name == "honest 4xx" else ("--api", "chat")


def report_of(name: str) -> Report:
    return ran(name)[1]


@pytest.mark.parametrize("name", RELUCTANT)
def test_no_habit_costs_more_than_the_printed_bound(name: str) -> None:
    recorded, _ = ran(name)
    bound = setup("http://127.0.0.1:1/v1", *_words(name)).widest_plan().cost
    assert recorded.sent.requests <= bound.requests
    assert recorded.sent.tokens <= bound.tokens
    answered = [
        capture
        for dossier in recorded.dossiers
        for role, capture in dossier.own()
        if role != "models" and not role.startswith("refused")
        if capture.end.how is How.LEFT or read(capture).form in (Form.STREAM, Form.PLAIN)
    ]
    assert len(answered) <= bound.generations


@pytest.mark.parametrize("name", RELUCTANT)
def test_what_a_habit_touches_neither_passes_nor_fails(name: str) -> None:
    reasons, touched = TOUCHED[name]
    for glob in touched:
        found = [each for each in report_of(name).results if fnmatchcase(each.id, glob)]
        assert found, glob
        for each in found:
            assert each.verdict in OPEN, (each.id, each.verdict, each.findings[:1])
            said = (each.reason or "").split(":")[0]
            if each.verdict is Verdict.INCONCLUSIVE:
                assert said in (*reasons.split(), "mat", "not-seen"), (each.id, each.reason)


@pytest.mark.parametrize("name", RELUCTANT)
def test_a_habit_is_no_failure(name: str) -> None:
    allowed = BROKEN.get(name, ())
    failed = [each.id for each in report_of(name).results if each.verdict in FAILED]
    assert [id for id in failed if not any(fnmatchcase(id, glob) for glob in allowed)] == []


def test_the_table_names_every_server_and_no_check_that_is_not_there() -> None:
    assert set(TOUCHED) == set(RELUCTANT)
    known = [case.id for case in known_cases()]
    globs = [glob for _, touched in TOUCHED.values() for glob in touched]
    assert [glob for glob in globs if not any(fnmatchcase(id, glob) for id in known)] == []


def test_a_report_of_nothing_but_429_says_that_nothing_was_tested() -> None:
    report = report_of("429 on every request")
    assert report.exit == 2
    shown = console.render(report, story.Context({}, ("conformance", "run")), "")
    assert "problem: not tested: fewer than half of the exchanges" in shown


def test_a_429_now_and_then_is_a_test_of_less_and_says_how_much() -> None:
    _, report = run("429 on every third request", "--api", "chat", "--min-conclusive", "100")
    assert report.exit == 1
    assert "must checks were conclusive" in report.problems[0]


def test_honest_refusals_are_unsupported_and_what_the_profile_requires_is_said() -> None:
    report = report_of("honest 4xx")
    assert report.exit == 1
    assert sorted(report.problems) == [
        "the profile requires stop, which is unsupported",
        "the profile requires usage, which is unsupported",
    ]


@pytest.mark.parametrize("name", ["too fast", "non-repeatable"])
def test_a_habit_alone_does_not_turn_the_gate_red(name: str) -> None:
    assert report_of(name).exit == 0
