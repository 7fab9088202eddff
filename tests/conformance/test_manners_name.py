"""A name of /etc/hosts that means this machine is another machine's: the command, from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest
import trio

from conformance import storage
from conformance.dossier import Dossier
from conformance.scenarios import SCENARIOS
from conformance.scenarios.invalid import mistakes
from conformance.target import Endpoint
from reference_server.wire.connection import Request
from tests.conformance.hosts_entry import HOSTS, with_host
from tests.conformance.test_run import reference

NAME = "models.test"
MOST_TOKENS = 200_000

pytestmark = pytest.mark.slow


@dataclass
class Seen:
    """What the server read and generated, and what the command printed and kept."""

    got: list[Request]
    tokens: int
    ended: subprocess.CompletedProcess[bytes]
    dossiers: list[Dossier]
    authority: str


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """The default run of the command against that name, in real time."""
    folder = tmp_path_factory.mktemp("name")
    kept, out = folder / "kept", []

    async def main() -> None:
        async with reference() as server:
            authority = f"{NAME}:{server.url.removesuffix('/v1').rpartition(':')[2]}"
            command = [sys.executable, "-m", "conformance", "run", f"http://{authority}/v1"]
            ended = await trio.run_process(
                with_host(NAME, "127.0.0.1", folder, [*command, "--captures", str(kept)]),
                capture_stdout=True, capture_stderr=True, check=False,
                env={k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")},
            )  # fmt: skip
            tokens = server.engine.gauges.tokens
            out.append((server.got, tokens, ended, authority))

    with_host(NAME, "127.0.0.1", folder, [])  # skips where that cannot be
    before = HOSTS.read_bytes()
    trio.run(main)
    assert HOSTS.read_bytes() == before
    ((got, tokens, ended, authority),) = out
    dossiers = [storage.read(path.read_bytes()) for path in sorted(kept.glob("*.jsonl"))]
    return Seen(got, tokens, ended, dossiers, authority)


def test_the_run_finds_the_name_and_passes(seen: Seen) -> None:
    assert seen.ended.returncode == 0, seen.ended.stderr.decode() + seen.ended.stdout.decode()
    assert {request.headers["host"] for request in seen.got} == {seen.authority}


def test_no_crowd_no_storm_nothing_but_polite_scenarios(seen: Seen) -> None:
    ran = {dossier.scenario for dossier in seen.dossiers} - {"discovery"}
    assert len(ran) > 2
    assert {SCENARIOS[name].manners for name in ran} == {"polite"}


def test_every_body_is_one_that_a_client_would_send(seen: Seen) -> None:
    posts = [request for request in seen.got if request.method == "POST"]
    assert len(posts) > 10
    bodies = [json.loads(request.body) for request in posts]  # raises for what is no JSON
    for api in ("chat", "completions"):
        bad = list(mistakes(Endpoint(api, model="scripted"), stream=True).values())
        assert not [body for body in bodies if body in bad]


def test_no_more_than_the_tokens_that_a_stranger_may_cost(seen: Seen) -> None:
    assert 0 < seen.tokens <= MOST_TOKENS
