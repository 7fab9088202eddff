"""`conformance list` and `conformance show`: every check with its source and reasons."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Iterable
from pathlib import Path

from conformance.capture import Json
from conformance.report.output import Console
from conformance.selection import Selection, find_case, select
from conformance.specs import Case, known_cases, load_profile

WIDTH = 100


def list_cases(args: argparse.Namespace) -> int:
    cases = known_cases([Path(name) for name in args.specs])
    wanted = Selection(tuple(args.select), tuple(args.skip), tuple(args.gate))
    profile = load_profile(args.profile) if args.profile else None
    chosen = select(cases, wanted, profile)
    Console().write(_listing(chosen, args))
    return 0


def _listing(cases: tuple[Case, ...], args: argparse.Namespace) -> str:
    if args.json:
        return json.dumps([to_json(case) for case in cases], indent=2, ensure_ascii=False) + "\n"
    if args.markdown:
        return markdown_table(cases)
    from conformance.report.console import case_table

    return case_table(cases) + f"\n{len(cases)} checks\n"


def show_case(args: argparse.Namespace) -> int:
    case = find_case(known_cases([Path(name) for name in args.specs]), args.id)
    Console().write("\n".join(story(case)) + "\n")
    return 0


def markdown_table(cases: Iterable[Case]) -> str:
    """The list as the README carries it."""
    rows = ["| id | level | gate | rules | what a right server does |", "|---|---|---|---|---|"]
    for case in cases:
        title = case.title.replace("|", "\\|")
        rules = ", ".join(case.rules)
        rows.append(f"| `{case.id}` | {case.level.value} | {case.gate} | {rules} | {title} |")
    return "\n".join(rows) + "\n"


def to_json(case: Case) -> dict[str, Json]:
    return {
        "id": case.id,
        "title": case.title,
        "level": case.level.value,
        "gate": case.gate,
        "rules": list(case.rules),
        "sources": [
            {
                "standard": source.standard,
                "section": source.section,
                "quote": source.quote,
                "reports": list(source.reports),
            }
            for source in case.sources
        ],
        "api": list(case.api),
        "needs": list(case.needs),
        "provoke": {"scenario": case.scenario, "with": dict(case.parameters)},
        "expect": {"on": case.on, "check": case.check},
        "inconclusive_when": list(case.inconclusive_when),
        "trials": case.trials,
        "harms": [{"client": harm.client, "how": harm.how} for harm in case.harms],
        "after": list(case.after),
        "advice": case.advice,
    }


_LOOKS_AT = {
    "stream": "every streamed answer",
    "plain": "every answer that is not streamed",
    "answer": "every answer",
    "refusal": "every answer with a status of 400 or more",
    "any": "every exchange",
    "dossier": "all exchanges of the scenario together",
}


def story(case: Case) -> list[str]:
    """What `show` prints, line by line."""
    lines = [f"{case.id}: {case.title}", ""]
    for name, text in _fields(case):
        lines += textwrap.wrap(
            text, WIDTH, initial_indent=f"{name:<18}", subsequent_indent=" " * 18,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
    return lines


def _fields(case: Case) -> Iterable[tuple[str, str]]:
    yield "level", case.level.value
    yield "gate", case.gate
    yield "rules", ", ".join(case.rules)
    yield "api", ", ".join(case.api)
    for source in case.sources:
        yield "source", f"{source.standard} {source.section}"
        if source.quote:
            yield "  says", f"“{source.quote}”"
        for report in source.reports:
            yield "  reported", report
    yield "needs", ", ".join(case.needs) or "nothing beyond the API"
    trials = f", {case.trials} trials" if case.trials > 1 else ""
    yield "provoked by", f"{_call(case)}{trials}"
    yield "looks at", _LOOKS_AT[case.on]
    yield "inconclusive when", ", ".join(case.inconclusive_when) or "never, once it was exercised"
    for harm in case.harms:
        yield "breaks", f"{harm.client}: {harm.how}"
    if case.after:
        yield "gives way to", ", ".join(case.after)
    yield "advice", case.advice


def _call(case: Case) -> str:
    if not case.parameters:
        return case.scenario
    inside = ", ".join(f"{key} {json.dumps(value)}" for key, value in case.parameters.items())
    return f"{case.scenario} with {inside}"
