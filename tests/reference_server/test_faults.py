"""Faults: one for every check, each of which changes an answer, and none of which does so unasked.

Which check catches which fault is the matrix's business (tests/conformance).
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from reference_server.clock import Clock
from reference_server.faults.fault import Fault
from reference_server.faults.table import FAULTS, HEADER, find, listing, seams_for
from reference_server.wire.server import Settings
from tests.reference_server.client import (
    CHAT,
    COMPLETIONS,
    Client,
    chat,
    completion,
    run,
    serving,
)
from tests.reference_server.test_answers import tool

CASES = Path(__file__).resolve().parents[2] / "specs" / "cases"
USAGE = {"stream_options": {"include_usage": True}}
TOOLS = {"tools": [tool()], "tool_choice": "required"}
NAMED = {
    "tools": [tool(), tool("time")],
    "tool_choice": {"type": "function", "function": {"name": "time"}},
}

# What the checker asks for, roughly: some answer of these shows each fault.
REQUESTS: tuple[dict[str, object], ...] = (
    chat("Repeat exactly: 漢字 🫠, one two three four", stream=True, **USAGE),
    chat("Repeat exactly: 漢字 🫠", stream=False),
    chat("Count from 1 to 300", stream=True, max_tokens=12, **USAGE),
    chat("Count from 1 to 50", stream=True, max_completion_tokens=7),
    chat("Count from 1 to 50", stream=True, stop="5, 6"),
    chat("Say only: hi there you", stream=True, n=2, **USAGE),
    chat("Weather in Paris?", stream=True, **TOOLS),
    chat("Paris or 東京?", stream=True, **NAMED, parallel_tool_calls=False),
    chat("Hello", stream=True, max_tokens=20, logprobs=True, top_logprobs=2),
    chat("Hello", stream=True, temperature="hot"),
    chat("Hello", stream=False, temperature="hot"),
    completion("Repeat exactly: 漢字 🫠, one two", stream=True, **USAGE),
    completion("Hello", stream=True, max_tokens=20, logprobs=2, echo=True),
)
# One of each kind, short: text, calls, an empty answer, several choices, a refusal.
KINDS: tuple[dict[str, object], ...] = (
    chat("Say only: a b c", stream=True, logprobs=True, top_logprobs=1, **USAGE),
    chat("Weather?", stream=True, n=2, **TOOLS),
    chat("Weather?", **TOOLS, logprobs=True),
    completion("Say only: a", stream=True, stop="a", n=2, logprobs=1, **USAGE),
    completion(["a", "b"], echo=True, max_tokens=0, stream=True),
    completion("Say: a", logprobs=1, echo=True),
    chat("x", stream=True, n=0),
    chat("x", stop=7),
)
# Stop strings, each hard in another way, and characters that get lost.
COUNTED = "Count from 1 to 60"
SPOKEN = (
    "Repeat exactly: 🫠 👩\u200d👧 漢字 हिन्दी مرحبا e\u0301 a\u2028b c\u0085d\ufeff e\u00a0f"
    " <b>&amp;</b> C:\\new \tx  y\n\nevent: x\n\ndata: [DONE]\n\nend"
)
STOPPED: tuple[dict[str, object], ...] = (
    chat(COUNTED, stream=True, stop="2, 2", max_tokens=70),
    chat(COUNTED, stream=False, stop="2, 2", max_tokens=70),
    chat(COUNTED, stream=True, stop=["14, 1", ", 11,", ", 11", ", 11, 12"], max_tokens=70),
    chat(COUNTED, stream=True, stop=["9, 10, #", "4, 15#"], max_tokens=29),
    chat(COUNTED, stream=True, stop=["59, 60#"], max_tokens=300),
    chat(COUNTED, stream=True, stop="1", max_tokens=40, **USAGE),
    chat("Repeat exactly: words 漢字 🫠🥹 words", stream=True, stop=["字 🫠🥹"]),
    chat(COUNTED, stream=True, stop="2, 2", max_tokens=70, n=2),
    chat(SPOKEN, stream=True),
    chat(SPOKEN, stream=True, stop="\n\n"),
    chat(COUNTED, stream=True, stop=["#1", "#2", "#3", "#4", "9, 10"]),
    chat(COUNTED, stream=True, stop=None),
    chat(COUNTED, stream=True, stop=[]),
)
# Wrong, each in its way. The first is cut off before its end.
MISTAKEN: tuple[dict[str, object] | bytes, ...] = (
    json.dumps(chat("Say only: hi", stream=True)).encode()[:-2],
    {"model": "scripted", "stream": True, "max_tokens": 5},
    chat("Say only: hi", stream=True, model="no-such-model"),
    chat("Say only: hi", stream=True, tools="get_weather"),
    chat("1 " * 5000, stream=True),
)
PATIENCE = 20.0  # virtual seconds: a fault may keep the socket open


async def answer(client: Client, body: dict[str, object] | bytes) -> bytes:
    """The raw bytes up to the end of the connection, or what came in time."""
    raw = b""
    path = CHAT if isinstance(body, bytes) or "messages" in body else COMPLETIONS
    await client.send(path, body, connection="close")
    with trio.move_on_after(PATIENCE):
        while data := bytes(await client.stream.receive_some(65536)):
            raw += data
        return raw
    return raw + b" and an open socket"


def answers(
    *faults: Fault,
    bodies: Sequence[dict[str, object] | bytes] = REQUESTS,
    unlike: Sequence[bytes] = (),
) -> list[bytes]:
    """Each request on a connection of its own to one server whose clock stands still.

    Ends early with an answer that is not as in `unlike`.
    """
    out: list[bytes] = []

    async def main() -> None:
        clock = Clock(unix=lambda: 1_700_000_000.0)
        ids = map("{:024x}".format, itertools.count()).__next__
        async with serving(seams=seams_for(faults), clock=clock, ids=ids) as running:
            for body, clean in itertools.zip_longest(bodies, unlike):
                out.append(await answer(running.connect(), body))
                if clean is not None and out[-1] != clean:
                    return

    run(main)
    return out


ALL = (*REQUESTS, *STOPPED, *MISTAKEN)
CLEAN = answers(bodies=ALL)


@pytest.mark.parametrize("name", FAULTS)
def test_no_fault_is_a_crash(name: str) -> None:
    """`answers` raises what a seam raises."""
    assert len(answers(FAULTS[name], bodies=KINDS)) == len(KINDS)


# What shows only where a client leaves, does not read, comes again, or has another key.
UNSEEN = ("http.keep", "abort.", "slow.", "err.wrong-key")
# What only company brings out, or the next request.
LONELY = (
    "err.recovers",
    "isolation.canary",
    "isolation.canary:swapped",
    "isolation.aborts",
    "isolation.aborts:taken",
    "isolation.limits:more",
    "isolation.invalid-neighbour",
    "isolation.invalid-neighbour:swapped",
    "isolation.keep-alive",
)


@pytest.mark.parametrize(
    "name", [name for name in FAULTS if not name.startswith(UNSEEN) and name not in LONELY]
)
def test_a_fault_changes_the_bytes_of_some_answer(name: str) -> None:
    assert answers(FAULTS[name], bodies=ALL, unlike=CLEAN) != CLEAN


@pytest.mark.parametrize("name", [name for name in FAULTS if name.startswith("err.wrong-key")])
def test_a_fault_of_the_key_changes_what_a_wrong_one_gets(name: str) -> None:
    clean, faulty = refused(), refused(FAULTS[name])
    assert clean.startswith(b"HTTP/1.1 401 ")
    assert not faulty.startswith(b"HTTP/1.1 401 ")


def refused(*faults: Fault) -> bytes:
    """What a server with a key answers to a request with another one."""
    out: list[bytes] = []

    async def main() -> None:
        settings = Settings(api_key="right")
        async with serving(settings, seams=seams_for(faults)) as running:
            client = running.connect()
            await client.send(CHAT, KINDS[0], authorization="Bearer wrong")
            out.append(bytes(await client.stream.receive_some(65536)))

    run(main)
    return out[0]


@pytest.mark.parametrize("name", LONELY)
def test_what_company_brings_out_leaves_a_lonely_answer_alone(name: str) -> None:
    assert answers(FAULTS[name], bodies=ALL) == CLEAN


def test_without_faults_two_servers_answer_the_same_bytes() -> None:
    assert answers(bodies=ALL) == CLEAN


def test_every_check_has_a_fault_and_every_fault_a_check() -> None:
    text = "".join(file.read_text() for file in CASES.glob("*.yaml"))
    ids = set(re.findall(r"^- id: (\S+)", text, re.MULTILINE))
    assert {fault.id for fault in FAULTS.values()} == ids


def test_a_keep_alive_fault_closes_the_connection_without_a_word() -> None:
    async def main() -> None:
        async with serving(seams=seams_for([find("http.keep-alive")])) as running:
            client = running.connect()
            reply = await client.post(CHAT, chat("Say only: hi", stream=True))
            assert reply.whole
            assert "connection" not in reply.headers
            assert await client.stream.receive_some(1) == b""

    run(main)


def test_a_stale_connection_answers_the_second_request_with_the_first_answer() -> None:
    async def main() -> None:
        async with serving(seams=seams_for([find("http.keep-alive-own-answer")])) as running:
            client = running.connect()
            first = await client.post(CHAT, chat("Say only: one", stream=True))
            second = await client.post(CHAT, chat("Say only: two", stream=True))
            assert (first.text(), second.text()) == ("one", "one")
            assert first.chunks[0]["id"] == second.chunks[0]["id"]

    run(main)


def test_faults_leave_everything_but_generation_alone() -> None:
    async def main() -> None:
        async with serving(seams=seams_for([find("http.content-type-once")])) as running:
            client = running.connect()
            for path in ("/health", "/v1/models", "/nothing"):
                await client.stream.send_all(b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n" % path.encode())
                raw = b""
                while b"}" not in raw:
                    raw += bytes(await client.stream.receive_some(65536))
                assert raw.lower().count(b"content-type:") == 1

    run(main)


def test_a_request_may_ask_for_faults_only_where_that_is_allowed() -> None:
    async def main() -> None:
        async with serving(seams=seams_for([], allowed=True)) as running:
            headers = {HEADER: "done.missing, chunk.model"}
            reply = await running.post(CHAT, chat(stream=True), **headers)
            assert b"[DONE]" not in reply.body
            assert json.loads(reply.blocks[0])["model"] == ""
            assert b"[DONE]" in (await running.post(CHAT, chat(stream=True))).body
            unknown = await running.post(CHAT, chat(), **{HEADER: "done.mising"})
            assert unknown.status == 400
            assert "did you mean done.missing?" in unknown.json["error"]["message"]
        async with serving(seams=seams_for([])) as running:
            reply = await running.post(CHAT, chat(stream=True), **{HEADER: "done.missing"})
            assert b"[DONE]" in reply.body

    run(main)


def test_several_faults_add_up() -> None:
    (raw,) = answers(find("sse.bom"), find("done.missing"), bodies=REQUESTS[:1])
    assert b"\xef\xbb\xbf" in raw
    assert b"[DONE]" not in raw


def test_the_listing_has_one_line_for_each_fault() -> None:
    lines = listing().splitlines()
    assert [line.split()[0] for line in lines] == list(FAULTS)
    assert all(len(line.split()) > 1 for line in lines)
    assert all(name == fault.name for name, fault in FAULTS.items())
