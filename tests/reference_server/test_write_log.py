"""What the log of writes says is what a client received, and when it cannot have been otherwise."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from reference_server.cli import main
from tests.reference_server.client import chat
from tests.reference_server.test_cli import post, started


def test_every_write_of_an_answer_is_on_record_with_its_times(tmp_path: Path) -> None:
    log = tmp_path / "writes.jsonl"
    start = time.monotonic()
    with started("--log-writes", str(log)) as (server, url):
        answer = post(url, chat("Say only: a b c", stream=True))
        events = answer.read().decode().split("\n\n")[:-1]
        server.terminate()
        server.wait()
        end = time.monotonic()
    told = json.loads(log.read_text())
    assert told["id"] == answer.headers["x-request-id"]
    parts, before, after, sizes = zip(*told["writes"], strict=True)
    assert parts == ("head", *("body",) * len(events), "end")
    times = [time for pair in zip(before, after, strict=True) for time in pair]
    assert times == sorted(times)
    assert start < times[0]
    assert times[-1] < end
    assert list(sizes[1:-1]) == [len(f"{len(e) + 2:x}") + 4 + len(e) + 2 for e in events]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--fault", "sse.bom"), "--log-writes: goes with a clean server only"),
        (("--allow-faults",), "--log-writes: goes with a clean server only"),
        (("--personality", "vllm"), "--log-writes: goes with a clean server only"),
    ],
)
def test_a_broken_server_logs_no_writes(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code = main(["--model", "scripted", "--port", "0", "--log-writes", str(tmp_path / "x"), *words])
    assert (code, said in capsys.readouterr().err) == (2, True)


def test_a_log_that_cannot_be_written_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", "scripted", "--port", "0", "--log-writes", "/none/x"]) == 2
    assert "--log-writes /none/x: No such file" in capsys.readouterr().err
