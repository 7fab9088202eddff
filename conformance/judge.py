"""Dossiers × cases → one verdict per case and API. Pure: two judgements are identical."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from conformance.checks import Findings, Trial, function_of
from conformance.dialects import OVERLAYS
from conformance.dossier import CHAT, Dossier
from conformance.errors import UsageError
from conformance.findings import Abstain, Finding, Level, Result, Verdict
from conformance.reading import Control, Form, Reading, read
from conformance.specs import Case

_FORMS = {
    "stream": (Form.STREAM,),
    "plain": (Form.PLAIN,),
    "answer": (Form.STREAM, Form.PLAIN, Form.REFUSAL),
    "refusal": (Form.REFUSAL,),
    "any": tuple(Form),
}
_SEVERITY = (Level.MUST, Level.SHOULD, Level.MAY)
_VERDICTS = {
    Level.MUST: Verdict.FAIL,
    Level.SHOULD: Verdict.NON_STRICT,
    Level.MAY: Verdict.INFO,
}


@dataclass(frozen=True, slots=True)
class Policy:
    """What the user decided about judging.

    `clients`: harms of these count as must. `unsupported`: (api, capability) the endpoint lacks,
    with what it said.
    """

    clients: tuple[str, ...] = ()
    unsupported: Mapping[tuple[str, str], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Subject:
    """One thing a check looked at: a reading (`role`, `take`) or, with role "", a whole trial.

    It holds no reading: those of one dossier are gone before those of the next are made.
    """

    dossier: Dossier
    role: str = ""
    take: int = 0


@dataclass(slots=True)
class _Heard:
    """What one case said about one API."""

    subjects: list[_Subject] = field(default_factory=list)
    findings: list[tuple[_Subject, Finding]] = field(default_factory=list)
    abstains: list[tuple[_Subject, Abstain]] = field(default_factory=list)
    broken: str | None = None  # our own check raised: file, line and error


@dataclass(slots=True)
class _Spoken:
    """What all cases said about one API; a case that has said nothing is not among `heard`.

    `subjects`: what every case that is `on` that form was asked about.
    """

    heard: dict[str, _Heard] = field(default_factory=dict)
    subjects: dict[str, list[_Subject]] = field(default_factory=lambda: {on: [] for on in _FORMS})

    def of(self, case: Case) -> _Heard:
        """What the case has said; from now on it is among them."""
        if case.id not in self.heard:
            shared = self.subjects.get(case.on)
            self.heard[case.id] = _Heard([] if shared is None else shared)
        return self.heard[case.id]

    def has_fault(self, case: Case) -> bool:
        """Did the case find anything, or break?"""
        said = self.heard.get(case.id)
        return said is not None and bool(said.findings or said.broken)


def judge(
    dossiers: Sequence[Dossier],
    cases: Sequence[Case],
    policy: Policy | None = None,
    known: Sequence[Case] = (),
) -> tuple[Result, ...]:
    """One Result per case and API, ordered by case id, then API.

    An API is judged if a dossier speaks it; with none known, as chat. `known`: cases that were not
    selected, for what they supersede. Raises UsageError when a case names a check that does not
    exist.
    """
    return Bench(cases, known).judge(map(trial_from, dossiers), policy)


@dataclass(frozen=True, slots=True)
class _Docket:
    """What trials of one API are asked: the cases, and the known ones that supersede them."""

    cases: tuple[tuple[Case, Callable[..., Findings]], ...]
    context: tuple[tuple[Case, Callable[..., Findings]], ...]


class Bench:
    """Cases, made ready to judge many times: `cases` and `known` as in `judge`."""

    def __init__(self, cases: Sequence[Case], known: Sequence[Case] = ()) -> None:
        self._cases, self._known = tuple(cases), tuple(known)
        self._dockets: dict[str, _Docket] = {}  # by API

    def judge(
        self, trials: Iterable[Trial], policy: Policy | None = None, *, faultless: bool = True
    ) -> tuple[Result, ...]:
        """As `judge`. Without `faultless` there is no Result for a case that found no fault and
        did not break. Raises UsageError when a case names a check that does not exist.
        """
        policy = policy or Policy()
        spoken: dict[str, _Spoken] = {}  # by API
        for trial in trials:
            api = _api(trial)
            _hear_all(trial, self._docket(api), spoken.setdefault(api, _Spoken()))
            del trial  # it is large, and the next one is made now
        results = [
            _result(case, api, said, policy)
            for api, said in spoken.items()
            for case, _ in self._docket(api).cases
            if faultless or said.has_fault(case)
        ]
        return tuple(sorted(results, key=lambda r: (r.id, r.api or "")))

    def _docket(self, api: str) -> _Docket:
        if api not in self._dockets:
            mine = [case for case in self._cases if api in case.api]
            needed = {other for case in mine for other in case.after} - {case.id for case in mine}
            context = [case for case in self._known if case.id in needed]
            self._dockets[api] = _Docket(tuple(map(_named, mine)), tuple(map(_named, context)))
        return self._dockets[api]


def _named(case: Case) -> tuple[Case, Callable[..., Findings]]:
    function = function_of(case.check)
    if function is None:
        raise UsageError(f"{case.file}:{case.line}: expect: no check is named {case.check}")
    return case, function


def _hear_all(trial: Trial, docket: _Docket, spoken: _Spoken) -> None:
    """Every case on one trial: a trial's readings are large, so there is one of them at a time.

    What supersedes is asked only where there is something to supersede.
    """
    subjects = list(_subjects(trial))
    of_form = {on: [s for s in subjects if s[1].form in forms] for on, forms in _FORMS.items()}
    for on, chosen in of_form.items():
        spoken.subjects[on] += [subject for subject, _ in chosen]
    wanted: set[str] = set()
    for case, function in docket.cases:
        if _hear(case, function, of_form.get(case.on) or _whole(case, trial, spoken), spoken):
            wanted.update(case.after)
    for case, function in docket.context:
        if case.id in wanted:
            _hear(case, function, of_form.get(case.on) or _whole(case, trial, spoken), spoken)


def trial_from(dossier: Dossier) -> Trial:
    """Read every capture of a dossier, the streams beside their plain answers."""
    plain = tuple(_read(dossier, capture) for capture in dossier.roles.get("plain", ()))
    texts = tuple(r.text for r in plain if r.form is Form.PLAIN)
    given = dossier.picked.get("plain_text")
    if isinstance(given, str):
        texts = (*texts, given)
    readings = {
        role: tuple(_read(dossier, c) for c in takes) for role, takes in dossier.roles.items()
    }
    if texts:
        streamed = [r.text for r in readings.get("stream", ()) if r.form is Form.STREAM]
        # Whoever hands us the text vouches for it; a control of our own has to repeat itself.
        least = 1 if isinstance(given, str) else 2
        stable = _agreed(texts, least) and _agreed(streamed, least)
        control = Control(texts, stable)
        streams = tuple(replace(r, control=control) for r in readings.get("stream", ()))
        readings = {**readings, "stream": streams}
    return Trial(dossier, readings)


def _read(dossier: Dossier, capture: object) -> Reading:
    return read(capture, api=dossier.api, dialect=dossier.dialect)  # type: ignore[arg-type]


def _agreed(texts: Sequence[str | None], least: int) -> bool:
    """Did that many equal requests give equal texts?"""
    return len(texts) >= least and len({*texts}) == 1


def _api(trial: Trial) -> str:
    if trial.dossier.api:
        return trial.dossier.api
    spoken = (r.dialect.api for takes in trial.readings.values() for r in takes if r.dialect)
    return next(spoken, CHAT)


def _hear(
    case: Case,
    function: Callable[..., Findings],
    asked: Sequence[tuple[_Subject, Reading | Trial]],
    spoken: _Spoken,
) -> bool:
    """Ask one check about each; did it find anything?"""
    found = False
    for subject, value in asked:
        try:
            for item in function(value):
                if isinstance(item, Abstain):
                    spoken.of(case).abstains.append((subject, item))
                else:
                    spoken.of(case).findings.append((subject, _located(item, subject)))
                    found = True
        except Exception as error:  # a defect of ours must cost one verdict, not the whole report
            spoken.of(case).broken = where(error)
    return found


def where(error: Exception) -> str:
    """File, line and error of a defect of ours; of a group's first, where it is one."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    frame = traceback.extract_tb(error.__traceback__)[-1]
    name = frame.filename.rsplit("/", 1)[-1]
    return f"{name}:{frame.lineno}: {type(error).__name__}: {error}"


