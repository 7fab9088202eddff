"""nginx in front of the bundled server: it holds a stream back unless somebody tells it not to.

The server does, by `X-Accel-Buffering: no`; so does a line of configuration. Everything else passes
unharmed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.demo import BIN
from tests.interop.nginx import nginx

pytestmark = [pytest.mark.slow, pytest.mark.nginx, pytest.mark.timeout(400)]

# nginx buffers by default; for a server that does not send the field it is ignored here.
IGNORED = "proxy_ignore_headers X-Accel-Buffering;"
WAYS = {
    "as it comes": "",
    "buffering": IGNORED,
    "not buffering": f"{IGNORED} proxy_buffering off;",
}


@pytest.fixture(scope="module")
def proxied(
    reference_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    upstream = reference_url.removesuffix("/v1")
    with nginx(tmp_path_factory.mktemp("nginx"), upstream, WAYS) as urls:
        yield urls


def verdicts(url: str, folder: Path, *words: str) -> dict[str, Any]:
    """Check → its row of the report, for chat."""
    file = folder / "report.json"
    options = ["--api", "chat", "--json", str(file), *words]
    command = [str(BIN / "conformance"), "run", f"{url}/v1", *options]
    ended = subprocess.run(command, capture_output=True, text=True)
    print(ended.stdout, file=sys.stderr)
    assert ended.returncode in (0, 1), ended.stderr
    return {row["id"]: row for row in json.loads(file.read_text())["results"]}


def test_text_that_it_holds_back_is_seen(proxied: dict[str, str], tmp_path: Path) -> None:
    rows = verdicts(proxied["buffering"], tmp_path, "--select", "buffering.*")
    found = rows["buffering.progressive"]
    assert found["verdict"] == "fail", found
    assert "events arrived at" in found["findings"][0]["message"]


@pytest.mark.parametrize("way", ["as it comes", "not buffering"])
def test_told_not_to_by_the_server_or_by_a_line_it_passes_each_event_on(
    proxied: dict[str, str], way: str, tmp_path: Path
) -> None:
    rows = verdicts(proxied[way], tmp_path, "--select", "buffering.*")
    said = {name: row["verdict"] for name, row in rows.items()}
    assert said == {"buffering.progressive": "pass", "buffering.first-content": "pass"}


@pytest.mark.parametrize("way", WAYS)
def test_it_changes_nothing_else_that_the_checks_see(
    proxied: dict[str, str], way: str, tmp_path: Path
) -> None:
    rows = verdicts(proxied[way], tmp_path, "--quick")
    assert {name for name, row in rows.items() if row["verdict"] in ("fail", "non-strict")} == set()
    assert sum(row["verdict"] == "pass" for row in rows.values()) > 20
