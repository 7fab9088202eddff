"""The endpoint under test as data: its URL in every spelling, and the target file.

Pure but for reading the file. `http://host/v1`, `http://host` (the server root), the full address
of one route, `unix:PATH` and `http://unix:PATH:/v1` all name the same kind of thing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from conformance.capture import Json
from conformance.dossier import PATHS
from conformance.errors import SpecError, UsageError
from conformance.masking import CREDENTIAL_FIELDS
from conformance.plainyaml import Node, read_file
from conformance.schema import load_schema, validate
from conformance.specs import specs_dir

DEFAULT_PORTS = {"http": 80, "https": 443}
CAPABILITIES = (
    "usage", "logprobs", "n", "tools", "stop", "echo", "seed", "max_completion_tokens",
    "response_format",
)  # fmt: skip

WRONG_KEY = "streamproof-wrong-key"

# RFC 9110 section 5.6.2 "token", and section 5.5: a value holds no CR, LF or NUL.
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BAD_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_BARE_HOST = re.compile(r"[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[^ ]*)?")
_HOST_PORT = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%[^\s\[\]]+)?)\]|(?P<name>[^\s:/@\[\]]+))"
    r":(?P<port>[0-9]{1,5})"
)
_UNIX = re.compile(r"(?:(?P<scheme>https?)://)?unix:(?P<file>[^:?#]+)(?::(?P<path>/[^?#]*))?")


@dataclass(frozen=True, slots=True)
class Url:
    """A base address. `path` has no slash at its end and may be empty; `unix` is a socket's file.

    `query` is what the user's own URL carried, e.g. Azure's api-version.
    """

    scheme: str
    host: str
    port: int
    path: str = ""
    query: str = ""
    unix: str | None = None

    @property
    def authority(self) -> str:
        """For the Host field (RFC 9112 section 3.2): brackets for IPv6, no default port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Is this machine itself meant? Decided by the name alone, nothing is resolved."""
        if self.unix is not None or self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def bases(self) -> tuple[str, ...]:
        """Paths under which the API may stand, likeliest first."""
        if not self.path:
            return ("/v1", "")
        return (self.path,) if self.path.endswith("/v1") else (self.path, self.path + "/v1")

    def __str__(self) -> str:
        if self.unix is not None:
            return f"{self.scheme}://unix:{self.unix}{':' if self.path else ''}{self.path}"
        return f"{self.scheme}://{self.authority}{self.path}"


@dataclass(frozen=True, slots=True)
class Target:
    """One endpoint and everything the user told us about it; None and empty: find it out.

    `metrics`: a URL or "none". `metrics_map`: a member of metrics.ROLES → what the server calls it.
    `detached`: a generation goes on, on purpose, after its client has hung up.
    """

    url: Url
    model: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    query: tuple[tuple[str, str], ...] = ()
    api_key_env: str | None = None
    dialect: str | None = None
    capabilities: Mapping[str, bool] = field(default_factory=dict)
    limit: str | None = None
    omit: tuple[str, ...] = ()
    extra: Mapping[str, Json] = field(default_factory=dict)
    seed: int = 7
    context: int | None = None
    metrics: str | None = None
    metrics_map: Mapping[str, str] = field(default_factory=dict)
    detached: bool = False
    max_requests: int | None = None
    max_tokens: int | None = None
    concurrency: int | None = None

    def request_target(self, path: str) -> str:
        """The request-target (RFC 9112 section 3.2.1, origin-form) of a path below the root."""
        query = "&".join(part for part in (self.url.query, urlencode(self.query)) if part)
        return quote(path, safe="/%:@!$&'()*+,;=~") + (f"?{query}" if query else "")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One API of a target as discovery settled it; the defaults are what a plan assumes.

    `unsupported`: capability → what the endpoint said about it. `path`: from the server's root.
    `context`: tokens, None: not known. `listed`: the models that the server says it has.
    """

    api: str
    path: str = ""
    model: str = ""
    limit: str = "max_tokens"
    omit: frozenset[str] = frozenset()
    seed: int = 7
    unsupported: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Json] = field(default_factory=dict)
    context: int | None = None
    listed: tuple[str, ...] = ()
    keyed: bool = False  # requests carry a credential
    answered: frozenset[bytes] = frozenset()  # bodies whose whole answer all scenarios may use

    def has(self, capability: str) -> bool:
        """Is this member of CAPABILITIES usable here?"""
        return capability not in self.unsupported


