"""From a recorded dossier to what is sent again. Pure: bytes, order and connections as recorded.

Secrets that were masked are put back from the environment; a request may be sent elsewhere than it
was recorded, which changes its Host field and, where the new URL has a path, the request-target.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from conformance import http1
from conformance.capture import Capture, End, How, Mask, Segment
from conformance.dossier import PATHS, Dossier
from conformance.errors import RecordError, UsageError
from conformance.masking import Secret, reference_parts, unmask
from conformance.reading import Reading, read
from conformance.scenarios.driver import BOUNDS, LINGER
from conformance.scenarios.slow_read import BUFFER, EVENTS
from conformance.script import Clocks, Exchange, Leave, Slow
from conformance.target import Url

_HOST = re.compile(rb"(?im)^(host[ \t]*:[ \t]*)[^\r\n]*")
_LINE = re.compile(rb"\A([^ \r\n]+ )([^ \r\n]+)( HTTP/)")
MOST_PAUSE = 30.0  # seconds between what was played and what comes next
# Where a server's answer to other requests can follow, bytes after the end are waited for.
LINGERS = ("discovery", "stream", "keep-alive", "tap", "file")


@dataclass(frozen=True, slots=True)
class Turn:
    """One exchange to send, and the place of its capture in the dossier."""

    role: str
    take: int
    script: Exchange


@dataclass(frozen=True, slots=True)
class Line:
    """One connection: its exchanges in order, begun `after` seconds after the group before."""

    after: float
    turns: tuple[Turn, ...]


# Connections that overlapped are one group; groups follow each other.
Key = tuple[int | None, str, int]  # the connection; where that is not known, role and take
Groups = tuple[tuple[Line, ...], ...]


def groups(dossier: Dossier, clocks: Clocks, url: Url | None, secrets: Sequence[Secret]) -> Groups:
    """What to send. Raises RecordError for a record that cannot be sent again."""
    by_connection: dict[Key, list[tuple[str, int, Capture]]] = {}
    for role, takes in dossier.roles.items():
        for take, capture in enumerate(takes):
            alone = capture.connection is None
            key = (capture.connection, role if alone else "", take if alone else 0)
            by_connection.setdefault(key, []).append((role, take, capture))
    if dossier.scenario == "discovery" and dossier.picked.get("reused") is False:
        _rejoin(by_connection)
    lines = []
    for taken in by_connection.values():
        taken.sort(key=lambda each: each[2].ordinal or 0)
        turns = tuple(
            Turn(role, take, _script(dossier, role, capture, clocks, url, secrets))
            for role, take, capture in taken
        )
        if is_cut_short(dossier):
            turns += (replace(turns[-1], take=turns[-1].take + 1),)
        lines.append((_began(taken[0][2]), _ended(taken[-1][2]), turns))
    return tuple(_overlapping(lines, dossier.samples[0].at if dossier.samples else None))


def _rejoin(by_connection: dict[Key, list[tuple[str, int, Capture]]]) -> None:
    """The control would have come on the connection of the answer before it, had that stayed."""
    places = {
        (role, take): number for number, taken in by_connection.items() for role, take, _ in taken
    }
    before, own = places.get(("stream", 0)), places.get(("control", 0))
    if before is not None and own is not None and before != own:
        by_connection[before] += by_connection.pop(own)


def rest(dossier: Dossier) -> float:
    """Seconds for which the server's metrics were watched after the last exchange."""
    ends = (capture.end.at for takes in dossier.roles.values() for capture in takes)
    last = max((at for at in ends if at is not None), default=None)
    if not dossier.samples or last is None:
        return 0.0
    return min(max(0.0, dossier.samples[-1].at - last), MOST_PAUSE)


def is_cut_short(dossier: Dossier) -> bool:
    """Was there no second request, as the connection was gone? Then the first is sent once more."""
    exchanges = sum(len(takes) for takes in dossier.roles.values())
    cut = dossier.picked.get("reused") is False
    return cut and dossier.scenario == "keep-alive" and exchanges == 1


def _began(capture: Capture) -> float | None:
    times = [capture.connected_at, *(each.at for each in capture.request), capture.end.at]
    return min((at for at in times if at is not None), default=None)


