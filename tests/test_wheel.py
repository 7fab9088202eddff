"""The wheel, installed in an empty environment, works from a folder that is not the repository's.

No network: the wheel is built with the hatchling that is here, and its dependencies are linked from
this environment, but only those that the wheel itself declares, so a missing one shows.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
MOST_BYTES = 6_000_000  # of which the embedded model is most
STREAM = b'data: {"id":"1"}\n\ndata: [DONE]\n\n'


def run(*words: str | Path, cwd: Path, code: int = 0) -> str:
    """The command's stdout; its exit code must be `code`."""
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=100)
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stderr[-2000:]}"
    assert "Traceback" not in done.stderr
    return done.stdout


def declared(names: Iterator[str]) -> set[str]:
    """Distributions that the requirement strings lead to, extras left out."""
    todo, found = list(names), set[str]()
    while todo:
        wanted = Requirement(todo.pop())
        if wanted.name in found or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
            continue
        found.add(wanted.name)
        todo += distribution(wanted.name).requires or []
    return found


def link(name: str, site: Path) -> None:
    """Make an installed distribution importable from `site`."""
    installed = distribution(name)
    tops = {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}
    for top in tops:
        if not (site / top).exists():
            (site / top).symlink_to(Path(str(installed.locate_file(top))))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    run(*pip, "--no-index", "--wheel-dir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("streamproof-*.whl")
    return built


@pytest.fixture(scope="module")
def commands(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment that holds the wheel and what it declares."""
    home = tmp_path_factory.mktemp("empty")
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home)
    python = home / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index")
    run(*pip, "--no-deps", wheel, cwd=home)
    (site,) = home.glob("lib/python*/site-packages")
    (metadata,) = site.glob("streamproof-*.dist-info/METADATA")
    lines = metadata.read_text().splitlines()
    needs = (line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: "))
    for name in declared(needs):
        link(name, site)
    return home / "bin"


def test_the_wheel_holds_the_three_packages_their_data_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    version = wheel.name.split("-")[1]
    info = f"streamproof-{version}.dist-info"
    assert tops == {"conformance", "loadgen", "reference_server", info}
    assert f"{info}/licenses/LICENSE" in names
    assert {f"{top}/py.typed" for top in tops - {info}} <= set(names)
    assert [n for n in names if n.startswith("conformance/specs/cases/") and n.endswith(".yaml")]


def test_the_embedded_model_is_in_the_wheel_whole_with_its_licences(wheel: Path) -> None:
    tiny = ROOT / "reference_server" / "engine" / "tiny"
    held = zipfile.ZipFile(wheel)
    for file in (*(tiny / "model").iterdir(), tiny / "LICENSES.md", tiny / "README.md"):
        assert held.read(str(file.relative_to(ROOT))) == file.read_bytes(), file
    assert wheel.stat().st_size < MOST_BYTES


def test_the_torch_engine_says_in_one_line_what_it_needs(commands: Path, tmp_path: Path) -> None:
    words = [str(commands / "reference-server"), "--model", "tiny", "--port", "0"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("reference-server: --model tiny needs torch and transformers")
    assert "streamproof[reference]" in line


def test_every_command_knows_its_version_and_its_help(
    commands: Path, wheel: Path, tmp_path: Path
) -> None:
    version = wheel.name.split("-")[1]
    for name in ("conformance", "loadgen", "reference-server"):
        assert run(commands / name, "--help", cwd=tmp_path).startswith(f"usage: {name} ")
        assert run(commands / name, "--version", cwd=tmp_path) == f"streamproof {version}\n"


def test_the_checks_are_read_from_inside_the_package(commands: Path, tmp_path: Path) -> None:
    listed = json.loads(run(commands / "conformance", "list", "--json", cwd=tmp_path))
    assert "sse.bom" in json.dumps(listed)
    assert "sse.bom" in run(commands / "conformance", "show", "sse.bom", cwd=tmp_path)


def test_a_recorded_stream_is_judged_from_another_folder(commands: Path, tmp_path: Path) -> None:
    (tmp_path / "a.sse").write_bytes(STREAM)
    words = ("judge", "a.sse", "--json", "-")
    report = json.loads(run(commands / "conformance", *words, cwd=tmp_path, code=1))
    failed = {r["id"] for r in report["results"] if r["verdict"] == "fail"}
    assert "fin.missing" in failed


def test_the_server_lists_its_faults_from_another_folder(commands: Path, tmp_path: Path) -> None:
    assert "sse.bom" in run(commands / "reference-server", "--list-faults", cwd=tmp_path)


def test_the_experiments_are_read_from_inside_the_package(commands: Path, tmp_path: Path) -> None:
    listed = run(commands / "loadgen", "experiment", "list", cwd=tmp_path)
    assert "slow-readers\n" in listed


def test_loadgen_says_in_one_line_what_it_cannot_reach(commands: Path, tmp_path: Path) -> None:
    words = [str(commands / "loadgen"), "run", "http://127.0.0.1:1/v1", "--rate", "1"]
    words += ["--requests", "1"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line == "loadgen: cannot reach http://127.0.0.1:1/v1: ECONNREFUSED"