def _subjects(trial: Trial) -> Iterator[tuple[_Subject, Reading]]:
    """The readings that checks of one reading look at: a shared capture is another trial's."""
    for role, takes in sorted(trial.readings.items()):
        for take, reading in enumerate(takes):
            if take >= trial.dossier.shared(role):
                yield _Subject(trial.dossier, role, take), reading


def _whole(case: Case, trial: Trial, spoken: _Spoken) -> list[tuple[_Subject, Trial]]:
    """The trial itself, for a case that is about a dossier of this kind."""
    if case.on in _FORMS or not _provoked(case, trial.dossier):
        return []
    subject = _Subject(trial.dossier)
    spoken.of(case).subjects.append(subject)
    return [(subject, trial)]


def _provoked(case: Case, dossier: Dossier) -> bool:
    wanted = case.parameters.items()
    same = all(dossier.parameters.get(key) == value for key, value in wanted)
    return dossier.scenario == case.scenario and same


def _located(finding: Finding, subject: _Subject) -> Finding:
    role = subject.role or finding.role
    take = subject.take if subject.role else finding.take
    return replace(finding, role=role, take=take, dossier=subject.dossier.name)


def _result(case: Case, api: str, spoken: _Spoken, policy: Policy) -> Result:
    mine, heard = spoken.of(case), spoken.heard
    kept = [(s, f) for s, f in mine.findings if _superseder(case, s, f, heard) is None]
    findings = [(s, _leveled(case, s, f, policy)) for s, f in kept]
    worst = min((_level(case, f) for _, f in findings), key=_SEVERITY.index, default=case.level)
    verdict, reason = _verdict(case, api, mine, findings, heard, policy)
    return Result(
        id=case.id,
        title=case.title,
        level=worst,
        gate=case.gate,
        api=api,
        rules=case.rules,
        verdict=verdict,
        reason=reason,
        trials=_trials(case, mine, findings),
        findings=tuple(f for _, f in findings),
    )


