"""Who may import whom, in one table, at any depth: imports inside functions count too.

The README prints the tables of this file (see test_docs.py).
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("conformance", "loadgen", "reference_server")

# Package → what of ours it may import. A name stands for itself and everything below it.
OURS: Mapping[str, tuple[str, ...]] = {
    "conformance": ("conformance",),
    "reference_server": ("reference_server",),
    "loadgen": (
        "loadgen",
        "conformance.errors",
        "conformance.capture",
        "conformance.connect",
        "conformance.recorder",
        "conformance.script",
        "conformance.http1",
        "conformance.sse",
        "conformance.chunks",
        "conformance.dialects",
        "conformance.lifecycle",
        "conformance.reading",
        "conformance.findings",
        "conformance.checks",
        # A stream is judged under load as it is alone: same cases, levels and supersession.
        "conformance.dossier",
        "conformance.specs",
        "conformance.judge",
        # An endpoint is named and reached with the same words by both commands.
        "conformance.entry",
        "conformance.options",
        "conformance.run_options",
        "conformance.target",
        "conformance.reach",
        "conformance.masking",
        "conformance.strictjson",
        "conformance.plainyaml",
        "conformance.report.escape",
        "conformance.schema",
        # Exchanges of a load are kept in the one format that `conformance judge` reads.
        "conformance.storage",
        # A server's own gauges are called and scraped as in `conformance`.
        "conformance.metrics",
        "conformance.metering",
        "conformance.scenarios.meter",
    ),
}

# Stand-alone readers: the standard library and themselves, so that anyone can carry them away.
STANDALONE = ("conformance.sse", "conformance.http1")

# Third-party library → the only modules that may name it. A library without a row may not be used.
FENCES: Mapping[str, tuple[str, ...]] = {
    "trio": (
        "conformance.connect",
        "conformance.recorder",
        "conformance.discovery",
        "conformance.scenarios",
        "conformance.run",
        "conformance.tap.line",
        "conformance.tap.proxy",
        "conformance.tap.command",
        "conformance.replay.play",
        "conformance.replay.command",
        "conformance.cli",
        "loadgen.play",
        "loadgen.recovery",
        "loadgen.progress",
        "loadgen.scraping",
        "loadgen.sweep",
        "loadgen.sweep_command",
        "loadgen.fast",
        "loadgen.recording",
        "loadgen.selftest_command",
        "loadgen.meanwhile",
        "loadgen.experiments.command",
        "loadgen.experiments.quiet",
        "loadgen.interrupting",
        "loadgen.shard",
        "loadgen.worker",
        "loadgen.team",
        "loadgen.processes",
        "loadgen.actors",
        "loadgen.sharded",
        "reference_server.wire",
        "reference_server.bridge",
        "reference_server.clock",
        "reference_server.cli",
    ),
    "h11": ("reference_server.wire.connection",),
    "httpx": (),  # every exchange goes through the recorder, so the core does without
    "yaml": ("conformance.plainyaml",),
    "tabulate": (
        "conformance.report.console",
        "loadgen.console",
        "loadgen.selftest_command",
        "loadgen.together",
        "loadgen.experiments.outcome",
        "loadgen.compare_console",
        "loadgen.definitions_console",
    ),
    "ray": ("loadgen.actors",),
    "torch": ("reference_server.engine",),
    "transformers": ("reference_server.engine",),
    "tokenizers": (
        "reference_server.engine.tiny.spelling",
        "reference_server.engine.tiny.train",
        "loadgen.tokenizer_file",
    ),
}

# Rooms that must stay pure although a wider rule would let them be otherwise: no torch where the
# engine only counts and spells, no trio anywhere under the engine.
PURE_ENGINE = (
    *("interface", "inbox", "runner", "batching", "scheduler", "sequence", "blocks", "intake"),
    *("script", "scripted", "text", "window", "longest"),
)
# Room → libraries that must not be reached from it even through other modules of ours.
UNREACHED: Mapping[str, tuple[str, ...]] = {
    "reference_server.engine": ("trio", "h11"),
    "conformance.reading": ("trio", "httpx", "yaml"),
    "conformance.checks": ("trio", "httpx", "yaml"),
    "conformance.judge": ("trio", "httpx"),
    **dict.fromkeys(
        (
            "loadgen.arrivals",
            "loadgen.workload",
            "loadgen.spelling",
            "loadgen.prompts",
            "loadgen.parts",
            "loadgen.mixes",
            "loadgen.courses",
            "loadgen.strata",
            "loadgen.asked",
            "loadgen.outcome",
            "loadgen.measure",
            "loadgen.summary",
            "loadgen.trust",
            "loadgen.looking",
            "loadgen.result",
            "loadgen.export",
            "loadgen.exactness",
            "loadgen.fast.pause",
            "loadgen.fast.arrived",
            "loadgen.fast.headers",
            "loadgen.fast.bpf",
            "loadgen.bounds",
            "loadgen.provenance",
            "loadgen.selftest",
            "loadgen.archive",
            "loadgen.reload",
            "loadgen.blocks",
            "loadgen.against",
            "loadgen.compare",
            "loadgen.likeness",
            "loadgen.definitions",
            "loadgen.knee",
            "loadgen.crosstalk",
            "loadgen.page",
            "loadgen.plots",
            "loadgen.svg",
            "loadgen.server_metrics",
            "loadgen.clients",
            "loadgen.groups",
            "loadgen.experiments.spec",
            "loadgen.experiments.staging",
            "loadgen.experiments.reports",
            "loadgen.experiments.outcome",
            "loadgen.shares",
            "loadgen.moved",
            "loadgen.crew",
        ),
        ("trio", "httpx"),
    ),
}
FORBIDDEN_NAMES = {"utils", "helpers", "common", "base", "manager"}
HARD_LOOK_LINES = 400


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of the three packages: its dotted name and its file."""
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            parts = file.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), file


