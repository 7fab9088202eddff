"""A sample of the exchanges of a load, as dossiers that `conformance judge` reads. Bounded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from conformance import storage
from conformance.capture import Capture
from conformance.dossier import Dossier
from conformance.errors import UsageError
from loadgen.measure import Row
from loadgen.played import Played

LOST, FINE = 50, 20  # at most, of those that failed or broke a MUST, and of the others
BYTES = 64 << 20  # of answers in all


def folder(name: str) -> Path:
    """Made before anything is sent. Raises UsageError."""
    path = Path(name)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--captures {name}: cannot be made: {error.strerror}") from None
    return path


def chosen(rows: Sequence[Row], broken: Iterable[int], workers: int = 1) -> list[int]:
    """Indices: the lost ones first, each kind spread over the load.

    `workers`: who choose alike; together they keep no more than one would.
    """
    marked = set(broken)
    lost = [r.index for r in rows if r.was_sent and (not r.success or r.index in marked)]
    fine = [r.index for r in rows if r.success and r.index not in marked]
    return [*_spread(lost, max(1, LOST // workers)), *_spread(fine, max(1, FINE // workers))]


def _spread(indices: Sequence[int], most: int) -> Sequence[int]:
    return indices[:: max(1, -(-len(indices) // most))]


def keep(
    path: Path, api: str, played: Iterable[Played], wanted: Sequence[int], workers: int = 1
) -> int:
    """Writes those that are wanted, in their order, within BYTES; returns how many."""
    captures = {each.index: each.capture for each in played}
    written, left = 0, BYTES // workers
    for index in wanted:
        capture = captures.get(index)
        if capture is None or len(capture.received) > left:
            continue
        left -= len(capture.received)
        _write(path / f"request-{index:06d}.jsonl", api, capture)
        written += 1
    return written


def _write(file: Path, api: str, capture: Capture) -> None:
    dossier = Dossier("load", {"stream": (capture,)}, api=api)
    try:
        file.write_bytes(storage.write(dossier))
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror}") from None