def _superseder(
    case: Case, subject: _Subject, finding: Finding, heard: Mapping[str, _Heard]
) -> str | None:
    """One stretch of bytes, one finding: the id of the finding that already tells of this one."""
    for other in case.after:
        for theirs, found in heard[other].findings if other in heard else ():
            same_place = finding.event is None or found.event in (None, finding.event)
            if _same_capture(subject, finding, theirs, found) and same_place:
                return other
    return None


def _same_capture(a: _Subject, x: Finding, b: _Subject, y: Finding) -> bool:
    return a.dossier is b.dossier and (x.role, x.take) == (y.role, y.take)


def _level(case: Case, finding: Finding) -> Level:
    return finding.level or case.level


def _leveled(case: Case, subject: _Subject, finding: Finding, policy: Policy) -> Finding:
    """The finding with its harms, and its level as overlay and client list make it."""
    harms = finding.harms or tuple(h.client for h in case.harms)
    level = _level(case, finding)
    overlay = OVERLAYS.get(subject.dossier.dialect or "")
    if overlay and case.id in overlay.lower:
        level = overlay.lower[case.id][0]
    if set(harms) & set(policy.clients):
        level = Level.MUST
    return replace(finding, harms=harms, level=level)


def _verdict(
    case: Case,
    api: str,
    mine: _Heard,
    findings: Sequence[tuple[_Subject, Finding]],
    heard: Mapping[str, _Heard],
    policy: Policy,
) -> tuple[Verdict, str | None]:
    lacking = [n for n in case.needs if (api, n) in policy.unsupported]
    if findings:
        worst = min((_level(case, f) for _, f in findings), key=_SEVERITY.index)
        bad = {id(s) for s, _ in findings}
        if _disagree(case, mine, findings):
            return Verdict.INCONSISTENT, f"{len(bad)} of {len(mine.subjects)} trials"
        return _VERDICTS[worst], f"{len(bad)} of {len(mine.subjects)}"
    if mine.broken:
        return Verdict.HARNESS_ERROR, mine.broken
    if lacking:
        return Verdict.UNSUPPORTED, f"{lacking[0]}: {policy.unsupported[api, lacking[0]]}"
    if mine.findings:
        subject, finding = mine.findings[0]
        return Verdict.BLOCKED, _superseder(case, subject, finding, heard)
    silent = {id(s) for s, _ in mine.abstains}
    if any(id(s) not in silent for s in mine.subjects):
        return Verdict.PASS, None
    if mine.abstains:
        first = mine.abstains[0][1]
        return (
            Verdict.INCONCLUSIVE,
            f"{first.reason}: {first.detail}" if first.detail else first.reason,
        )
    return Verdict.INCONCLUSIVE, "not-seen"


def _disagree(case: Case, mine: _Heard, findings: Sequence[tuple[_Subject, Finding]]) -> bool:
    """Equal trials disagree. Only provoked cases have any; else one bad capture is a failure."""
    if case.on != "dossier" or case.trials < 2:
        return False
    return 0 < len({id(s) for s, _ in findings}) < len(mine.subjects)


def _trials(
    case: Case, mine: _Heard, findings: Sequence[tuple[_Subject, Finding]]
) -> tuple[Verdict, ...]:
    """A provoked case's verdict per trial, in order."""
    if case.on != "dossier":
        return ()
    silent = {id(s) for s, _ in mine.abstains}
    verdicts = []
    for subject in mine.subjects:
        levels = [_level(case, f) for s, f in findings if s is subject]
        if levels:
            verdicts.append(_VERDICTS[min(levels, key=_SEVERITY.index)])
        else:
            verdicts.append(Verdict.INCONCLUSIVE if id(subject) in silent else Verdict.PASS)
    return tuple(verdicts)
