"""Compress the names of samples by what each shares with the name before it (front coding).

A name is stored as four parts: the number of bytes that it shares with the start of the previous name (at most 255),
the number that it shares with the end, the number of its own bytes (7 bits per byte; the highest bit means that
another byte follows), and these bytes. Every 64th name shares nothing, so that any name can be decoded after reading
at most 63 others.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence

RESTART_INTERVAL = 64
_MAX_SHARED_BYTES = 255


def encode_name(text: str) -> bytes:
    """Encode a file name. A name that is not UTF-8 survives the round trip.

    Args:
        text: The name, with surrogate escapes.
    """
    return text.encode("utf-8", "surrogateescape")


def encode_names(names: Iterable[str]) -> tuple[bytes, array[int]]:
    """Compress names.

    Args:
        names: The names of all samples, in order.

    Returns:
        The compressed names, and the offset of every 64th name.
    """
    packed, restarts, previous = bytearray(), array("Q"), b""
    for number, text in enumerate(names):
        name = encode_name(text)
        if number % RESTART_INTERVAL == 0:
            restarts.append(len(packed))
            previous = b""
        n_start, n_end = _shared_lengths(previous, name)
        own = name[n_start : len(name) - n_end]
        packed += bytes((n_start, n_end))
        packed += _encode_varint(len(own))
        packed += own
        previous = name
    return bytes(packed), restarts


def _shared_lengths(previous: bytes, name: bytes) -> tuple[int, int]:
    """Return how many bytes the names share at the start, and how many of the others at the end.

    The bytes are compared as integers, because Python then compares them in C.
    """
    limit = min(len(previous), len(name), _MAX_SHARED_BYTES)
    if not limit:
        return 0, 0
    difference = int.from_bytes(previous[:limit], "big") ^ int.from_bytes(name[:limit], "big")
    n_start = limit - (difference.bit_length() + 7) // 8
    limit = min(_MAX_SHARED_BYTES, len(previous) - n_start, len(name) - n_start)
    if not limit:
        return n_start, 0
    difference = int.from_bytes(previous[-limit:], "big") ^ int.from_bytes(name[-limit:], "big")
    return n_start, ((difference & -difference).bit_length() - 1) // 8 if difference else limit


def _encode_varint(value: int) -> bytes:
    packed = bytearray()
    while value > 0x7F:
        packed.append(value & 0x7F | 0x80)
        value >>= 7
    packed.append(value)
    return bytes(packed)


def decode_names(packed: Sequence[int], offset: int) -> Iterator[str]:
    """Yield names up to the end.

    Args:
        packed: The compressed names.
        offset: Where to start: the offset of a name that shares nothing with the one before.
    """
    name = b""
    while offset < len(packed):
        n_start, n_end = packed[offset], packed[offset + 1]
        length, offset = _decode_varint(packed, offset + 2)
        name = name[:n_start] + bytes(packed[offset : offset + length]) + name[len(name) - n_end :]
        offset += length
        yield name.decode("utf-8", "surrogateescape")


def _decode_varint(packed: Sequence[int], offset: int) -> tuple[int, int]:
    value = shift = 0
    while packed[offset] & 0x80:
        value |= (packed[offset] & 0x7F) << shift
        offset, shift = offset + 1, shift + 7
    return value | packed[offset] << shift, offset + 1