def _ended(capture: Capture) -> float | None:
    return capture.end.at


def _overlapping(
    lines: list[tuple[float | None, float | None, tuple[Turn, ...]]], watched: float | None
) -> Iterator[tuple[Line, ...]]:
    """Connections without times come one by one, as they stand in the dossier.

    Where metrics were `watched`, from that time on, silences are part of what was seen and come
    again.
    """
    timed = sorted((each for each in lines if each[0] is not None), key=lambda each: each[0] or 0.0)
    group: list[Line] = []
    start = until = 0.0
    pause, before = 0.0, watched
    for began, ended, turns in timed:
        assert began is not None
        if group and began >= until:
            yield tuple(group)
            group, before = [], until if watched is not None else None
        if not group:
            start, until = began, began
            pause = 0.0 if before is None else min(max(0.0, began - before), MOST_PAUSE)
        group.append(Line(pause + began - start, turns))
        until = max(until, ended or began)
    if group:
        yield tuple(group)
    yield from ((Line(0.0, turns),) for began, _, turns in lines if began is None)


def _script(
    dossier: Dossier,
    role: str,
    capture: Capture,
    clocks: Clocks,
    url: Url | None,
    secrets: Sequence[Secret],
) -> Exchange:
    if not capture.request:
        raise RecordError(f"{dossier.name}: role {role} holds no request to send again")
    reading = read(capture, api=dossier.api)
    segments = tuple(segment.data for segment in put_back(capture, secrets).request)
    if url is not None:
        segments = readdressed(segments, url)
    request = http1.parse_request_head(b"".join(segments))
    linger = LINGER if dossier.scenario in LINGERS or capture.late else 0.0
    return Exchange(
        segments,
        method=request.method.decode("ascii") if request else "POST",
        events=reading.asked("stream") is True,
        leave=_leave(dossier, role, capture, reading),
        slow=_slow(dossier, role),
        linger=linger,
        clocks=clocks,
        bounds=BOUNDS,
        between=_between(capture.request),
        url=capture.url if url is None else _shown_url(url, request),
    )


def _between(segments: Sequence[Segment]) -> float:
    """Seconds between two segments, on average; 0 where they were not timed."""
    times = [each.at for each in segments if each.at is not None]
    return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 0.0


def _shown_url(url: Url, request: http1.RequestHead | None) -> str:
    target = request.target.decode("latin-1") if request else ""
    return f"{url.scheme}://{url.authority}{target.partition('?')[0]}"


def _leave(dossier: Dossier, role: str, capture: Capture, reading: Reading) -> Leave | None:
    """How our side left then: after as many events, or else after as long."""
    end = capture.end
    if end.left is None:
        return None
    events = sum(1 for event in reading.events if event.data)
    if end.left != "half" and events:
        return Leave(end.left, events=events)
    left_at = _left_at(dossier, role, end)
    if left_at is None or capture.sent_at is None:
        raise RecordError(f"{dossier.name}: when {role} was left ({end.left}) is not recorded")
    return Leave(end.left, seconds=max(0.0, left_at - capture.sent_at))


def _slow(dossier: Dossier, role: str) -> Slow | None:
    """How slowly our side read: the scenario says so, but for the pause it made."""
    at = {each.what: each.at for each in dossier.actions if each.role == role}
    if "pause" not in at or "resume" not in at:
        return None
    return Slow(at["resume"] - at["pause"], EVENTS, buffer=BUFFER)


def _left_at(dossier: Dossier, role: str, end: End) -> float | None:
    if end.how is How.LEFT:
        return end.at
    acted = (each.at for each in dossier.actions if (each.what, each.role) == (end.left, role))
    return next(acted, None)


# Where to


def origin(dossier: Dossier) -> str | None:
    """The URL that the dossier was recorded from."""
    urls = (capture.url for takes in dossier.roles.values() for capture in takes)
    return next((url for url in urls if url), None)


