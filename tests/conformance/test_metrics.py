"""Metrics pages of real servers, in excerpts, and what is made of them."""

from __future__ import annotations

import math
import time

import pytest

from conformance.metrics import MAPS, ROLES, detect, map_from_names, parse, values_from
from reference_server.bridge.meter import Meter
from reference_server.bridge.queue import Books
from reference_server.engine.interface import Gauges
from reference_server.wire.gauges import Counts, Snapshot, prometheus

PAGES = {
    "vllm": """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
vllm:generation_tokens_total{engine="0",model_name="m"} 1.5e+03
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 7.0
vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"} 4.0
""",
    "sglang": """\
sglang:num_running_reqs{model_name="m"} 3.0
sglang:num_queue_reqs{model_name="m"} 0.0
sglang:generation_tokens_total{model_name="m"} 1500
sglang:num_aborted_requests_total{model_name="m"} 4
""",
    "llama.cpp": """\
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 1500
llamacpp:requests_processing 3
llamacpp:requests_deferred 0
""",
    "tgi": """\
tgi_batch_current_size 3
tgi_queue_size 0
tgi_request_generated_tokens_sum 1500
""",
}


@pytest.mark.parametrize("name", PAGES)
def test_each_servers_page_is_known_and_gives_the_same_numbers(name: str) -> None:
    rows = parse(PAGES[name])
    assert detect(rows) == name
    values = values_from(rows, MAPS[name])
    expected = {"running": 3.0, "waiting": 0.0, "generated_tokens": 1500.0, "aborted": 4.0}
    assert values == {role: expected[role] for role in values}
    assert {"running", "waiting", "generated_tokens"} <= set(values)


def snapshot(model: str, engine: Gauges) -> Snapshot:
    return Snapshot(model, engine, Counts(started=0), Books(), Meter(), 0, 0, 0, "pause")


def test_our_own_page_is_read_as_it_is_written() -> None:
    gauges = Gauges(tokens=96, running=2, waiting=1, aborted=5)
    rows = parse(prometheus(snapshot('m"\\x', gauges)))
    assert rows[0].labels == {"model_name": 'm"\\x'}
    assert detect(rows) == "streamproof"
    assert values_from(rows, MAPS["streamproof"]) == {
        "running": 2.0,
        "waiting": 1.0,
        "generated_tokens": 96.0,
        "aborted": 5.0,
    }


def test_a_page_of_somebody_else_is_not_known() -> None:
    assert detect(parse("process_cpu_seconds_total 12.5\nup 1\n")) is None


def test_a_map_of_the_users_own_names_what_it_likes() -> None:
    rows = parse("my_active 2\nmy_tokens 7 1700000000000\n")
    known = map_from_names({"running": "my_active", "generated_tokens": "my_tokens"})
    assert values_from(rows, known) == {"running": 2.0, "generated_tokens": 7.0}


def test_what_is_no_number_is_absent_and_never_zero() -> None:
    rows = parse("a NaN\nb +Inf\nc nonsense\nd\n")
    assert {row.name for row in rows} == {"a", "b"}
    assert math.isinf(rows[1].value)
    known = map_from_names({"running": "a", "waiting": "b", "aborted": "c"})
    assert values_from(rows, known) == {}


def test_every_map_speaks_of_the_roles_alone() -> None:
    assert all(set(known) <= set(ROLES) for known in MAPS.values())


@pytest.mark.parametrize(
    "page",
    [
        "a" * 3_000_000,
        'a{b="' + "\\" * 3_000_000,
        "a{" + 'b="c",' * 500_000,
        "a{b=" * 700_000,
        "a " * 1_500_000,
        "a 1\n" * 750_000,
    ],
    ids=["name", "escapes", "labels", "open", "blanks", "rows"],
)
def test_a_hostile_page_costs_no_more_than_its_length(page: str) -> None:
    start = time.process_time()
    parse(page)
    assert time.process_time() - start < 2
