"""Did an answer get through whatever went on beside it? Compared with a control of its own kind."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.checks.live import ENDED
from conformance.findings import Abstain, Finding
from conformance.reading import Reading

AROUND = 8  # characters on each side of a hole that have to be there once, and once only


def unharmed(
    control: Reading, answer: Reading, rule: str, role: str, take: int = 0
) -> Iterator[Finding | Abstain]:
    """Whole, and the control's text. A text that merely differs accuses nobody."""
    if control.outcome not in ENDED:
        yield Abstain("net", "the control did not end well either")
    elif answer.status is not None and answer.status >= 400:
        yield Finding(rule, f"it was refused with {answer.status}", role=role, take=take)
    elif answer.outcome not in ENDED:
        outcome = answer.outcome.value if answer.outcome else "no stream"
        yield Finding(rule, f"it did not end well: {outcome}", role=role, take=take)
    elif answer.text == control.text:
        return
    elif (hole := missing(control.text, answer.text)) is not None:
        said = f"{len(control.text) - len(answer.text)} characters are missing in {hole!r:.60}"
        yield Finding(rule, said, role=role, take=take)
    else:
        yield Abstain("det", "its text is not the control's, and lacks no piece of it")


def missing(whole: str, text: str) -> str | None:
    """The stretch of `whole` from which `text` lacks pieces; None if it differs in another way.

    Beginning and end have to be the same, or the model itself may have come to an end, or have
    gone another way. In a text that repeats itself a shorter run looks like a hole.
    """
    if not text or len(text) >= len(whole):
        return None
    start = _shared(whole, text)
    end = _shared(whole[::-1], text[::-1])
    slides = start + end - len(text)  # how far the hole could be moved
    end = min(end, len(text) - start)
    if (
        end == 0
        or slides > AROUND
        or not _is_thinned(text[start : len(text) - end], whole[start : len(whole) - end])
    ):
        return None
    around = whole[max(0, start - AROUND) : len(whole) - end + AROUND]
    tail = whole[-min(end, 2 * AROUND) :]
    once = whole.count(around) == whole.count(tail) == 1
    return whole[start : len(whole) - end] if once else None


def _shared(one: str, other: str) -> int:
    """Length of the common beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _is_thinned(part: str, whole: str) -> bool:
    """Is `part` what is left of `whole` when characters are taken out?"""
    rest = iter(whole)
    return all(character in rest for character in part)
