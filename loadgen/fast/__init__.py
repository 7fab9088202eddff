"""The fast way to record many streams at once, on Linux: one epoll descriptor inside one trio task.

TCP goes this way, with TLS or without, also through a proxy; unix sockets, which have no stamps,
and clients that read slowly stay with conformance's recorder. Both give the same Captures.
"""

from __future__ import annotations

from .pacing import Pacer
from .packets import reason_against_packets
from .recorder import FastRecorder, reason_against
from .stamps import stamps_work

__all__ = ["FastRecorder", "Pacer", "reason_against", "reason_against_packets", "stamps_work"]
