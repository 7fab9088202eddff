"""The command: its first line, its one-line complaints, its two signals."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from reference_server import cli
from reference_server.cli import main
from tests.reference_server.client import CHAT, chat

COMMAND = [sys.executable, "-m", "reference_server", "--model", "scripted", "--port", "0"]


@contextmanager
def started(*options: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and its API base."""
    server = subprocess.Popen(
        [*COMMAND, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert server.stdout is not None
        yield server, json.loads(server.stdout.readline())["url"]
    finally:
        server.kill()
        server.communicate()


def post(url: str, body: dict[str, object], **headers: str) -> Any:
    request = urllib.request.Request(
        url.removesuffix("/v1") + CHAT, json.dumps(body).encode(), headers
    )
    return urllib.request.urlopen(request, timeout=20)


def test_the_first_line_says_where_it_serves() -> None:
    with started() as (_, url):
        assert url.startswith("http://127.0.0.1:")
        assert json.load(post(url, chat("Say only: hi")))["model"] == "scripted"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--port", "x"], "invalid int value"),
        (["--port", "70000"], "0 to 65535"),
        (["--step-ms", "-1"], "--step-ms: expected milliseconds, not negative, got -1"),
        (["--step-ms", "nan"], "--step-ms: expected"),
        (["--max-batch", "0"], "--max-batch: expected at least 1, got 0"),
        (["--kv-blocks", "0"], "--kv-blocks: expected at least 1, got 0"),
        (["--prefill-chunk", "-1"], "--prefill-chunk: expected 0 or more, got -1"),
        (["--threads", "0"], "--threads: expected at least 1, got 0"),
        (["--context", "0"], "--context: expected at least 1, got 0"),
        (["--max-waiting", "-1"], "--max-waiting: expected 0 or more, got -1"),
        (["--start-within", "0"], "--start-within: expected seconds, positive, got 0"),
        (["--heartbeat", "0"], "--heartbeat: expected seconds, positive, got 0"),
        (["--device", "tpu"], "--device: expected one of cpu, cuda, got tpu"),
        (["--dtype", "int8"], "--dtype: expected one of float32, bfloat16, got int8"),
        (["--slow-client", "wait"], "--slow-client: expected one of unbounded, pause, drop, "),
        (["--api-key-env", "SURELY_NOT_SET"], "SURELY_NOT_SET is not set"),
        (["--fault", "sse.bim"], "did you mean sse.bom?"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_a_bad_option_is_one_line_and_exit_2(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(options)
    except SystemExit as left:
        code = left.code
    assert code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    assert said in shown.err
    flags = set(re.findall(r"--[a-z-]+", shown.err)) - {"--help"}
    assert flags <= {options[0]}, "another flag is named than the wrong one"


COMPUTING = {
    "--device": ["cpu"],
    "--dtype": ["bfloat16"],
    "--threads": ["1"],
    "--batch-invariant": [],
    "--kv-blocks": ["8"],
    "--prefill-chunk": ["256"],
    "--no-prefix-sharing": [],
}


@pytest.mark.parametrize("option", COMPUTING)
def test_what_only_a_model_could_do_is_not_passed_over_by_the_scripted_one(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--model", "scripted", "--port", "0", option, *COMPUTING[option]]) == 2
    said = f"{option}: goes with a model that computes only, not with scripted"
    assert capsys.readouterr() == ("", f"reference-server: {said}\n")


def test_a_model_that_computes_takes_no_pace(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", "tiny", "--step-ms", "20"]) == 2
    said = "--step-ms: goes with the scripted model only, not with tiny"
    assert capsys.readouterr() == ("", f"reference-server: {said}\n")


@pytest.mark.torch
def test_what_is_asked_of_a_model_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from reference_server.engine import models

    asked: dict[str, Any] = {}

    def load(name: str, **options: Any) -> Any:
        asked.update(options, name=name)
        raise models.ModelError("seen")

    monkeypatch.setattr(models, "load", load)
    options = [word for name, values in COMPUTING.items() for word in (name, *values)]
    assert main(["--model", "tiny", "--max-batch", "3", *options]) == 2
    del asked["tell"]
    assert asked == {
        "name": "tiny",
        "max_batch": 3,
        "device": "cpu",
        "dtype": "bfloat16",
        "threads": 1,
        "batch_invariant": True,
        "kv_blocks": 8,
        "prefill_chunk": 256,
        "prefix_sharing": False,
    }


@pytest.mark.torch
def test_a_model_that_is_not_there_is_one_line_and_exit_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--port", "0", "--model", "/no/such/place"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert "/no/such/place: there is no such folder" in line


def test_without_torch_a_model_is_one_line_and_scripted_the_default(tmp_path: Path) -> None:
    blocker = tmp_path / "without.py"
    blocker.write_text(
        "import sys, importlib.util as util\n"
        "there = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'torch' else there(name, *more)\n"
        "sys.modules['torch'] = None\n"
        "from reference_server.cli import main\n"
        "from reference_server.options import default_model\n"
        "print(default_model())\n"
        "sys.exit(main(['--model', 'tiny', '--port', '0']))\n"
    )
    done = subprocess.run([sys.executable, str(blocker)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "scripted\n")
    assert len(done.stderr.splitlines()) == 1
    assert "streamproof[reference]" in done.stderr


def test_a_port_in_use_is_one_line_and_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["--model", "scripted", "--port", str(taken.getsockname()[1])]) == 2
    assert "cannot listen on 127.0.0.1" in capsys.readouterr().err


def test_list_faults_prints_them_and_ends(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list-faults"]) == 0
    assert "sse.bom " in capsys.readouterr().out


def test_a_fault_of_the_command_line_is_in_every_answer() -> None:
    with started("--fault", "sse.bom") as (_, url):
        assert post(url, chat("hi", stream=True)).read().startswith(b"\xef\xbb\xbf")


def test_the_api_key_comes_from_the_environment() -> None:
    with started("--api-key-env", "MY_KEY", MY_KEY="abc") as (_, url):
        with pytest.raises(urllib.request.HTTPError) as refused:
            post(url, chat())
        assert refused.value.code == 401
        refused.value.close()
        assert post(url, chat(max_tokens=1), authorization="Bearer abc").status == 200


def test_flags_reach_the_server() -> None:
    flags = ("--slow-client", "drop", "--context", "100", "--max-batch", "3")
    with started(*flags) as (_, url):
        assert get(url, "/stats")["slow_clients"]["policy"] == "drop"
        (card,) = get(url, "/v1/models")["data"]
        assert card["max_model_len"] == 100


def get(url: str, path: str) -> Any:
    with urllib.request.urlopen(url.removesuffix("/v1") + path, timeout=20) as answer:
        return json.load(answer)


@pytest.mark.torch
@pytest.mark.slow
def test_a_model_in_a_thread_is_served_and_left_like_the_scripted_one() -> None:
    flags = ("--model", "tiny", "--kv-blocks", "64", "--max-batch", "2", "--prefill-chunk", "8")
    with started(*flags) as (server, url):
        # On and on, for it answers a greeting before anybody could look.
        body = chat("Hello", model="tiny", stream=True, max_tokens=400, ignore_eos=True)
        answer = post(url, body)
        # Figures are those of the last whole step, and a token leaves before its step is over:
        # the second token says that the first step is. (Before both, the role; each has two lines.)
        assert all(answer.readline() for _ in range(6))
        stats = get(url, "/stats")
        assert stats["engine"]["total_blocks"] == 64
        assert stats["engine"]["free_blocks"] < 64
        server.send_signal(signal.SIGTERM)
        assert answer.read().rstrip().endswith(b"[DONE]")
        assert server.wait(timeout=20) == 0


def test_sigterm_lets_a_stream_finish_and_then_ends_with_0() -> None:
    with started("--step-ms", "20") as (server, url):
        answer = post(url, chat("Count from 1 to 20", stream=True))
        assert answer.read(10)
        server.send_signal(signal.SIGTERM)
        assert answer.read().rstrip().endswith(b"[DONE]")
        assert server.wait(timeout=20) == 0


def test_a_signal_that_comes_with_the_first_line_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_announce", lambda *_: signal.raise_signal(signal.SIGINT))
    assert main(["--model", "scripted", "--port", "0"]) == 0


def test_a_second_sigterm_stops_at_once() -> None:
    with started("--step-ms", "200") as (server, url):
        answer = post(url, chat("Count from 1 to 300", stream=True))  # for a minute
        assert answer.read(10)
        server.send_signal(signal.SIGTERM)
        until_refused(url)  # two signals that wait together would be one
        assert server.poll() is None
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=20) == 0
        with pytest.raises(http.client.IncompleteRead) as cut:
            answer.read()
        assert b"[DONE]" not in cut.value.partial


def until_refused(url: str) -> None:
    """The first signal has been heard: nobody new is let in."""
    address = urllib.parse.urlsplit(url)
    with suppress(ConnectionRefusedError):
        while True:
            socket.create_connection((address.hostname, address.port), 20).close()
            time.sleep(0.01)


def test_a_bug_in_one_connection_does_not_take_the_server_down(tmp_path: Path) -> None:
    """Stands for any bug: a body reader that raises."""
    breaker = tmp_path / "broken.py"
    breaker.write_text(
        "import sys\n"
        "from reference_server import cli\n"
        "from reference_server.wire import fields\n"
        "parse = fields.parse\n"
        "def broken(body):\n"
        "    if b'poison' in body:\n"
        "        raise ZeroDivisionError('a bug')\n"
        "    return parse(body)\n"
        "fields.parse = broken\n"
        "sys.exit(cli.main(sys.argv[1:]))\n"
    )
    server = subprocess.Popen(
        [sys.executable, str(breaker), "--model", "scripted", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        with pytest.raises((urllib.request.HTTPError, OSError)) as refused:
            post(url, chat("poison"))
        if isinstance(refused.value, urllib.request.HTTPError):
            refused.value.close()
        assert post(url, chat(max_tokens=1)).status == 200
    finally:
        server.terminate()
        _, err = server.communicate(timeout=20)
    assert "ZeroDivisionError" in err


def test_many_streams_are_served_at_once() -> None:
    """Each takes longer than anybody waits here, and all have begun before the first is read."""
    lines: list[list[bytes]] = []
    with started("--step-ms", "100", "--max-batch", "8") as (_, url), ExitStack() as opened:
        body = chat("Count from 1 to 300", stream=True)
        answers = [opened.enter_context(post(url, body)) for _ in range(8)]
        for answer in answers:
            events = [line for _ in range(8) if (line := answer.readline()).strip()]
            lines.append([re.sub(rb'"(id|created)":[^,]*', b"", line) for line in events])
    assert len(lines[0]) == 4
    assert all(each == lines[0] for each in lines)
