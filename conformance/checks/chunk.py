"""The envelope of a streamed chunk and the choices in it (rules J01 to J07, J15 to J18, K, N)."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.capture import Json
from conformance.checks import Findings
from conformance.checks.live import choices as lives
from conformance.checks.live import (
    chunks,
    dialect_of,
    events,
    grouped,
    is_int,
    type_name,
    undelivered,
)
from conformance.checks.place import at_body, at_chunk
from conformance.chunks import ABSENT, Choice, Chunk, Kind, Maybe, member
from conformance.dialects import Dialect
from conformance.findings import Abstain, Finding, Level
from conformance.lifecycle import Outcome
from conformance.outline import outlined
from conformance.reading import Form, Reading

# Seconds reach this value in the year 5138; milliseconds passed it in 1973.
_MOST_SECONDS = 10**11

# Members that have a check of their own, or a documented type that varies (vLLM's stop_reason and
# SGLang's matched_stop are a string or a token number).
_TOP = ("id", "object", "created", "model", "choices", "usage")
_MARKS = ("system_fingerprint", "service_tier")
_PARTS = ("index", "delta", "text", "finish_reason", "message", "content", "role", "refusal")
_VARYING = ("tool_calls", "stop_reason", "matched_stop")
_JUDGED_ELSEWHERE = frozenset((*_TOP, *_MARKS, *_PARTS, *_VARYING))
_KNOWN_TOP = frozenset((*_TOP, *_MARKS, "obfuscation"))
_KNOWN_CHOICE = frozenset(("index", "delta", "text", "finish_reason", "logprobs", "message"))
_KNOWN_DELTA = frozenset(("role", "content", "refusal", "tool_calls", "function_call"))


@outlined
def chunk_missing_key(reading: Reading) -> Findings:
    """J01, K01: every chunk has the schema's required members."""
    required = [key for key in dialect_of(reading).required if key != "choices"]
    for chunk in chunks(reading):
        lacking = [key for key in required if chunk.get(key) is ABSENT]
        if lacking:
            yield from _all_lacking(reading, required)
            return
        if not isinstance(chunk.get("id"), str):
            said = f"`id` is {type_name(chunk.get('id'))}, not a string"
            yield at_chunk(reading, chunk, "J01", said)
            return


def _all_lacking(reading: Reading, required: list[str]) -> Iterator[Finding]:
    hits = (
        (chunk, f"the chunk lacks `{key}`")
        for chunk in chunks(reading)
        for key in required
        if chunk.get(key) is ABSENT
    )
    yield from grouped(reading, "J01", hits)


@outlined
def chunk_no_choices(reading: Reading) -> Findings:
    """J06: `choices` is an array in everything that is no error."""
    yield from grouped(reading, "J06", _without_choices(reading))


def _without_choices(reading: Reading) -> Iterator[tuple[Chunk, str]]:
    for chunk in events(reading):
        if chunk.kind is Kind.FOREIGN:
            yield chunk, "the record is neither a chunk nor an error: it has no `choices`"
        elif chunk.kind is Kind.CHUNK and not isinstance(chunk.get("choices"), list):
            yield chunk, f"`choices` is {type_name(chunk.get('choices'))}, not an array"


@outlined
def chunk_empty_choices(reading: Reading) -> Findings:
    """J06, Z13: `choices` is empty only in the usage chunk, and that only if it was asked for."""
    hits = []
    for chunk in chunks(reading):
        if chunk.get("choices") != []:
            continue
        usage = isinstance(chunk.usage, dict)
        if not usage:
            hits.append((chunk, "`choices` is empty in a chunk that is no usage chunk"))
        elif reading.request is not None and not reading.wants_usage:
            hits.append((chunk, "`choices` is empty: a usage chunk that nobody asked for"))
    yield from grouped(reading, "J06", hits)


@outlined
def chunk_object(reading: Reading) -> Findings:
    """J02, K01: `object` names the streamed form."""
    wanted = dialect_of(reading).object
    hits = (
        (chunk, f"`object` is {_shown(chunk.get('object'))}, not {wanted!r}")
        for chunk in chunks(reading)
        if chunk.get("object") not in (wanted, ABSENT)
    )
    yield from grouped(reading, "J02", hits)


@outlined
def chunk_id_changes(reading: Reading) -> Findings:
    """J03: "Each chunk has the same ID." (OpenAI, CreateChatCompletionStreamResponse)"""
    yield from _changes(reading, "id", "J03")


