"""Find NaN and infinite values in raw numbers, fast and without numpy.

A value is NaN or infinite if all bits of its exponent are set. The highest byte contains most of them, so searching all
highest bytes (a slice and a search, both in C) is enough for nearly every block. Only a block with a suspect byte is
checked value by value.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FloatFormat:
    """The bits that make a value of one floating-point type NaN or infinite.

    A value is not finite if `highest_byte & exponent_mask == exponent_bits` and the next byte is at least
    `min_second_byte`.
    """

    width_bytes: int
    exponent_mask: int
    exponent_bits: int
    min_second_byte: int = 0
    components: int = 1  # 2 for complex numbers

    @property
    def value_bytes(self) -> int:
        return self.width_bytes * self.components

    @property
    def suspect_bytes(self) -> bytes:
        return bytes(byte for byte in range(256) if byte & self.exponent_mask == self.exponent_bits)


_HALF = (2, 0x7C, 0x7C)
_SINGLE = (4, 0x7F, 0x7F, 0x80)
_DOUBLE = (8, 0x7F, 0x7F, 0xF0)

FLOAT_FORMATS = {
    "float64": FloatFormat(*_DOUBLE),
    "float32": FloatFormat(*_SINGLE),
    "float16": FloatFormat(*_HALF),
    "bfloat16": FloatFormat(2, 0x7F, 0x7F, 0x80),
    "complex128": FloatFormat(*_DOUBLE, components=2),
    "complex64": FloatFormat(*_SINGLE, components=2),
    "complex32": FloatFormat(*_HALF, 0, components=2),
    "float8_e5m2": FloatFormat(1, 0x7C, 0x7C),
    "float8_e4m3fn": FloatFormat(1, 0x7F, 0x7F),
    "float8_e5m2fnuz": FloatFormat(1, 0xFF, 0x80),
    "float8_e4m3fnuz": FloatFormat(1, 0xFF, 0x80),
    "float8_e8m0fnu": FloatFormat(1, 0xFF, 0xFF),
}
"""Formats by their dtype name in torch. Other dtypes have no NaN and no infinity."""


def find_non_finite(data: bytes, float_format: FloatFormat, big_endian: bool = False) -> list[int]:
    """Return the indices of the values that are not finite; a complex value counts once."""
    highest = data[0 if big_endian else float_format.width_bytes - 1 :: float_format.width_bytes]
    if not any(byte in highest for byte in float_format.suspect_bytes):
        return []
    if float_format.width_bytes == 1:
        indices = [
            index
            for index, byte in enumerate(highest)
            if byte & float_format.exponent_mask == float_format.exponent_bits
        ]
    else:
        second = data[1 if big_endian else float_format.width_bytes - 2 :: float_format.width_bytes]
        pairs = enumerate(zip(highest, second))
        indices = [
            index
            for index, (high, low) in pairs
            if high & float_format.exponent_mask == float_format.exponent_bits and low >= float_format.min_second_byte
        ]
    if float_format.components == 1:
        return indices
    return sorted({index // float_format.components for index in indices})
