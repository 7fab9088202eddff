"""The batching engine keeps the engine's contract, over a model that checks its cache."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reference_server.engine.batching import BatchingEngine
from tests.reference_server import check_engine as contract
from tests.reference_server.fake_model import VOCABULARY, FakeRunner


def make(max_batch: int) -> BatchingEngine:
    return BatchingEngine(FakeRunner(), VOCABULARY, max_batch=max_batch, prefill_chunk=24, seed=1)


@pytest.mark.parametrize("clause", contract.CONTRACT, ids=lambda clause: clause.__name__)
def test_the_batching_engine_keeps_the_contract(clause: Callable[[contract.Factory], None]) -> None:
    clause(make)


@pytest.mark.parametrize("seed", range(20))
def test_any_schedule_keeps_the_books(seed: int) -> None:
    contract.any_schedule_keeps_the_books(make, seed)
