"""From options to the workload: what is asked, in which parts, and what makes no sense together."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

from conformance.capture import Json
from conformance.dossier import CHAT
from conformance.errors import UsageError
from loadgen.clients import parse_clients
from loadgen.lengths import parse_length
from loadgen.mixes import load_mix
from loadgen.parts import (
    INPUT,
    NO_WAIT,
    OUTPUT,
    described,
    parse_prefix,
    parse_retry,
    parse_share,
    parse_think,
    parse_turns,
)
from loadgen.prompts import has_answers, load_prompts
from loadgen.spelling import BY_WORDS
from loadgen.traces import BLOCK, Arrival
from loadgen.workload import Workload

# Of a mix each part says its own.
_OF_A_PART = ("input_tokens", "output_tokens", "prompts", "prefix", "turns", "think", "plain")
_BY_EVENTS = ("events", "patience", "stall")  # clients that need a stream


def workload_from_args(args: argparse.Namespace, trace: tuple[Arrival, ...]) -> Workload:
    """Its model is settled by the preflight. Raises UsageError and SpecError."""
    for why in _senseless(args):
        raise UsageError(why)
    prompts = load_prompts(Path(args.prompts), args.api) if args.prompts else ()
    mix = load_mix(Path(args.mix), args.api) if args.mix else ()
    workload = Workload(
        api=args.api,
        model=args.model or "",
        seed=args.seed,
        input_length=parse_length(args.input_tokens or str(INPUT), "--input-tokens"),
        output_length=parse_length(args.output_tokens or str(OUTPUT), "--output-tokens"),
        prompts=prompts,
        trace=trace,
        clients=parse_clients(args.leave, args.read),
        greedy=args.solo is not None,
        by_answers=not (args.output_tokens or trace) and has_answers(prompts),
        prefix=parse_prefix(args.prefix, "--prefix") if args.prefix else None,
        turns=parse_turns(args.turns, "--turns") if args.turns else None,
        think=parse_think(args.think, "--think") if args.think else NO_WAIT,
        plain=_plain(args),
        mix=mix,
        retry=parse_retry(args.retry) if args.retry else None,
    )
    for why in _senseless_together(args, workload):
        raise UsageError(why)
    return workload


def _plain(args: argparse.Namespace) -> float:
    if args.stream == "off":
        return 100.0
    return parse_share(args.plain, "--plain") if args.plain else 0.0


def _senseless(args: argparse.Namespace) -> Iterator[str]:
    """What can be told from the options alone, one sentence each."""
    if args.prompts and args.input_tokens:
        yield "--input-tokens is for generated prompts, --prompts brings its own"
    if args.tokenizer and args.prompts and not args.prefix:
        yield "--tokenizer is for generated prompts, --prompts brings its own"
    if args.think and not args.turns:
        yield "--think is the time between turns: say how many with --turns"
    if args.stream and args.plain:
        yield "--stream says it for all requests, --plain for a share: give one of them"
    if args.retry and not any(":patience:" in each for each in args.leave):
        yield "--retry is for clients whose patience ends: --leave SHARE%:patience:SECONDS"
    if args.mix:
        own = [f"--{name.replace('_', '-')}" for name in _OF_A_PART if getattr(args, name)]
        own += ["--stream"] if args.stream else []
        if own:
            yield f"{', '.join(own)}: with --mix each part in the file says its own"
        if args.trace:
            yield "--trace says the lengths itself: --mix does not go with it"


def _senseless_together(args: argparse.Namespace, workload: Workload) -> Iterator[str]:
    parts = workload.parts
    if workload.api != CHAT and any(part.turns for part in parts):
        yield "turns are for --api chat: a completion has no earlier messages"
    if workload.prefix and workload.shares_blocks:
        yield "--trace says itself what prompts share (hash_ids): --prefix does not go with it"
    names = {group.name.split()[1] for group in workload.clients.groups}
    bad = sorted(names & set(_BY_EVENTS))
    if bad and any(part.plain for part in parts):
        yield f"a plain answer has no events: {', '.join(bad)} (--leave, --read) needs a stream"


def words_of(args: argparse.Namespace, workload: Workload) -> Mapping[str, Json]:
    """What was asked for in a report's words; null where it was not said."""
    given = args.prompts or args.mix
    output = "words of the answers in the file × 4/3" if workload.by_answers else None
    return {
        "input_tokens": None if given else args.input_tokens or str(INPUT),
        "input_tokens_by": None if args.prompts else BY_WORDS,
        "output_tokens": None if args.mix else output or args.output_tokens or str(OUTPUT),
        "prompts": args.prompts,
        "prefix": args.prefix,
        "trace_shares": _SHARES if workload.shares_blocks else None,
        "turns": args.turns,
        "think": args.think,
        "turns_are": _TURNS if any(part.turns for part in workload.parts) else None,
        "plain": "100%" if args.stream == "off" else args.plain,
        "mix": [dict(described(part)) for part in workload.mix] or None,
        "retry": args.retry,
    }


_SHARES = f"the text of leading blocks of {BLOCK} tokens with the same hash_ids"
_TURNS = (
    "open between sessions, closed within one: the load's arrivals are first turns; a later turn "
    "is due when the answer before it ended and the think time is over"
)


def wants_lengths(args: argparse.Namespace, workload: Workload) -> bool:
    """Did anybody say how many tokens a generated prompt should have?"""
    said = args.input_tokens or args.prefix or args.mix or args.tokenizer
    generated = any(not part.prompts or part.prefix for part in workload.parts)
    return bool(said or any(each.input_tokens for each in workload.trace)) and generated
