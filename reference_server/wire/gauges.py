"""What the server tells about itself: /stats as JSON, /metrics as Prometheus text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from reference_server.bridge.meter import Histogram, Meter
from reference_server.bridge.queue import Books, Share
from reference_server.engine.interface import Gauges

_PREFIX = "streamproof:"


@dataclass(slots=True)
class Counts:
    """Counters of the wire side; `started` in Unix seconds."""

    started: float
    connections: int = 0
    requests: int = 0
    streams: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything there is to tell. `late_events` came for requests that had gone already."""

    model: str
    engine: Gauges
    counts: Counts
    books: Books
    meter: Meter
    late_events: int
    connections_open: int
    body_bytes: int
    slow_client: str
    shares: Sequence[Share] = ()  # what single streams hold, the largest first


def stats(shown: Snapshot, now: float) -> dict[str, Any]:
    engine, counts = shown.engine, shown.counts
    numbers = {name: getattr(engine, name) for name in engine.__slots__ if name != "extra"}
    return {
        "uptime_s": round(now - counts.started, 3),
        "model": shown.model,
        "engine": {**numbers, **engine.extra, "late_events": shown.late_events},
        "slow_clients": {
            "policy": shown.slow_client,
            **asdict(shown.books),
            "streams": [asdict(share) for share in shown.shares],
        },
        "wire": {
            "connections_open": shown.connections_open,
            "connections": counts.connections,
            "requests": counts.requests,
            "streams": counts.streams,
            "refused": counts.refused,
            "body_bytes": shown.body_bytes,
        },
        "seconds": {
            "queue": _mean(shown.meter.queue),
            "first_token": _mean(shown.meter.first),
            "between_tokens": _mean(shown.meter.between),
            "whole": _mean(shown.meter.whole),
        },
    }


def _mean(values: Histogram) -> dict[str, Any]:
    count = values.count
    return {"count": count, "mean": round(values.sum / count, 6) if count else None}


def prometheus(shown: Snapshot) -> str:
    """Text exposition format 0.0.4; the names follow vLLM's behind our own prefix."""
    lines = [*_numbers(shown), *_histograms(shown)]
    return "\n".join(lines) + "\n"


def _label(model: str) -> str:
    escaped = model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'model_name="{escaped}"'


def _numbers(shown: Snapshot) -> Iterator[str]:
    engine, counts, books = shown.engine, shown.counts, shown.books
    rows: list[tuple[str, str, str, float]] = [
        ("num_requests_running", "gauge", "Requests being decoded.", engine.running),
        ("num_requests_waiting", "gauge", "Requests waiting for a seat.", engine.waiting),
        ("num_requests_paused", "gauge", "Running, but paused for a reader.", engine.paused),
        ("tokens_owed", "gauge", "Tokens that may still be generated.", engine.owed),
        ("held_events", "gauge", "Events not written yet, all streams.", books.events),
        ("held_bytes", "gauge", "About their size in bytes.", books.bytes),
        ("prompt_tokens_total", "counter", "Prompt tokens.", engine.prompt_tokens),
        ("generation_tokens_total", "counter", "Tokens generated.", engine.tokens),
        ("engine_steps_total", "counter", "Decode steps done.", engine.steps),
        ("request_submitted_total", "counter", "Requests accepted.", engine.submitted),
        ("request_success_total", "counter", "Requests finished.", engine.finished),
        ("request_aborted_total", "counter", "Requests given up.", engine.aborted),
        ("request_failed_total", "counter", "Requests that failed.", engine.failed),
        ("slow_client_pauses_total", "counter", "Pauses for a reader.", books.pauses),
        ("slow_client_dropped_total", "counter", "Streams ended for slowness.", books.dropped),
        ("late_events_total", "counter", "Events for requests gone.", shown.late_events),
        ("http_requests_total", "counter", "HTTP requests read.", counts.requests),
        ("http_refused_total", "counter", "HTTP requests refused.", counts.refused),
    ]
    if engine.total_blocks and engine.free_blocks is not None:
        used = 1 - engine.free_blocks / engine.total_blocks
        rows.append(("kv_cache_usage_perc", "gauge", "Blocks in use; 1 is all.", round(used, 6)))
    label = _label(shown.model)
    for name, kind, help_, value in rows:
        full = f"{_PREFIX}{name}"
        yield f"# HELP {full} {help_}"
        yield f"# TYPE {full} {kind}"
        yield f"{full}{{{label}}} {value}"


def _histograms(shown: Snapshot) -> Iterator[str]:
    meter, label = shown.meter, _label(shown.model)
    for name, help_, values in (
        ("request_queue_time_seconds", "From acceptance to a seat.", meter.queue),
        ("time_to_first_token_seconds", "From acceptance to the first token.", meter.first),
        ("inter_token_latency_seconds", "Between two texts of a choice.", meter.between),
        ("request_time_per_output_token_seconds", "Its mean over a request.", meter.per_token),
        ("e2e_request_latency_seconds", "From acceptance to the end.", meter.whole),
    ):
        full = f"{_PREFIX}{name}"
        yield f"# HELP {full} {help_}"
        yield f"# TYPE {full} histogram"
        for bound, count in values.rows():
            yield f'{full}_bucket{{{label},le="{bound}"}} {count}'
        yield f"{full}_sum{{{label}}} {values.sum}"
        yield f"{full}_count{{{label}}} {values.count}"
