"""`conformance tap LISTEN UPSTREAM`: relay, a line for each exchange, a report at Ctrl-C."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import trio

from conformance import baseline_file
from conformance.dialects import OVERLAYS
from conformance.errors import UsageError
from conformance.judge import Policy
from conformance.masking import Secret
from conformance.reach import door_from_args
from conformance.report import console, story
from conformance.report.escape import terminal
from conformance.report.model import Gating, Report, make_report
from conformance.report.output import Console, Outputs
from conformance.run_options import DEFAULT_KEY
from conformance.selection import Selection, check_clients, one_of, select
from conformance.specs import Case, known_cases, load_profile
from conformance.tap.judging import Job, Judge, Told
from conformance.tap.proxy import Proxy
from conformance.tap.taking import Taken
from conformance.tap.tally import Tally
from conformance.target import Url, parse_host_port, parse_url

LOOPBACK = "127.0.0.1"
MOST_NOTES = 50
MOST_PATH = 120  # characters shown of a request-target
SWITCH = 0.0005  # seconds
Log = Callable[[str], None]


@dataclass(slots=True)
class Session:
    """What a tap has seen so far."""

    exchanges: int = 0
    judged: int = 0
    tally: Tally = field(default_factory=Tally)
    notes: list[str] = field(default_factory=list)

    def note(self, words: str) -> None:
        if len(self.notes) < MOST_NOTES:
            self.notes.append(words)


def main(args: argparse.Namespace) -> int:
    """Relays until Ctrl-C. Returns the exit code; raises StreamproofError for what cannot run."""
    host, port = listen_at(args.listen)
    upstream = parse_url(args.upstream)
    known = known_cases([Path(name) for name in args.specs])
    job, gating = _job(args, known, os.environ), _gating(args, known)
    proxy_to = partial(Proxy, door_from_args(args, upstream), upstream)
    _make_folder(job.captures)
    session, screen = Session(), Console()
    wanted = {"json": args.json, "junit": args.junit, "markdown": args.markdown}
    with Outputs(wanted, screen) as outputs:
        live = _stderr if outputs.on_stdout else partial(_write_line, screen)
        with Judge(job) as judge:
            judge.ready()
            proxy = proxy_to(partial(_judge, judge, session), partial(told, session, live), _stderr)
            trio.run(until_interrupted, proxy, host, port)
        report = report_of(session, job.cases, gating, args.listen, upstream)
        again = ("conformance", "judge", args.captures) if args.captures else ()
        context = story.Context({case.id: case for case in known}, again, args.captures)
        outputs.add(report, context)
        if not outputs.on_stdout:
            many = f"{session.exchanges} exchange{'' if session.exchanges == 1 else 's'}"
            screen.write("\n" + console.render(report, context, many))
    return report.exit


# -- from options ----------------------------------------------------------------------------------


def listen_at(text: str) -> tuple[str, int]:
    """`PORT` or `:PORT` (on loopback), `HOST:PORT`; port 0 is any free one. Raises UsageError."""
    host, _, port = text.rpartition(":")
    if port in ("0", "00"):
        return host.removeprefix("[").removesuffix("]") or LOOPBACK, 0
    return parse_host_port(f"{host or LOOPBACK}:{port}", "LISTEN")


def _job(args: argparse.Namespace, known: tuple[Case, ...], environment: Mapping[str, str]) -> Job:
    check_clients(args.clients, known)
    if args.dialect is not None:
        one_of("--dialect", args.dialect, sorted(OVERLAYS))
    profile = load_profile(args.profile) if args.profile else None
    passive = [case for case in known if case.on != "dossier"]
    chosen = select(known, Selection(tuple(args.select), tuple(args.skip), args.gate), profile)
    cases = tuple(case for case in chosen if case in passive)
    if not cases:
        raise UsageError("no check is left: those selected are provoked by `run`, not seen passing")
    return Job(
        cases=cases,
        known=known,
        policy=Policy(clients=args.clients),
        dialect=args.dialect,
        secrets=_secrets(args.api_key_env, environment),
        captures=Path(args.captures) if args.captures else None,
        strict=args.strict,
    )


def _secrets(name: str | None, environment: Mapping[str, str]) -> tuple[Secret, ...]:
    """The key that will pass, if we know it: then `replay` finds it again."""
    value = environment.get(name or DEFAULT_KEY, "").strip()
    if name is not None and not value:
        raise UsageError(f"--api-key-env: the environment variable {name} is not set")
    return (Secret(f"env:{name or DEFAULT_KEY}", value.encode()),) if value else ()


def _gating(args: argparse.Namespace, known: tuple[Case, ...]) -> Gating:
    return Gating(
        args.strict,
        args.min_conclusive,
        baseline=baseline_file.from_option(args.baseline, known),
        today=baseline_file.today(),
    )


def _make_folder(folder: Path | None) -> None:
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--captures {folder}: {error.strerror}") from None


# -- while it runs ---------------------------------------------------------------------------------


async def until_interrupted(proxy: Proxy, host: str, port: int) -> None:
    """The first Ctrl-C ends the relaying, a second one the judging of what is left."""
    try:
        listeners = await trio.open_tcp_listeners(port, host=host)
    except OSError as error:
        raise UsageError(f"LISTEN {host}:{port}: cannot listen: {error.strerror}") from None
    # What was loaded stays: the collector need not look at it while bytes pass.
    gc.freeze()
    # The threads that carry exchanges to the judge give the interpreter back sooner than in 5 ms.
    sys.setswitchinterval(SWITCH)
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        for line in announcement(listeners, proxy.upstream):
            proxy.log(line)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(proxy.run, listeners)
            await anext(signals)
            nursery.cancel_scope.cancel()
        async with trio.open_nursery() as nursery:

            async def settle() -> None:
                await proxy.settle()
                nursery.cancel_scope.cancel()

            nursery.start_soon(settle)
            await anext(signals)
            proxy.abandon()
            nursery.cancel_scope.cancel()


def announcement(listeners: list[trio.SocketListener], upstream: Url) -> list[str]:
    """Where the application has to be pointed, and who else could be."""
    lines = []
    for listener in listeners:
        host, port = listener.socket.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        lines.append(f"tap on http://{shown}:{port}{upstream.path} → {upstream}; Ctrl-C reports")
        if not ip_address(host).is_loopback:
            lines.append(f"tap on {shown}:{port}: not loopback, whoever reaches it can use it")
    return lines


async def _judge(judge: Judge, session: Session, taken: Taken) -> Told | None:
    """In the other process; this one only waits."""
    try:
        future = judge.submit(taken)
        return await trio.to_thread.run_sync(future.result, abandon_on_cancel=True)
    except BrokenExecutor:
        session.note(f"exchange {taken.number} was not judged: the judging process is gone")
        return None


def told(session: Session, live: Log, one: Told) -> None:
    """One exchange was judged."""
    session.exchanges += 1
    session.judged += one.api is not None
    session.tally.add(one.results)
    if one.problem is not None:
        session.note(one.problem)
    live(terminal(line_of(one)))


def line_of(one: Told) -> str:
    """`#7  POST /v1/chat/completions  200  34 events  complete  0.412 s  FAIL done.missing`."""
    status = "502 by the tap" if one.status is None and one.unreached else one.status or "no answer"
    path = one.path if len(one.path) <= MOST_PATH else one.path[: MOST_PATH - 1] + "…"
    parts = [f"#{one.number}", f"{one.method} {path}", f"{status}"]
    parts += [f"{one.events} events"] if one.events else []
    parts += [one.outcome]
    parts += [f"{one.seconds:.3f} s"] if one.seconds is not None else []
    if one.failed:
        parts.append(f"FAIL {', '.join(one.failed)}")
    elif one.api is not None:
        parts.append("ok")
    else:
        parts.append("not judged")
    parts += [f"also {', '.join(one.noted)}"] if one.noted else []
    return "  ".join(parts)


def report_of(
    session: Session, cases: tuple[Case, ...], gating: Gating, listen: str, upstream: Url
) -> Report:
    """All exchanges as one report; nothing judged is not tested."""
    return make_report(
        session.tally.results(cases),
        gating,
        target={
            "url": str(upstream),
            "tap": listen,
            "exchanges": session.exchanges,
            "judged": session.judged,
            "notes": list(session.notes),
        },
        tested=session.judged > 0,
    )


def _stderr(line: str) -> None:
    print(terminal(line), file=sys.stderr, flush=True)


def _write_line(screen: Console, line: str) -> None:
    screen.write(line + "\n")
