"""CRC-32C (Castagnoli), which S3 and XRootD state and Python lacks: by a module that may be there, else by ours.

Ours makes about 60 MB/s. A block is cut into many rows that are computed side by side: what a table look-up is for one
byte, `bytes.translate` is for one byte of each row at once. The rows' values are then joined as if one had followed the
other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

MOST_BYTES = 1 << 30  # beyond, ours would take too long
MOST_UNASKED = 128 << 20  # beyond, it would hold up a download that nobody wanted to have checked so
_POLYNOMIAL = 0x82F63B78
_COLUMNS = 256
_BLOCK = 4096 * _COLUMNS
_FEW = 16 * _COLUMNS  # bytes that are quicker one by one

Extend = Callable[[int, bytes], int]
"""The value after more bytes."""

_EXAMPLE, _ITS_VALUE = b"123456789", 0xE3069283


def begun() -> Any:
    """As of hashlib, the fastest that there is."""
    extend = _fast()
    return Crc32c() if extend is None else _ByModule(extend)


def is_fast() -> bool:
    return _fast() is not None


@cache
def _fast() -> Extend | None:
    return next(filter(None, map(_extend_of, _MODULES)), None)


def _extend_of(name: str) -> Extend | None:
    try:
        extend = _MODULES[name](import_module(name))
        return extend if extend(0, _EXAMPLE) == _ITS_VALUE else None
    except Exception:  # whatever has this name here, it is of no use
        return None


def _extend_of_google(module: Any) -> Extend:
    """Where it could not be compiled it has a substitute in Python, which is slower than ours."""
    if module.implementation != "c":
        raise ImportError("not compiled")
    extend: Extend = module.extend
    return extend


def _extend_of_others(module: Any) -> Extend:
    return lambda value, data: int(module.crc32c(data, value))


_MODULES: dict[str, Callable[[Any], Extend]] = {
    "google_crc32c": _extend_of_google,
    "crc32c": _extend_of_others,
    "awscrt.checksums": _extend_of_others,
}


class _ByModule:
    """As of hashlib."""

    def __init__(self, extend: Extend) -> None:
        self._extend, self._value = extend, 0

    def update(self, data: bytes | memoryview) -> None:
        self._value = self._extend(self._value, bytes(data))  # Google's takes nothing else

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


class Crc32c:
    """As of hashlib, without any module."""

    def __init__(self) -> None:
        self._value = 0
        self._rest = b""

    def update(self, data: bytes | memoryview) -> None:
        data = self._rest + bytes(data) if self._rest else bytes(data)
        whole = len(data) - len(data) % _BLOCK
        for at in range(0, whole, _BLOCK):
            self._value = _after_block(self._value, data[at : at + _BLOCK])
        self._rest = data[whole:]

    def hexdigest(self) -> str:
        whole = len(self._rest) - len(self._rest) % _COLUMNS
        if whole < _FEW:
            return f"{_after_bytes(self._value, self._rest):08x}"
        return f"{_after_bytes(_after_block(self._value, self._rest[:whole]), self._rest[whole:]):08x}"


def _after_bytes(value: int, data: bytes) -> int:
    value, table = value ^ 0xFFFFFFFF, _table()
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def _after_block(value: int, block: bytes) -> int:
    """Some whole rows.

    The value's complement is fed into the first bytes: then all rows begin at zero, and joining is a plain xor."""
    first = int.from_bytes(block[:4], "little") ^ value ^ 0xFFFFFFFF
    rows = _rows(first.to_bytes(4, "little") + block[4:])
    joined = 0
    p0, p1, p2, p3 = _passing_a_row()
    for row in rows:
        joined = p0[joined & 0xFF] ^ p1[joined >> 8 & 0xFF] ^ p2[joined >> 16 & 0xFF] ^ p3[joined >> 24] ^ row
    return joined ^ 0xFFFFFFFF


def _rows(block: bytes) -> list[int]:
    """The value of each row, all begun at zero. A value's four bytes are kept apart, each for all rows."""
    count, (t0, t1, t2, t3) = len(block) // _COLUMNS, _tables_by_byte()
    s0 = s1 = s2 = s3 = 0
    for column in range(_COLUMNS):
        index = (int.from_bytes(block[column::_COLUMNS], "little") ^ s0).to_bytes(count, "little")
        s0 = int.from_bytes(index.translate(t0), "little") ^ s1
        s1 = int.from_bytes(index.translate(t1), "little") ^ s2
        s2 = int.from_bytes(index.translate(t2), "little") ^ s3
        s3 = int.from_bytes(index.translate(t3), "little")
    parts = [part.to_bytes(count, "little") for part in (s0, s1, s2, s3)]
    return [a | b << 8 | c << 16 | d << 24 for a, b, c, d in zip(*parts)]


@cache
def _table() -> tuple[int, ...]:
    return tuple(_after_bits(index, 8) for index in range(256))


def _after_bits(value: int, bits: int) -> int:
    for _ in range(bits):
        value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    return value


@cache
def _tables_by_byte() -> tuple[bytes, ...]:
    return tuple(bytes(value >> shift & 0xFF for value in _table()) for shift in (0, 8, 16, 24))


@cache
def _passing_a_row() -> tuple[tuple[int, ...], ...]:
    """For each byte of a value: what becomes of it when a row of zeros follows."""
    return tuple(tuple(_after_zeros(byte << shift) for byte in range(256)) for shift in (0, 8, 16, 24))


def _after_zeros(value: int) -> int:
    table = _table()
    for _ in range(_COLUMNS):
        value = table[value & 0xFF] ^ (value >> 8)
    return value
