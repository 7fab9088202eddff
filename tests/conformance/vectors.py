"""The vectors of specs/sse as records."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from conformance import sse

FOLDER = Path(__file__).resolve().parents[2] / "specs" / "sse"


@dataclass(frozen=True, slots=True)
class Told:
    """What a vector tells of one event. `retry` None: the block set no valid one."""

    data: str
    type: str
    last_id: str
    retry: int | None = None


@dataclass(frozen=True, slots=True)
class Vector:
    """See specs/sse/README.md. `anomalies` are kinds and offsets."""

    id: str
    rules: tuple[str, ...]
    stream: bytes
    events: tuple[Told, ...]
    anomalies: tuple[tuple[str, int], ...]
    pending: str | None


def told(event: sse.Event) -> Told:
    return Told(event.data, event.type, event.last_id, event.retry)


def load() -> list[Vector]:
    return [
        Vector(
            id=raw["id"],
            rules=tuple(raw["rules"]),
            stream=raw["bytes"].encode("latin-1"),
            events=tuple(Told(**event) for event in raw["events"]),
            anomalies=tuple((a["kind"], a["offset"]) for a in raw["anomalies"]),
            pending=raw.get("pending"),
        )
        for file in sorted(FOLDER.glob("*.json"))
        for raw in json.loads(file.read_text(encoding="utf-8"))
    ]


VECTORS = load()
