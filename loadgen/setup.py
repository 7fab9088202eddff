"""From the options of `run` to what the run needs; nothing is sent and nothing waits here."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from conformance.capture import Json
from conformance.connect import Door
from conformance.errors import UsageError
from conformance.masking import Secret
from conformance.reach import api_key, door_from_args
from conformance.script import Bounds, Clocks, Exchange
from conformance.specs import known_cases
from conformance.target import Target, parse_header, parse_url, request_bytes
from loadgen import arrivals, traces
from loadgen.asking import wants_lengths, words_of, workload_from_args
from loadgen.budget import within
from loadgen.certificates import STOCK, Certificates, certificates_from_args
from loadgen.load import Closed, Limits, Open
from loadgen.looking import Checks, checks_of, parse_gates
from loadgen.preflight import Endpoint
from loadgen.shares import enough
from loadgen.slo import Slo, parse_slo
from loadgen.workload import Ask, Workload

AUTO, NONE = "auto", "none"  # of --metrics
EVERY = 1.0  # seconds between two looks at them
CONNECT = 10.0  # seconds
DESCRIPTORS_OF_OURS = 64
# An answer's body may have that many bytes, and so many more for each token it may have.
BODY, BODY_A_TOKEN = 256 * 1024, 4 * 1024


@dataclass(frozen=True, slots=True)
class Allowed:
    """How many requests may fail: `most`, or that `share` of those sent."""

    text: str
    most: int | None = None
    share: float | None = None

    def most_of(self, sent: int) -> int:
        return math.floor((self.share or 0.0) * sent) if self.most is None else self.most


@dataclass(frozen=True, slots=True)
class Setup:
    """One run, ready to go. `fields` are header fields with secrets in them.

    `clock`, `paced`: see `recording`. `workers`, `ray`: who plays it; None and None: this process.
    `certificates`: what `door.tls` was made of.
    """

    target: Target
    api: str
    door: Door
    load: Open | Closed
    steady: bool
    warmup: float
    workload: Workload  # its model is settled by the preflight
    described: Mapping[str, Json]  # the load in a report's words
    checks: Checks
    gates: tuple[str, ...]
    slos: tuple[Slo, ...]
    allowed: Allowed
    limits: Limits
    clocks: Clocks
    fields: tuple[tuple[str, str], ...] = ()
    secrets: tuple[Secret, ...] = ()
    clock: str | None = None
    paced: bool = True
    solo: int | None = None
    captures: str | None = None
    tokenizer: str | None = None  # None: nobody said how many tokens a prompt should have
    metrics: str = AUTO
    metrics_target: Target | None = None
    metrics_door: Door | None = None
    every: float = EVERY
    workers: int | None = None
    ray: str | None = None
    certificates: Certificates = STOCK

    def for_model(self, model: str) -> Workload:
        return replace(self.workload, model=model)

    def script(self, endpoint: Endpoint, workload: Workload, index: int) -> Exchange:
        """Request number `index` on the wire."""
        return self.exchange(endpoint, workload.ask(index))

    def exchange(self, endpoint: Endpoint, ask: Ask) -> Exchange:
        """One request on the wire."""
        accept = "text/event-stream" if ask.streams else "application/json"
        # Of a plain answer nothing comes before all of it is there.
        whole = replace(self.clocks, first_byte=self.clocks.total)
        request = request_bytes(
            self.target, endpoint.path, ask.body, secrets=self.fields, accept=accept
        )
        bounds = Bounds(body=BODY + BODY_A_TOKEN * (ask.output_tokens or 0))
        return Exchange(
            (request,),
            events=ask.streams,
            leave=ask.client.leave,
            slow=ask.client.slow,
            patience=ask.client.patience,
            clocks=self.clocks if ask.streams else whole,
            bounds=bounds,
        )


def setup_from_args(
    args: argparse.Namespace, environment: Mapping[str, str], descriptors: int
) -> Setup:
    """`descriptors`: files the process may open. Raises UsageError and SpecError."""
    target = _target(args)
    key = api_key(args, target, environment)
    trace = traces.load(Path(args.trace)) if args.trace else ()
    load, steady = _load(args, trace)
    enough(load, args.workers or 1)
    workload = workload_from_args(args, trace)
    count = len(load.offsets) if isinstance(load, Open) else load.most
    gates = parse_gates(args.checks)
    known = known_cases() if gates else ()
    elsewhere = None if args.metrics in (AUTO, NONE) else Target(parse_url(args.metrics))
    return Setup(
        target=target,
        api=args.api,
        door=door_from_args(args, target.url, environment),
        load=load,
        steady=steady,
        warmup=args.warmup,
        workload=workload,
        described={**_described(args, load), **words_of(args, workload)},
        checks=checks_of(known, gates, args.api),
        gates=gates,
        slos=tuple(parse_slo(text) for text in args.slo),
        allowed=parse_allowed(args.max_failures),
        limits=Limits(
            in_flight=max(1, descriptors - DESCRIPTORS_OF_OURS),
            requests=args.max_requests or float("inf"),
            index=within(args.max_tokens_total, workload, count),
        ),
        clocks=Clocks(CONNECT, args.timeout, args.timeout, total=5 * args.timeout),
        fields=() if key is None else (("Authorization", f"Bearer {key[1]}"),),
        secrets=() if key is None else (Secret(f"env:{key[0]}", key[1].encode()),),
        clock=_clock(args),
        solo=args.solo,
        captures=args.captures,
        tokenizer=(args.tokenizer or AUTO) if wants_lengths(args, workload) else None,
        metrics=args.metrics,
        metrics_target=elsewhere,
        metrics_door=door_from_args(args, elsewhere.url, environment) if elsewhere else None,
        workers=args.workers,
        ray=args.ray,
        certificates=certificates_from_args(args),
    )


def _clock(args: argparse.Namespace) -> str | None:
    if not args.read:
        return str(args.clock) if args.clock else None
    if args.clock == "kernel":
        raise UsageError("--clock kernel: clients that read slowly go by --clock user")
    return "packet" if args.clock == "packet" else "user"


def _target(args: argparse.Namespace) -> Target:
    headers = tuple(parse_header(text) for text in args.header)
    return Target(
        parse_url(args.url), model=args.model, headers=headers, api_key_env=args.api_key_env
    )


def _load(
    args: argparse.Namespace, trace: tuple[traces.Arrival, ...]
) -> tuple[Open | Closed, bool]:
    """The load, and whether it is meant to be the same all the time."""
    if args.arrivals and (args.concurrency or args.trace):
        raise UsageError("--arrivals is for --rate and --stages")
    if args.concurrency:
        if not (args.requests or args.duration):
            raise UsageError("--concurrency needs --duration or --requests")
        _warm(args.warmup, args.duration)
        return Closed(args.concurrency, args.requests, args.duration), True
    load = _trace(args, trace) if args.trace else _drawn(args)
    _warm(args.warmup, load.seconds)
    return load, args.rate is not None


def _warm(warmup: float, seconds: float | None) -> None:
    if seconds is not None and warmup >= seconds:
        raise UsageError(f"--warmup {warmup:g}: the load takes only {seconds:g} s")


def _trace(args: argparse.Namespace, trace: tuple[traces.Arrival, ...]) -> Open:
    upto = args.duration or float("inf")
    offsets = tuple(each.at for each in trace if each.at < upto)[: args.requests]
    if not offsets:
        raise UsageError(f"--trace {args.trace}: no request lies within the time")
    seconds = args.duration or max(offsets[-1], 1e-3)
    return Open(offsets, seconds, counted=not args.duration)


def _drawn(args: argparse.Namespace) -> Open:
    process = arrivals.parse_process(args.arrivals or "constant")
    if args.stages:
        if args.duration:
            raise UsageError("--stages say their own duration")
        stages = arrivals.parse_stages(args.stages)
        seconds = sum(stage.seconds for stage in stages)
        return Open(arrivals.schedule(process, stages, args.seed, args.requests), seconds)
    if args.duration:
        stages = arrivals.steady(args.rate, args.duration)
        found = arrivals.schedule(process, stages, args.seed, args.requests)
        return Open(found, args.duration)
    if not args.requests:
        raise UsageError("--rate needs --duration or --requests")
    found = arrivals.for_requests(process, args.rate, args.requests, args.seed)
    seconds = max(found[-1], (args.requests - 1) / args.rate, 1e-3)
    return Open(found, seconds, counted=True)


def _described(args: argparse.Namespace, load: Open | Closed) -> dict[str, Json]:
    """What was asked for; null where it was not said."""
    return {
        "kind": "open" if isinstance(load, Open) else "closed",
        "arrivals": (args.arrivals or "constant") if args.rate or args.stages else None,
        "rate": args.rate,
        "stages": args.stages,
        "trace": args.trace,
        "concurrency": args.concurrency,
        "duration": args.duration,
        "requests": args.requests,
        "warmup": args.warmup,
        "leave": list(args.leave) or None,
        "read": list(args.read) or None,
        "temperature": 0 if args.solo else None,
        "max_requests": args.max_requests,
        "max_tokens_total": args.max_tokens_total,
        "timeout": args.timeout,
        "connections": "kept alive, new ones where none idles",
        "seed": args.seed,
    }


def parse_allowed(text: str) -> Allowed:
    """`5` or `2%`. Raises UsageError."""
    if re.fullmatch(r"[0-9]{1,12}", text):
        return Allowed(text, most=int(text))
    found = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)%", text)
    if found is None or float(found[1]) > 100:
        raise UsageError(f"--max-failures {text}: expected a number or a percentage such as 1%")
    return Allowed(text, share=float(found[1]) / 100)
