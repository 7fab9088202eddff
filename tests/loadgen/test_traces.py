"""A trace says when and how much, in our form and in the two that others publish."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.errors import SpecError, StreamproofError, UsageError
from loadgen.traces import Arrival, load, parse

OURS = ['{"at": 2.5, "output_tokens": 7}\n', "\n", '{"at": 0.5, "input_tokens": 10}\n']
MOONCAKE = [
    '{"timestamp": 27482, "input_length": 955, "output_length": 52, "hash_ids": [46, 47]}\n',
    '{"timestamp": 30535, "input_length": 472, "output_length": 26, "hash_ids": [46]}\n',
]
AZURE = [
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n",
    "2023-11-16 18:17:03.9799600,4808,10\r\n",
    "2023-11-16 18:17:04.0319600,110,27\r\n",
]
AZURE_ZONED = [
    "TIMESTAMP,ContextTokens,GeneratedTokens\n",
    "2024-05-10 23:59:59.500000+00:00,1,2\n",
    "2024-05-11 00:00:01+00:00,3,4\n",
]


def test_our_own_form_counts_from_the_start_and_is_put_in_order() -> None:
    assert parse(OURS, "t") == (Arrival(0.5, 10, None), Arrival(2.5, None, 7))


def test_mooncake_counts_milliseconds_from_its_first_request() -> None:
    first, second = parse(MOONCAKE, "t")
    assert first == Arrival(0.0, 955, 52, (46, 47))
    assert (second.input_tokens, second.output_tokens) == (472, 26)
    assert second.at == pytest.approx(3.053)


def test_azure_keeps_its_seventh_decimal() -> None:
    first, second = parse(AZURE, "t")
    assert (first, second.output_tokens) == (Arrival(0.0, 4808, 10), 27)
    assert second.at == pytest.approx(0.052, abs=1e-6)


def test_azure_with_time_zones_goes_over_midnight() -> None:
    assert parse(AZURE_ZONED, "t") == (Arrival(0.0, 1, 2), Arrival(1.5, 3, 4))


@pytest.mark.parametrize(
    ("lines", "place", "field"),
    [
        (['{"at": 1}', '{"at": -1}'], 2, "at"),
        (['{"at": true}'], 1, "at"),
        (['{"at": 1e999}'], 1, "at"),
        (['{"at": 1, "output_tokens": 1.5}'], 1, "output_tokens"),
        (['{"at": 1, "input_tokens": 0}'], 1, "input_tokens"),
        (['{"when": 1}'], 1, "at"),
        (['{"at": 1}', "[1]"], 2, "line"),
        (['{"at": 1}', "{" * 100_000], 2, "line"),
        (["time,in,out", "1,2,3"], 1, "header"),
        ([AZURE[0], "yesterday,1,2"], 2, "TIMESTAMP"),
        ([AZURE[0], "2023-11-16 18:17:03,many,2"], 2, "ContextTokens"),
        ([AZURE[0], "2023-11-16 18:17:03,1"], 2, "GeneratedTokens"),
    ],
)
def test_a_wrong_line_is_named_with_its_field(lines: list[str], place: int, field: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(lines, "trace")
    assert str(caught.value).startswith(f"trace:{place}: {field}: ")


@pytest.mark.parametrize("lines", [[], ["\n", " \n"], [AZURE[0]]])
def test_an_empty_trace_is_an_error(lines: list[str]) -> None:
    with pytest.raises(UsageError, match="empty"):
        parse(lines, "trace")


def test_any_bytes_end_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "trace"
    file.write_bytes(b"\xff\x00{,\r\r\n\x1b" * 50)
    with pytest.raises(StreamproofError):
        load(file)
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path / "none")
