"""Hang-ups judged from end to end: a wrong server never passes, a right one never fails.

Servers with metrics, servers whose neighbours feel the work (a step takes longer for each request,
or there is one place only), and servers that show nothing at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import trio
import trio.testing

from conformance import storage
from conformance.capture import Capture
from conformance.checks import abort
from conformance.dossier import Dossier, Sample
from conformance.findings import Abstain, Finding, Result, Verdict
from conformance.options import OneLineParser
from conformance.reading import read
from conformance.run import execute
from conformance.run_options import configure
from conformance.run_report import Recorded
from conformance.run_setup import setup_from_args
from reference_server.bridge import Bridge
from reference_server.engine.scripted import ScriptedEngine
from reference_server.faults.table import FAULTS, seams_for
from reference_server.wire.server import Server, Settings
from tests.fault_matrix import results

ENDS = ("abort.fin", "abort.rst", "abort.before-headers")
ONLY = tuple(word for end in ENDS for word in ("--select", end))
RIGHT, WRONG, OPEN = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE


@dataclass(frozen=True, slots=True)
class Kind:
    """A server's pace, and what of its work can be seen."""

    step: float = 0.01
    seat: float = 0.0
    batch: int = 16
    heartbeat: float | None = None
    words: tuple[str, ...] = ()


BLIND = ("--metrics", "none")
METERED = Kind()
SHARED = Kind(seat=0.005, words=BLIND)  # who shares the batch is slower
SERIAL = Kind(batch=1, words=BLIND)
DARK = Kind(words=BLIND)


def ran(kind: Kind, *faults: str, words: tuple[str, ...] = ("--select", "abort.*")) -> Recorded:
    recorded = Recorded()

    async def main() -> None:
        engine = ScriptedEngine(kind.batch, seed=7)
        bridge = Bridge(engine, kind.step, seat_seconds=kind.seat)
        seams = seams_for([FAULTS[name] for name in faults])
        server = Server(bridge, Settings(heartbeat=kind.heartbeat), seams=seams)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bridge.run)
            listeners = await nursery.start(trio.serve_tcp, server.serve_connection, 0)
            parser = OneLineParser()
            configure(parser)
            port = listeners[0].socket.getsockname()[1]
            flags = [f"http://127.0.0.1:{port}/v1", "--api", "chat", *kind.words, *words]
            await execute(setup_from_args(parser.parse_args(flags), {}), recorded, print)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return recorded


def verdicts(recorded: Recorded) -> Mapping[str, Result]:
    return {each.id: each for each in results(recorded)}


def said(kind: Kind, *faults: str) -> dict[str, Verdict]:
    found = verdicts(ran(kind, *faults, words=ONLY))
    return {check: found[check].verdict for check in ENDS}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [METERED, SHARED, SERIAL], ids=["metered", "shared", "serial"])
def test_a_server_that_ends_the_work_passes_by_every_witness(kind: Kind) -> None:
    assert said(kind) == dict.fromkeys(ENDS, RIGHT)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["abort.fin", "abort.fin:late"])
@pytest.mark.parametrize("kind", [METERED, SHARED], ids=["metered", "shared"])
def test_a_server_that_goes_on_fails_by_every_witness(kind: Kind, fault: str) -> None:
    assert said(kind, fault) == dict.fromkeys(ENDS, WRONG)


@pytest.mark.slow
def test_a_server_with_one_place_that_goes_on_never_passes() -> None:
    found = said(SERIAL, "abort.fin")
    assert found["abort.fin"] is WRONG
    assert RIGHT not in found.values()


def test_a_neighbour_tells_where_no_metrics_do() -> None:
    assert said(SHARED) == dict.fromkeys(ENDS, RIGHT)
    assert said(SHARED, "abort.fin")["abort.fin"] is WRONG


@pytest.mark.slow
def test_where_nothing_shows_the_work_nothing_is_said() -> None:
    for faults in ((), ("abort.fin",)):
        found = verdicts(ran(DARK, *faults))
        assert [found[check].verdict for check in ENDS] == [OPEN] * 3
        assert all((found[check].reason or "").startswith("oracle") for check in ENDS)


@pytest.mark.parametrize("step", [0.001, 0.0001])
def test_a_stream_that_is_over_too_soon_says_nothing_against_anybody(step: float) -> None:
    found = verdicts(ran(replace(METERED, step=step), "abort.fin"))
    assert {found[check].verdict for check in ENDS} == {OPEN}
    assert all((found[check].reason or "").startswith("fast") for check in ENDS)


def test_a_place_that_is_never_given_back_is_seen_in_the_gauge() -> None:
    found = verdicts(ran(METERED, "abort.fin:leak"))["abort.fin"]
    assert found.verdict is WRONG
    assert "still counts the request" in found.findings[0].message


@pytest.fixture(scope="module")
def clean() -> Recorded:
    """One run against a right server with metrics; several tests look at it."""
    return ran(METERED)


def test_a_right_server_passes_by_its_metrics(clean: Recorded) -> None:
    found = verdicts(clean)
    assert {found[check].verdict for check in (*ENDS, "abort.neighbours")} == {RIGHT}


