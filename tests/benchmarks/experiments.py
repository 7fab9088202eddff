"""The experiments of loadgen on the reference engine and on a server nobody here wrote.

    python -m tests.benchmarks.experiments [SERVER[/EXPERIMENT]…] [--list]

Each result is the document of `loadgen experiment --json`, with what it ran on, in
results/experiments/SERVER-EXPERIMENT.json. A run that is not valid is played again, a few times,
and not stored. The README prints the stored ones (tests/test_docs.py). The client runs at real-time
priority where it may, so that what else the machine does is the server's affair alone.

llama.cpp's server needs its packages in .components/llama, or where STREAMPROOF_LLAMA_PYTHON says.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadgen.experiments.reports import REPORTS
from loadgen.experiments.table import Table, markdown
from tests.demo import serving
from tests.interop.llama import ENVIRONMENT, HERE, first_line

RESULTS = Path(__file__).parent / "results" / "experiments"
BIN = Path(sys.executable).parent
TRIES = 4
NOT_VALID = 3
REAL_TIME = ("chrt", "--rr", "10")


@dataclass(frozen=True, slots=True)
class Server:
    """`said`: of the README. `words`: of what starts it."""

    said: str
    words: tuple[str, ...]
    model: str


SERVERS = {
    "engine": Server("the reference engine", ("--max-batch", "32"), "tiny"),
    "llama": Server("llama.cpp's server", ("--slots", "8", "--context", "8192"), "gemma-3-270m"),
}
SMALL = ("--output-tokens", "64")
# Server → experiment → its sizes.
RUNS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "engine": {
        "overlap": (),
        "joiners": (),
        "long-prompt": (),
        "slow-readers": (),
        "hang-ups": ("--set", "crowd=40"),
        "leaks": (),
        "many-streams": (),
        "buffers": (),
    },
    "llama": {
        "overlap": ("--streams", "16", "--output-tokens", "32", "--repeat", "2", "--set", "solo=4"),
        "slow-readers": ("--output-tokens", "128", "--repeat", "3"),
        "hang-ups": (
            *SMALL, "--streams", "2", "--repeat", "2", "--set", "crowd=8", "--set", "prompt=256",
        ),
    },
}  # fmt: skip
# What the tables mean, in a line or two each.
MEANS = {
    "engine-overlap": "Every answer in company is the one that is given alone. The machine was "
    "busy with other work, so lines say more beside each other than alone.",
    "engine-joiners": "Prompts are computed in chunks between the others' tokens: whoever joins "
    "has the first token soon, and the running streams go on meanwhile.",
    "engine-long-prompt": "While thousands of tokens are computed in chunks, the running streams "
    "get a token after each chunk; they slow down and do not stand still until it is done.",
    "engine-slow-readers": "The engine waits for no reader: the seven take as long as without it.",
    "engine-hang-ups": "At every moment and by either way the work is gone within about half a "
    "second; nothing is made for who leaves the queue or before the headers.",
    "engine-leaks": "After 193 hang-ups nothing is held, and the same requests alone get the same "
    "answers as before.",
    "engine-many-streams": "Beyond the 32 places the others wait, and the first token with them: "
    "of 512 streams the last ones wait for longer than the ten seconds allowed.",
    "engine-buffers": "The server holds the whole answer, its text put together in fewer and "
    "longer events (`--slow-client coalesce`), so it never has to stop.",
    "llama-overlap": "One thread is shared by all: gaps grow with the company, the throughput "
    "hardly does; every answer is the one that is given alone.",
    "llama-slow-readers": "The healthy do not wait for the slow one: their longest gaps are those "
    "of the control. How long they take varies with what else the machine did.",
    "llama-hang-ups": "In decode the work ends at once. Who leaves the queue, or while the prompt "
    "is computed, stays in the gauges until the server comes to them, and the next request waits "
    "as well; no token is made for them.",
}


@contextmanager
def started(name: str) -> Iterator[str]:
    """The server's URL."""
    server = SERVERS[name]
    if name != "llama":
        with serving(*server.words, model=server.model) as url:
            yield url
        return
    python = os.environ.get("STREAMPROOF_LLAMA_PYTHON", str(ENVIRONMENT / "bin" / "python"))
    command = [python, str(HERE / "llama_server.py"), *server.words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield str(json.loads(first_line(process, 120))["url"])
        finally:
            process.terminate()


def played(url: str, experiment: str, words: Sequence[str]) -> dict[str, Any] | None:
    """The document of a valid run."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [str(BIN / "loadgen"), "experiment", experiment, url, *words]
        real_time = REAL_TIME if _may(REAL_TIME) else ()
        for _ in range(TRIES):
            done = subprocess.run([*real_time, *command, "--json", str(report)])
            if done.returncode != NOT_VALID:
                break
        if done.returncode not in (0, 1):
            return None
        found: dict[str, Any] = json.loads(report.read_text())
    found["ran_on"] = {
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[1], 1),
        "real_time_client": bool(real_time),
        "options": list(words),
    }
    found["url"] = ""  # a port that means nothing any more
    return found


def _may(words: Sequence[str]) -> bool:
    try:
        return subprocess.run([*words, "true"], capture_output=True).returncode == 0
    except OSError:
        return False


def stored() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every result that there is, in the order of RUNS."""
    for server, runs in RUNS.items():
        for experiment in runs:
            file = RESULTS / f"{server}-{experiment}.json"
            if file.exists():
                yield server, json.loads(file.read_text())


def rendered(server: str) -> str:
    """The tables of one server, for the README."""
    parts = []
    for name, document in stored():
        if name != server:
            continue
        parts.append(_one(server, document))
    return "\n".join(parts)


def table_from(document: Mapping[str, Any]) -> Table:
    """The table of a stored document, for the columns that its experiment has today."""
    columns = REPORTS[document["experiment"]].columns
    is_by_reads = any(load["clock"] == "user" for load in document["loads"])
    return Table(columns, tuple(document["rows"]), tuple(document["notes"]), is_by_reads)


def _one(server: str, document: Mapping[str, Any]) -> str:
    about = document["ran_on"]
    sizes = ", ".join(f"{key} {value}" for key, value in document["options"].items())
    client = "client at real-time priority, " if about["real_time_client"] else ""
    name = document["experiment"]
    means = MEANS.get(f"{server}-{name}", "")
    foot = f"{sizes}; {client}{about['cores']} cores for both, load average {about['load_average']}"
    title = f"**`{name}`** {document['title']}"
    said = f"\n{means}\n" if means else ""
    return f"{title}\n\n{markdown(table_from(document))}{said}\n<sub>{foot}</sub>\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("which", nargs="*", help="SERVER or SERVER/EXPERIMENT; all of them")
    parser.add_argument("--list", action="store_true", help="what there is")
    options = parser.parse_args()
    for server, runs in RUNS.items():
        names = [f"{server}/{experiment}" for experiment in runs]
        if options.list:
            print("\n".join(names))
            continue
        chosen = [n for n in names if not options.which or {server, n} & set(options.which)]
        if chosen:
            _run(server, [name.partition("/")[2] for name in chosen])


def _run(server: str, experiments: Sequence[str]) -> None:
    RESULTS.mkdir(exist_ok=True)
    with started(server) as url:
        for experiment in experiments:
            found = played(url, experiment, RUNS[server][experiment])
            if found is None:
                print(f"{server}/{experiment}: never valid, nothing stored", file=sys.stderr)
                continue
            text = json.dumps(found, indent=1) + "\n"
            (RESULTS / f"{server}-{experiment}.json").write_text(text)


if __name__ == "__main__":
    main()
