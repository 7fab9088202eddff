"""Stored exchanges with servers of others: a folder of curl's raw dumps, judged one by one.

`NAME.http` is the answer, `NAME.json` the request, `expected.json` says for each NAME what is worse
than info. `NAME-plain` is the control of `NAME-stream` where both are at temperature 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from conformance.findings import Result, Verdict
from conformance.inputs import Hints, items, request_from_file
from conformance.judge import judge
from conformance.specs import known_cases

CASES = known_cases()
QUIET = (Verdict.PASS, Verdict.INFO, Verdict.INCONCLUSIVE, Verdict.UNSUPPORTED, Verdict.BLOCKED)


def judged(folder: Path, name: str, plain: Path | None = None) -> dict[str, str]:
    """Case id → verdict, of what is worse than info. `plain`: the control's dump."""
    request = folder / f"{name}.json"
    hints = Hints(
        request=request_from_file(str(request)) if request.exists() else None,
        plain=text_of(plain) if plain else None,
    )
    (item,) = items(str(folder / f"{name}.http"), hints)
    return above_info(judge([item.dossier], CASES))


def above_info(results: Iterable[Result]) -> dict[str, str]:
    return {each.id: each.verdict.value for each in results if each.verdict not in QUIET}


def plain_beside(folder: Path, name: str) -> Path | None:
    """The stored plain answer to the same request, where it is a control."""
    stem = name.removesuffix("-stream")
    plain, request = folder / f"{stem}-plain.http", folder / f"{stem}-plain.json"
    if stem == name or not request.exists():
        return None
    asked = json.loads(request.read_text())
    refused = not plain.read_bytes().startswith(b"HTTP/1.1 200")
    return plain if asked.get("temperature") == 0 and not refused else None


def text_of(plain: Path) -> str:
    """The first choice's text of a stored plain answer."""
    answer = json.loads(plain.read_bytes().split(b"\r\n\r\n", 1)[1])
    choice = answer["choices"][0]
    return str(choice.get("text", choice.get("message", {}).get("content")))
