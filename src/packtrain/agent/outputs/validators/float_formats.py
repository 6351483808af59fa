"""Which values of raw numbers are not finite, quickly and without numpy.

A value is NaN or infinite if all bits of its exponent are set. Its highest byte shows most of them, so a
look at every highest byte (in C: a slice and a search) settles nearly every block; only a block with a
suspect is looked at value by value.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """Numbers of `width` bytes. Not finite: `highest & mask == wanted`, and the byte below is `floor` or more."""

    width: int
    mask: int
    wanted: int
    floor: int = 0
    parts: int = 1  # 2: complex numbers

    @property
    def size(self) -> int:
        return self.width * self.parts

    @property
    def suspects(self) -> bytes:
        return bytes(byte for byte in range(256) if byte & self.mask == self.wanted)


_HALF = (2, 0x7C, 0x7C)
_SINGLE = (4, 0x7F, 0x7F, 0x80)
_DOUBLE = (8, 0x7F, 0x7F, 0xF0)

FORMATS = {
    "float64": Format(*_DOUBLE),
    "float32": Format(*_SINGLE),
    "float16": Format(*_HALF),
    "bfloat16": Format(2, 0x7F, 0x7F, 0x80),
    "complex128": Format(*_DOUBLE, parts=2),
    "complex64": Format(*_SINGLE, parts=2),
    "complex32": Format(*_HALF, 0, parts=2),
    "float8_e5m2": Format(1, 0x7C, 0x7C),
    "float8_e4m3fn": Format(1, 0x7F, 0x7F),
    "float8_e5m2fnuz": Format(1, 0xFF, 0x80),
    "float8_e4m3fnuz": Format(1, 0xFF, 0x80),
    "float8_e8m0fnu": Format(1, 0xFF, 0xFF),
}
"""By torch's names. Other kinds of numbers have no NaN and no infinity."""


def not_finite(data: bytes, form: Format, big: bool = False) -> list[int]:
    """Positions of the values that are not finite; a complex one counts once."""
    highest = data[0 if big else form.width - 1 :: form.width]
    if not any(byte in highest for byte in form.suspects):
        return []
    if form.width == 1:
        found = [at for at, byte in enumerate(highest) if byte & form.mask == form.wanted]
    else:
        below = data[1 if big else form.width - 2 :: form.width]
        pairs = enumerate(zip(highest, below))
        found = [at for at, (high, low) in pairs if high & form.mask == form.wanted and low >= form.floor]
    return found if form.parts == 1 else sorted({at // form.parts for at in found})
