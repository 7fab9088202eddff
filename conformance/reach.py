"""From the options of a command to how an endpoint is reached: its door and the key it asks for."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from conformance.connect import Door, tls_context
from conformance.errors import UsageError
from conformance.run_options import DEFAULT_KEY
from conformance.target import Target, Url, parse_host_port, parse_url


def api_key(
    args: argparse.Namespace, target: Target, environment: Mapping[str, str]
) -> tuple[str, str] | None:
    """(variable, key). A variable that was named must be set; the default one may be absent."""
    name = target.api_key_env or DEFAULT_KEY
    key = environment.get(name, "").strip()
    if not key:
        if target.api_key_env is not None:
            raise UsageError(f"--api-key-env: the environment variable {name} is not set")
        return None
    if any(field.lower() == "authorization" for field, _ in target.headers):
        return None
    if not key.isascii() or not key.isprintable():
        raise UsageError(f"{name}: expected printable ASCII in the API key")
    return name, key


def door_from_args(args: argparse.Namespace, url: Url) -> Door:
    """The door that the connection options of a command describe. Raises UsageError."""
    tls = None
    if url.scheme == "https":
        tls = tls_context(cacert=args.cacert, cert=args.cert, key=args.key, insecure=args.insecure)
    to = parse_host_port(args.connect_to, "--connect-to") if args.connect_to else None
    return Door(url.host, url.port, url.unix, to, _proxy(args.proxy), tls)


def door_beside(door: Door, url: Url) -> Door:
    """The door of another server, e.g. of the metrics: the same trust, no detours."""
    tls = door.tls or (tls_context() if url.scheme == "https" else None)
    return Door(url.host, url.port, url.unix, tls=tls if url.scheme == "https" else None)


def _proxy(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    url = parse_url(text)
    if url.scheme != "http" or url.unix is not None or url.path:
        raise UsageError(f"--proxy {text}: expected http://HOST:PORT")
    return url.host, url.port
