"""What the server tells about itself: /stats as JSON, /metrics as Prometheus text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reference_server.engine.interface import Gauges


@dataclass(slots=True)
class Counts:
    """Counters of the wire side; `started` in Unix seconds."""

    started: float
    connections: int = 0
    requests: int = 0
    streams: int = 0
    refused: int = 0


def stats(engine: Gauges, counts: Counts, open_connections: int, now: float) -> dict[str, Any]:
    return {
        "uptime_s": round(now - counts.started, 3),
        "engine": {
            "steps": engine.steps,
            "tokens": engine.tokens,
            "running": engine.running,
            "waiting": engine.waiting,
            "submitted": engine.submitted,
            "finished": engine.finished,
            "aborted": engine.aborted,
            **engine.extra,
        },
        "wire": {
            "connections_open": open_connections,
            "connections": counts.connections,
            "requests": counts.requests,
            "streams": counts.streams,
            "refused": counts.refused,
        },
    }


def prometheus(model: str, engine: Gauges, counts: Counts) -> str:
    """Text exposition format 0.0.4; the names follow vLLM's behind our own prefix."""
    rows = (
        ("num_requests_running", "gauge", "Requests being decoded.", engine.running),
        ("num_requests_waiting", "gauge", "Requests waiting for a seat.", engine.waiting),
        ("generation_tokens_total", "counter", "Tokens generated.", engine.tokens),
        ("engine_steps_total", "counter", "Decode steps done.", engine.steps),
        ("request_submitted_total", "counter", "Requests accepted.", engine.submitted),
        ("request_success_total", "counter", "Requests finished.", engine.finished),
        ("request_aborted_total", "counter", "Requests given up.", engine.aborted),
        ("http_requests_total", "counter", "HTTP requests read.", counts.requests),
        ("http_refused_total", "counter", "HTTP requests refused.", counts.refused),
    )
    lines: list[str] = []
    for name, kind, help_, value in rows:
        full = f"streamproof:{name}"
        lines += [f"# HELP {full} {help_}", f"# TYPE {full} {kind}"]
        lines.append(f'{full}{{model_name="{model}"}} {value}')
    return "\n".join(lines) + "\n"
