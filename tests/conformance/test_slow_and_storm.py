"""Slow readers, storms of hang-ups and held-back answers, judged from end to end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conformance.capture import How
from conformance.findings import Verdict
from conformance.judge import judge
from conformance.scenarios.scenario import Phase
from conformance.scenarios.slow_read import BUFFER, PAUSE, SLOW_READ
from conformance.scenarios.storm import STORM
from conformance.specs import known_cases
from tests.conformance.test_aborts import METERED, OPEN, RIGHT, WRONG, ran, verdicts
from tests.conformance.test_run import setup

CHECKS = {
    "slow": ("slow.others-unharmed", "slow.intact"),
    "abort.storm": ("abort.storm", "abort.queued"),
    "buffering": ("buffering.progressive", "buffering.first-content"),
}

QUEUED = [replace(case, api=("chat",)) for case in known_cases() if case.id == "abort.queued"]


def picked(*checks: str) -> tuple[str, ...]:
    return tuple(word for check in checks for word in ("--select", check))


@pytest.mark.parametrize("family", CHECKS)
def test_a_right_server_passes(family: str) -> None:
    found = verdicts(ran(METERED, words=picked(*CHECKS[family])))
    assert {found[check].verdict for check in CHECKS[family]} == {RIGHT}


@pytest.mark.parametrize(
    "fault",
    [
        "slow.others-unharmed",
        "slow.intact",
        "slow.intact:ended",
        "abort.storm",
        "abort.storm:dead",
        "abort.storm:hole",
        "abort.queued",
        "buffering.progressive:portions",
        "buffering.first-content",
    ],
)
def test_a_wrong_server_fails(fault: str) -> None:
    check = fault.partition(":")[0]
    result = verdicts(ran(METERED, fault, words=picked(check)))[check]
    assert result.verdict is (Verdict.NON_STRICT if check == "abort.queued" else WRONG)
    assert result.findings


def test_short_answers_say_nothing_about_buffers_nor_about_slow_readers() -> None:
    """A server so fast that all is over at once, and one that ends each answer early."""
    fast = replace(METERED, step=0.0001)
    checks = (*CHECKS["slow"][:1], *CHECKS["buffering"])
    found = verdicts(ran(fast, "buffering.progressive", words=picked(*checks)))
    assert {found[check].verdict for check in checks} == {OPEN}
    assert all((found[check].reason or "").startswith("fast") for check in checks)


def test_a_held_back_answer_is_no_witness_of_a_hang_up() -> None:
    dark = replace(METERED, words=("--metrics", "none"))
    found = verdicts(ran(dark, "buffering.progressive:portions"))
    ends = ("abort.fin", "abort.rst", "abort.before-headers")
    assert {found[check].verdict for check in ends} == {OPEN}


def test_the_slow_reader_pauses_in_the_middle_and_reads_all_of_it() -> None:
    recorded = ran(METERED, words=picked("slow.*"))
    (dossier,) = [each for each in recorded.dossiers if each.scenario == "slow-read"]
    (slow,) = dossier.roles["slow"]
    pause, resume = (action.at for action in dossier.actions)
    assert resume - pause == pytest.approx(PAUSE)
    assert not [read for read in slow.reads if read.at and pause < read.at < resume]
    assert slow.end.how is How.FRAMED
    assert BUFFER < 64 * 1024


def test_a_storm_is_half_closes_half_resets_at_several_moments() -> None:
    recorded = ran(METERED, words=picked("abort.storm"))
    (dossier,) = [each for each in recorded.dossiers if each.scenario == "storm"]
    left = [capture.end.left for capture in dossier.roles["hung-up"]]
    assert sorted(map(str, left)) == ["fin"] * 4 + ["rst"] * 4
    sizes = {len(capture.received) for capture in dossier.roles["hung-up"]}
    assert 0 in sizes
    assert len(sizes) >= 3


def test_where_nobody_has_to_wait_nothing_is_said_of_queues() -> None:
    """Places for all, or no gauge of those who wait."""
    roomy = replace(METERED, batch=64)
    blind = replace(METERED, words=("--metrics", "none"))
    for kind in (roomy, blind):
        found = verdicts(ran(kind, "abort.queued", words=picked("abort.queued")))["abort.queued"]
        assert found.verdict is OPEN
        assert (found.reason or "").startswith("oracle")


@pytest.mark.parametrize("late", [False, True])
def test_one_who_left_the_queue_is_not_served_later(late: bool) -> None:
    """By the counter after the storm; unless it was too soon to tell."""
    (dossier,) = (
        each
        for each in ran(METERED, words=picked("abort.queued")).dossiers
        if each.scenario == "storm"
    )
    gone = max(capture.end.at or 0.0 for capture in dossier.roles["hung-up"])
    end = dossier.roles["after"][0].end.at or 0.0
    shift = 3.0 if late else 0.0
    grown = tuple(
        replace(each, at=each.at + shift, values={**each.values, "generated_tokens": each.at * 100})
        if each.at > end
        else each
        for each in dossier.samples
    )
    assert gone < end
    (told,) = (r for r in judge([replace(dossier, samples=grown)], QUEUED))
    assert told.verdict is (Verdict.NON_STRICT if late else OPEN)


def test_storms_are_for_those_who_allow_them_and_come_last() -> None:
    assert (STORM.manners, STORM.phase) == ("heavy", max(Phase))
    assert list(STORM.parameters["hang_ups"]) == [8, 50]
    assert SLOW_READ.manners == "polite"
    urls = ("http://127.0.0.1:1", "http://api.example:1")
    here, there = (setup(url) for url in urls)
    jobs = [job.scenario for job in here.widest_plan().jobs]
    assert jobs[-1] == "storm"
    assert "storm" not in [job.scenario for job in there.widest_plan().jobs]
    assert ("storm", "manners") in [(job.scenario, why) for job, why in there.widest_plan().dropped]


def test_comments_are_right_and_empty_events_are_not() -> None:
    words = ("--select", "heartbeat.comments", "--metrics", "none")
    found = verdicts(ran(METERED, "heartbeat.comments", words=words))["heartbeat.comments"]
    assert found.verdict is WRONG
    assert "carry nothing" in found.findings[0].message
    quiet = verdicts(ran(METERED, words=words))["heartbeat.comments"]
    assert (quiet.verdict, quiet.reason) == (OPEN, "not-seen: no silence was filled")
    # A gap in the engine's words between two tokens is what a comment fills.
    beating = verdicts(ran(replace(METERED, heartbeat=0.004), words=words))["heartbeat.comments"]
    assert beating.verdict is Verdict.PASS
