"""The filter of a packet socket: what comes from one TCP port of some addresses. Pure.

A program of the classic Berkeley Packet Filter, for packets that begin with the IP header. The
answer is how many bytes are kept; 0 refuses the packet.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

# <linux/filter.h>, <linux/bpf_common.h>: class, size and mode together
LOAD_WORD, LOAD_HALF, LOAD_BYTE = 0x20, 0x28, 0x30  # BPF_LD | BPF_W, BPF_H, BPF_B | BPF_ABS
LOAD_HALF_BEHIND = 0x48  # BPF_LD | BPF_H | BPF_IND: at X + k
HEADER_SIZE = 0xB1  # BPF_LDX | BPF_B | BPF_MSH: X = 4 * (byte at k & 15)
JUMP, IF_EQUAL, IF_BITS, RETURN = 0x05, 0x15, 0x45, 0x06
AND = 0x54
# Asked of the kernel in place of an offset: SKF_AD_OFF + SKF_AD_PKTTYPE
PACKET_TYPE = 0xFFFFF000 + 4
OUTGOING = 4  # <linux/if_packet.h>: the copy of what this machine sends, loopback included

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, k


def program(port: int, addresses: Iterable[bytes], keep: int) -> list[Instruction]:
    """`addresses` of the other side, 4 or 16 bytes each."""
    known = list(dict.fromkeys(addresses))
    v4 = list(_v4(port, [each for each in known if len(each) == 4], keep))
    v6 = list(_v6(port, [each for each in known if len(each) == 16], keep))
    return [
        (LOAD_WORD, 0, 0, PACKET_TYPE),
        *_unless_equal(OUTGOING),
        (LOAD_BYTE, 0, 0, 0),
        (AND, 0, 0, 0xF0),
        (IF_EQUAL, 0, 1, 0x40),
        (JUMP, 0, 0, 3),
        *_if_equal(0x60),
        (JUMP, 0, 0, len(v4)),
        *v4,
        *v6,
    ]


def packed(instructions: Iterable[Instruction]) -> bytes:
    """As an array of struct sock_filter."""
    return b"".join(struct.pack("=HBBI", *each) for each in instructions)


def _if_equal(value: int) -> Iterator[Instruction]:
    """Go on where it is; else refuse."""
    yield IF_EQUAL, 1, 0, value
    yield RETURN, 0, 0, 0


def _unless_equal(value: int) -> Iterator[Instruction]:
    yield IF_EQUAL, 0, 1, value
    yield RETURN, 0, 0, 0


def _v4(port: int, addresses: list[bytes], keep: int) -> Iterator[Instruction]:
    yield LOAD_BYTE, 0, 0, 9  # the protocol
    yield from _if_equal(6)
    yield LOAD_HALF, 0, 0, 6  # flags and fragment offset
    yield IF_BITS, 0, 1, 0x1FFF
    yield RETURN, 0, 0, 0
    yield HEADER_SIZE, 0, 0, 0
    yield LOAD_HALF_BEHIND, 0, 0, 0
    yield from _if_equal(port)
    for address in addresses:
        yield LOAD_WORD, 0, 0, 12
        yield IF_EQUAL, 0, 1, int.from_bytes(address)
        yield RETURN, 0, 0, keep
    yield RETURN, 0, 0, 0


def _v6(port: int, addresses: list[bytes], keep: int) -> Iterator[Instruction]:
    yield LOAD_BYTE, 0, 0, 6  # the next header
    yield from _if_equal(6)
    yield LOAD_HALF, 0, 0, 40
    yield from _if_equal(port)
    for address in addresses:
        for part in range(4):
            yield LOAD_WORD, 0, 0, 8 + 4 * part
            # Past the words that are left, and past the answer.
            yield IF_EQUAL, 0, 7 - 2 * part, int.from_bytes(address[4 * part : 4 * part + 4])
        yield RETURN, 0, 0, keep
    yield RETURN, 0, 0, 0
