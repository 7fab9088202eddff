"""The crowd: sixteen at once, every word its own; bad requests beside good ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from conformance import storage
from conformance.canaries import PIECE, places, words
from conformance.capture import Capture, How
from conformance.dossier import APIS, CHAT, Dossier
from conformance.findings import Verdict
from conformance.judge import judge
from conformance.reading import read
from conformance.scenarios import SCENARIOS
from conformance.scenarios.asks import Ask
from conformance.scenarios.crowd import STOP_LENGTH, two_stops
from conformance.specs import known_cases
from conformance.target import Endpoint
from reference_server.faults.table import find
from tests import fault_matrix
from tests.conformance.test_replay import replay
from tests.conformance.test_run import Ran, run_reference


def asks(api: str, unsupported: tuple[str, ...] = (), **given: str | int) -> tuple[Ask, ...]:
    (parameters,) = SCENARIOS["crowd"].variants(given)
    endpoint = Endpoint(api, model="m", unsupported=dict.fromkeys(unsupported, "no"))
    return SCENARIOS["crowd"].asks(endpoint, parameters)


@pytest.mark.parametrize("seed", range(20))
def test_no_six_letters_stand_in_two_words(seed: int) -> None:
    listed = words(64, seed)
    pieces = [word[at : at + PIECE] for word in listed for at in range(len(word) - PIECE + 1)]
    assert len(set(pieces)) == len(pieces)
    assert words(64, seed) == listed != words(64, seed + 1)


def test_a_word_is_found_by_any_six_of_its_letters_and_not_by_five() -> None:
    first, second = words(2, 7)
    assert places(f"so {first[3:9].upper()}.", (first, second)) == {first: 3}
    assert places(f"so {first[3:8]} {second[:5]}", (first, second)) == {}


@pytest.mark.parametrize("api", APIS)
def test_a_crowd_is_sixteen_streams(api: str) -> None:
    roles = Counter(ask.role for ask in asks(api))
    assert roles == {"canary": 6, "left": 4, "limit": 4, "stop": 2}
    assert Counter(ask.role for ask in asks(api, ("stop",))) == roles
    assert Counter(ask.role for ask in asks(api, mix="aborts")) == {"canary": 8, "left": 8}
    assert Counter(ask.role for ask in asks(api, mix="canaries", rounds=2)) == {"canary": 32}


@pytest.mark.parametrize("api", APIS)
def test_without_stop_strings_on_offer_none_is_sent(api: str) -> None:
    assert not [ask for ask in asks(api, ("stop",)) if b'"stop"' in ask.rendered()]
    sent = [ask.role for ask in asks(api) if b'"stop"' in ask.rendered()]
    assert sent == ["limit", "limit", "stop", "stop"]


@pytest.mark.parametrize("api", APIS)
def test_every_word_is_given_to_one_request_alone(api: str) -> None:
    bodies = [ask.rendered().decode() for ask in asks(api, mix="canaries")]
    holders = [[word for word in words(16, 7) if word in body] for body in bodies]
    assert sorted(holders) == sorted([word] for word in words(16, 7))


@pytest.mark.parametrize("text", ["", "short", "a" * 200, "1, 2, 3, 4, 5, 6, 7"])
def test_a_text_without_two_places_has_no_stop_strings(text: str) -> None:
    assert two_stops(text) == ()


def test_the_two_stop_strings_first_stand_where_they_were_chosen() -> None:
    text = ", ".join(str(n) for n in range(1, 60))
    first, second = two_stops(text)
    assert len(first) == len(second) == STOP_LENGTH
    assert len(text) // 3 <= text.find(first) < text.find(second) - STOP_LENGTH


def test_a_text_that_repeats_itself_has_its_places_at_the_beginning() -> None:
    text = "The model is a 3D model of a 3D object.\n" + "The model is a 3D object.\n" * 6
    first, second = two_stops(text)
    assert text.find(first) + 2 * STOP_LENGTH <= text.find(second) < 60


@pytest.fixture(scope="module")
def ran() -> Ran:
    return run_reference("--select", "isolation.*")


def dossiers(ran: Ran, scenario: str) -> list[Dossier]:
    return [each for each in ran.recorded.dossiers if each.scenario == scenario]


def test_a_clean_server_passes_every_check_of_isolation(ran: Ran) -> None:
    undecided = [r for r in ran.report.results if r.verdict is not Verdict.PASS]
    assert undecided == []
    assert len(ran.report.results) == 14


def test_the_crowd_is_there_at_once(ran: Ran) -> None:
    for dossier in dossiers(ran, "crowd"):
        streams = [c for role, takes in dossier.roles.items() if role != "control" for c in takes]
        starts = [capture.connected_at or 0 for capture in streams]
        ends = [capture.end.at or 0 for capture in streams if len(capture.reads) > 10]
        assert len(streams) == 16
        assert max(starts) < min(ends)


def test_those_who_leave_do_so_by_fin_and_by_reset_in_turns(ran: Ran) -> None:
    for dossier in dossiers(ran, "crowd"):
        ends = [capture.end for capture in dossier.roles["left"]]
        assert {end.how for end in ends} == {How.LEFT}
        assert Counter(end.left for end in ends) == {"fin": 2, "rst": 2}


def test_bad_requests_meet_the_neighbours_while_these_run(ran: Ran) -> None:
    for dossier in dossiers(ran, "invalid"):
        first = min(c.connected_at or 0 for c in dossier.roles["neighbour"])
        last = max(c.end.at or 0 for c in dossier.roles["neighbour"])
        beside = [c for role in ("refused-stream", "refused-plain") for c in dossier.roles[role]
                  if first < (c.sent_at or 0) < last]  # fmt: skip
        assert len(beside) >= 5


def test_recovery_uses_the_connection_of_the_last_refusal(ran: Ran) -> None:
    for dossier in dossiers(ran, "invalid"):
        (recovery,) = dossier.roles["recovery"]
        assert dossier.picked["reused"] is True
        assert recovery.ordinal == 1
        assert _with(dossier, recovery) == 1


def _with(dossier: Dossier, recovery: Capture) -> int:
    """How many refused requests went over the same connection."""
    return sum(
        capture.connection == recovery.connection
        for role in ("refused-stream", "refused-plain")
        for capture in dossier.roles[role]
    )


def test_the_mixed_crowd_holds_a_stop_string_for_each_of_its_two(ran: Ran) -> None:
    for dossier in dossiers(ran, "crowd"):
        asked = [read(capture, api=CHAT).asked("stop") for capture in dossier.roles["stop"]]
        stops = dossier.picked["stops"]
        assert isinstance(stops, list)
        assert sorted(asked, key=str) == sorted(([stop] for stop in stops), key=str)


@pytest.mark.parametrize(
    ("check", "scenario"),
    [("isolation.canary", "crowd"), ("isolation.keep-alive", "invalid")],
)
def test_what_only_company_shows_is_found_again_by_a_replay(
    check: str, scenario: str, tmp_path: Path
) -> None:
    recorded = fault_matrix.run([find(check)], "--select", check, "--api", "chat")
    path = tmp_path / "dossier.jsonl"
    (dossier,) = (each for each in recorded.dossiers if each.scenario == scenario)
    path.write_bytes(storage.write(dossier))
    assert replay(f"{path}#{check}", [check]).word == "FAILED"
    assert replay(f"{path}#{check}").word == "FIXED"


VARIANTS = """\
- id: crowd.{name}
  title: The same in another mix
  level: must
  gate: behaviour
  rules: [I02]
  sources: [{{standard: RFC 9110, section: "3.4"}}]
  api: [chat, completions]
  provoke: {{scenario: crowd, with: {{mix: {mix}, rounds: {rounds}}}}}
  expect: {{on: dossier, check: {check}}}
  advice: Look at the rows.
"""


@pytest.mark.parametrize(
    ("mix", "rounds", "check", "fault"),
    [
        ("aborts", 1, "isolation.aborts", "isolation.aborts"),
        ("canaries", 2, "isolation.canary", "isolation.canary:swapped"),
    ],
)
def test_half_of_a_crowd_can_leave_and_a_crowd_can_come_twice(
    mix: str, rounds: int, check: str, fault: str, tmp_path: Path
) -> None:
    text = VARIANTS.format(name=mix, mix=mix, rounds=rounds, check=check)
    (tmp_path / "variant.yaml").write_text(text)
    words = ("--specs", str(tmp_path), "--select", "crowd.*")
    clean = run_reference(*words)
    assert {each.verdict for each in clean.report.results} == {Verdict.PASS}
    (dossier,) = (d for d in dossiers(clean, "crowd") if d.api == CHAT)
    assert sum(len(takes) for takes in dossier.roles.values()) == 16 * rounds
    broken = fault_matrix.run([find(fault)], *words)
    judged = judge(broken.dossiers, known_cases([tmp_path]))
    assert {r.verdict for r in judged if r.id == f"crowd.{mix}"} == {Verdict.FAIL}
