"""`run` from end to end: recorder, plan and judge against servers in the same virtual time."""

from __future__ import annotations

import argparse
import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trio.testing

import conformance
from conformance import cli, storage
from conformance.capture import Json
from conformance.dossier import Dossier
from conformance.errors import TargetError, UsageError
from conformance.findings import Result, Verdict
from conformance.material import INDENTED, SCRIPTS
from conformance.options import OneLineParser
from conformance.reading import read
from conformance.report import json_report
from conformance.report.model import Report
from conformance.run import check, execute
from conformance.run_options import configure
from conformance.run_report import Recorded, report_from
from conformance.run_setup import Setup, setup_from_args
from conformance.scenarios import SCENARIOS
from conformance.scenarios.driver import Driver
from conformance.scenarios.scenario import Scenario
from conformance.specs import known_cases
from reference_server.bridge import Bridge
from reference_server.engine.scripted import ScriptedEngine
from reference_server.seams import CLEAN, Seams
from reference_server.wire.connection import Request
from reference_server.wire.server import Server, Settings
from tests.conformance.mini_server import Got, MiniServer, Say, refused

STEP = 0.01  # seconds


@dataclass(slots=True)
class Counted:
    """The reference server on loopback, and every request that it read."""

    engine: ScriptedEngine
    url: str
    got: list[Request]


@asynccontextmanager
async def reference(settings: Settings | None = None) -> AsyncIterator[Counted]:
    engine = ScriptedEngine(16, seed=7)
    bridge = Bridge(engine, STEP)
    got: list[Request] = []

    def keep(request: Request, memory: dict[str, Any]) -> Seams:
        if request.path.startswith("/v1/"):  # a scrape of the metrics is none of the API's
            got.append(request)
        return CLEAN

    server = Server(bridge, settings, seams=keep)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bridge.run)
        listeners = await nursery.start(trio.serve_tcp, server.serve_connection, 0)
        port = listeners[0].socket.getsockname()[1]
        yield Counted(engine, f"http://127.0.0.1:{port}/v1", got)
        nursery.cancel_scope.cancel()


def setup(url: str, *words: str, environment: dict[str, str] | None = None) -> Setup:
    parser = OneLineParser()
    configure(parser)
    return setup_from_args(parser.parse_args([url, *words]), environment or {})


