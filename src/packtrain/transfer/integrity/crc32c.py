"""CRC-32C (Castagnoli), the checksum of S3 and XRootD that Python's library lacks.

A compiled module computes it where one is installed. Otherwise `PureCrc32c` does, at about 60 MB/s. It cuts a block
into many rows and processes them in parallel: `bytes.translate` looks up one byte of every row at once, as a table
look-up does for a single byte. The values of the rows are then combined in order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

MAX_PURE_PYTHON_BYTES = 1 << 30  # the pure Python version takes too long for more
MAX_PURE_PYTHON_UNREQUESTED_BYTES = 128 << 20  # the same limit where the user did not request the check
_POLYNOMIAL = 0x82F63B78
_COLUMNS = 256
_BLOCK_BYTES = 4096 * _COLUMNS
_MIN_VECTORIZED_BYTES = 16 * _COLUMNS  # fewer bytes are faster one by one

ExtendCrc = Callable[[int, bytes], int]
"""Returns the checksum after more bytes, given the checksum before them."""

_TEST_INPUT, _TEST_CRC = b"123456789", 0xE3069283


def new_crc32c() -> Any:
    """Return a CRC-32C with the interface of hashlib: compiled if possible, pure Python otherwise."""
    extend = _find_native_extend()
    return PureCrc32c() if extend is None else _NativeCrc32c(extend)


def has_native_module() -> bool:
    """Return whether a compiled module is installed."""
    return _find_native_extend() is not None


@cache
def _find_native_extend() -> ExtendCrc | None:
    return next(filter(None, map(_load_native_extend, _NATIVE_MODULES)), None)


def _load_native_extend(module_name: str) -> ExtendCrc | None:
    try:
        extend = _NATIVE_MODULES[module_name](import_module(module_name))
        return extend if extend(0, _TEST_INPUT) == _TEST_CRC else None
    except Exception:  # an unrelated or broken module of this name
        return None


def _load_google_extend(module: Any) -> ExtendCrc:
    """Reject the pure Python fallback of the module, which is slower than ours."""
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
    """CRC-32C by a compiled module, with the interface of hashlib."""

    def __init__(self, extend: ExtendCrc) -> None:
        self._extend, self._value = extend, 0

    def update(self, data: bytes | memoryview) -> None:
        self._value = self._extend(self._value, bytes(data))  # google_crc32c accepts bytes only

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


class PureCrc32c:
    """CRC-32C in pure Python, with the interface of hashlib."""

    def __init__(self) -> None:
        self._value = 0
        self._pending = b""

    def update(self, data: bytes | memoryview) -> None:
        data = self._pending + bytes(data) if self._pending else bytes(data)
        n_aligned = len(data) - len(data) % _BLOCK_BYTES
        for start in range(0, n_aligned, _BLOCK_BYTES):
            self._value = _update_block(self._value, data[start : start + _BLOCK_BYTES])
        self._pending = data[n_aligned:]

    def hexdigest(self) -> str:
        n_aligned = len(self._pending) - len(self._pending) % _COLUMNS
        if n_aligned < _MIN_VECTORIZED_BYTES:
            return f"{_update_bytewise(self._value, self._pending):08x}"
        value = _update_block(self._value, self._pending[:n_aligned])
        return f"{_update_bytewise(value, self._pending[n_aligned:]):08x}"


def _update_bytewise(value: int, data: bytes) -> int:
    value, table = value ^ 0xFFFFFFFF, _table()
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def _update_block(value: int, block: bytes) -> int:
    """Update the checksum with complete rows.

    The complement of the value is mixed into the first bytes. Then all rows start at zero and are combined by xor.
    """
    first = int.from_bytes(block[:4], "little") ^ value ^ 0xFFFFFFFF
    rows = _row_crcs(first.to_bytes(4, "little") + block[4:])
    combined = 0
    p0, p1, p2, p3 = _row_shift_tables()
    for row in rows:
        combined = p0[combined & 0xFF] ^ p1[combined >> 8 & 0xFF] ^ p2[combined >> 16 & 0xFF] ^ p3[combined >> 24] ^ row
    return combined ^ 0xFFFFFFFF


def _row_crcs(block: bytes) -> list[int]:
    """Return the checksum of each row, started at zero; s0 to s3 hold one byte each of the values of all rows."""
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
    """Return, for each byte of a checksum, its effect on the checksum after a row of zeros."""
    return tuple(tuple(_shift_row(byte << shift) for byte in range(256)) for shift in (0, 8, 16, 24))


def _shift_row(value: int) -> int:
    table = _table()
    for _ in range(_COLUMNS):
        value = table[value & 0xFF] ^ (value >> 8)
    return value