@outlined
def chunk_id_empty(reading: Reading) -> Findings:
    """J03: the id identifies something."""
    hits = ((c, "`id` is empty") for c in chunks(reading) if c.get("id") == "")
    yield from grouped(reading, "J03", hits)


@outlined
def chunk_created(reading: Reading) -> Findings:
    """J04: `created` is an integer."""
    hits = (
        (chunk, f"`created` is {type_name(chunk.get('created'))} ({_shown(chunk.get('created'))})")
        for chunk in chunks(reading)
        if chunk.get("created") is not ABSENT and not is_int(chunk.get("created"))
    )
    yield from grouped(reading, "J04", hits)


@outlined
def chunk_created_unit(reading: Reading) -> Findings:
    """J04: "The Unix timestamp (in seconds)"."""
    for chunk in chunks(reading):
        created = chunk.get("created")
        if type(created) is int and abs(created) >= _MOST_SECONDS:
            said = f"`created` is {created}: not seconds, probably milliseconds"
            yield at_chunk(reading, chunk, "J04", said)
            return


@outlined
def chunk_created_changes(reading: Reading) -> Findings:
    """J04: "Each chunk has the same timestamp."."""
    yield from _changes(reading, "created", "J04")


@outlined
def chunk_model(reading: Reading) -> Findings:
    """J05: `model` names the model, the same in all chunks."""
    for chunk in chunks(reading):
        model = chunk.get("model")
        if model is not ABSENT and (not isinstance(model, str) or not model):
            yield at_chunk(reading, chunk, "J05", f"`model` is {_shown(model)}")
            return
    yield from _changes(reading, "model", "J05")


def _changes(reading: Reading, key: str, rule: str) -> Iterator[Finding]:
    have = [c for c in chunks(reading) if isinstance(c.get(key), str | int)]
    other = [c for c in have if c.get(key) != have[0].get(key)]
    if other:
        first, second = have[0].get(key), other[0].get(key)
        said = f"`{key}` was {_shown(first)} and is {_shown(second)}"
        more = len({_shown(c.get(key)) for c in other}) - 1
        yield at_chunk(reading, other[0], rule, said + (f" ({more} more values)" if more else ""))


@outlined
def chunk_choice_shape(reading: Reading) -> Findings:
    """J07, K02: a choice has an integer index and a delta object, or in completions a text."""
    dialect = dialect_of(reading)
    for level in (None, Level.SHOULD):
        hits = (
            (chunk, said)
            for chunk in chunks(reading)
            for choice in chunk.choices
            for said, found in _misshapen(reading, dialect, choice)
            if found is level
        )
        yield from grouped(reading, "J07", hits, level)


def _misshapen(
    reading: Reading, dialect: Dialect, choice: Choice
) -> Iterator[tuple[str, Level | None]]:
    if not isinstance(choice.raw, dict):
        yield f"a choice is {type_name(choice.raw)}, not an object", None
        return
    if not is_int(choice.index):
        yield f"`index` is {type_name(choice.index)}, not an integer", None
    if dialect.nested:
        if not isinstance(choice.delta, dict) and not _accounted(reading, choice):
            yield f"`delta` is {type_name(choice.delta)}, not an object", None
        return
    if choice.content is ABSENT:
        yield "the choice has no `text`", None
    if choice.logprobs is ABSENT:
        yield "the choice has no `logprobs`", Level.SHOULD


def _accounted(reading: Reading, choice: Choice) -> bool:
    """Is the missing delta told of elsewhere, or documented by the vendor?"""
    if isinstance(member(choice.raw, "message"), dict):
        return True
    vendor = reading.overlay.vendor_keys if reading.overlay else ()
    return choice.delta is ABSENT and any(member(choice.raw, k) is not ABSENT for k in vendor)


@outlined
def chunk_message_in_stream(reading: Reading) -> Findings:
    """J15: a streamed choice has a delta; `message` belongs to the whole answer."""
    hits = (
        (chunk, "a streamed choice has a `message`")
        for chunk in chunks(reading)
        for choice in chunk.choices
        if member(choice.raw, "message") not in (ABSENT, None)
    )
    yield from grouped(reading, "J15", hits)


@outlined
def chunk_key_type(reading: Reading) -> Findings:
    """J17: a member keeps its JSON type through the stream, null aside."""
    first: dict[str, str] = {}
    hits: list[tuple[Chunk, str]] = []
    for chunk in chunks(reading):
        for path, value in _members(chunk):
            kind = type_name(value)
            before = first.setdefault(path, kind)
            if before != kind:
                hits.append((chunk, f"`{path}` was {before} and is {kind}"))
    yield from grouped(reading, "J17", hits)


