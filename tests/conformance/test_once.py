"""What is asked of one reading again and again is worked out once, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace

from conformance.checks import Trial
from conformance.dossier import CHAT, Dossier
from conformance.findings import Verdict
from conformance.judge import Bench
from conformance.reading import Reading, once, read
from conformance.specs import known_cases
from tests.loadgen.captures import DONE, capture, chunk, text


def reading() -> Reading:
    return read(capture([(0.0, text("a") + chunk({}, "wrong") + DONE)]), api=CHAT)


def test_a_question_is_worked_out_once_a_reading() -> None:
    asked: list[Reading] = []

    @once
    def size(of: Reading) -> int:
        asked.append(of)
        return len(of.chunks)

    first, second = reading(), reading()
    assert [size(first), size(first), size(second)] == [3, 3, 3]
    assert len(asked) == 2


def test_a_changed_reading_is_asked_anew_and_answers_make_no_reading_unequal() -> None:
    size = once(lambda of: len(of.chunks))
    one = reading()
    assert size(one) == 3
    assert size(replace(one, chunks=one.chunks[:1])) == 1
    assert one == reading()


def test_leaving_the_faultless_out_leaves_all_faults_in() -> None:
    cases = [case for case in known_cases() if case.on != "dossier"]

    def results(faultless: bool) -> dict[str, Verdict]:
        one = reading()
        trial = Trial(Dossier("x", {"stream": (one.capture,)}, api=CHAT), {"stream": (one,)})
        found = Bench(cases, known_cases()).judge([trial], faultless=faultless)
        return {result.id: result.verdict for result in found}

    every, faulty = results(True), results(False)
    blameless = (Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.UNSUPPORTED)
    assert faulty == {name: said for name, said in every.items() if said not in blameless}
    assert "fin.unknown-value" in faulty
