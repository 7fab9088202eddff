"""`conformance judge`: files in, one report out, or one a sample of a JSON-lines file."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance import baseline_file
from conformance.dialects import OVERLAYS
from conformance.dossier import Dossier
from conformance.errors import UsageError
from conformance.inputs import Hints, Item, items, plain_from_file, request_from_file
from conformance.judge import Policy, judge
from conformance.report import console, story
from conformance.report.escape import terminal
from conformance.report.model import Gating, Report, make_report
from conformance.report.output import Console, Outputs
from conformance.selection import Selection, check_clients, one_of, select
from conformance.specs import Case, Profile, known_cases, load_profile


@dataclass(frozen=True, slots=True)
class _Job:
    """What stays the same over all the records of one command."""

    cases: tuple[Case, ...]
    needs: Mapping[str, Sequence[str]]
    context: Mapping[str, Case]
    policy: Policy
    gating: Gating
    profile: Profile | None
    again: tuple[str, ...]


def main(args: argparse.Namespace) -> int:
    """Returns the exit code; raises StreamproofError for what cannot be read or asked."""
    job, hints = _job(args), _hints(args)
    screen = Console()
    wanted = {"json": args.json, "junit": args.junit, "markdown": args.markdown}
    codes: set[int] = set()
    with Outputs(wanted, screen) as outputs:
        for report, context, judged in _reports(args, job, hints):
            outputs.add(report, context)
            codes.add(report.exit)
            if not outputs.on_stdout:
                screen.write(_shown(report, context, judged, bool(args.sample)))
    return next((code for code in (1, 2) if code in codes), 0)


def _job(args: argparse.Namespace) -> _Job:
    known = known_cases([Path(name) for name in args.specs])
    check_clients(args.clients, known)
    if args.dialect is not None:
        one_of("--dialect", args.dialect, sorted(OVERLAYS))
    profile = load_profile(args.profile) if args.profile else None
    chosen = select(known, Selection(tuple(args.select), tuple(args.skip), args.gate), profile)
    required = profile.requires if profile else ()
    return _Job(
        cases=chosen,
        needs={case.id: case.needs for case in chosen},
        context={case.id: case for case in known},
        policy=Policy(clients=args.clients),
        gating=Gating(
            args.strict,
            args.min_conclusive,
            required,
            baseline_file.from_option(args.baseline, known),
            baseline_file.today(),
        ),
        profile=profile,
        again=_again(args),
    )


def _hints(args: argparse.Namespace) -> Hints:
    return Hints(
        request=request_from_file(args.request) if args.request else None,
        plain=plain_from_file(args.plain) if args.plain else None,
        status=args.status,
        content_type=args.content_type,
        dialect=args.dialect,
    )


def _again(args: argparse.Namespace) -> tuple[str, ...]:
    """The options that decide a verdict; the selection and the files are added by the reports."""
    words = ["conformance", "judge"]
    for name in ("request", "plain", "status", "content_type", "dialect"):
        value = getattr(args, name)
        words += [] if value is None else [f"--{name.replace('_', '-')}", str(value)]
    words += [word for name in args.specs for word in ("--specs", name)]
    words += ["--clients", ",".join(args.clients)] if args.clients else []
    words += ["--strict"] if args.strict else []
    words += ["--baseline", args.baseline] if args.baseline else []
    return tuple(words)


def _reports(
    args: argparse.Namespace, job: _Job, hints: Hints
) -> Iterator[tuple[Report, story.Context, str]]:
    """A report for every sample as it is read, then one for all other records together."""
    pooled: list[Dossier] = []
    unseen = set(args.sample)
    for name in args.files:
        for item in items(name, hints):
            if item.sample is None:
                pooled.append(item.dossier)
            elif not args.sample or item.sample in args.sample:
                unseen.discard(item.sample)
                if job.gating.baseline is not None:
                    raise UsageError("--baseline: samples have a report each; it needs one of all")
                yield _of_sample(item, name, job)
    if unseen:
        raise UsageError(f"--sample {min(unseen)}: no such sample in the files")
    if pooled:
        report = _report(pooled, job, list(args.files))
        count = f"{len(pooled)} record{'s' if len(pooled) > 1 else ''}"
        context = story.Context(job.context, (*job.again, *args.files))
        yield report, context, count


def _of_sample(item: Item, name: str, job: _Job) -> tuple[Report, story.Context, str]:
    report = _report([item.dossier], job, [name], item.sample)
    again = (*job.again, name, "--sample", item.sample or "")
    return report, story.Context(job.context, again), item.sample or ""


def _report(
    dossiers: Sequence[Dossier], job: _Job, files: Sequence[str], sample: str | None = None
) -> Report:
    return make_report(
        judge(dossiers, job.cases, job.policy, tuple(job.context.values())),
        job.gating,
        target={"files": list(files)},
        profile=job.profile.name if job.profile else None,
        needs=job.needs,
        sample=sample,
    )


def _shown(report: Report, context: story.Context, judged: str, in_full: bool) -> str:
    """The whole report; of a sample among many one line, else nobody could read them."""
    if report.sample is None or in_full:
        return console.render(report, context, judged)
    told = [each for each in report.results if each.findings]
    failed = [each.id for each in told if report.gates(each)]
    noted = [each.id for each in told if not report.gates(each)]
    word = "fail" if failed else "ok"
    rest = f"  (also {', '.join(noted)})" if noted else ""
    return f"{terminal(report.sample)}  {word}  {', '.join(failed)}{rest}".rstrip() + "\n"
