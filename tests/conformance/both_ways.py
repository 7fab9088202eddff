"""Reading and judging in the short way and in the obvious one, held against each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from conformance.capture import Capture
from conformance.checks import function_of
from conformance.reading import Reading, read
from conformance.specs import Case, known_cases

CASES = tuple(case for case in known_cases() if case.on != "dossier")


def without_patterns(reading: Reading) -> Reading:
    """Nothing else may tell the two ways apart."""
    return replace(reading, chunks=tuple(each._replace(pattern=None) for each in reading.chunks))


def said(reading: Reading, cases: Sequence[Case] = CASES) -> dict[str, list[object]]:
    """All that each check says, abstentions too, whatever form the answer has."""
    functions = {case.id: function_of(case.check) for case in cases}
    return {name: list(function(reading)) for name, function in functions.items() if function}


def differences(capture: Capture, api: str | None = None) -> list[str]:
    """What is not the same: "reading", or the ids of checks."""
    short = read(capture, api=api)
    obvious = read(capture, api=api, shortcut=False)
    # As text: a NaN that a faulty server sent is not equal to itself.
    found = [] if repr(without_patterns(short)) == repr(obvious) else ["reading"]
    mine, theirs = said(short), said(obvious)
    return found + [name for name in mine if mine[name] != theirs[name]]