def parse_url(text: str) -> Url:
    """Raises UsageError in one line that says what is expected."""
    if (found := _UNIX.fullmatch(text)) is not None:
        scheme, path = found["scheme"] or "http", _base_path(found["path"] or "")
        return Url(scheme, "localhost", DEFAULT_PORTS[scheme], path, unix=found["file"])
    try:
        parts = urlsplit(text)
        name, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"not a URL: {text}: {error}") from None
    if parts.scheme not in DEFAULT_PORTS or not name:
        likely = f" (did you mean http://{text}?)" if _BARE_HOST.fullmatch(text) else ""
        expected = "expected http://HOST…, https://HOST… or unix:PATH"
        raise UsageError(f"not a URL: {text}: {expected}{likely}")
    return _url(text, parts, name, port)


def _url(text: str, parts: SplitResult, host: str, port: int | None) -> Url:
    if parts.username is not None:
        raise UsageError(f"{host}: no user or password in the URL; use --api-key-env or --header")
    if not text.isascii() or _BAD_VALUE.search(text) or " " in text:
        raise UsageError(f"not a URL: {text!r}: expected printable ASCII without spaces")
    number = DEFAULT_PORTS[parts.scheme] if port is None else port
    return Url(parts.scheme, host, number, _base_path(parts.path), parts.query)


def _base_path(path: str) -> str:
    """The path without the route of one API, should the user have given it, and without slash."""
    path = path.rstrip("/")
    for route in sorted([*PATHS.values(), "/models"], key=len, reverse=True):
        if path.endswith(route):
            return path.removesuffix(route)
    return path


def parse_header(text: str) -> tuple[str, str]:
    """`Name: value` of --header. Raises UsageError."""
    name, colon, value = text.partition(":")
    if not colon:
        raise UsageError(f"--header {name}…: expected NAME:VALUE")
    if (wrong := _header_problem(name, value.strip())) is not None:
        raise UsageError(f"--header {name!r}: {wrong}")
    return name, value.strip()


def _header_problem(name: str, value: str) -> str | None:
    if not _TOKEN.fullmatch(name):
        return "expected a field name of RFC 9110 section 5.6.2"
    if name.lower() in ("host", "content-length", "transfer-encoding"):
        return "this field is ours to send"
    if _BAD_VALUE.search(value) or not _latin1(value):
        return "expected a value without control characters"
    return None


def _latin1(text: str) -> bool:
    return all(ord(character) < 256 for character in text)


def parse_host_port(text: str, flag: str) -> tuple[str, int]:
    """`HOST:PORT`, `[IPv6]:PORT`. Raises UsageError."""
    found = _HOST_PORT.fullmatch(text)
    if found is None or not 0 < int(found["port"]) < 65536:
        raise UsageError(f"{flag} {text}: expected HOST:PORT or [IPv6]:PORT")
    return found["six"] or found["name"], int(found["port"])


def load_target(path: Path, url: str | None = None) -> Target:
    """The target file; `url`, where given, replaces its own. Raises SpecError and UsageError."""
    node = read_file(path)
    name = str(path)
    validate(node, load_schema(specs_dir() / "target.schema.json"), name)
    fields = node.plain()
    assert isinstance(fields, dict)  # the schema says so
    address = url or fields.get("url")
    if not isinstance(address, str):
        raise SpecError(name, node.line, "url", "expected this field, it is missing")
    target = Target(
        _file_url(address, node, name) if url is None else parse_url(address),
        headers=_texts(node, "headers", name),
        query=_texts(node, "query", name),
    )
    return replace(target, **_simple(fields))  # type: ignore[arg-type]


def _file_url(address: str, node: Node, file: str) -> Url:
    try:
        return parse_url(address)
    except UsageError as error:
        raise SpecError(file, _child(node, "url").line, "url", f"expected a URL: {error}") from None


