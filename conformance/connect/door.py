"""Where to connect, as data."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Door:
    """Where to connect: `host` and `port` as the URL names them, and the detours.

    `unix` is the path of a socket file; `connect_to` another (host, port) to dial in place of the
    URL's; `proxy` the (host, port) of an HTTP proxy that is asked with CONNECT, `login` the user
    and password that it is told. `tls` None is plain TCP; the name that is sent (SNI) and verified
    is `host`.
    """

    host: str
    port: int
    unix: str | None = None
    connect_to: tuple[str, int] | None = None
    proxy: tuple[str, int] | None = None
    tls: ssl.SSLContext | None = None
    login: tuple[str, str] | None = field(default=None, repr=False)

    @property
    def dialled(self) -> tuple[str, int]:
        """The (host, port) of the TCP connection."""
        return self.proxy or self.connect_to or (self.host, self.port)