def readdressed(segments: tuple[bytes, ...], url: Url) -> tuple[bytes, ...]:
    """The same request for another server; its segments become one where its head is in several."""
    first, *rest = segments
    if http1.parse_request_head(first) is None:
        first, rest = b"".join(segments), []
    head = http1.parse_request_head(first)
    if head is None:
        return segments
    top, body = first[: head.end], first[head.end :]
    top = _HOST.sub(lambda found: found[1] + url.authority.encode(), top, count=1)
    if url.path:
        top = _LINE.sub(lambda found: found[1] + _target(found[2], url) + found[3], top)
    return (top + body, *rest)


def _target(target: bytes, url: Url) -> bytes:
    path, mark, query = target.partition(b"?")
    for route in sorted([*PATHS.values(), "/models"], key=len, reverse=True):
        if path.endswith(route.encode()):
            return url.path.encode() + route.encode() + mark + query
    return target


# Secrets


def wanted(dossier: Dossier) -> dict[str, int]:
    """Names of the secrets masked in the requests, with the most bytes seen of each."""
    lengths: dict[str, int] = {}
    for takes in dossier.roles.values():
        for gap in (gap for capture in takes for gap in capture.masks if gap.where == "request"):
            name, encoding, skip = reference_parts(gap.secret)
            length = 0 if encoding else skip + gap.length
            lengths[name] = max(lengths.get(name, 0), length)
    return lengths


def secrets_for(
    dossier: Dossier, environment: Mapping[str, str], key_env: str | None
) -> tuple[Secret, ...]:
    """The value of every masked secret. `key_env` names the variable with the API key of today.

    Raises UsageError for a secret that nobody can know.
    """
    return tuple(
        Secret(name, _value(name, environment, key_env).encode()) for name in wanted(dossier)
    )


def _value(name: str, environment: Mapping[str, str], key_env: str | None) -> str:
    kind, _, rest = name.partition(":")
    variable = key_env or (rest if kind == "env" else None)
    if variable is None:
        raise UsageError(
            f"the record hides {name}; name the variable that holds it with --api-key-env"
        )
    value = environment.get(variable, "").strip()
    if not value:
        flag = "--api-key-env" if key_env else f"the record hides {name}"
        raise UsageError(f"{flag}: the environment variable {variable} is not set")
    if not (value.isascii() and value.isprintable()):
        raise UsageError(f"{variable}: expected printable ASCII in the API key")
    return value


def authorization(played: Groups) -> tuple[tuple[str, str], ...]:
    """The field that the requests carry, secrets put back, for a request beside them."""
    scripts = (turn.script for group in played for line in group for turn in line.turns)
    request = next((b"".join(each.request) for each in scripts), b"")
    head = http1.parse_request_head(request)
    value = head.get(b"authorization") if head else None
    return () if value is None else (("Authorization", value.decode("latin-1")),)


def put_back(capture: Capture, secrets: Sequence[Secret]) -> Capture:
    """The request with its secrets; a key of another length than the recorded fits in its head."""
    lengths = wanted(_alone(capture))
    same = [each for each in secrets if len(each.value) == lengths.get(each.name)]
    capture = unmask(capture, same)
    values = {each.name: each.value for each in secrets}
    joined = b"".join(segment.data for segment in capture.request)
    head = http1.parse_request_head(joined)
    for gap in sorted(capture.masks, key=lambda gap: -gap.start):
        if gap.where != "request":
            continue
        name, encoding, skip = reference_parts(gap.secret)
        if encoding or skip or head is None or gap.start + gap.length > head.end:
            raise RecordError(f"{name} is not the key that was recorded, and stands in the body")
        capture = _spliced(capture, gap, values[name])
    return capture


def _alone(capture: Capture) -> Dossier:
    return Dossier("", {"stream": (capture,)})


def _spliced(capture: Capture, gap: Mask, value: bytes) -> Capture:
    segments, at = [], 0
    for segment in capture.request:
        size = len(segment.data)
        low, high = max(gap.start - at, 0), min(gap.start + gap.length - at, size)
        data = segment.data
        if low < high:
            new = value if gap.start >= at else b""  # a key cut by segments goes into the first
            data = data[:low] + new + data[high:]
        segments.append(Segment(data, segment.at))
        at += size
    return replace(capture, request=tuple(segments))
