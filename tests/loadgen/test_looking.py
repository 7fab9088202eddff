"""Every answer is looked at once, in this process or in others, with the verdicts of `judge`."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.dossier import Dossier
from conformance.errors import UsageError
from conformance.findings import Verdict
from conformance.judge import judge
from conformance.specs import known_cases
from loadgen.lookers import ENOUGH, Job, looks
from loadgen.looking import checks_of, judged_failures, look, parse_gates, tally
from loadgen.outcome import Fate
from loadgen.played import Played
from loadgen.workload import Workload
from tests.loadgen.captures import DONE, capture, chunk, text, whole

KNOWN = known_cases()
CHECKS = checks_of(KNOWN, ("wire", "shape"), "chat")
LOAD = Workload("chat", "m", 7)
NO_ROLE = capture([(1.0, text("a") + chunk({}, "stop") + chunk(None) + DONE)])
BROKEN = capture([(1.0, text("a") + b"\xff\n\n" + DONE)])


def job() -> Job:
    return Job(LOAD, CHECKS)


def test_an_answer_has_the_verdicts_that_judge_gives_it() -> None:
    found = look(Played(0, 0.0, 0.0, BROKEN), LOAD.ask(0), "chat", CHECKS)
    results = judge([Dossier("load", {"stream": (BROKEN,)}, api="chat")], CHECKS.cases, None, KNOWN)
    failed = {r.id for r in results if r.verdict in (Verdict.FAIL, Verdict.NON_STRICT)}
    assert found.breaches is not None
    assert {breach.id for breach in found.breaches} == failed
    assert found.is_broken
    assert "fin.missing" in failed


def test_what_was_not_sent_or_not_answered_is_not_judged() -> None:
    unsent = look(Played(0, 0.0, unsent=Fate.DROPPED), LOAD.ask(0), "chat", CHECKS)
    silent = look(Played(1, 0.0, 0.0, capture([])), LOAD.ask(1), "chat", CHECKS)
    assert (unsent.breaches, silent.breaches) == (None, None)


def test_only_checks_that_one_answer_decides_are_chosen() -> None:
    assert {case.on for case in CHECKS.cases} <= {"stream", "plain", "answer", "refusal", "any"}
    assert {case.gate for case in checks_of(KNOWN, ("wire",), "chat").cases} == {"wire"}
    assert checks_of(KNOWN, (), "chat").cases == ()


def test_a_tally_counts_answers_and_keeps_the_first() -> None:
    captures = [whole([1.0]), BROKEN, NO_ROLE, BROKEN]
    found = [job().look(Played(n, 0.0, 0.0, made)) for n, made in enumerate(captures)]
    rows, told = tally(reversed(found))
    assert [row.index for row in rows] == [0, 1, 2, 3]
    assert told.judged == 4
    assert {1, 3} <= told.broken
    assert (told.told["fin.missing"].bad, told.told["fin.missing"].index) == (2, 3)
    verdicts = [each.breach.verdict for each in judged_failures(told)]
    assert verdicts == sorted(verdicts, key=[Verdict.FAIL, Verdict.NON_STRICT].index)


def test_what_was_recorded_is_set_aside_while_it_is_looked_at_and_no_longer() -> None:
    played = [Played(n, 0.0, 0.0, BROKEN) for n in range(2)]
    counts = [gc.get_freeze_count() for _ in looks(job(), played, 1)]
    assert min(counts) > 0
    assert gc.get_freeze_count() == 0


@pytest.mark.slow
def test_other_processes_see_the_same() -> None:
    captures = [whole([1.0 + n / 100, 2.0]) if n % 3 else BROKEN for n in range(ENOUGH)]
    played = [Played(n, 0.0, 0.0, made) for n, made in enumerate(captures)]
    assert list(looks(job(), played, 2)) == list(looks(job(), played, 1))


@pytest.mark.slow
def test_a_signal_to_the_other_processes_as_well_loses_no_look() -> None:
    """As `timeout` and service managers send it."""
    played = [Played(n, 0.0, 0.0, BROKEN) for n in range(ENOUGH)]
    found = looks(job(), played, 2)
    first = next(found)
    for process in multiprocessing.active_children():
        assert process.pid is not None
        os.kill(process.pid, signal.SIGTERM)
    assert [first, *found] == list(looks(job(), played, 1))


ORPHANS = """
import os, signal
from tests.loadgen.test_looking import BROKEN, ENOUGH, Played, job, looks
if __name__ == "__main__":
    next(looks(job(), [Played(n, 0.0, 0.0, BROKEN) for n in range(ENOUGH)], 2))
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_the_other_processes_end_with_the_first(tmp_path: Path) -> None:
    script = tmp_path / "orphans.py"
    script.write_text(ORPHANS)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    # Its output ends when nobody holds it any more.
    ended = subprocess.run(
        [sys.executable, str(script)], stdout=subprocess.PIPE, env=environment, timeout=60
    )
    assert ended.returncode == -signal.SIGKILL


def test_gates_are_wire_and_shape() -> None:
    assert parse_gates("shape, wire") == ("shape", "wire")
    assert parse_gates("none") == ()
    with pytest.raises(UsageError, match="expected wire, shape"):
        parse_gates("none,wire")
