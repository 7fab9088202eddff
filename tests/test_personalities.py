"""Each personality shows exactly the deviations it is known for, and its dialect lowers them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from conformance.dialects import OVERLAYS
from conformance.findings import Verdict
from reference_server import personalities
from reference_server.cli import main
from reference_server.personalities import PERSONALITIES
from tests.fault_matrix import BROKEN, results, run

FAIL, INFO, NON_STRICT = Verdict.FAIL, Verdict.INFO, Verdict.NON_STRICT

# Name → check → its verdict with `--dialect NAME`; every other check passes or cannot tell.
SHOWN: Mapping[str, Mapping[str, Verdict]] = {
    "azure": {},
    "vllm": {"chunk.extras": INFO, "err.code-type": INFO, "usage.null-before": INFO},
    "sglang": {
        "chunk.created-changes": INFO,
        "chunk.extras": INFO,
        "chunk.id-changes": FAIL,
        "err.code-type": INFO,
    },
    "llama.cpp": {
        "chunk.extras": INFO,
        "err.code-type": INFO,
        "err.unknown-model": INFO,
        "http.keep-alive": NON_STRICT,
    },
    "tgi": {
        "chunk.created-changes": INFO,
        "err.prestream-200": FAIL,
        "fin.unknown-value": FAIL,
        "role.repeated": INFO,
        "stop.finish": FAIL,
        "tool.id-repeat": NON_STRICT,
        "usage.null-before": INFO,
    },
    "ollama": {
        "usage.conflict": NON_STRICT,
        "usage.intermediate": NON_STRICT,
        "usage.placement": INFO,
        "usage.under-count": NON_STRICT,
    },
    "litellm": {
        "tool.index-order": FAIL,
        "usage.null-before": INFO,
        "usage.placement": NON_STRICT,
    },
}
SAMPLE = ("azure", "llama.cpp")


def shown(name: str, *words: str) -> dict[str, Verdict]:
    """Every broken check of a run against that personality; one verdict over both APIs."""
    found = results(run(PERSONALITIES[name].parts(), *words))
    broken = {(each.id, each.verdict) for each in found if each.verdict in BROKEN}
    assert len(broken) == len({id for id, _ in broken})
    assert not [each.id for each in found if each.verdict is Verdict.HARNESS_ERROR]
    return dict(broken)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_shows_what_it_is_known_for_and_nothing_else(name: str) -> None:
    assert shown(name, "--dialect", name) == SHOWN[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(PERSONALITIES) - set(SAMPLE)))
def test_a_personality_shows_what_it_is_known_for_and_nothing_else(name: str) -> None:
    assert shown(name, "--dialect", name) == SHOWN[name]


def test_without_its_dialect_more_is_broken() -> None:
    words = ("--api", "chat", "--select", "chunk.*")
    assert set(shown("azure", *words)) > set(SHOWN["azure"])


def test_there_is_a_dialect_and_a_table_row_for_each_personality() -> None:
    assert set(PERSONALITIES) == set(OVERLAYS) == set(SHOWN)


@pytest.mark.parametrize(
    ("name", "said"), [("vlm", "did you mean vllm?"), ("nobody", "known are azure, vllm, ")]
)
def test_an_unknown_personality_is_one_line(
    name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeyError, match=f"no personality is called {name}"):
        personalities.find(name)
    assert main(["--personality", name]) == 2
    err = capsys.readouterr().err
    assert err.startswith("reference-server: --personality: no personality is called ")
    assert said in err
    assert err.count("\n") == 1
