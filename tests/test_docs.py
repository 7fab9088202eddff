"""The README shows what the commands print, not what somebody remembers.

Each part between `<!-- generated: NAME -->` and `<!-- end -->` is rendered again and compared.
`python tests/test_docs.py --write` (or `make docs`) puts the new text in its place.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from loadgen.formulas import METRICS
from loadgen.summary import GOODPUT, RATES
from loadgen.trust import REASONS
from tests.benchmarks.experiments import rendered
from tests.demo import serving
from tests.test_architecture import FENCES, OURS, STANDALONE

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "tests" / "benchmarks" / "results"
PART = re.compile(r"<!-- generated: ([a-z-]+) -->\n(.*?)<!-- end -->", re.DOTALL)
BLOCK = re.compile(r"^```(?:console|sh|yaml)\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMANDS = ("conformance", "loadgen", "reference-server")

# A shape that public reports tell of: the failure as text inside a 200.
BROKEN = r"""printf 'data: {"error": "out of memory"}\n\n' > broken.sse"""
JUDGED = ("conformance", "judge", "broken.sse", "--select", "err.*")


def output(*words: str, cwd: Path = ROOT, code: int = 0) -> str:
    """What a command prints to a pipe 100 columns wide; its exit code must be `code`."""
    program = str(Path(sys.executable).parent / words[0])
    environment = {"PATH": "/usr/bin:/bin", "COLUMNS": "100", "LANG": "C.UTF-8"}
    done = subprocess.run(
        [program, *words[1:]], cwd=cwd, env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stderr[-2000:]}"
    return done.stdout


def shown(command: str, text: str) -> str:
    return f"```console\n$ {command}\n{text.rstrip()}\n```\n"


def checks() -> str:
    return output("conformance", "list", "--markdown")


def judged() -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["sh", "-c", BROKEN], cwd=folder, check=True)
        text = output(*JUDGED, cwd=folder, code=1)
    return shown(f"{BROKEN}\n$ {shlex.join(JUDGED)}", text)


def quick() -> str:
    with serving() as url:
        text = output("conformance", "run", url, "--quick")
    port = url.rpartition(":")[2].partition("/")[0]
    shown_url = "http://127.0.0.1:8000/v1"
    return shown(f"conformance run {shown_url} --quick", text.replace(f":{port}", ":8000"))


def imports() -> str:
    """The tables of test_architecture.py as two Markdown tables."""
    ours = [
        f"| `{package}` | {', '.join(f'`{name}`' for name in rooms)} |"
        for package, rooms in OURS.items()
    ]
    ours += [f"| `{module}` | the standard library alone |" for module in STANDALONE]
    fences = [
        f"| `{library}` | {', '.join(f'`{name}`' for name in rooms)} |"
        for library, rooms in FENCES.items()
    ]
    first = ["| package or module | may import, of ours |", "|---|---|", *ours, ""]
    return "\n".join([*first, "| library | only here |", "|---|---|", *fences, ""])


def formulas() -> str:
    """What loadgen computes and when it trusts itself, from the code that does."""
    metrics = [f"| `{metric.name}` | {metric.formula} |" for metric in METRICS.values()]
    rates = [f"| `{name}` | {formula} |" for name, formula in RATES.items()]
    goodput = f"| `goodput` | {GOODPUT} |"
    reasons = [f"| `{name}` | {formula} |" for name, formula in REASONS.items()]
    figures = ["| figure | formula |", "|---|---|", *metrics, *rates, goodput, ""]
    return "\n".join([*figures, "| not valid because | when |", "|---|---|", *reasons, ""])


def benchmark(name: str) -> Callable[[], str]:
    """Figures are measured by tests/benchmarks and stored; the README repeats the stored ones."""
    return lambda: (RESULTS / f"{name}.md").read_text()


PARTS: dict[str, Callable[[], str]] = {
    "quick": quick,
    "judged": judged,
    "checks": checks,
    "imports": imports,
    "formulas": formulas,
    "sse": benchmark("sse"),
    "startup": benchmark("startup"),
    "tap": benchmark("tap"),
    "slow-readers": benchmark("slow_readers"),
    "server-cost": benchmark("server_cost"),
    "load-memory": benchmark("load_memory"),
    "load-cost": benchmark("load_cost"),
    "load-rate": benchmark("load_rate"),
    "engine": benchmark("engine"),
    "own-pass": benchmark("own_pass"),
    "long-prompt": benchmark("long_prompt"),
    "text": benchmark("text"),
    "truth": benchmark("truth"),
    "truth-packet": benchmark("truth_packet"),
    "send-accuracy": benchmark("send_accuracy"),
    "experiments-engine": lambda: rendered("engine"),
    "experiments-llama": lambda: rendered("llama"),
}


def written() -> dict[str, str]:
    return dict(PART.findall(README.read_text()))


def test_the_readme_has_every_generated_part_and_no_other() -> None:
    assert set(written()) == set(PARTS)


@pytest.mark.parametrize("name", PARTS)
def test_a_generated_part_is_what_its_command_prints_today(name: str) -> None:
    assert written()[name].strip() == PARTS[name]().strip(), "run `make docs`"


def promised() -> Iterator[tuple[str, ...]]:
    """Every call of one of our commands in the README's code blocks, without its prompt."""
    for block in BLOCK.findall(PART.sub("", README.read_text())):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ ").removeprefix("- run: "), comments=True)
            if words and words[0] in COMMANDS:
                yield tuple(words)


@cache
def help_of(*words: str) -> str:
    return output(*words, "--help")


@pytest.mark.parametrize("words", list(promised()), ids=" ".join)
def test_every_command_line_in_the_readme_names_options_that_exist(words: tuple[str, ...]) -> None:
    has_verb = len(words) > 1 and not words[1].startswith("-")
    known = help_of(*words[: 1 + has_verb])
    for option in (word.partition("=")[0] for word in words if word.startswith("--")):
        assert re.search(rf"(?<![\w-]){option}(?![\w-])", known), option


def test_every_file_that_the_readme_links_to_exists() -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", README.read_text())
    assert [t for t in targets if not (ROOT / t).exists()] == []


def write() -> None:
    def render(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- generated: {name} -->\n{PARTS[name]().strip()}\n<!-- end -->"

    README.write_text(PART.sub(render, README.read_text()))


if __name__ == "__main__":
    assert sys.argv[1:] == ["--write"], "usage: python tests/test_docs.py --write"
    write()
