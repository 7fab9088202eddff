"""How long the commands take to print their help: the median of several cold processes.

python tests/benchmarks/startup.py [--write]    (--write: results/startup.md, for the README)
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

RUNS = 15
COMMANDS = ("conformance --help", "loadgen --help", "reference-server --help")
RESULT = Path(__file__).parent / "results" / "startup.md"


def seconds(command: str) -> float:
    """Median wall time of `RUNS` runs, after one that warms the disk cache."""
    program, option = command.split()
    words = [str(Path(sys.executable).parent / program), option]
    times = []
    for _ in range(RUNS + 1):
        start = time.perf_counter()
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def main() -> None:
    rows = [f"| `{command}` | {seconds(command):.2f} s |" for command in COMMANDS]
    table = "\n".join(["| command | median start to end |", "|---|---:|", *rows]) + "\n"
    print(table, end="")
    if "--write" in sys.argv[1:]:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(table)


if __name__ == "__main__":
    main()
