"""The reference server read by curl, and what curl printed judged."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CHAT = {
    "model": "scripted",
    "messages": [{"role": "user", "content": "Say: one two three four five"}],
}
STREAM = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}


def curl(url: str, body: dict[str, object], *options: str) -> list[str]:
    data = json.dumps(body)
    kind = "Content-Type: application/json"
    return ["curl", "-sN", *options, "-H", kind, "-d", data, f"{url}/chat/completions"]


def judged(dump: Path, request: dict[str, object]) -> dict[str, object]:
    """The report of `conformance judge` over one dump."""
    sent = dump.with_suffix(".json")
    sent.write_text(json.dumps(request))
    command = [str(Path(sys.executable).parent / "conformance"), "judge", str(dump)]
    done = subprocess.run(
        [*command, "--request", str(sent), "--json", "-"], capture_output=True, text=True
    )
    report: dict[str, object] = json.loads(done.stdout)
    assert done.returncode == report["exit"], done.stderr
    return report


def above_info(report: dict[str, object]) -> list[object]:
    results = report["results"]
    assert isinstance(results, list)
    return [
        (result["id"], result["findings"])
        for result in results
        if result["verdict"] not in ("pass", "info", "inconclusive")
    ]


def test_curl_prints_each_event_when_it_is_made(reference_url: str) -> None:
    """The first of them while those of a quarter of a minute are still to come."""
    counting = [{"role": "user", "content": "Count from 1 to 900"}]
    long = {**STREAM, "messages": counting, "max_tokens": 1500}
    with subprocess.Popen(curl(reference_url, long), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [line for _ in range(12) if (line := process.stdout.readline()).strip()]
        stats = reference_url.removesuffix("/v1") + "/stats"
        with urllib.request.urlopen(stats, timeout=20) as answer:
            running = json.load(answer)["engine"]["running"]
        process.kill()
    assert len(lines) == 6
    assert all(line.startswith("data: ") for line in lines)
    assert running == 1, "the events came in one burst"


def test_curl_prints_a_stream_to_its_end(reference_url: str) -> None:
    done = subprocess.run(curl(reference_url, STREAM), capture_output=True, text=True, check=True)
    lines = [line for line in done.stdout.splitlines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"


@pytest.mark.parametrize("request_body", [STREAM, CHAT], ids=["streamed", "plain"])
def test_a_raw_dump_of_the_reference_server_has_no_finding(
    reference_url: str, tmp_path: Path, request_body: dict[str, object]
) -> None:
    dump = tmp_path / "answer.http"
    subprocess.run(curl(reference_url, request_body, "-i", "--raw", "-o", str(dump)), check=True)
    assert dump.read_bytes().startswith(b"HTTP/1.1 200")
    report = judged(dump, request_body)
    assert above_info(report) == []
    assert report["exit"] == 0


def test_a_dump_without_its_last_lines_is_a_failure(reference_url: str, tmp_path: Path) -> None:
    dump = tmp_path / "cut.http"
    subprocess.run(curl(reference_url, STREAM, "-i", "--raw", "-o", str(dump)), check=True)
    whole = dump.read_bytes()
    dump.write_bytes(whole[: whole.rindex(b"data: ")])
    report = judged(dump, STREAM)
    assert report["exit"] == 1
    assert above_info(report) != []
