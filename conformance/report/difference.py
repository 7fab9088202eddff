"""What changed between two reports, check by check, and whether it is for the worse. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from conformance.capture import Json
from conformance.findings import Result, Verdict, fails
from conformance.report.model import CONCLUSIVE, Report


class Kind(Enum):
    """The kinds of change, the worst first."""

    NEW_FAILURE = "new-failure"
    VERDICT = "verdict"  # another verdict, and no failure before or after
    DISAPPEARED = "disappeared"
    APPEARED = "appeared"
    FIXED = "fixed"


# How bad a verdict is where it does not fail: a check that cannot tell any more is worse than one
# that found nothing. FAIL and INCONSISTENT are decided by `fails`.
_RANK: Mapping[Verdict, int] = {
    Verdict.PASS: 0,
    Verdict.INFO: 0,
    Verdict.NON_STRICT: 1,
    Verdict.INCONSISTENT: 1,
    Verdict.UNSUPPORTED: 2,
    Verdict.INCONCLUSIVE: 2,
    Verdict.BLOCKED: 2,
    Verdict.HARNESS_ERROR: 3,
    Verdict.FAIL: 4,
}


@dataclass(frozen=True, slots=True)
class Change:
    """One check on one API; `before` and `after` are verdicts, None where it was not judged."""

    kind: Kind
    id: str
    api: str | None
    before: Verdict | None
    after: Verdict | None
    worse: bool
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """Every change, the worse ones first; `problems` are those of the reports as a whole."""

    changes: tuple[Change, ...]
    problems: tuple[str, ...]
    exits: tuple[int, int]

    @property
    def is_worse(self) -> bool:
        return bool(self.problems) or any(change.worse for change in self.changes)


def between(old: Report, new: Report) -> Difference:
    """Baselines are left aside: a failure is one, whether it was known or not."""
    before = {(each.id, each.api): each for each in old.results}
    after = {(each.id, each.api): each for each in new.results}
    strict = new.strict
    keys = sorted(before.keys() | after.keys(), key=lambda key: (key[0], key[1] or ""))
    found = [
        change
        for key in keys
        if (change := _change(before.get(key), after.get(key), strict)) is not None
    ]
    order = list(Kind)
    found.sort(key=lambda each: (not each.worse, order.index(each.kind)))
    return Difference(tuple(found), tuple(_problems(old, new)), (old.exit, new.exit))


def _problems(old: Report, new: Report) -> Iterator[str]:
    if old.complete and not new.complete:
        yield "the new report was interrupted before its end"
    if old.target.get("model") != new.target.get("model"):
        return  # another model: what it lacks is told check by check
    for problem in new.problems:
        if new.complete and problem not in old.problems and not problem.startswith("baseline: "):
            yield problem


def _change(before: Result | None, after: Result | None, strict: bool) -> Change | None:
    if before is None or after is None:
        return _coming_or_going(before, after, strict)
    failed, fails_now = fails(before, strict), fails(after, strict)
    pair = before.verdict, after.verdict
    if fails_now:
        rules = {each.rule for each in after.findings} - {each.rule for each in before.findings}
        if failed and not rules:
            return None if pair[0] is pair[1] else _of(Kind.VERDICT, before, after, False)
        detail = f"now also {', '.join(sorted(rules))}" if failed else _said(after)
        return _of(Kind.NEW_FAILURE, before, after, True, detail)
    if failed:
        sound = _RANK[after.verdict] < 2
        kind, detail = (Kind.FIXED, None) if sound else (Kind.VERDICT, after.reason)
        return _of(kind, before, after, False, detail)
    if pair[0] is pair[1]:
        return None
    worse = _RANK[after.verdict] > _RANK[before.verdict]
    return _of(Kind.VERDICT, before, after, worse, _said(after))


def _coming_or_going(before: Result | None, after: Result | None, strict: bool) -> Change | None:
    if after is not None:
        worse = fails(after, strict)
        return _of(Kind.APPEARED, None, after, worse, _said(after) if worse else None)
    if before is not None:
        return _of(Kind.DISAPPEARED, before, None, before.verdict in CONCLUSIVE)
    return None


def _of(
    kind: Kind,
    before: Result | None,
    after: Result | None,
    worse: bool,
    detail: str | None = None,
) -> Change:
    either = after or before
    assert either is not None
    old, new = before.verdict if before else None, after.verdict if after else None
    return Change(kind, either.id, either.api, old, new, worse, detail)


def _said(result: Result) -> str | None:
    return result.findings[0].message if result.findings else result.reason


def to_json(difference: Difference) -> dict[str, Json]:
    """The difference as JSON; verdicts are null where a report lacks the check."""
    return {
        "schema": 1,
        "worse": difference.is_worse,
        "exits": list(difference.exits),
        "problems": list(difference.problems),
        "changes": [
            {
                "kind": each.kind.value,
                "id": each.id,
                "api": each.api,
                "before": each.before.value if each.before else None,
                "after": each.after.value if each.after else None,
                "worse": each.worse,
                "detail": each.detail,
            }
            for each in difference.changes
        ],
    }


def lines(difference: Difference) -> Iterator[str]:
    """A line for each change, then one in sum; unescaped."""
    for each in difference.changes:
        mark = "worse" if each.worse else "     "
        before = each.before.value if each.before else "not there"
        after = each.after.value if each.after else "gone"
        tail = f": {each.detail}" if each.detail else ""
        api = f" ({each.api})" if each.api else ""
        yield f"{mark}  {each.kind.value:<12} {each.id}{api}  {before} → {after}{tail}"
    yield from (f"worse  {problem}" for problem in difference.problems)
    worse = sum(each.worse for each in difference.changes) + len(difference.problems)
    old, new = difference.exits
    count = len(difference.changes)
    noun = "change" if count == 1 else "changes"
    yield f"{count} {noun}, {worse} for the worse · exit {old} before, {new} now"
