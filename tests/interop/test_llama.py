"""llama.cpp's own server, live and recorded: every reported failure was confirmed in the bytes."""

from __future__ import annotations

import urllib.request

import pytest

from tests.interop.llama import Running

pytestmark = [pytest.mark.slow, pytest.mark.llama, pytest.mark.timeout(600)]


def test_it_serves(llama: Running) -> None:
    with urllib.request.urlopen(llama.url + "/models", timeout=10) as answer:
        assert answer.status == 200
