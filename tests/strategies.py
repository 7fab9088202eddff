"""Hypothesis strategies for whole records: any that do not contradict themselves."""

from __future__ import annotations

from hypothesis import strategies as st

from conformance.capture import (
    LEAVES,
    Capture,
    End,
    Given,
    How,
    Json,
    Layer,
    Mask,
    Read,
    Segment,
)
from conformance.dossier import APIS, Action, Dossier, Sample

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
COUNTS = st.integers(0, 2**70)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)

# Pieces that make bytes look like the traffic they stand for, broken and cut as it comes.
_PIECES = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"\r\n",
        b'data: {"choices":[{"delta":{"content":"\xc3\xa9"}}]}\n\n',
        b"data: [DONE]\n\n",
        b"\xe2\x82\xac",
        b"\xff\x00\x1b[2J",
        b"0\r\n\r\n",
        b"",
    ]
)
DATA = st.one_of(st.binary(max_size=40), st.lists(_PIECES, max_size=6).map(b"".join))


def json_values() -> st.SearchStrategy[Json]:
    """Any JSON value, lone surrogates included, pairs of them not (JSON joins those)."""
    text = st.one_of(TEXT, st.just("\ud83d"), st.just("a\udc00b"))
    leaves = st.none() | st.booleans() | st.integers() | NUMBERS | text
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
        max_leaves=8,
    )


def json_objects() -> st.SearchStrategy[dict[str, Json]]:
    return st.dictionaries(TEXT, json_values(), max_size=3)


def ends() -> st.SearchStrategy[End]:
    return st.builds(
        End,
        st.sampled_from(How),
        st.none() | NUMBERS,
        st.none() | TEXT,
        st.none() | st.sampled_from(LEAVES),
        st.none() | COUNTS,
    )


@st.composite
def reads_of(draw: st.DrawFn, received: bytes) -> tuple[Read, ...]:
    ends_at = sorted(draw(st.lists(st.integers(0, len(received)), max_size=5)))
    return tuple(
        Read(end, draw(st.none() | NUMBERS), draw(st.none() | st.booleans())) for end in ends_at
    )


@st.composite
def captures(draw: st.DrawFn) -> Capture:
    received = draw(DATA)
    request = tuple(draw(st.lists(st.builds(Segment, DATA, st.none() | NUMBERS), max_size=3)))
    early, late, url = draw(DATA), draw(DATA), draw(st.none() | TEXT)
    sizes = {
        "request": sum(len(segment.data) for segment in request),
        "received": len(received),
        "early": len(early),
        "late": len(late),
        "url": len((url or "").encode()),
    }
    masks = []
    for where in draw(
        st.lists(st.sampled_from([w for w in sizes if sizes[w]] or [""]), max_size=3)
    ):
        if where:
            start = draw(st.integers(0, sizes[where] - 1))
            masks.append(Mask(where, start, draw(st.integers(1, sizes[where] - start)), draw(TEXT)))
    return Capture(
        received=received,
        layer=draw(st.sampled_from(Layer)),
        reads=draw(reads_of(received)),
        request=request,
        url=url,
        connection=draw(st.none() | COUNTS),
        ordinal=draw(st.none() | COUNTS),
        early=early,
        late=late,
        connected_at=draw(st.none() | NUMBERS),
        sent_at=draw(st.none() | NUMBERS),
        end=draw(ends()),
        clock=draw(st.none() | st.sampled_from(["user", "kernel", "packet"])),
        wall=draw(st.none() | NUMBERS),
        given=draw(
            st.none()
            | st.builds(
                Given,
                st.none() | COUNTS,
                st.none() | TEXT,
                st.none() | TEXT,
                st.none() | json_objects(),
            )
        ),
        masks=tuple(masks),
    )


def dossiers() -> st.SearchStrategy[Dossier]:
    metrics = st.dictionaries(TEXT, NUMBERS | st.just(float("inf")), max_size=3)
    return st.builds(
        Dossier,
        scenario=TEXT,
        roles=st.dictionaries(TEXT, st.lists(captures(), max_size=2).map(tuple), max_size=3),
        api=st.none() | st.sampled_from(APIS),
        parameters=json_objects(),
        seed=st.none() | st.integers(),
        trial=COUNTS,
        picked=json_objects(),
        samples=st.lists(st.builds(Sample, NUMBERS, metrics), max_size=2).map(tuple),
        actions=st.lists(st.builds(Action, NUMBERS, TEXT, TEXT), max_size=2).map(tuple),
        dialect=st.none() | TEXT,
        name=TEXT,
    )
