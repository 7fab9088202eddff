"""After many hang-ups at once the server is what it was before (rule A11)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance import work
from conformance.arrivals import arrivals
from conformance.capture import How
from conformance.checks import Findings, Trial
from conformance.checks.unharmed import unharmed
from conformance.findings import Abstain, Finding
from conformance.reading import Reading

TIMES, MORE = 3, 0.5  # the first text may take that many times longer, and that many seconds


def abort_storm(trial: Trial) -> Findings:
    """A11: same text, no longer wait, and nothing is counted as running that was left."""
    if (abstain := trial.abstain) is not None:
        yield abstain
        return
    before, after = (trial.readings.get(role, ()) for role in ("before", "after"))
    left = trial.readings.get("hung-up", ())
    gone = sum(each.capture.end.how is How.LEFT for each in left)
    if not before or not after or 2 * gone < max(1, len(left)):
        yield Abstain("fast", f"{gone} of {len(left)} answers were hung up on in time")
        return
    yield from unharmed(before[0], after[0], "A11", "after")
    yield from _later(before[0], after[0])
    yield from _held(trial, left, after[0])


def abort_queued(trial: Trial) -> Findings:
    """A04: who left while it had to wait is not served later.

    The sign is a counter of tokens that grows when everybody has long left.
    """
    if (abstain := trial.abstain) is not None:
        yield abstain
        return
    left, after = trial.readings.get("hung-up", ()), trial.readings.get("after", ())
    begun = min((each.capture.connected_at or 0.0 for each in left), default=0.0)
    gone = max((each.capture.end.at or 0.0 for each in left), default=0.0)
    base = work.baseline(trial.dossier.samples, begun)
    if base is None or not base.steady or work.COUNTER not in base.values or not after:
        yield Abstain("oracle", "no metrics that tell")
        return
    level = base.values.get(work.WAITING, 0.0)
    during = [each.values for each in trial.dossier.samples if begun <= each.at <= gone]
    early = [each for each in left if not each.capture.received]
    if not early or all(values.get(work.WAITING, 0.0) <= level for values in during):
        yield Abstain("oracle", "nothing shows that anybody had to wait")
        return
    end = after[0].capture.end.at or gone
    late = [each for each in trial.dossier.samples if each.at > end + work.EDGE]
    counts = [each.values.get(work.COUNTER, 0.0) for each in late]
    if len(late) < 2:
        yield Abstain("oracle", "too few samples after the storm")
    elif counts[-1] > counts[0]:
        since = late[-1].at - gone
        if since < work.PATIENCE + work.SLACK:
            yield Abstain("oracle", f"work went on {since:.1f} s later: too close to tell")
        else:
            said = f"{since:.1f} s after everybody had left tokens are generated"
            yield Finding("A04", said, role="hung-up", take=left.index(early[0]))


def _later(before: Reading, after: Reading) -> Iterator[Finding]:
    first, second = _wait(before), _wait(after)
    if first is not None and second is not None and second > TIMES * first + MORE:
        said = f"the first text took {second:.2f} s after the storm, {first:.2f} s before it"
        yield Finding("A11", said, role="after")


def _wait(reading: Reading) -> float | None:
    found, sent = arrivals(reading), reading.capture.sent_at
    return found[0].at - sent if found and sent is not None else None


def _held(trial: Trial, left: Sequence[Reading], after: Reading) -> Iterator[Finding]:
    """A gauge above its level, although nothing is generated: places that were lost."""
    begun = min(each.capture.connected_at or 0.0 for each in left)
    base = work.baseline(trial.dossier.samples, begun)
    end = after.capture.end.at
    if base is None or end is None or not base.steady or work.GAUGE not in base.values:
        return
    late = [each.values for each in trial.dossier.samples if each.at > end + work.EDGE]
    counts = {values.get(work.COUNTER) for values in late}
    if len(late) < 2 or counts == {None} or len(counts) > 1:
        return
    more = late[-1].get(work.GAUGE, 0.0) - base.values[work.GAUGE]
    if more > 0:
        said = f"{more:g} requests more than before the storm are counted as running"
        yield Finding("A11", said, role="after")