def virtually(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with trio.fail_after(3600):
            await main()

    trio.run(bounded, clock=trio.testing.MockClock(autojump_threshold=0))


@dataclass(slots=True)
class Ran:
    """A run against the reference server, with both sides' books."""

    setup: Setup
    recorded: Recorded
    report: Report
    got: list[Request]
    tokens: int
    took: float


def run_reference(*words: str, settings: Settings | None = None, **more: Any) -> Ran:
    out: list[Ran] = []

    async def main() -> None:
        async with reference(settings) as server:
            made = setup(server.url, *words, **more)
            recorded, start = Recorded(), trio.current_time()
            await execute(made, recorded, lambda line: None)
            took = trio.current_time() - start
            tokens = server.engine.gauges.tokens
            report = report_from(made, recorded)
            out.append(Ran(made, recorded, report, server.got, tokens, took))

    virtually(main)
    return out[0]


@pytest.fixture(scope="module")
def default() -> Ran:
    """One default run, judged; most tests below look at it."""
    return run_reference()


def bad(results: tuple[Result, ...]) -> list[tuple[str, str | None, str | None]]:
    worse = (Verdict.FAIL, Verdict.INCONSISTENT, Verdict.NON_STRICT, Verdict.HARNESS_ERROR)
    return [(each.id, each.api, each.reason) for each in results if each.verdict in worse]


def test_the_clean_reference_server_passes_the_default_profile(default: Ran) -> None:
    assert bad(default.report.results) == []
    assert default.report.complete
    assert default.report.exit == 0


def test_no_more_is_sent_than_the_printed_bound_says(default: Ran) -> None:
    bound = default.setup.widest_plan().cost
    assert len(default.got) == default.recorded.sent.requests <= bound.requests
    assert 0 < default.tokens <= default.recorded.sent.tokens <= bound.tokens


def test_the_recorded_requests_are_those_that_the_server_read(default: Ran) -> None:
    sent = sorted(
        b"".join(segment.data for segment in capture.request).partition(b"\r\n\r\n")[2]
        for dossier in default.recorded.dossiers
        for _, capture in dossier.own()
    )
    assert sent == sorted(request.body for request in default.got)


@pytest.mark.parametrize("metrics", [(), ("--metrics", "none")], ids=["metered", "blind"])
@pytest.mark.parametrize("api", ["chat", "completions"])
def test_each_api_costs_at_most_60_generations_40_refusals_and_a_minute(
    api: str, metrics: tuple[str, ...]
) -> None:
    ran = run_reference("--api", api, *metrics)
    everything = {case.id for case in known_cases() if api in case.api}
    assert {each.id for each in ran.report.results} == everything
    refusals = [
        capture
        for dossier in ran.recorded.dossiers
        for role, capture in dossier.own()
        if role.startswith("refused")
    ]
    posts = [request for request in ran.got if request.method == "POST"]
    bound, sent = ran.setup.widest_plan().cost, len(posts) - len(refusals)
    assert sent <= bound.generations <= 60  # discovery's among them
    assert len(refusals) == bound.refused <= 40
    assert ran.took <= 60


def test_every_selected_id_has_one_result_for_each_of_its_apis(default: Ran) -> None:
    wanted = [
        (case.id, api) for case in default.setup.cases(("chat", "completions")) for api in case.api
    ]
    assert sorted((each.id, str(each.api)) for each in default.report.results) == sorted(wanted)


def test_two_reports_of_one_record_are_equal_bytes(default: Ran) -> None:
    again = report_from(default.setup, default.recorded)
    assert json_report.dumps(again, line=False) == json_report.dumps(default.report, line=False)


def test_every_malformed_request_is_refused_and_every_control_answered(default: Ran) -> None:
    invalid = [each for each in default.recorded.dossiers if each.scenario == "invalid"]
    assert len(invalid) == 2
    for dossier in invalid:
        names = dossier.picked["mistakes"]
        assert isinstance(names, list)
        for role in ("refused-stream", "refused-plain"):
            statuses = [_status(capture.received) for capture in dossier.roles[role]]
            accepted = [n for n, s in zip(names, statuses, strict=True) if not 400 <= s < 500]
            assert accepted == []
        controls = (*dossier.roles["control"], *dossier.roles["recovery"])
        assert {_status(capture.received) for capture in controls} == {200}


def test_the_characters_arrive_whole_within_the_limit(default: Ran) -> None:
    """Else the checks on characters would look at a part of them only."""
    asked = [each for each in default.recorded.dossiers if each.scenario == "pair"]
    for answer, pieces in (("characters", SCRIPTS), ("code", INDENTED)):
        found = [each for each in asked if each.parameters["answer"] == answer]
        assert len(found) == 2
        for dossier in found:
            for capture in dossier.roles["stream"]:
                text = read(capture, api=dossier.api).text
                assert all(piece in text for piece in pieces.values())


def _status(received: bytes) -> int:
    return int(received.split(b" ", 2)[1])


def test_dossier_names_are_unique_and_in_the_order_of_the_plan(default: Ran) -> None:
    names = [dossier.name for dossier in default.recorded.dossiers]
    assert len(set(names)) == len(names)
    assert {job.name for job in default.recorded.plan.jobs} <= set(names)


COMPANY = """\
- id: mine.{name}
  title: A case of one's own
  level: must
  gate: wire
  rules: [F01]
  sources: [{{standard: RFC 9110, section: "3.4"}}]
  api: [chat]
  provoke: {{scenario: {name}}}
  expect: {{on: dossier, check: fin.limit}}
  advice: Look at the limit.
"""


def test_concurrency_shortens_the_run_and_alone_scenarios_stay_alone(tmp_path: Path) -> None:
    own = "".join(COMPANY.format(name=name) for name in ("stream", "limit", "keep-alive"))
    (tmp_path / "own.yaml").write_text(own)
    words = ("--api", "chat", "--specs", str(tmp_path))
    one = run_reference(*words, "--concurrency", "1")
    four = run_reference(*words)
    assert four.took < one.took
    spans = [
        (dossier.scenario, span)
        for dossier in four.recorded.dossiers
        for span in _spans(dossier.own())
    ]
    for scenario, (start, end) in spans:
        if scenario in ("pair", "stop-cut", "crowd", "invalid"):
            overlapping = {other for other, (a, b) in spans if a < end and start < b}
            assert overlapping <= {scenario}  # empty: an answer within one instant


def _spans(own: Any) -> list[tuple[float, float]]:
    """First connection to last end of each exchange."""
    return [(capture.sent_at, capture.end.at) for _, capture in own]


def test_quick_is_two_generations_an_api() -> None:
    ran = run_reference("--quick")
    generating = [dossier for dossier in ran.recorded.dossiers if dossier.scenario != "discovery"]
    assert [d.scenario for d in generating] == ["pair", "pair"]
    assert {role: len(takes) for role, takes in generating[0].roles.items()} == {
        "plain": 1,
        "stream": 1,
    }
    assert ran.report.exit == 0
    assert {each.gate for each in ran.report.results} == {"wire", "shape"}


def test_a_budget_is_kept_and_what_it_cost_is_said() -> None:
    ran = run_reference("--api", "chat", "--max-requests", "20")
    assert len(ran.got) <= 20
    reasons = [each.reason or "" for each in ran.report.results]
    assert any(reason.startswith("budget: chat-") for reason in reasons)


def test_captures_are_kept_and_judged_again_alike(tmp_path: Path) -> None:
    ran = run_reference("--api", "chat", "--captures", str(tmp_path), "--quick")
    kept = sorted(tmp_path.iterdir())
    assert {path.stem for path in kept} == {each.name for each in ran.recorded.dossiers}
    read = {each.name: each for each in map(storage.read, kept)}
    assert all(read[dossier.name].roles == dossier.roles for dossier in ran.recorded.dossiers)


def test_the_api_key_reaches_the_server_and_nothing_else(tmp_path: Path) -> None:
    key = "sk-secret-0123456789"
    ran = run_reference(
        "--quick", "--api", "chat", "--captures", str(tmp_path), "--api-key-env", "THE_KEY",
        settings=Settings(api_key=key), environment={"THE_KEY": key},
    )  # fmt: skip
    assert ran.got[-1].headers["authorization"] == f"Bearer {key}"
    assert ran.report.exit == 0
    assert key not in json_report.dumps(ran.report, line=False)
    assert all(key.encode() not in path.read_bytes() for path in tmp_path.iterdir())


# -- servers that fail ----------------------------------------------------------------------------


def run_mini(
    answer: Callable[[Got], Say],
    *words: str,
    cancel_after: int | None = None,
    environment: dict[str, str] | None = None,
) -> tuple[Recorded, Report, list[Got]]:
    """A run against a few lines; cancelled once the server has read that many requests."""
    out: list[tuple[Recorded, Report, list[Got]]] = []

    async def main() -> None:
        scope = trio.CancelScope()

        def counting(got: Got) -> Say:
            if cancel_after is not None and len(server.got) > cancel_after:
                scope.cancel()
            return answer(got)

        server = MiniServer(counting)
        async with trio.open_nursery() as nursery:
            made = setup(await server.start(nursery), *words, environment=environment)
            recorded = Recorded()
            with scope:
                await execute(made, recorded, lambda line: None)
            out.append((recorded, report_from(made, recorded), server.got))
            nursery.cancel_scope.cancel()

    virtually(main)
    return out[0]


def plain_only(got: Got) -> Say:
    """A server that knows no streams, and ends every answer properly."""
    if got.body is None:
        return Say(200, {"data": [{"id": "m"}]})
    message: Json = {"role": "assistant", "content": "hi"}
    choice: Json = {"index": 0, "message": message, "finish_reason": "stop"}
    base: dict[str, Json] = {"id": "x", "object": "chat.completion", "model": "m", "created": 17}
    return Say(200, {**base, "choices": [choice]})


def refusing(*, hang_up: bool, then_dead: bool) -> Callable[[Got], Say]:
    """A 500 for a `tools` that is a text; `then_dead`: no answer after the last of these."""
    dead = [False]

    def answer(got: Got) -> Say:
        body = got.body or {}
        if body.get("tools") == "get_weather":
            dead[0] |= then_dead and not body.get("stream")
            return Say(500, {"error": "no"}, hang_up=hang_up)
        return Say(drop=True) if dead[0] else plain_only(got)

    return answer


@pytest.mark.parametrize(
    ("hang_up", "then_dead", "takes", "verdict"),
    [
        (False, False, 1, Verdict.PASS),
        (True, False, 2, Verdict.PASS),
        (True, True, 2, Verdict.FAIL),
    ],
)
def test_a_connection_closed_behind_a_refusal_is_not_taken_for_a_dead_server(
    hang_up: bool, then_dead: bool, takes: int, verdict: Verdict
) -> None:
    answer = refusing(hang_up=hang_up, then_dead=then_dead)
    recorded, report, _ = run_mini(answer, "--api", "chat", "--select", "err.recovers")
    (dossier,) = (each for each in recorded.dossiers if each.scenario == "invalid")
    assert len(dossier.roles["recovery"]) == takes
    (result,) = report.results
    assert result.verdict is verdict


@pytest.mark.parametrize(
    ("member", "check", "again"),
    [("tools", "tool.type", 0), ("response_format", "utf8.characters", 4)],
)
def test_what_only_a_scenario_asks_for_is_unsupported_once_it_is_refused_there(
    member: str, check: str, again: int
) -> None:
    def answer(got: Got) -> Say:
        if member in (got.body or {}):
            return refused(400, f"{member} is not supported", member)
        return plain_only(got)

    words = ("--api", "chat", "--select", check, "--select", "stop.multi-byte")
    recorded, report, got = run_mini(answer, *words)
    said = {"chat": {member: f"400: {member} is not supported"}}
    assert report.target["unsupported"] == said
    assert len([each for each in got if member in (each.body or {})]) == 1
    pairs = [each for each in recorded.dossiers if each.scenario == "pair"]
    assert (
        sum(len(each.roles.get(role, ())) for each in pairs for role in ("plain", "stream"))
        == again
    )
    bound = setup("http://127.0.0.1", *words).widest_plan().cost
    assert len(got) <= bound.requests


def failing_on(stream: bool, times: int) -> Callable[[Got], Say]:
    """Drops the connection of the first few requests of that form, discovery apart."""
    left = [times]

    def answer(got: Got) -> Say:
        long_enough = got.body is not None and (got.body.get("max_tokens") or 0) == 16
        if long_enough and left[0] and bool((got.body or {}).get("stream")) is stream:
            left[0] -= 1
            return Say(drop=True)
        return plain_only(got)

    return answer


def test_a_key_that_the_server_repeats_is_masked_in_what_is_kept(tmp_path: Path) -> None:
    def answer(got: Got) -> Say:
        said = plain_only(got)
        return Say(
            200, said.raw.replace(b'"hi"', json.dumps(got.headers["authorization"]).encode())
        )

    key = "sk-secret-0123456789"
    words = ("--quick", "--api", "chat", "--captures", str(tmp_path))
    run_mini(answer, *words, environment={"OPENAI_API_KEY": key})
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"Bearer " + b"*" * len(key) in kept
    assert b"env:OPENAI_API_KEY" in kept  # so that a replay knows what to put back
    assert key.encode() not in kept


def test_a_transport_failure_is_one_more_attempt_and_both_are_recorded() -> None:
    recorded, _, _ = run_mini(failing_on(True, 1), "--api", "chat", "--quick")
    names = [dossier.name for dossier in recorded.dossiers if dossier.scenario == "pair"]
    assert names == ["chat-pair-repeats-1-attempt-1", "chat-pair-repeats-1"]
    assert "abstain" not in recorded.dossiers[-1].picked


def test_a_second_transport_failure_is_said_and_never_a_third_attempt() -> None:
    recorded, report, _ = run_mini(failing_on(True, 9), "--api", "chat", "--quick")
    pairs = [dossier for dossier in recorded.dossiers if dossier.scenario == "pair"]
    assert len(pairs) == 2
    assert pairs[1].picked["abstain"] == {
        "reason": "net",
        "detail": "stream: closed without an answer",
    }
    assert report.exit != 0


def test_a_server_that_answers_nothing_but_errors_is_not_tested() -> None:
    def answer(got: Got) -> Say:
        return plain_only(got) if got.body is None else refused(500, "broken")

    _, report, _ = run_mini(answer, "--api", "chat")
    assert report.exit == 2
    assert "not tested" in report.problems[0]


def test_a_scenario_of_ours_that_breaks_costs_its_own_checks_and_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def drive(driver: Driver, asks: object) -> Dossier:
        async with trio.open_nursery():
            raise ZeroDivisionError("by\nzero")

    broken = replace(SCENARIOS["crowd"], drive=drive)
    monkeypatch.setitem(cast("dict[str, Scenario]", SCENARIOS), "crowd", broken)
    ran = run_reference(
        "--api",
        "chat",
        "--select",
        "isolation.*",
        "--select",
        "fin.missing",
        "--min-conclusive",
        "0",
    )
    assert ran.recorded.complete
    results = {each.id: each for each in ran.report.results}
    assert results["isolation.limits"].verdict is Verdict.HARNESS_ERROR
    assert (results["isolation.limits"].reason or "").startswith("test_run.py:")
    assert results["fin.missing"].verdict is Verdict.PASS
    assert ran.report.exit == 2


@pytest.mark.parametrize(("most", "exit"), [(8, 2), (60, 1)])
def test_a_target_that_dies_on_the_way_is_a_failure_of_the_scenario_that_killed_it(
    most: int, exit: int
) -> None:
    """So early that nothing was tested, or in the midst of the malformed requests."""
    out: list[tuple[Recorded, Report]] = []

    async def main() -> None:
        async with trio.open_nursery() as outer:
            inner = await outer.start(_mortal, most)
            made = setup(inner.url, "--api", "chat", "--concurrency", "1")
            recorded = Recorded()
            await execute(made, recorded, lambda line: None)
            out.append((recorded, report_from(made, recorded)))

    virtually(main)
    recorded, report = out[0]
    results = {each.id: each for each in report.results}
    died = results["http.no-answer"]
    assert (died.verdict, report.exit) == (Verdict.FAIL, exit)
    assert "refused all of " in died.findings[-1].message
    assert died.findings[-1].dossier in [dossier.name for dossier in recorded.dossiers]
    if exit == 2:
        assert sum(why == "dead" for _, why in recorded.plan.dropped) > 5
        assert (results["abort.rst"].reason or "").startswith("net: ")


@dataclass(slots=True)
class Mortal:
    url: str


async def _mortal(
    most: int, task_status: trio.TaskStatus[Mortal] = trio.TASK_STATUS_IGNORED
) -> None:
    """A server that closes its listener after so many requests."""

    def answer(got: Got) -> Say:
        if len(server.got) == most:
            nursery.cancel_scope.cancel()
        return plain_only(got)

    server = MiniServer(answer)
    async with trio.open_nursery() as nursery:
        task_status.started(Mortal(await server.start(nursery)))


@pytest.mark.parametrize("after", [0, 3, 14])
def test_an_interrupted_run_leaves_a_whole_report_that_says_so(after: int) -> None:
    recorded, report, _ = run_mini(plain_only, "--api", "chat", cancel_after=after)
    assert not recorded.complete
    assert (report.complete, report.exit) == (False, 2)
    assert report.results
    assert json.loads(json_report.dumps(report, line=False))["complete"] is False


# -- the command and the door ----------------------------------------------------------------------


def test_unreachable_from_the_start_is_one_line_and_exit_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["run", "http://127.0.0.1:1/v1"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "conformance: cannot reach http://127.0.0.1:1/v1: ECONNREFUSED\n"


def test_list_requests_prints_the_bound_and_sends_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["run", "http://127.0.0.1:1", "--list-requests", "--api", "chat"]) == 0
    assert "at most " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "URL"),
        (("http://h", "--api", "chats"), "did you mean chat?"),
        (("http://h", "--select", "nothing.*"), "no check matches"),
        (("http://h", "--header", "nocolon"), "NAME:VALUE"),
        (("http://h", "--api-key-env", "NOT_SET_ANYWHERE"), "is not set"),
        (("https://h", "--cacert", "/nowhere.pem"), "/nowhere.pem"),
        (("http://h", "--proxy", "socks://x"), "socks"),
        (("http://h", "--target", "/nowhere.yaml"), "/nowhere.yaml"),
        (("http://h", "--dialect", "azur"), "did you mean azure?"),
        (("http://h", "--captures", "/dev/null/x"), "--captures"),
    ],
)
def test_what_cannot_run_is_one_line_and_exit_2(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


@pytest.fixture
def serving() -> Any:
    """The reference server in a thread with its own trio, in real time."""
    started, stop = threading.Event(), threading.Event()
    urls: list[str] = []

    async def main() -> None:
        async with reference() as server:
            urls.append(server.url)
            started.set()
            await trio.to_thread.run_sync(stop.wait)

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    assert started.wait(60)
    yield urls[0]
    stop.set()
    thread.join(10)


def test_check_is_a_plain_function_that_works_under_asyncio(serving: str) -> None:
    async def under_asyncio() -> Report:
        return conformance.check(serving, quick=True, api=("chat",))

    report = asyncio.run(under_asyncio())
    assert report.exit == 0
    assert report.complete


def test_check_raises_what_the_command_prints() -> None:
    with pytest.raises(TargetError, match="ECONNREFUSED"):
        check("http://127.0.0.1:1")
    with pytest.raises(UsageError, match="not a URL"):
        check("nothing")
    with pytest.raises(TypeError, match="no option 'modle'"):
        check("http://127.0.0.1:1", modle="x")


def test_the_command_writes_its_reports(serving: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    words = ["run", serving, "--quick", "--api", "chat", "--json", str(path)]
    assert cli.main(words) == 0
    report = json.loads(path.read_text())
    assert report["exit"] == 0
    assert report["target"]["url"] == serving


def test_the_options_are_complete_without_a_heavy_import() -> None:
    parser = argparse.ArgumentParser()
    configure(parser)
    assert parser.parse_args(["http://h"]).min_conclusive == 80
