"""The flags of `reference-server`, and what is wrong with them in one line. Imports no model."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec

from reference_server.bridge.policy import DEFAULT, POLICIES
from reference_server.faults.table import HEADER
from reference_server.faults.table import find as fault
from reference_server.personalities import PERSONALITIES
from reference_server.personalities import find as personality

SCRIPTED, TINY = "scripted", "tiny"
_ABOUT = "A streaming LLM server to test against, and to break on purpose (--fault)."
_EXAMPLE = "example: reference-server --model scripted --port 8000 --step-ms 20"


class Parser(argparse.ArgumentParser):
    """One line for a bad flag, without the usage."""

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(2, f"reference-server: {message} (see --help)\n")


class _Version(argparse.Action):
    """Reads the metadata only when asked: importing its reader costs start-up time."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"streamproof {version('streamproof')}")
        parser.exit()


def default_model() -> str:
    """The embedded model where torch and transformers are installed; neither is imported."""
    return TINY if find_spec("torch") and find_spec("transformers") else SCRIPTED


def parser() -> Parser:
    made = Parser(prog="reference-server", description=_ABOUT, epilog=_EXAMPLE)
    made.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    for group in (_model_flags, _serving_flags, _fault_flags):
        group(made)
    return made


def _model_flags(made: Parser) -> None:
    add = made.add_argument_group("the model").add_argument
    add(
        "--model",
        default=default_model(),
        metavar="tiny|scripted|DIR|HUB_ID",
        help="scripted needs no torch; tiny is the default where torch is (here: %(default)s)",
    )
    add("--context", type=int, metavar="N", help="most tokens of prompt and answer together")
    add("--max-batch", type=int, default=16, metavar="N", help="choices decoded at once")
    add("--step-ms", type=float, metavar="MS", help="a decode step of scripted (2)")
    # What computes; without a default here, so that it shows who asked the scripted model for it.
    add("--device", metavar="cpu|cuda", help="where the model computes (cpu)")
    add("--dtype", metavar="float32|bfloat16", help="of weights and cache (float32)")
    add("--threads", type=int, metavar="N", help="torch's threads (as torch thinks fit)")
    add("--batch-invariant", action="store_true", help="the same bits in any company; slower")
    add("--kv-blocks", type=int, metavar="N", help="blocks of 16 tokens in the cache")
    add("--prefill-chunk", type=int, metavar="N", help="prompt tokens a step; 0: all (256)")
    add("--no-prefix-sharing", action="store_true", help="compute equal beginnings anew")


def _serving_flags(made: Parser) -> None:
    add = made.add_argument_group("serving").add_argument
    add("--host", default="127.0.0.1", help="address to listen on (loopback)")
    add("--port", type=int, default=8000, help="0 picks a free port")
    add("--max-waiting", type=int, metavar="N", help="refuse with 429 beyond this queue")
    add("--start-within", type=float, metavar="S", help="refuse what cannot start that soon")
    add(
        "--slow-client",
        default=DEFAULT,
        metavar="|".join(POLICIES),
        help="what happens to clients that do not keep up (%(default)s)",
    )
    add("--heartbeat", type=float, metavar="S", help="comment after S silent s")
    add("--api-key-env", metavar="NAME", help="variable that holds the API key")
    add("--log-writes", metavar="FILE", help="JSON lines: when each piece of an answer was written")


def _fault_flags(made: Parser) -> None:
    add = made.add_argument_group("faults").add_argument
    add("--fault", action="append", default=[], metavar="ID", help="break this (repeat)")
    names = ", ".join(PERSONALITIES)
    add("--personality", metavar="NAME", help=f"do as another server is documented to do: {names}")
    add("--allow-faults", action="store_true", help=f"requests may ask for them ({HEADER}: ID)")
    add("--list-faults", action="store_true", help="print all faults and exit")


def problem(options: argparse.Namespace) -> str | None:
    """What is wrong with the options: the first one that is, by its name."""
    return next(_problems(options), None)


def _problems(options: argparse.Namespace) -> Iterator[str]:
    given = vars(options)
    for name, (holds, expected) in _RANGES.items():
        value = given[name.replace("-", "_")]
        if value is not None and not holds(value):
            yield f"--{name}: expected {expected}, got {value:g}"
    for name, words in _CHOICES.items():
        value = given[name.replace("-", "_")]
        if value is not None and value not in words:
            yield f"--{name}: expected one of {', '.join(words)}, got {value}"
    scripted = options.model == SCRIPTED
    for name in _COMPUTING if scripted else _PLAYING:
        if given[name.replace("-", "_")] not in (None, False):
            wanted = "a model that computes" if scripted else "the scripted model"
            yield f"--{name}: goes with {wanted} only, not with {options.model}"
    if options.api_key_env and not os.environ.get(options.api_key_env):
        yield f"--api-key-env: the environment variable {options.api_key_env} is not set"
    if options.log_writes and (options.fault or options.personality or options.allow_faults):
        yield "--log-writes: goes with a clean server only, not with faults or a personality"
    if options.personality:
        yield from _unknown("--personality", personality, options.personality)
    for name in options.fault:
        yield from _unknown("--fault", fault, name)


_PLAYING = ("step-ms",)
_COMPUTING = (
    *("device", "dtype", "threads", "batch-invariant", "kv-blocks", "prefill-chunk"),
    "no-prefix-sharing",
)
_RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "port": (lambda n: 0 <= n <= 65535, "0 to 65535"),
    "step-ms": (lambda n: 0 <= n < 1e9, "milliseconds, not negative"),
    "max-batch": (lambda n: n >= 1, "at least 1"),
    "threads": (lambda n: n >= 1, "at least 1"),
    "kv-blocks": (lambda n: n >= 1, "at least 1"),
    "prefill-chunk": (lambda n: n >= 0, "0 or more"),
    "context": (lambda n: n >= 1, "at least 1"),
    "max-waiting": (lambda n: n >= 0, "0 or more"),
    "start-within": (lambda n: 0 < n < 1e9, "seconds, positive"),
    "heartbeat": (lambda n: 0 < n < 1e9, "seconds, positive"),
}
_CHOICES: dict[str, tuple[str, ...]] = {
    "device": ("cpu", "cuda"),
    "dtype": ("float32", "bfloat16"),
    "slow-client": tuple(POLICIES),
}


def _unknown(flag: str, find: Callable[[str], object], name: str) -> Iterator[str]:
    try:
        find(name)
    except KeyError as error:
        yield f"{flag}: {error.args[0]}"
