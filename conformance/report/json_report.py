"""The report as JSON: the published schema, one way out and the same way back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

from conformance.baseline import Entry, Judged, Standing, State
from conformance.capture import Json
from conformance.errors import RecordError, SpecError
from conformance.findings import Finding, Level, Result, Verdict
from conformance.report.escape import excerpt, unescape
from conformance.report.model import SCHEMA, TOOL, Report, summary


def dumps(report: Report, *, line: bool = False) -> str:
    """The report as text with a final newline; `line` writes it in one line."""
    form: dict[str, Any] = {"separators": (",", ":")} if line else {"indent": 2}
    return json.dumps(to_json(report), allow_nan=False, **form) + "\n"


def to_json(report: Report) -> dict[str, Json]:
    head: dict[str, Json] = {} if report.sample is None else {"sample": report.sample}
    return head | {
        "schema": SCHEMA,
        "tool": {"name": TOOL, "version": report.version},
        "target": dict(report.target),
        "profile": report.profile,
        "seed": report.seed,
        "complete": report.complete,
        "strict": report.strict,
        "summary": dict(summary(report.results)),
        "exit": report.exit,
        "problems": list(report.problems),
        "results": [_result(each) for each in report.results],
        **({} if report.baseline is None else {"baseline": _judged(report.baseline)}),
    }


def _judged(judged: Judged) -> Json:
    """Every entry with its standing, and the results that are excused."""
    return {
        "file": judged.file,
        "entries": [
            {**_optional(each.entry), "state": each.state.value} for each in judged.standings
        ],
        "excused": [{"id": id, "api": api} for id, api in _ordered(judged.excused)],
    }


def _ordered(excused: Iterable[tuple[str, str | None]]) -> list[tuple[str, str | None]]:
    return sorted(excused, key=lambda each: (each[0], each[1] or ""))


def _optional(entry: Entry) -> dict[str, Json]:
    return {
        "check": entry.check,
        "api": entry.api,
        "rule": entry.rule,
        "reason": entry.reason,
        "issue": entry.issue,
        "until": entry.until.isoformat() if entry.until else None,
    }


def _result(result: Result) -> Json:
    return {
        "id": result.id,
        "title": result.title,
        "level": result.level.value,
        "gate": result.gate,
        "api": result.api,
        "rules": list(result.rules),
        "verdict": result.verdict.value,
        "reason": result.reason,
        "trials": [trial.value for trial in result.trials],
        "findings": [_finding(each, result.level) for each in result.findings],
    }


def _finding(finding: Finding, level: Level) -> Json:
    return {
        "rule": finding.rule,
        "message": finding.message,
        "level": (finding.level or level).value,
        "offset": finding.offset,
        "event": finding.event,
        "excerpt": excerpt(finding.excerpt),
        "dossier": finding.dossier,
        "role": finding.role,
        "take": finding.take,
        "harms": list(finding.harms),
    }


def loads(data: bytes, file: str) -> Report:
    """A report that `dumps` wrote. Raises RecordError, in one line, for anything else."""
    from conformance.plainyaml import node_of
    from conformance.schema import load_schema, validate
    from conformance.specs import specs_dir

    try:
        loaded = json.loads(data)
        validate(node_of(loaded), load_schema(specs_dir() / "report.schema.json"), file)
        return _report(loaded)
    except (ValueError, RecursionError):
        raise RecordError(f"{file}: expected a report as `--json` writes it") from None
    except SpecError as error:
        words = f"{error.field}: {error.expected}"
        raise RecordError(f"{file}: expected a report as `--json` writes it; {words}") from None


def _report(fields: Mapping[str, Any]) -> Report:
    return Report(
        results=tuple(_read_result(each) for each in fields["results"]),
        target=fields["target"],
        profile=fields["profile"],
        seed=fields["seed"],
        complete=fields["complete"],
        exit=fields["exit"],
        strict=fields["strict"],
        problems=tuple(fields["problems"]),
        sample=fields.get("sample"),
        version=fields["tool"]["version"],
        baseline=_read_judged(fields["baseline"]) if "baseline" in fields else None,
    )


def _read_judged(fields: Mapping[str, Any]) -> Judged:
    return Judged(
        file=fields["file"],
        standings=tuple(_read_standing(each) for each in fields["entries"]),
        excused=frozenset((each["id"], each["api"]) for each in fields["excused"]),
    )


def _read_standing(fields: Mapping[str, Any]) -> Standing:
    until = fields["until"]
    entry = Entry(
        fields["check"], fields["api"], fields["reason"], fields["rule"], fields["issue"],
        date.fromisoformat(until) if until is not None else None,
    )  # fmt: skip
    return Standing(entry, State(fields["state"]))


def _read_result(fields: Mapping[str, Any]) -> Result:
    return Result(
        id=fields["id"],
        title=fields["title"],
        level=Level(fields["level"]),
        gate=fields["gate"],
        api=fields["api"],
        rules=tuple(fields["rules"]),
        verdict=Verdict(fields["verdict"]),
        reason=fields["reason"],
        trials=tuple(Verdict(each) for each in fields["trials"]),
        findings=tuple(_read_finding(each) for each in fields["findings"]),
    )


def _read_finding(fields: Mapping[str, Any]) -> Finding:
    return Finding(
        rule=fields["rule"],
        message=fields["message"],
        level=Level(fields["level"]),
        offset=fields["offset"],
        event=fields["event"],
        excerpt=unescape(fields["excerpt"]),
        dossier=fields["dossier"],
        role=fields["role"],
        take=fields["take"],
        harms=tuple(fields["harms"]),
    )
