"""`conformance run` on `transformers serve`: each failure was confirmed in the bytes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from conformance.dossier import APIS, CHAT, COMPLETIONS
from tests.interop.llama import Running

pytestmark = [pytest.mark.slow, pytest.mark.serve, pytest.mark.timeout(1500)]

Row = tuple[str, str]  # case id, API


def on_both(said: Mapping[str, str]) -> dict[Row, str]:
    return {(name, api): why for name, why in said.items() for api in APIS}


# The bytes that each stands for are quoted in captures/serve/FINDINGS.md, by number.
FAILS: dict[Row, str] = {
    **on_both(
        {
            "choice.missing": "3: one choice of n",
            "done.missing": "1: no sentinel, ever",
            "err.client-mistake-5xx": "8: a value of the wrong type is an exception",
            "err.content-type": "8: Internal Server Error, text/plain",
            "err.envelope": '7: {"detail":…}',
            "err.prestream-200": "9: the exception is told inside of a 200",
            "err.shape": '9: {"error": "…"}',
            "err.wrong-types": "10: what is ignored is not looked at either",
            "logprobs.missing": "4: ignored",
            "stop.included": "5: shown, with the rest of its last token",
            "stop.multi-byte": "5",
        }
    ),
    ("delta.content-type", COMPLETIONS): '11: "suffix":5 comes back as "text":5',
    ("echo.prompt", COMPLETIONS): "6: ignored",
    ("err.missing-field", COMPLETIONS): "11: no prompt is an empty prompt",
    ("fin.key-missing", CHAT): "2: null members are left out",
}
NOT_STRICT: dict[Row, str] = {
    **on_both(
        {
            "chunk.created-changes": "14: each chunk is stamped anew",
            "usage.null-before": "16: left out",
            "usage.placement": "15: on the finish chunk, asked for or not",
        }
    ),
    ("chunk.choice-shape", COMPLETIONS): "13: no `logprobs`",
    ("fin.key-missing", COMPLETIONS): "2: null members are left out",
    ("err.same-status", COMPLETIONS): "11: a number as suffix, streamed a 200, plain a 500",
    ("sse.raw-line-separator", COMPLETIONS): "17: E2 80 A8 where the model repeats it",
}
# What a failure above leaves nothing to say of.
BLOCKED: dict[Row, str] = {
    **on_both(
        {
            "err.in-band": "err.prestream-200",
            "fin.missing": "choice.missing",
            "isolation.stop": "stop.included",
            "stop.exact-prefix": "stop.included",
        }
    ),
    ("err.same-status", CHAT): "err.prestream-200",
}
UNDECIDED: dict[Row, str] = {
    # A stream without a sentinel (1) is never complete, and none has a second choice (3).
    **on_both(dict.fromkeys(("choice.order", "stream.not-closed", "usage.missing"), "not-seen")),
    **on_both({"usage.choices": "mat", "usage.prompt-once": "not-recorded"}),
    # The server tells neither the context's length nor token details, and sends no heartbeats.
    **on_both({"err.context": "budget", "heartbeat.comments": "not-seen"}),
    **on_both({"usage.details": "not-seen"}),
    # Log-probabilities never come (4).
    **on_both(dict.fromkeys(("logprobs.mismatch", "logprobs.value"), "not-seen")),
    **{(f"logprobs.{name}", CHAT): "not-seen" for name in ("bytes", "shape", "top")},
    ("logprobs.arrays", COMPLETIONS): "not-seen",
    # No stop string is cut rightly (5), so nothing finer can be asked of the cut.
    **on_both(dict.fromkeys(("stop.first-text", "stop.several", "stop.per-choice"), "not-seen")),
    # No reasoning model, and no calls from one that has no parser (18).
    ("reasoning.empty-field", CHAT): "not-seen",
    ("fin.tool-calls", CHAT): "mat",
    ("tool.parallel", CHAT): "not-seen",
    **{
        (f"tool.{name}", CHAT): "mat"
        for name in (
            "args-double-escape", "args-invalid", "args-nul", "args-type", "id-duplicate",
            "id-missing", "id-repeat", "index-missing", "index-order", "name-missing",
            "name-repeat", "named", "resumed", "type", "unknown-name",
        )
    },
    # A base model of this size repeats little, and does not indent.
    **on_both({"text.whitespace": "mat"}),
    ("text.normal-form", CHAT): "mat",
    ("text.separators", CHAT): "mat",
}  # fmt: skip
# Which text the model finds depends on the processor's arithmetic, and how a neighbour fares on
# what else the machine does: here these may abstain, for these reasons.
MAY_ABSTAIN: dict[str, tuple[str, ...]] = {
    "abort.": ("fast", "det", "oracle", "burst"),
    "buffering.": ("fast", "burst"),
    "fin.limit": ("mat",),
    "fin.natural-stop": ("mat",),
    "isolation.": ("fast", "mat", "det"),
    "slow.": ("fast", "det", "oracle", "burst"),
    "stop.": ("mat", "not-seen"),
}


@pytest.fixture(scope="module")
def report(served: Running, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Everything on both APIs; one request at a time is slow, so the clock is patient."""
    file = tmp_path_factory.mktemp("run") / "report.json"
    command = [str(Path(sys.executable).parent / "conformance"), "run", served.url]
    began = time.monotonic()
    options = ["--timeout", "240", "--json", str(file)]
    done = subprocess.run([*command, *options], capture_output=True, text=True)
    print(f"\nconformance run: {time.monotonic() - began:.0f} s\n{done.stdout}", file=sys.stderr)
    assert done.returncode == 1, done.stderr
    return json.loads(file.read_text())


def rows(report: Any, *verdicts: str) -> dict[Row, str]:
    """(id, API) → the code of the reason, for the results with one of these verdicts."""
    return {
        (row["id"], row["api"]): (row["reason"] or "").partition(":")[0]
        for row in report["results"]
        if row["verdict"] in verdicts
    }


def test_it_fails_where_the_bytes_are_wrong_and_nowhere_else(report: Any) -> None:
    assert set(rows(report, "fail")) == set(FAILS)


def test_the_shoulds_that_it_breaks_are_these(report: Any) -> None:
    assert set(rows(report, "non-strict")) == set(NOT_STRICT)


def test_what_a_failure_hides_names_the_failure(report: Any) -> None:
    assert rows(report, "blocked") == BLOCKED


def test_nothing_else_went_wrong(report: Any) -> None:
    odd = rows(report, "inconsistent", "harness-error", "unsupported")
    # The server was started without a key, so none can be wrong.
    assert odd == {("err.wrong-key", api): "key" for api in ("chat", "completions")}


def test_what_could_not_be_decided_says_why(report: Any) -> None:
    found = rows(report, "inconclusive")
    assert {row: why for row, why in found.items() if not may_abstain(row, why)} == UNDECIDED


def may_abstain(row: Row, why: str) -> bool:
    listed = row in UNDECIDED
    known = any(row[0].startswith(name) and why in whys for name, whys in MAY_ABSTAIN.items())
    return known and not listed
