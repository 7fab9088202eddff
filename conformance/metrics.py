"""A server's own metrics: Prometheus text → the few numbers that tell whether it works. Pure.

    values = values_from(parse(text), MAPS["vllm"])     # {"running": 1.0, "generated_tokens": 96.0}

What each server calls them is data; a target file can bring a map of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

# Requests being worked on and waiting to be, the share of the cache in use (gauges); tokens
# generated and requests given up (counters).
ROLES = ("running", "waiting", "blocks", "generated_tokens", "aborted")
TEXT_AT_MOST = 8 * 1024 * 1024  # characters
LINES_AT_MOST = 100_000
LINE_AT_MOST = 16_384  # longer lines are none of ours


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the exposition format: a metric's value with its labels."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Source:
    """Where a number comes from: the sum of a metric's rows that have these labels."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


Map = Mapping[str, Source]  # a member of ROLES → its source

MAPS: Mapping[str, Map] = {
    "streamproof": {
        "running": Source("streamproof:num_requests_running"),
        "waiting": Source("streamproof:num_requests_waiting"),
        "blocks": Source("streamproof:kv_cache_usage_perc"),
        "generated_tokens": Source("streamproof:generation_tokens_total"),
        "aborted": Source("streamproof:request_aborted_total"),
    },
    "vllm": {
        "running": Source("vllm:num_requests_running"),
        "waiting": Source("vllm:num_requests_waiting"),
        "blocks": Source("vllm:kv_cache_usage_perc"),
        "generated_tokens": Source("vllm:generation_tokens_total"),
        "aborted": Source("vllm:request_success_total", {"finished_reason": "abort"}),
    },
    "sglang": {
        "running": Source("sglang:num_running_reqs"),
        "waiting": Source("sglang:num_queue_reqs"),
        "blocks": Source("sglang:token_usage"),
        "generated_tokens": Source("sglang:generation_tokens_total"),
        "aborted": Source("sglang:num_aborted_requests_total"),
    },
    "llama.cpp": {
        "running": Source("llamacpp:requests_processing"),
        "waiting": Source("llamacpp:requests_deferred"),
        "generated_tokens": Source("llamacpp:tokens_predicted_total"),
    },
    "tgi": {
        "running": Source("tgi_batch_current_size"),
        "waiting": Source("tgi_queue_size"),
        "generated_tokens": Source("tgi_request_generated_tokens_sum"),
    },
}

# Text exposition format 0.0.4: `metric_name [ "{" labels "}" ] value [ timestamp ]`.
_ROW = re.compile(
    r"[ \t]*(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)[ \t]*(?:\{(?P<labels>[^\n]*)\})?"
    r"[ \t]+(?P<value>[^ \t]+)(?:[ \t]+-?\d+)?[ \t]*"
)
_LABEL = re.compile(
    r'[ \t]*(?P<name>[A-Za-z_]\w*)[ \t]*=[ \t]*"(?P<value>(?:[^"\\]|\\.)*)"[ \t]*,?'
)
_ESCAPES = {"n": "\n", '"': '"', "\\": "\\"}


def parse(text: str) -> tuple[Row, ...]:
    """The rows that can be read; comments, and lines that are none, are passed over."""
    return tuple(_rows(text[:TEXT_AT_MOST].split("\n")[:LINES_AT_MOST]))


def _rows(lines: Iterable[str]) -> Iterator[Row]:
    for line in lines:
        if line.startswith("#") or len(line) > LINE_AT_MOST:
            continue
        found = _ROW.fullmatch(line.rstrip("\r"))
        if found is None:
            continue
        try:
            value = float(found["value"])
        except ValueError:
            continue
        yield Row(found["name"], _labels(found["labels"] or ""), value)


def _labels(text: str) -> dict[str, str]:
    """Escapes undone: `\\\\`, `\\"` and `\\n`."""
    return {
        found["name"]: re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[0]), found["value"])
        for found in _LABEL.finditer(text)
    }


def detect(rows: Iterable[Row]) -> str | None:
    """The name of the first map whose gauge or counter is among the rows."""
    names = {row.name for row in rows}
    for name, known in MAPS.items():
        if known["running"].name in names or known["generated_tokens"].name in names:
            return name
    return None


def values_from(rows: Iterable[Row], known: Map) -> dict[str, float]:
    """Role → value; a role is absent where the server shows no finite number for it."""
    out: dict[str, float] = {}
    rows = tuple(rows)
    for role, source in known.items():
        values = [row.value for row in rows if _is_from(row, source)]
        if values and all(map(math.isfinite, values)):
            out[role] = sum(values)
    return out


def _is_from(row: Row, source: Source) -> bool:
    wanted = source.labels.items()
    return row.name == source.name and all(row.labels.get(key) == value for key, value in wanted)


def map_from_names(names: Mapping[str, str]) -> Map:
    """A user's map: role → a metric's name."""
    return {role: Source(name) for role, name in names.items()}
