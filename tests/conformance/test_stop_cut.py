"""The stop-cut scenario and the material ladder against the scripted server, in virtual time."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

import pytest

from conformance.findings import Result, Verdict
from conformance.reading import read
from conformance.run_report import Recorded
from conformance.specs import known_cases
from reference_server.engine.interface import Work
from reference_server.faults import glyphs, stops
from reference_server.faults.fault import Fault, Place
from reference_server.faults.table import FAULTS
from reference_server.wire.errors import ApiError, invalid
from tests.fault_matrix import BROKEN, results, run

STOPS = {case.id for case in known_cases() if case.id.startswith("stop.")}
OLD = {"stop.ignored", "stop.included"}
MATERIAL = {case.id for case in known_cases() if case.check.split(".")[0] in ("utf8", "text")} - {
    "utf8.replacement-char",
    "text.special-token",
}
WORDS = ("river", "slowly", "and", "under", "old", "bridges", "it", "runs", "east", "again")


def found(recorded: Recorded, api: str) -> dict[str, Result]:
    return {result.id: result for result in results(recorded) if result.api == api}


@functools.cache
def clean() -> Recorded:
    return run([], "--select", "stop.*", "--select", "utf8.*", "--select", "text.*")


def habit(work: Callable[[Place, Work], Work]) -> Recorded:
    """A server that is in order but for this, asked about stop strings."""
    return run([Fault("stop.ignored", "a habit", work=work)], "--select", "stop.*")


def test_a_clean_server_passes_every_check_of_stop_strings_and_characters() -> None:
    wanted = STOPS | MATERIAL
    verdicts = [result.verdict for result in results(clean()) if result.id in wanted]
    assert verdicts == [Verdict.PASS] * 2 * len(wanted)


def test_a_control_stands_before_and_a_near_miss_that_left_the_text_whole_is_the_second() -> None:
    dossiers = [each for each in clean().dossiers if each.scenario == "stop-cut"]
    assert len(dossiers) == 4
    for dossier in dossiers:
        lines = (dossier.api, dossier.parameters["answer"]) == ("completions", "characters")
        first = dossier.roles["control"][0]
        near = dossier.roles["control"][1] if lines else dossier.roles["near"][0]
        ends = [capture.end.at or 0.0 for takes in dossier.roles.values() for capture in takes]
        assert first.end.at == min(ends)
        assert read(first, api=dossier.api).text == read(near, api=dossier.api).text != ""


def test_where_a_near_miss_does_not_leave_the_text_whole_a_control_is_sent_again() -> None:
    recorded = run([FAULTS["stop.near-miss:limit"]], "--select", "stop.near-miss")
    for dossier in (each for each in recorded.dossiers if each.scenario == "stop-cut"):
        if dossier.parameters["answer"] == "long":
            first, last = dossier.roles["control"]
            assert dossier.shared("control") == 1
            assert (last.sent_at or 0.0) >= (dossier.roles["near"][0].end.at or 0.0)
            assert read(first, api=dossier.api).text == read(last, api=dossier.api).text
            assert "first" in dossier.roles  # there is room for it, where the schema holds


@pytest.mark.parametrize(
    ("fault", "others"), [(None, {"five", "white"}), (FAULTS["stop.five"], {"five"})]
)
def test_a_fifth_stop_string_that_is_passed_over_takes_the_place_of_white_space(
    fault: Fault | None, others: set[str]
) -> None:
    recorded = run([fault] if fault else [], "--api", "chat", "--select", "stop.five")
    (long,) = (each for each in recorded.dossiers if each.scenario == "stop-cut")
    assert set(long.roles) - {"control", "cut", "cut-plain", "several", "near", "first"} == others
    answers = [read(capture, api="chat") for takes in long.roles.values() for capture in takes]
    answered = [each for each in answers if (each.status or 0) < 400]
    assert len(answered) - long.shared("control") == 6


def test_without_a_schema_the_second_control_takes_the_place_of_the_first_text() -> None:
    faults = [FAULTS["stop.near-miss:limit"], refusing("response_format")]
    words = ("--api", "chat", "--select", "stop.*", "--select", "utf8.characters")
    recorded = run(faults, *words)
    (long,) = (
        each for each in recorded.dossiers
        if (each.scenario, each.parameters.get("answer")) == ("stop-cut", "long")
    )  # fmt: skip
    assert len(long.roles["control"]) == 2
    assert "first" not in long.roles
    bound = recorded.plan.cost
    assert recorded.sent.requests <= bound.requests


def test_the_controls_of_the_characters_are_the_pair_s_where_a_schema_holds() -> None:
    (chat,) = (
        each for each in clean().dossiers
        if (each.api, each.scenario, each.parameters.get("answer"))
        == ("chat", "stop-cut", "characters")
    )  # fmt: skip
    (pair,) = (
        each for each in clean().dossiers
        if (each.api, each.scenario, each.parameters.get("answer"))
        == ("chat", "pair", "characters")
    )  # fmt: skip
    assert chat.shared("control") == len(chat.roles["control"]) == 2
    assert set(chat.roles["control"]) <= {*pair.roles["stream"], *pair.roles["plain"]}


def test_the_long_text_is_cut_in_every_way_and_the_characters_where_they_are_wide() -> None:
    roles = {(d.api, d.parameters["answer"]): set(d.roles) for d in clean().dossiers
             if d.scenario == "stop-cut"}  # fmt: skip
    long = {"control", "cut", "cut-plain", "several", "near", "first", "five", "white"}
    assert roles == {
        ("chat", "long"): long,
        ("completions", "long"): long,
        ("chat", "characters"): {"control", "cut", "near"},
        ("completions", "characters"): {"control", "cut"},  # lines do not end by themselves
    }


# -- servers that are hard to judge ------------------------------------------------------------


def moody(place: Place, work: Work) -> Work:
    text = " ".join(WORDS[(place.serial * 7 + n * n) % len(WORDS)] for n in range(90))
    return replace(work, answer=f"{WORDS[place.serial % len(WORDS)]} {place.serial} {text}")


def brief(place: Place, work: Work) -> Work:
    return replace(work, answer="Yes.")


def mute(place: Place, work: Work) -> Work:
    return replace(work, answer="")


def busy(place: Place, work: Work) -> Work:
    if place.body.get("stop"):
        raise ApiError(429, "slow down", code="rate_limit")
    return work


def strict(place: Place, work: Work) -> Work:
    if place.body.get("stop"):
        raise invalid("stop is not supported", "stop", "unsupported_parameter")
    return work


def deaf(place: Place, work: Work) -> Work:
    return replace(work, sampling=replace(work.sampling, stop=()))


HABITS: dict[str, tuple[Callable[[Place, Work], Work], tuple[str, ...]]] = {
    "never the same text": (moody, ("det", "mat")),
    "too short a text": (brief, ("mat",)),
    "no text": (mute, ("mat",)),
    "too busy": (busy, ("rate", "mat")),
    "stop refused by name": (strict, ("stop",)),
}


@pytest.mark.parametrize("name", HABITS)
@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_server_in_order_that_cannot_be_judged_neither_passes_nor_fails(
    name: str, api: str
) -> None:
    work, reasons = HABITS[name]
    verdicts = found(habit(work), api)
    # A refusal of a fifth string is in order, however short the text.
    told = {"stop.five"} if name == "too short a text" else set()
    for id in STOPS - OLD - told:
        result = verdicts[id]
        assert result.verdict in (Verdict.INCONCLUSIVE, Verdict.UNSUPPORTED), (id, result)
        assert (result.reason or "").split(":")[0] in (*reasons, "not-seen"), (id, result.reason)


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_stop_strings_that_are_taken_and_ignored_fail_no_more_than_one_check(api: str) -> None:
    verdicts = found(habit(deaf), api)
    assert {id for id in STOPS if verdicts[id].verdict in BROKEN} == {"stop.ignored"}
    assert not {id for id in STOPS - OLD if verdicts[id].verdict is Verdict.PASS}


# -- bugs --------------------------------------------------------------------------------------

SAMPLE = (
    "stop.tail-leak:piece", "stop.near-miss", "stop.near-miss:limit", "stop.near-miss:middle",
    "stop.mid-token:end", "stop.multi-byte:bytes", "stop.parity", "stop.first-text:finish",
    "stop.exact-prefix:characters", "utf8.characters:marks", "text.normal-form",
    "text.whitespace", "text.sse-lookalike",
)  # fmt: skip


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_of_bugs_is_told_by_its_check(name: str) -> None:
    fault = next(each for each in (*stops.FAULTS, *glyphs.FAULTS) if each.name == name)
    recorded = run([fault], "--select", fault.id)
    broken = {r.id for r in results(recorded) if r.verdict in BROKEN}
    assert fault.id in broken


def test_at_least_ten_bugs_leak_or_lose_text_at_stop_strings() -> None:
    text = ("stop.exact-prefix", "stop.tail-leak", "stop.near-miss", "stop.multi-byte")
    assert len([fault for fault in stops.FAULTS if fault.id in text]) >= 10


# -- the ladder --------------------------------------------------------------------------------


def refusing(*names: str) -> Fault:
    def work(place: Place, work: Work) -> Work:
        for name in names:
            if place.body.get(name):
                raise invalid(f"{name} is not supported", name)
        return work

    return Fault("utf8.characters", "members refused", work=work)


@pytest.mark.parametrize(
    "names", [("response_format",), ("response_format", "tools"), ("echo",)], ids=" ".join
)
def test_every_rung_of_the_ladder_brings_the_characters(names: tuple[str, ...]) -> None:
    recorded = run([refusing(*names)], "--select", "utf8.characters", "--select", "text.escapes")
    for api in ("chat", "completions"):
        verdicts = found(recorded, api)
        assert verdicts["utf8.characters"].verdict is Verdict.PASS
        assert verdicts["text.escapes"].verdict is Verdict.PASS
    asked = [read(c, api=d.api).request or {} for d in recorded.dossiers if d.scenario == "pair"
             for c in d.roles["stream"]]  # fmt: skip
    assert not [body for body in asked for name in names if body.get(name)]
