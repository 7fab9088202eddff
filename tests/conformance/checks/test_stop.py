"""Stop strings: included, ignored, leaked; one finding for one stretch."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.capture import Capture
from conformance.dossier import COMPLETIONS
from conformance.findings import Verdict
from tests.conformance.bodies import (
    CHUNKS,
    MUST,
    Row,
    broken,
    completion,
    finish,
    named,
    only,
    result,
    role,
    say,
    streamed,
    texts,
)


def stopped(*parts: str, stop: Any, reason: str = "stop", **request: Any) -> Capture:
    return streamed(texts(*parts, reason=reason), stop=stop, **request)


ROWS: list[Row] = [
    ("cut before it", stopped("alpha ", stop=["beta"]), {}),
    ("a single string", stopped("alpha ", "be", "ta", stop="beta"), {"stop.included": MUST}),
    ("over two deltas", stopped("alpha be", "ta", stop=["beta"]), {"stop.included": MUST}),
    ("the rest of its delta too", stopped("a beta and", stop=["beta"]), {"stop.included": MUST}),
    ("it goes on", stopped("a beta", " gamma", stop=["beta"]), {"stop.ignored": MUST}),
    ("it goes on to the limit", stopped("a beta", stop=["beta"], reason="length"),
     {"stop.ignored": MUST}),
    ("two newlines over deltas", stopped("a\n", "\nb", "c", stop=["\n\n"], reason="length"),
     {"stop.ignored": MUST}),
    ("another letter case", stopped("a BETA b", stop=["beta"]), {}),
    ("an empty string stops nothing", stopped("abc", stop=[""]), {}),
    ("null", stopped("abc", stop=None), {}),
    ("wanted", stopped("a beta", stop=["beta"], include_stop_str_in_output=True), {}),
    ("a symbol's beginning at the end", stopped("a", "<|ass", stop=["<|assistant|>"]),
     {"stop.included": MUST}),
    ("a word cut off", stopped("4\nObser", stop=["Observation:"]), {"stop.included": MUST}),
    ("one letter less than the stop word", stopped("a banana", stop=["bananas"]), {}),
    ("a word's beginning at the end", stopped("alpha be", stop=["beta"]), {}),
    ("in the second choice", streamed([role(0), role(1), say("x beta", 1), finish("stop", 0),
                                       finish("stop", 1)], n=2, stop=["beta"]),
     {"stop.included": MUST}),
    ("in the echoed prompt", streamed([completion("a beta"), completion(" c", "stop")],
                                      api=COMPLETIONS, echo=True, prompt="a beta", stop=["beta"]),
     {}),
    ("behind the echoed prompt", streamed([completion("a beta"), completion(" beta", "stop")],
                                          api=COMPLETIONS, echo=True, prompt="a beta",
                                          stop=["beta"]), {"stop.included": MUST}),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_a_stop_string_is_told_once(row: Row) -> None:
    assert broken(row[1]) == row[2]


def test_what_stands_behind_a_stop_string_is_counted() -> None:
    shown = only("stop.included", stopped("a beta and", stop=["beta"])).message
    assert shown.endswith("'beta': 4 characters follow it in its delta")
    shown = only("stop.included", stopped("a beta", stop=["beta"])).message
    assert shown.endswith("'beta': the text ends with it")


def test_the_earliest_of_several_decides() -> None:
    finding = only("stop.ignored", stopped("a ga", "mma", " beta", stop=["beta", "gamma"]))
    assert "'gamma'" in finding.message
    assert finding.event == 1


def test_what_may_be_a_leak_is_not_decided() -> None:
    found = result("stop.included", stopped("alpha be", stop=["beta"]))
    assert (found.verdict, (found.reason or "")[:3]) == (Verdict.INCONCLUSIVE, "det")


@pytest.mark.parametrize("check", ["stop.included", "stop.ignored"])
def test_without_a_stop_string_nothing_is_decided(check: str) -> None:
    assert result(check, streamed(CHUNKS)).verdict is Verdict.INCONCLUSIVE


def test_a_stop_string_that_never_occurs_proves_nothing() -> None:
    found = result("stop.ignored", stopped("abc", stop=["zz"], reason="length"))
    assert found.verdict is Verdict.INCONCLUSIVE