def _simple(fields: Mapping[str, Json]) -> dict[str, Json | tuple[Json, ...]]:
    """The fields that the schema has already settled."""
    request, limits = _mapping(fields, "request"), _mapping(fields, "limits")
    omit, metrics = request.get("omit"), _mapping(fields, "metrics")
    known: dict[str, Json | tuple[Json, ...]] = {
        "model": fields.get("model"),
        "api_key_env": fields.get("api_key_env"),
        "dialect": fields.get("dialect"),
        "capabilities": _mapping(fields, "capabilities"),
        "limit": request.get("limit"),
        "omit": tuple(omit) if isinstance(omit, list) else (),
        "extra": _mapping(request, "extra"),
        "context": limits.get("context"),
        "metrics": metrics.get("url"),
        "metrics_map": _mapping(metrics, "map"),
        "detached": fields.get("detached") is True,
        "max_requests": limits.get("requests"),
        "max_tokens": limits.get("tokens"),
        "concurrency": limits.get("concurrency"),
    }
    return known


def _mapping(fields: Mapping[str, Json], name: str) -> dict[str, Json]:
    value = fields.get(name)
    return value if isinstance(value, dict) else {}


def _child(node: Node, name: str) -> Node:
    assert isinstance(node.value, dict)
    return node.value[name]


def _texts(node: Node, name: str, file: str) -> tuple[tuple[str, str], ...]:
    """A mapping of names to text, e.g. headers. Numbers must be quoted, as everywhere."""
    if not isinstance(node.value, dict) or name not in node.value:
        return ()
    pairs: list[tuple[str, str]] = []
    children = _child(node, name).value
    assert isinstance(children, dict)
    for key, child in children.items():
        if not isinstance(child.value, str):
            raise SpecError(file, child.line, f"{name}.{key}", "expected text (quote it)")
        wrong = _header_problem(key, child.value) if name == "headers" else None
        if wrong is not None:
            raise SpecError(file, child.line, f"{name}.{key}", wrong)
        pairs.append((key, child.value))
    return tuple(pairs)


def request_bytes(
    target: Target,
    path: str,
    body: bytes | None,
    *,
    secrets: Iterable[tuple[str, str]] = (),
    accept: str = "*/*",
) -> bytes:
    """One HTTP/1.1 request: POST with `body`, GET without. `secrets` are fields not in the target.

    Accept-Encoding is identity: a raw reader wants plain bytes (RFC 9110 section 12.5.3).
    """
    ours = [("Host", target.url.authority), ("User-Agent", "streamproof"), ("Accept", accept)]
    ours.append(("Accept-Encoding", "identity"))
    if body is not None:
        ours += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    theirs = [*secrets, *target.headers]
    replaced = {name.lower() for name, _ in theirs}
    fields = [pair for pair in ours if pair[0].lower() not in replaced] + theirs
    lines = [f"{'GET' if body is None else 'POST'} {target.request_target(path)} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in fields]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


def is_keyed(target: Target, secrets: Iterable[tuple[str, str]]) -> bool:
    """Does any field carry a credential?"""
    return any(name.lower() in CREDENTIAL_FIELDS for name, _ in (*secrets, *target.headers))


def with_wrong_key(
    target: Target, secrets: Iterable[tuple[str, str]]
) -> tuple[Target, tuple[tuple[str, str], ...]]:
    """Target and secrets with another word for every credential; its scheme stays."""
    headers, ours = (tuple(map(_wrong, fields)) for fields in (target.headers, secrets))
    return replace(target, headers=headers), ours


def _wrong(field: tuple[str, str]) -> tuple[str, str]:
    name, value = field
    if name.lower() not in CREDENTIAL_FIELDS:
        return field
    scheme, space, _ = value.strip().partition(" ")
    return name, f"{scheme} {WRONG_KEY}" if space else WRONG_KEY


def json_bytes(value: Json) -> bytes:
    """Compact, ASCII-escaped JSON; a lone surrogate stays the escape that it was."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")
