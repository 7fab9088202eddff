"""From the options of a command to how an endpoint is reached: its door and the key it asks for."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from urllib.parse import unquote

from conformance.connect import Door, tls_context
from conformance.errors import UsageError
from conformance.run_options import DEFAULT_KEY
from conformance.target import Target, Url, parse_host_port, parse_url

FROM_ENVIRONMENT = "env:"  # --proxy env:NAME; a password on the command line is seen by others


def api_key(
    args: argparse.Namespace, target: Target, environment: Mapping[str, str]
) -> tuple[str, str] | None:
    """(variable, key). A variable that was named must be set; the default one may be absent."""
    name = target.api_key_env or DEFAULT_KEY
    key = environment.get(name, "").strip()
    if not key:
        if target.api_key_env is not None:
            raise UsageError(f"the environment variable {name}, named for the API key, is not set")
        return None
    if any(field.lower() == "authorization" for field, _ in target.headers):
        return None
    if not key.isascii() or not key.isprintable():
        raise UsageError(f"{name}: expected printable ASCII in the API key")
    return name, key


def door_from_args(
    args: argparse.Namespace, url: Url, environment: Mapping[str, str] | None = None
) -> Door:
    """The door that the connection options of a command describe. Raises UsageError."""
    if args.key and not args.cert:
        raise UsageError("--key is that of the client's certificate: give it with --cert")
    tls = None
    # Files that were named are read whatever the URL says: else a slip in their name is never told.
    if url.scheme == "https" or args.cacert or args.cert:
        tls = tls_context(cacert=args.cacert, cert=args.cert, key=args.key, insecure=args.insecure)
    if url.unix is not None and (args.proxy or args.connect_to):
        raise UsageError(f"{url}: a unix socket needs no --proxy and no --connect-to")
    to = parse_host_port(args.connect_to, "--connect-to") if args.connect_to else None
    proxy, login = _proxy(args.proxy, os.environ if environment is None else environment)
    return Door(
        url.host, url.port, url.unix, to, proxy, tls if url.scheme == "https" else None, login
    )


def door_beside(door: Door, url: Url) -> Door:
    """The door of another server, e.g. of the metrics: the same trust, no detours."""
    tls = door.tls or (tls_context() if url.scheme == "https" else None)
    return Door(url.host, url.port, url.unix, tls=tls if url.scheme == "https" else None)


def shown_proxy(text: str) -> str:
    """`--proxy` as it may be printed."""
    before, at, address = text.rpartition("@")
    scheme, mark, _ = before.partition("://")
    return f"{scheme + mark if mark else ''}{'…@' if at else ''}{address}"


def _proxy(
    text: str | None, environment: Mapping[str, str]
) -> tuple[tuple[str, int] | None, tuple[str, str] | None]:
    """Where the proxy is, and the user and password it wants."""
    if text is None:
        return None, None
    said = f"--proxy {shown_proxy(text)}"
    if text.startswith(FROM_ENVIRONMENT):
        name = text.removeprefix(FROM_ENVIRONMENT)
        text = environment.get(name, "").strip()
        if not text:
            raise UsageError(f"{said}: the environment variable {name} is not set")
    who, at, address = text.rpartition("@")
    scheme, _, who = who.rpartition("://") if at else ("", "", "")
    expected = f"{said}: expected http://HOST:PORT, or http://USER:PASSWORD@HOST:PORT"
    try:
        url = parse_url(f"{scheme}://{address}" if at else address)
    except UsageError:
        raise UsageError(expected) from None
    if url.scheme != "http" or url.unix is not None or url.path:
        raise UsageError(expected)
    user, _, password = (unquote(part) for part in who.partition(":"))
    if ":" in user:  # RFC 7617 section 2: "a user-id containing a colon character is invalid"
        raise UsageError(f"{said}: no colon in the user's name")
    return (url.host, url.port), (user, password) if at else None
