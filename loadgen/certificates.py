"""What TLS goes by, as data: a context cannot be sent to a worker, the names of files can."""

from __future__ import annotations

import argparse
import os
import ssl
from dataclasses import dataclass

from conformance.connect import tls_context


@dataclass(frozen=True, slots=True)
class Certificates:
    """The connection options of the same names. A worker elsewhere needs the files there too."""

    cacert: str | None = None
    cert: str | None = None
    key: str | None = None
    insecure: bool = False

    def context(self) -> ssl.SSLContext:
        """Raises UsageError for files that cannot be read."""
        return tls_context(cacert=self.cacert, cert=self.cert, key=self.key, insecure=self.insecure)


STOCK = Certificates()


def certificates_from_args(args: argparse.Namespace) -> Certificates:
    files = _whole(args.cacert), _whole(args.cert), _whole(args.key)
    return Certificates(*files, bool(args.insecure))


def _whole(name: str | None) -> str | None:
    return None if name is None else os.path.abspath(name)
