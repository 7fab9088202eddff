"""From the headers of a packet to what it says of a TCP connection. Pure.

The packets are what an AF_PACKET socket of type SOCK_DGRAM brings: they begin with the IP header,
and may be cut behind the headers.
"""

from __future__ import annotations

import socket
import struct

FIN, SYN, RST, ACK = 0x01, 0x02, 0x04, 0x10
HEADERS = 60 + 60  # bytes: an IP header and a TCP header, both with all options
_TCP = 6
_V4_FIXED, _V6_FIXED, _TCP_FIXED = 20, 40, 20
_MAPPED = bytes(10) + b"\xff\xff"  # RFC 4291 section 2.5.5.2
_two = struct.Struct("!H").unpack_from
_tcp = struct.Struct("!IIBB").unpack_from

Said = tuple[bytes, int, int, int]  # connection, sequence number, bytes of data, flags


def said(packet: bytes, length: int) -> Said | None:
    """`length`: of the packet before it was cut. None where it is no whole segment of TCP.

    The connection is named as `connection` does.
    """
    version = packet[0] >> 4 if packet else 0
    if version == 4 and len(packet) >= _V4_FIXED:
        return _v4(packet, length)
    if version == 6 and len(packet) >= _V6_FIXED:
        return _v6(packet, length)
    return None


def connection(theirs: tuple[str, int], ours: tuple[str, int]) -> bytes:
    """The name of the direction from them to us: addresses and ports as the headers have them."""
    (their_host, their_port), (our_host, our_port) = theirs, ours
    return packed(their_host) + packed(our_host) + struct.pack("!HH", their_port, our_port)


def packed(host: str) -> bytes:
    """4 or 16 bytes; an IPv4 address that a socket of IPv6 has is one of IPv4 on the wire."""
    if ":" not in host:
        return socket.inet_pton(socket.AF_INET, host)
    address = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    return address[12:] if address.startswith(_MAPPED) else address


def _v4(packet: bytes, length: int) -> Said | None:
    # RFC 791 section 3.1
    (total,) = _two(packet, 2)
    (fragment,) = _two(packet, 6)
    if packet[9] != _TCP or fragment & 0x3FFF:  # MF, or an offset
        return None
    # A total of 0: a train of segments that the machine passes on as one, too long for the field.
    return _segment(packet, 4 * (packet[0] & 15), total or length, packet[12:20])


def _v6(packet: bytes, length: int) -> Said | None:
    # RFC 8200 section 3; whoever puts extension headers before TCP is not understood
    (payload,) = _two(packet, 4)
    if packet[6] != _TCP:
        return None
    return _segment(packet, _V6_FIXED, payload + _V6_FIXED if payload else length, packet[8:40])


def _segment(packet: bytes, start: int, end: int, addresses: bytes) -> Said | None:
    # RFC 9293 section 3.1
    if start < _V4_FIXED or len(packet) < start + _TCP_FIXED:
        return None
    sequence, _, offset, flags = _tcp(packet, start + 4)
    data = end - start - 4 * (offset >> 4)
    if data < 0:
        return None
    return addresses + packet[start : start + 4], sequence, data, flags
