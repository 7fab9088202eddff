"""The shape of a non-streamed answer (rules J23, J15, K02)."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.checks import Findings
from conformance.checks.live import dialect_of, is_int, type_name
from conformance.checks.place import at_body
from conformance.chunks import ABSENT, Choice, member
from conformance.dialects import Dialect
from conformance.findings import Abstain, Level
from conformance.reading import Reading

_MOST = 5


def plain_shape(reading: Reading) -> Findings:
    """J23: the answer is a CreateChatCompletionResponse or CreateCompletionResponse."""
    if reading.dialect is None or reading.document is None:
        yield Abstain("not-recorded", "the API is not known")
        return
    if not reading.document.ok or not isinstance(reading.document.value, dict):
        yield Abstain("not-seen", "no JSON object")
        return
    flaws = [*_envelope(reading), *_choices(reading, dialect_of(reading))]
    for said, level in flaws[:_MOST]:
        yield at_body(reading, 0, "J23", said, level)


def plain_delta(reading: Reading) -> Findings:
    """J15: a choice of the whole answer has a `message`, never a `delta`."""
    for choice in reading.plain_choices:
        if member(choice.raw, "delta") not in (ABSENT, None):
            yield at_body(reading, 0, "J15", "a choice of a plain answer has a `delta`")
            return


def _envelope(reading: Reading) -> Iterator[tuple[str, Level | None]]:
    dialect = dialect_of(reading)
    value = reading.document.value if reading.document else None
    lacking = [key for key in dialect.required if member(value, key) is ABSENT]
    if lacking:
        yield f"the answer lacks `{'`, `'.join(lacking)}`", None
    name = member(value, "object")
    if name not in (ABSENT, dialect.plain_object):
        yield f"`object` is {name!r:.60}, not {dialect.plain_object!r}", None
    created = member(value, "created")
    if created is not ABSENT and not is_int(created):
        yield f"`created` is {type_name(created)}, not an integer", None
    found = member(value, "choices")
    if found is not ABSENT and not (isinstance(found, list) and found):
        yield f"`choices` is {'empty' if found == [] else type_name(found)}", None
    if not isinstance(member(value, "usage"), dict):
        yield f"`usage` is {type_name(member(value, 'usage'))}", Level.SHOULD


def _choices(reading: Reading, dialect: Dialect) -> Iterator[tuple[str, Level | None]]:
    for choice in reading.plain_choices:
        yield from _choice(choice, dialect)


def _choice(choice: Choice, dialect: Dialect) -> Iterator[tuple[str, Level | None]]:
    if not is_int(choice.index):
        yield f"a choice's `index` is {type_name(choice.index)}", None
    if not isinstance(choice.finish_reason, str) or not choice.finish_reason:
        empty = choice.finish_reason == ""
        yield f"`finish_reason` is {'empty' if empty else type_name(choice.finish_reason)}", None
    if not dialect.nested:
        if not isinstance(choice.content, str):
            yield f"`text` is {type_name(choice.content)}", None
    elif not isinstance(choice.delta, dict):  # here `delta` holds the message
        if member(choice.raw, "delta") in (ABSENT, None):
            yield f"`message` is {type_name(choice.delta)}, not an object", None
    elif choice.role != "assistant":
        yield f'`message.role` is {type_name(choice.role)}, not "assistant"', None
    elif not isinstance(choice.content, str | None) and choice.content is not ABSENT:
        yield f"`message.content` is {type_name(choice.content)}", None
