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
        said = f"{len(hole)} characters are missing from its text: {hole!r:.60}"
        yield Finding(rule, said, role=role, take=take)
    else:
        yield Abstain("det", "its text is not the control's, and lacks no piece of it")


def missing(whole: str, text: str) -> str | None:
    """The one piece of `whole` that `text` lacks; None if more is different, or if it may repeat.

    In a text that repeats itself a shorter run looks like a hole.
    """
    size = len(whole) - len(text)
    if size <= 0 or not text:
        return None
    start = next(
        (i for i, (a, b) in enumerate(zip(whole, text, strict=False)) if a != b), len(text)
    )
    if start == len(text) or whole[start + size :] != text[start:]:
        return None  # where only the end is missing, the model may have come to one
    around = whole[max(0, start - AROUND) : start + size + AROUND]
    return whole[start : start + size] if whole.count(around) == 1 else None
