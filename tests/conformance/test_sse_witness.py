"""Readers that share nothing with ours read the same vectors: Chromium's EventSource, and npm's
eventsource-parser. Where one differs, specs/sse/witnesses says so and which sentence decides."""

from __future__ import annotations

import base64
import json
import random
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import feeds
from tests.conformance import browser
from tests.conformance.browser import Seen
from tests.conformance.vectors import FOLDER, VECTORS, Told, Vector

ROOT = Path(__file__).resolve().parents[2]
SEED = 20260401
SPLITS = 3  # of each vector, besides the whole


@dataclass(frozen=True, slots=True)
class Reading:
    """One vector in certain pieces."""

    vector: Vector
    pieces: tuple[bytes, ...]


def readings(seed: int = SEED) -> list[Reading]:
    chance = random.Random(seed)
    found = []
    for vector in VECTORS:
        size = len(vector.stream)
        cuts = [
            [chance.randint(0, size) for _ in range(chance.randint(1, 4))] for _ in range(SPLITS)
        ]
        found += [Reading(vector, tuple(feeds.cut_at(vector.stream, places))) for places in cuts]
        found.append(Reading(vector, (vector.stream,)))
    return found


def ours(events: Sequence[Told]) -> list[Seen]:
    return [(event.data, event.type, event.last_id) for event in events]


def allowed(witness: str) -> dict[str, list[Seen]]:
    """What a witness may give instead, by vector; each with the sentence that decides."""
    rows = json.loads((FOLDER / "witnesses" / f"{witness}.json").read_text(encoding="utf-8"))
    assert all(row["section"] and row["standard"] and row["why"] for row in rows)
    return {row["id"]: ours([Told(**event) for event in row["events"]]) for row in rows}


def judge(
    read: Sequence[Reading], seen: Sequence[list[Seen]], excused: dict[str, list[Seen]]
) -> list[str]:
    """Each reading that differs and may not, and each excuse that no reading needed."""
    wrong, needed = [], set()
    for reading, events in zip(read, seen, strict=True):
        name, expected = reading.vector.id, ours(reading.vector.events)
        if events != expected and events == excused.get(name):
            needed.add(name)
        elif events != expected:
            wrong.append(f"{name} as {reading.pieces}: {events} instead of {expected}")
    return wrong + [
        f"{name}: a difference is listed that is none" for name in excused.keys() - needed
    ]


@pytest.mark.slow
@pytest.mark.chromium
def test_chromiums_own_eventsource_reads_every_vector_as_told(tmp_path: Path) -> None:
    read = readings()
    types = sorted({event.type for vector in VECTORS for event in vector.events} | {"message"})
    seen = browser.read([reading.pieces for reading in read], types, tmp_path)
    assert judge(read, seen, allowed("chromium")) == [], f"seed {SEED}"


@pytest.mark.slow
@pytest.mark.node
def test_eventsource_parser_reads_every_vector_as_told_but_for_what_is_listed() -> None:
    if not (ROOT / "node_modules" / "eventsource-parser").is_dir():
        pytest.skip("npm's eventsource-parser is not installed: npm install --no-save it")
    read = readings()
    streams = [[base64.b64encode(p).decode() for p in reading.pieces] for reading in read]
    done = subprocess.run(
        ["node", str(Path(__file__).parent / "witness.mjs")],
        input=json.dumps(streams).encode(),
        capture_output=True,
        check=True,
        timeout=60,
    )
    seen = [[(d, t, i) for d, t, i in events] for events in json.loads(done.stdout)]
    assert judge(read, seen, allowed("eventsource-parser")) == [], f"seed {SEED}"


def test_a_difference_that_is_not_listed_and_a_listed_one_that_is_none_are_both_told() -> None:
    vector = next(v for v in VECTORS if v.id == "id-only")
    read, right = [Reading(vector, (vector.stream,))], [("a", "message", "7")]
    assert judge(read, [right], {}) == []
    assert len(judge(read, [[("a", "message", "")]], {})) == 1
    assert judge(read, [[("a", "message", "")]], {"id-only": [("a", "message", "")]}) == []
    assert len(judge(read, [right], {"id-only": [("a", "message", "")]})) == 1
