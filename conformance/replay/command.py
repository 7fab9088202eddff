"""`conformance replay DOSSIER#ID`: provoke it again and say FIXED, FAILED or ERROR."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import trio

from conformance import storage
from conformance.capture import How
from conformance.connect import Door
from conformance.dossier import Dossier
from conformance.errors import RecordError, UsageError
from conformance.findings import Result, Verdict
from conformance.judge import Policy, judge
from conformance.masking import Secret
from conformance.metering import meter_of, path_beside, same_server
from conformance.reach import door_beside, door_from_args
from conformance.recorder import Recorder
from conformance.replay.play import play
from conformance.replay.script import Groups, authorization, groups, origin, secrets_for
from conformance.report.escape import terminal
from conformance.report.output import Console
from conformance.report.story import place
from conformance.run_options import NO_METRICS
from conformance.run_report import transport_failure
from conformance.scenarios.meter import Meter
from conformance.script import Clocks
from conformance.selection import find_case
from conformance.specs import Case, known_cases
from conformance.target import Target, Url, parse_url

CODES = {"FIXED": 0, "FAILED": 1, "ERROR": 2}


@dataclass(frozen=True, slots=True)
class Setup:
    """One replay, ready to go."""

    dossier: Dossier
    case: Case
    known: tuple[Case, ...]
    door: Door
    groups: Groups
    secrets: tuple[Secret, ...]
    url: Url
    metrics: Url | None = None  # the page to scrape; None: beside the API
    scrapes: bool = False
    captures: Path | None = None


def main(args: argparse.Namespace) -> int:
    """Returns 0, 1 or 2 for FIXED, FAILED and ERROR; raises StreamproofError."""
    setup = setup_from_args(args, os.environ)
    dossier = trio.run(again, setup)
    if setup.captures is not None:
        _keep(dossier, setup.captures)
    word, detail = outcome(dossier, setup)
    name = f"{setup.dossier.name}#{setup.case.id}"
    Console().write(terminal(f"{word}  {name}: {detail}") + "\n")
    return CODES[word]


def setup_from_args(args: argparse.Namespace, environment: Mapping[str, str]) -> Setup:
    """Raises StreamproofError for what cannot be replayed, and for what is not broken."""
    file, mark, name = args.what.rpartition("#")
    if not (mark and file and name):
        raise UsageError(f"{args.what}: expected DOSSIER#ID, such as stream.jsonl#done.missing")
    known = known_cases([Path(each) for each in args.specs])
    case = find_case(known, name)
    dossier = _read(file)
    _check_broken(judged(dossier, case, known), dossier, case)
    url = _url(args.url, dossier)
    secrets = secrets_for(dossier, environment, args.api_key_env)
    clocks = Clocks(first_byte=args.timeout, progress=args.timeout, total=5 * args.timeout)
    return Setup(
        dossier,
        case,
        known,
        door_from_args(args, url, environment),
        groups(dossier, clocks, parse_url(args.url) if args.url else None, secrets),
        secrets,
        url,
        None if args.metrics in (None, NO_METRICS) else parse_url(args.metrics),
        bool(dossier.samples) and args.metrics != NO_METRICS,
        Path(args.captures) if args.captures else None,
    )


def _read(file: str) -> Dossier:
    try:
        return replace(storage.read(Path(file)), name=file)
    except OSError as error:
        raise RecordError(f"{file}: {error.strerror}") from None


def _url(given: str | None, dossier: Dossier) -> Url:
    recorded = origin(dossier)
    if given is None and recorded is None:
        raise UsageError(f"{dossier.name}: the record names no URL; give one with --url")
    return parse_url(given or recorded or "")


def judged(dossier: Dossier, case: Case, known: Sequence[Case]) -> Result | None:
    """The case's verdict on the dossier; None where it does not concern its API."""
    results = judge([dossier], [case], Policy(), known)
    return next((each for each in results if each.id == case.id), None)


def _check_broken(result: Result | None, dossier: Dossier, case: Case) -> None:
    if result is None:
        apis = ", ".join(case.api)
        raise UsageError(f"{dossier.name}: {case.id} is about {apis}; this record is of another")
    if not result.findings:
        why = f" ({result.reason})" if result.reason else ""
        said = f"{case.id} is not broken in this record: it says {result.verdict.value}{why}"
        raise UsageError(f"{dossier.name}: {said}")


async def again(setup: Setup) -> Dossier:
    """Send it again; returns the new dossier."""
    recorder = Recorder(setup.door, secrets=setup.secrets)
    meter = await _meter(setup, recorder) if setup.scrapes else None
    return await play(setup.dossier, setup.groups, recorder, meter)


async def _meter(setup: Setup, recorder: Recorder) -> Meter | None:
    """What scrapes the server's metrics. None where it shows none: then the check says what is
    lacking."""
    page, url = setup.metrics, setup.url
    if page is not None and not same_server(page, url):
        recorder = recorder.beside(door_beside(setup.door, page), setup.secrets)
        return await meter_of(recorder, Target(page), page.path, {}, ())
    path = path_beside(url) if page is None else page.path
    fields = () if page is not None else authorization(setup.groups)
    return await meter_of(recorder, Target(url), path, {}, fields)


def outcome(dossier: Dossier, setup: Setup) -> tuple[str, str]:
    """FIXED, FAILED or ERROR, and why."""
    result = judged(dossier, setup.case, setup.known)
    if result is not None and result.findings:
        finding = result.findings[0]
        return "FAILED", f"{finding.message} ({place(finding)})"
    if (failed := transport_failure(dossier)) is not None:
        return "ERROR", failed
    if result is not None and result.verdict is Verdict.PASS:
        return "FIXED", "the same requests pass today"
    return "ERROR", _why(result, dossier, setup)


def _why(result: Result | None, dossier: Dossier, setup: Setup) -> str:
    statuses = {each for each in _statuses(dossier) if each >= 400} - {*_statuses(setup.dossier)}
    said = f"; the server answered {', '.join(map(str, sorted(statuses)))}" if statuses else ""
    verdict = result.verdict.value if result else "nothing"
    reason = f" ({result.reason})" if result and result.reason else ""
    return f"it cannot be told: {verdict}{reason}{said}"


def _statuses(dossier: Dossier) -> list[int]:
    from conformance.reading import read

    captures = [capture for takes in dossier.roles.values() for capture in takes]
    found = [read(each).status for each in captures if each.end.how is not How.NOT_CONNECTED]
    return [status for status in found if status is not None]


def _keep(dossier: Dossier, folder: Path) -> None:
    path = folder / f"replay-{Path(dossier.name).name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(storage.write(replace(dossier, name=path.stem)))
    except OSError as error:
        raise RecordError(f"{path}: cannot be written: {error.strerror}") from None