MODULES = dict(modules())


def imports(source: str, module: str, is_package: bool = False) -> set[str]:
    """Dotted names that `source` imports, wherever the statement stands.

    `from a import b` gives `a.b` if that is a module of ours, else `a`; a relative import is
    resolved against `module`.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = node.module or ""
            if node.level:
                above = module.split(".")[: -node.level + is_package or None]
                start = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                deeper = f"{start}.{alias.name}"
                found.add(deeper if deeper in MODULES else start)
        elif isinstance(node, ast.Call) and _last(node.func) in _BY_NAME:
            found.update(str(ast.literal_eval(a)) for a in node.args[:1] if _is_text(a))
    return found


_BY_NAME = {"__import__", "import_module"}


def _last(called: ast.expr) -> str | None:
    """The name itself, or the last of a dotted one."""
    return getattr(called, "id", None) or getattr(called, "attr", None)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def within(name: str, rooms: tuple[str, ...]) -> bool:
    return any(name == room or name.startswith(room + ".") for room in rooms)


def offences(module: str, names: set[str]) -> list[str]:
    """What `module` imports and may not, each with the reason."""
    found = []
    for name in sorted(names):
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names:
            continue
        if top in (*PACKAGES, "tests"):
            if not within(name, OURS[module.partition(".")[0]]):
                found.append(f"{module} imports {name}: not among the rooms open to it")
            elif any(within(module, (r,)) and not within(name, (r,)) for r in STANDALONE):
                found.append(f"{module} imports {name}: it stands alone")
        elif top not in FENCES:
            found.append(f"{module} imports {name}: no row in FENCES")
        elif not within(module, FENCES[top]):
            found.append(f"{module} imports {name}: only {', '.join(FENCES[top])} may")
    return found


IMPORTED = {
    module: imports(file.read_text(encoding="utf-8"), module, file.name == "__init__.py")
    for module, file in MODULES.items()
}


def reached(start: str) -> dict[str, str]:
    """Every name that `start` leads to through modules of ours, with the module that names it."""
    found: dict[str, str] = {}
    todo = [start]
    while todo:
        module = todo.pop()
        for name in IMPORTED[module] - set(found):
            found[name] = module
            if name in MODULES:
                todo.append(name)
    return found


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_the_table_allows(module: str) -> None:
    assert offences(module, IMPORTED[module]) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("conformance.reading", "def f():\n    import reference_server.faults"),
        ("reference_server.faults", "from conformance import sse"),
        ("loadgen.report", "from conformance import run"),
        ("loadgen.selftest", "from reference_server import cli"),
        ("conformance.sse", "from conformance.errors import StreamproofError"),
        ("conformance.sse", "from .errors import StreamproofError"),
        ("conformance.http1", "from . import sse"),
        ("conformance.http1.reader", "from conformance.capture import Capture"),
        ("conformance.http1.reader", "import h11"),
        ("conformance.judge", "import yaml"),
        ("conformance.judge", "if True:\n    from trio import sleep"),
        ("reference_server.engine.scripted", "import trio.lowlevel"),
        ("reference_server.wire.server", "import h11"),
        ("conformance.cli", "import requests"),
        ("conformance.cli", "import importlib\nimportlib.import_module('httpx')"),
        ("conformance.cli", "from tests import feeds"),
        ("conformance.checks.sse", "from ...tests import feeds"),
    ],
)
def test_the_table_refuses(module: str, source: str) -> None:
    assert offences(module, imports(source, module))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("loadgen.client", "from conformance.checks import wire\nfrom conformance import sse"),
        ("conformance.cli", "import os.path\nfrom . import errors"),
        ("conformance.http1.reader", "from conformance.http1.framing import Framing"),
        ("reference_server.wire.connection", "import h11, trio"),
    ],
)
def test_the_table_allows(module: str, source: str) -> None:
    assert offences(module, imports(source, module)) == []


def test_torch_stays_out_of_the_rooms_that_only_count_and_spell() -> None:
    rooms = tuple(f"reference_server.engine.{name}" for name in PURE_ENGINE)
    for module in MODULES:
        if within(module, rooms):
            assert not {n for n in IMPORTED[module] if within(n, ("torch", "transformers"))}, module


@pytest.mark.parametrize("room", UNREACHED)
def test_a_pure_room_reaches_no_outside_library_through_others(room: str) -> None:
    for module in MODULES:
        if within(module, (room,)):
            names = reached(module)
            assert {n: names[n] for n in names if within(n, UNREACHED[room])} == {}, module


def test_no_module_imports_itself_through_others() -> None:
    edges = {m: {n for n in names if n in MODULES and n != m} for m, names in IMPORTED.items()}
    done, path = set[str](), list[str]()

    def walk(module: str) -> None:
        assert module not in path, " → ".join([*path[path.index(module) :], module])
        if module in done:
            return
        path.append(module)
        for name in sorted(edges[module]):
            walk(name)
        done.add(path.pop())

    for module in edges:
        walk(module)


def test_only_one_module_of_the_server_spells_the_data_field() -> None:
    spelled = [
        module
        for module, file in MODULES.items()
        if module.startswith("reference_server") and b"data:" in _literals(file.read_text())
    ]
    assert spelled == ["reference_server.wire.sse_writer"]


def _literals(source: str) -> bytes:
    """All string and bytes constants of a module but its docstrings, joined."""
    tree = ast.parse(source)
    prose = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    constants = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in prose]
    values = [n.value for n in constants if isinstance(n.value, str | bytes)]
    return b"\n".join(v if isinstance(v, bytes) else v.encode("utf-8", "replace") for v in values)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_says_its_purpose_and_can_be_read_in_one_sitting(module: str) -> None:
    assert not FORBIDDEN_NAMES & set(module.split("."))
    assert len(MODULES[module].read_text().splitlines()) <= HARD_LOOK_LINES


def test_tests_have_no_drawer_for_odds_and_ends() -> None:
    odd = [f for f in (ROOT / "tests").rglob("*.py") if f.stem in FORBIDDEN_NAMES]
    assert odd == []


def test_every_row_of_the_fences_names_a_declared_dependency() -> None:
    declared = (ROOT / "pyproject.toml").read_text()
    distribution = {"yaml": "pyyaml"}
    for library in FENCES:
        assert f'"{distribution.get(library, library)}>=' in declared, library
