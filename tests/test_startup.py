"""The commands start without their heavy libraries: help is for people who wait for it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "trio", "httpx", "yaml", "jsonschema", "tabulate", "ssl")

PROGRAM = """
import importlib, json, sys
module, sys.argv = sys.argv[1], [sys.argv[2], *sys.argv[3:]]
try:
    importlib.import_module(module).main()
except SystemExit as exit:
    assert not exit.code, exit.code
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def loaded(module: str, *words: str) -> set[str]:
    """Names of the modules that a command had imported when it was done."""
    command = [sys.executable, "-c", PROGRAM, module, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize("option", ["--help", "--version"])
@pytest.mark.parametrize(
    ("module", "command"), [("conformance.cli", "conformance"), ("loadgen.cli", "loadgen")]
)
def test_help_and_version_load_no_heavy_library(module: str, command: str, option: str) -> None:
    assert loaded(module, command, option).isdisjoint(HEAVY)


def test_the_servers_help_loads_no_torch() -> None:
    names = loaded("reference_server.cli", "reference-server", "--help")
    assert names.isdisjoint({"torch", "transformers"})


@pytest.mark.parametrize("package", ["conformance", "loadgen", "reference_server"])
def test_importing_a_package_loads_nothing_of_others(package: str) -> None:
    program = f"import json, sys, {package}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert set(json.loads(done.stdout)).isdisjoint(HEAVY)


def test_the_scripted_model_loads_no_torch() -> None:
    program = (
        "import json, sys\n"
        "from reference_server import cli, options\n"
        "made = cli._engine(options.parser().parse_args(['--model', 'scripted']))\n"
        "print(json.dumps([made.context, *sorted(sys.modules)]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    context, *names = json.loads(done.stdout)
    assert context == 4096
    assert set(names).isdisjoint({"torch", "transformers", "numpy"})