def _members(chunk: Chunk) -> Iterator[tuple[str, Json]]:
    """The extra members of the chunk, its choices and deltas: path and value, null left out."""
    for path, level in _levels(chunk):
        for key, value in level.items() if isinstance(level, dict) else ():
            if key not in _JUDGED_ELSEWHERE and value is not None:
                yield path + key, value


def _levels(chunk: Chunk) -> Iterator[tuple[str, Maybe]]:
    yield "", chunk.value
    for choice in chunk.choices:
        yield "choices[].", choice.raw
        yield "choices[].delta.", choice.delta


@outlined
def chunk_extras(reading: Reading) -> Findings:
    """J16: what a server adds to the schema, by name and type."""
    known = {"": _KNOWN_TOP, "choices[].": _KNOWN_CHOICE, "choices[].delta.": _KNOWN_DELTA}
    found: dict[str, str] = {}
    place: Chunk | None = None
    for chunk in chunks(reading):
        for path, level in _levels(chunk):
            for key, value in level.items() if isinstance(level, dict) else ():
                if key not in known[path] and path + key not in found:
                    found[path + key] = type_name(value).removeprefix("a ").removeprefix("an ")
                    place = place or chunk
    if place is not None:
        names = [f"{name} ({kind})" for name, kind in sorted(found.items())]
        more = f" and {len(names) - 12} more" if len(names) > 12 else ""
        yield at_chunk(reading, place, "J16", "extras: " + ", ".join(names[:12]) + more)


@outlined
def chunk_fingerprint(reading: Reading) -> Findings:
    """J18: `system_fingerprint` and `service_tier` are a string or null."""
    hits = (
        (chunk, f"`{key}` is {type_name(chunk.get(key))}, not a string or null")
        for chunk in chunks(reading)
        for key in ("system_fingerprint", "service_tier")
        if not isinstance(chunk.get(key), str) and chunk.get(key) not in (ABSENT, None)
    )
    yield from grouped(reading, "J18", hits)


@outlined
def choice_index_range(reading: Reading) -> Findings:
    """N01: indices are 0 to n - 1, and count choices, not tokens."""
    n = reading.n
    hits = (
        (chunk, "an index below 0" if choice.index < 0 else f"an index beyond n = {n}")
        for chunk in chunks(reading)
        for choice in chunk.choices
        if type(choice.index) is int and not 0 <= choice.index < (n or choice.index + 1)
    )
    yield from grouped(reading, "N01", hits)


@outlined
def choice_missing(reading: Reading) -> Findings:
    """N07: an accepted n is delivered."""
    n = reading.n
    if n is None:
        yield Abstain("not-recorded", "the request is not known")
    elif reading.form is Form.PLAIN:
        yield from _plain_missing(reading, n)
    elif reading.outcome is not Outcome.COMPLETE and not undelivered(reading):
        yield Abstain("not-seen", "the stream is not complete")
    else:
        have = {life.index for life in lives(reading)}
        lacking = [i for i in range(min(n, 1024)) if i not in have]
        if lacking:
            said = f"{n} choices were asked for, {n - len(lacking)} came: {lacking[0]} is missing"
            yield Finding("N07", said, reading.place(len(reading.body)) if reading.body else None)


def _plain_missing(reading: Reading, n: int) -> Findings:
    found = member(reading.document.value, "choices") if reading.document else ABSENT
    if not isinstance(found, list):
        yield Abstain("not-seen", "no array of choices")
    elif len(found) < n:
        yield at_body(reading, 0, "N07", f"{n} choices were asked for, {len(found)} came")


@outlined
def choice_order(reading: Reading) -> Findings:
    """N03: the choices appear first in the order of their indices."""
    n = reading.n
    order = [life for life in lives(reading) if n is None or 0 <= life.index < n]
    if len(order) < 2:
        yield Abstain("not-seen", "one choice")
    for position, life in enumerate(order):
        if life.index != position:
            chunk = reading.chunks[life.pieces[0][0]]
            said = f"choice {life.index} appears before choice {position}"
            yield at_chunk(reading, chunk, "N03", said)
            return


def _shown(value: Maybe) -> str:
    text = repr(value) if value is not ABSENT else "missing"
    return text if len(text) <= 60 else text[:59] + "…"
