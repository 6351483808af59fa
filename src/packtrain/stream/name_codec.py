"""Many names in little room: each is told by what it has in common with the one before it.

A name is four things: how many bytes it shares with the beginning of the name before (at most 255), how many with its
end, how many bytes are its own (7 bits a byte, the highest bit says that another follows), and those bytes. Every 64th
name shares nothing, so that any name is found by reading a few.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence

RESTART_INTERVAL = 64
_MAX_SHARED_BYTES = 255


def encode_name(text: str) -> bytes:
    """Names of files are bytes; those that are no UTF-8 come back as they were."""
    return text.encode("utf-8", "surrogateescape")


def encode_names(names: Iterable[str]) -> tuple[bytes, array[int]]:
    """All of them, and where each that shares nothing begins."""
    packed, starts, before = bytearray(), array("Q"), b""
    for number, text in enumerate(names):
        name = encode_name(text)
        if number % RESTART_INTERVAL == 0:
            starts.append(len(packed))
            before = b""
        first, last = _shared_lengths(before, name)
        own = name[first : len(name) - last]
        packed += bytes((first, last))
        packed += _encode_varint(len(own))
        packed += own
        before = name
    return bytes(packed), starts


def _shared_lengths(previous: bytes, name: bytes) -> tuple[int, int]:
    """How many bytes at the beginning, and how many of the others at the end. As numbers they are compared in C."""
    most = min(len(previous), len(name), _MAX_SHARED_BYTES)
    if not most:
        return 0, 0
    differing = int.from_bytes(previous[:most], "big") ^ int.from_bytes(name[:most], "big")
    first = most - (differing.bit_length() + 7) // 8
    most = min(_MAX_SHARED_BYTES, len(previous) - first, len(name) - first)
    if not most:
        return first, 0
    differing = int.from_bytes(previous[-most:], "big") ^ int.from_bytes(name[-most:], "big")
    return first, ((differing & -differing).bit_length() - 1) // 8 if differing else most


def _encode_varint(value: int) -> bytes:
    packed = bytearray()
    while value > 0x7F:
        packed.append(value & 0x7F | 0x80)
        value >>= 7
    packed.append(value)
    return bytes(packed)


def decode_names(packed: Sequence[int], offset: int) -> Iterator[str]:
    """From a place where a name shares nothing, to the end."""
    name = b""
    while offset < len(packed):
        first, last = packed[offset], packed[offset + 1]
        length, offset = _decode_varint(packed, offset + 2)
        name = name[:first] + bytes(packed[offset : offset + length]) + name[len(name) - last :]
        offset += length
        yield name.decode("utf-8", "surrogateescape")


def _decode_varint(packed: Sequence[int], offset: int) -> tuple[int, int]:
    length = shift = 0
    while packed[offset] & 0x80:
        length |= (packed[offset] & 0x7F) << shift
        offset, shift = offset + 1, shift + 7
    return length | packed[offset] << shift, offset + 1
