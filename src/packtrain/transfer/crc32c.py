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

MAX_PURE_PYTHON_BYTES = 1 << 30  # beyond, ours would take too long
MAX_PURE_PYTHON_UNREQUESTED_BYTES = (
    128 << 20
)  # beyond, it would hold up a download that nobody wanted to have checked so
_POLYNOMIAL = 0x82F63B78
_COLUMNS = 256
_BLOCK_BYTES = 4096 * _COLUMNS
_MIN_VECTORIZED_BYTES = 16 * _COLUMNS  # bytes that are quicker one by one

ExtendCrc = Callable[[int, bytes], int]
"""The value after more bytes."""

_TEST_INPUT, _TEST_CRC = b"123456789", 0xE3069283


def new_crc32c() -> Any:
    """As of hashlib, the fastest that there is."""
    extend = _find_native_extend()
    return PureCrc32c() if extend is None else _NativeCrc32c(extend)


def has_native_module() -> bool:
    return _find_native_extend() is not None


@cache
def _find_native_extend() -> ExtendCrc | None:
    return next(filter(None, map(_load_native_extend, _NATIVE_MODULES)), None)


def _load_native_extend(module_name: str) -> ExtendCrc | None:
    try:
        extend = _NATIVE_MODULES[module_name](import_module(module_name))
        return extend if extend(0, _TEST_INPUT) == _TEST_CRC else None
    except Exception:  # whatever has this name here, it is of no use
        return None


def _load_google_extend(module: Any) -> ExtendCrc:
    """Where it could not be compiled it has a substitute in Python, which is slower than ours."""
    if module.implementation != "c":
        raise ImportError("not compiled")
    extend: ExtendCrc = module.extend
    return extend


def _load_generic_extend(module: Any) -> ExtendCrc:
    return lambda value, data: int(module.crc32c(data, value))


_NATIVE_MODULES: dict[str, Callable[[Any], ExtendCrc]] = {
    "google_crc32c": _load_google_extend,
    "crc32c": _load_generic_extend,
    "awscrt.checksums": _load_generic_extend,
}


class _NativeCrc32c:
    """As of hashlib."""

    def __init__(self, extend: ExtendCrc) -> None:
        self._extend, self._value = extend, 0

    def update(self, data: bytes | memoryview) -> None:
        self._value = self._extend(self._value, bytes(data))  # Google's takes nothing else

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


class PureCrc32c:
    """As of hashlib, without any module."""

    def __init__(self) -> None:
        self._value = 0
        self._pending = b""

    def update(self, data: bytes | memoryview) -> None:
        data = self._pending + bytes(data) if self._pending else bytes(data)
        whole = len(data) - len(data) % _BLOCK_BYTES
        for at in range(0, whole, _BLOCK_BYTES):
            self._value = _update_block(self._value, data[at : at + _BLOCK_BYTES])
        self._pending = data[whole:]

    def hexdigest(self) -> str:
        whole = len(self._pending) - len(self._pending) % _COLUMNS
        if whole < _MIN_VECTORIZED_BYTES:
            return f"{_update_bytewise(self._value, self._pending):08x}"
        return f"{_update_bytewise(_update_block(self._value, self._pending[:whole]), self._pending[whole:]):08x}"


def _update_bytewise(value: int, data: bytes) -> int:
    value, table = value ^ 0xFFFFFFFF, _table()
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def _update_block(value: int, block: bytes) -> int:
    """Some whole rows.

    The value's complement is fed into the first bytes: then all rows begin at zero, and joining is a plain xor."""
    first = int.from_bytes(block[:4], "little") ^ value ^ 0xFFFFFFFF
    rows = _row_crcs(first.to_bytes(4, "little") + block[4:])
    joined = 0
    p0, p1, p2, p3 = _row_shift_tables()
    for row in rows:
        joined = p0[joined & 0xFF] ^ p1[joined >> 8 & 0xFF] ^ p2[joined >> 16 & 0xFF] ^ p3[joined >> 24] ^ row
    return joined ^ 0xFFFFFFFF


def _row_crcs(block: bytes) -> list[int]:
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
    return tuple(_shift_bits(index, 8) for index in range(256))


def _shift_bits(value: int, n_bits: int) -> int:
    for _ in range(n_bits):
        value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    return value


@cache
def _tables_by_byte() -> tuple[bytes, ...]:
    return tuple(bytes(value >> shift & 0xFF for value in _table()) for shift in (0, 8, 16, 24))


@cache
def _row_shift_tables() -> tuple[tuple[int, ...], ...]:
    """For each byte of a value: what becomes of it when a row of zeros follows."""
    return tuple(tuple(_shift_row(byte << shift) for byte in range(256)) for shift in (0, 8, 16, 24))


def _shift_row(value: int) -> int:
    table = _table()
    for _ in range(_COLUMNS):
        value = table[value & 0xFF] ^ (value >> 8)
    return value
