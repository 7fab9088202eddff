"""Rows without bytes: a request that started, got its first token and went on evenly."""

from __future__ import annotations

from typing import Any

from loadgen.measure import Row
from loadgen.outcome import Fate


def row(
    index: int,
    intended: float,
    ttft: float = 0.5,
    chunks: int = 5,
    gap: float = 0.1,
    late: float = 0.0,
    **members: Any,
) -> Row:
    """Sent `late` after its intended start; `ttft` counts from there."""
    sent = intended + late
    times = tuple(sent + ttft + n * gap for n in range(chunks))
    fields: dict[str, Any] = {
        "fate": Fate.COMPLETE,
        "prompt_hash": f"{index:016x}",
        "output_asked": 64,
        "started": intended,
        "sent": sent,
        "lateness": late,
        "status": 200,
        "prompt_tokens": 10,
        "completion_tokens": chunks,
        "first_byte": sent + ttft / 2,
        "first_event": sent + ttft / 2,
        "first_answer": times[0] if times else None,
        "first_choice": sent + ttft / 2,
        "last_choice": times[-1] if times else sent + ttft,
        "last_event": times[-1] if times else sent + ttft,
        "token_times": times,
        "ended": times[-1] if times else sent + ttft,
        **members,
    }
    return Row(index, intended, **fields)


def failed(index: int, intended: float, fate: Fate = Fate.REFUSED) -> Row:
    return Row(index, intended, fate, f"{index:016x}", started=intended, sent=intended)


def unsent(index: int, intended: float, fate: Fate = Fate.DROPPED) -> Row:
    return Row(index, intended, fate, f"{index:016x}")
