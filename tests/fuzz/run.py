"""Fuzz one target, or each in turn, for a time.

python tests/fuzz/run.py [--seconds 60] [--target sse] [--seed 1] [--round 17]
"""

from __future__ import annotations

import argparse
import resource
import secrets
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MEMORY = 3 << 30  # bytes of address space: an input that makes a reader ask for more is a finding
PATIENCE = 20.0  # seconds for one round


def main() -> int:
    sys.path.insert(0, str(ROOT))
    from tests.fuzz.harness import Found, fuzz
    from tests.fuzz.targets import TARGETS

    parser = argparse.ArgumentParser(description="Fuzz one target, or each in turn.")
    parser.add_argument("--seconds", type=float, default=60.0, help="for all targets together")
    parser.add_argument("--target", choices=TARGETS, help="default: all")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**9))
    parser.add_argument("--round", type=int, help="this round of that seed only")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))
    names = [options.target] if options.target else list(TARGETS)
    one = None if options.round is None else range(options.round, options.round + 1)
    seconds = options.seconds / len(names)
    for name in names:
        try:
            rounds = fuzz(
                name,
                TARGETS[name],
                seed=options.seed,
                rounds=one,
                seconds=seconds,
                patience=PATIENCE,
            )
        except Found as found:
            print(f"{name}: FOUND\n{found}", file=sys.stderr)
            return 1
        print(f"{name}: {rounds} rounds in at most {seconds:.0f} s, seed {options.seed}: nothing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
