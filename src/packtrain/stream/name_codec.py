"""Many names in little room: each is told by what it has in common with the one before it.

A name is four things: how many bytes it shares with the beginning of the name before (at most 255), how many with its
end, how many bytes are its own (7 bits a byte, the highest bit says that another follows), and those bytes. Every 64th
name shares nothing, so that any name is found by reading a few.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence

RESTART = 64
_MOST_SHARED = 255


def encoded(text: str) -> bytes:
    """Names of files are bytes; those that are no UTF-8 come back as they were."""
    return text.encode("utf-8", "surrogateescape")


def pack(names: Iterable[str]) -> tuple[bytes, array[int]]:
    """All of them, and where each that shares nothing begins."""
    packed, starts, before = bytearray(), array("Q"), b""
    for number, text in enumerate(names):
        name = encoded(text)
        if number % RESTART == 0:
            starts.append(len(packed))
            before = b""
        first, last = _shared(before, name)
        own = name[first : len(name) - last]
        packed += bytes((first, last))
        packed += _number(len(own))
        packed += own
        before = name
    return bytes(packed), starts


def _shared(before: bytes, name: bytes) -> tuple[int, int]:
    """How many bytes at the beginning, and how many of the others at the end. As numbers they are compared in C."""
    most = min(len(before), len(name), _MOST_SHARED)
    if not most:
        return 0, 0
    differing = int.from_bytes(before[:most], "big") ^ int.from_bytes(name[:most], "big")
    first = most - (differing.bit_length() + 7) // 8
    most = min(_MOST_SHARED, len(before) - first, len(name) - first)
    if not most:
        return first, 0
    differing = int.from_bytes(before[-most:], "big") ^ int.from_bytes(name[-most:], "big")
    return first, ((differing & -differing).bit_length() - 1) // 8 if differing else most


def _number(value: int) -> bytes:
    packed = bytearray()
    while value > 0x7F:
        packed.append(value & 0x7F | 0x80)
        value >>= 7
    packed.append(value)
    return bytes(packed)


def unpack(packed: Sequence[int], at: int) -> Iterator[str]:
    """From a place where a name shares nothing, to the end."""
    name = b""
    while at < len(packed):
        first, last = packed[at], packed[at + 1]
        length, at = _length(packed, at + 2)
        name = name[:first] + bytes(packed[at : at + length]) + name[len(name) - last :]
        at += length
        yield name.decode("utf-8", "surrogateescape")


def _length(packed: Sequence[int], at: int) -> tuple[int, int]:
    length = shift = 0
    while packed[at] & 0x80:
        length |= (packed[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return length | packed[at] << shift, at + 1