def test_work_that_is_not_ours_makes_the_metrics_say_nothing(clean: Recorded) -> None:
    recorded = clean
    found = verdicts(_with_company(recorded))
    assert {found[check].verdict for check in ENDS} == {OPEN}


def _with_company(recorded: Recorded) -> Recorded:
    """The same record, its samples those of a server that works for somebody else as well."""
    changed = []
    for dossier in recorded.dossiers:
        samples = tuple(
            Sample(each.at, {**each.values, "generated_tokens": each.at * 100})
            for each in dossier.samples
        )
        changed.append(replace(dossier, samples=samples))
    return replace(recorded, dossiers=changed)


def test_an_endpoint_that_goes_on_by_intent_is_not_asked(tmp_path: Path) -> None:
    file = tmp_path / "target.yaml"
    file.write_text("detached: true\n")
    recorded = ran(replace(METERED, words=("--target", str(file))), "abort.fin")
    found = verdicts(recorded)
    assert {found[check].verdict for check in ENDS} == {OPEN}
    assert all((found[check].reason or "").startswith("resume") for check in ENDS)
    assert not any(dossier.roles for dossier in aborts(recorded))


def test_a_map_of_the_target_file_is_what_is_scraped(tmp_path: Path) -> None:
    file = tmp_path / "target.yaml"
    file.write_text("metrics: {map: {running: 'streamproof:num_requests_running'}}\n")
    recorded = ran(replace(METERED, words=("--target", str(file))), "abort.fin")
    assert verdicts(recorded)["abort.fin"].verdict is WRONG
    assert {name for d in aborts(recorded) for each in d.samples for name in each.values} == {
        "running"
    }


def test_a_page_that_is_not_there_is_said_if_it_was_asked_for() -> None:
    recorded = ran(replace(METERED, words=("--metrics", "http://127.0.0.1:1/metrics")))
    assert any("shows no metrics that we know" in note for note in recorded.notes)
    assert verdicts(recorded)["abort.fin"].verdict is OPEN


def test_the_neighbour_of_an_aborted_answer_gets_its_own_whole() -> None:
    found = verdicts(ran(METERED, "abort.neighbours"))["abort.neighbours"]
    assert found.verdict is WRONG
    assert "did not end well" in found.findings[0].message


def test_the_record_is_judged_again_alike_after_it_was_kept() -> None:
    recorded = ran(METERED, "abort.fin:late")
    kept = [storage.read(storage.write(each)) for each in recorded.dossiers]
    again = Recorded(endpoints=recorded.endpoints, dossiers=kept)
    assert results(again) == results(recorded)


def aborts(recorded: Recorded) -> list[Dossier]:
    return [each for each in recorded.dossiers if each.scenario == "abort"]


def test_the_controls_are_measured_once_for_all_the_aborts_of_an_api(clean: Recorded) -> None:
    found = aborts(clean)
    assert ["control" in each.roles for each in found] == [True, False, False]
    assert {each.picked["control"] for each in found} == {found[0].name}
    sent = sum(len(takes) for each in found for takes in each.roles.values())
    assert sent == 6  # a pace, a control, three that are left, one neighbour


def test_our_hang_ups_stand_in_the_record_with_their_times(clean: Recorded) -> None:
    for dossier in aborts(clean):
        (action,) = dossier.actions
        (treated,) = dossier.roles["treated"]
        assert (action.what, action.role) == (dossier.parameters["how"], "treated")
        assert action.at == pytest.approx(treated.end.at)
        assert len(dossier.samples) > 5


@pytest.mark.slow
@pytest.mark.parametrize("time", range(20))
@pytest.mark.parametrize("kind", [METERED, SHARED, SERIAL, DARK], ids=lambda kind: str(kind))
def test_over_twenty_runs_nobody_is_judged_wrongly(kind: Kind, time: int) -> None:
    paced = replace(kind, step=kind.step * (0.5 + 0.17 * time), seat=kind.seat * (0.6 + 0.1 * time))
    assert WRONG not in said(paced).values()
    for fault in ("abort.fin", "abort.fin:late"):
        assert RIGHT not in said(paced, fault).values()


@pytest.mark.parametrize(
    ("after", "natural", "step", "expected"),
    [
        (1.0, 20.0, 0.0, float),
        (3.1, 20.0, 0.0, Finding),
        (3.1, 20.0, abort.PROMPT_STEP, Abstain),  # it ended long before the answer would have
        (3.1, 3.2, abort.PROMPT_STEP, Finding),  # it ran to the answer's own end
        (6.0, 20.0, abort.PROMPT_STEP, Finding),
    ],
)
def test_a_prompt_that_is_in_the_model_is_no_proof_that_the_hang_up_was_ignored(
    after: float, natural: float, step: float, expected: type
) -> None:
    treated = read(Capture(b""))
    left = abort._Left(treated, at=0.0, natural=natural)
    assert isinstance(abort._in_time(left, after, "A03", step), expected)
