"""The headers of tar archives: old, ustar, GNU and pax. Pure: bytes in, members out."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import NamedTuple

SIZE = 512
LARGEST = 1 << 24  # of names and attributes; a larger one is an attack on our memory
END = bytes(SIZE)

FILE, FOLDER, SYMLINK, HARDLINK, DEVICE, SPARSE = "file", "folder", "symlink", "hardlink", "device", "sparse"
NAME, LINK, ATTRIBUTES, DEFAULTS, LABEL = "name", "link", "attributes", "defaults", "label"

_KINDS = {
    b"0": FILE,
    b"\0": FILE,
    b"7": FILE,
    b"5": FOLDER,
    b"2": SYMLINK,
    b"1": HARDLINK,
    b"3": DEVICE,
    b"4": DEVICE,
    b"6": DEVICE,
    b"S": SPARSE,
    b"L": NAME,
    b"K": LINK,
    b"x": ATTRIBUTES,
    b"X": ATTRIBUTES,  # as Solaris has it
    b"g": DEFAULTS,
    b"V": LABEL,
}
_WITH_DATA = frozenset({FILE, NAME, LINK, ATTRIBUTES, DEFAULTS, LABEL})
_PERMISSIONS_X = 0o100
_ADLER = 65521  # the modulus of adler32
_BLANKS = b" " * 8
_LENGTH_DIGITS = 20


class Header(NamedTuple):
    kind: str
    name: str
    size: int  # of the data behind it
    executable: bool
    link: str


class HeaderError(ValueError):
    """No header, or a damaged one."""


def parse(block: bytes) -> Header:
    """Of one block. Raises HeaderError."""
    _check(block)
    kind = _KINDS.get(block[156:157])
    if kind is None:
        raise HeaderError(f"a member of the unknown type {block[156:157]!r}")
    name = _text(block[:100])
    if block[345:346] != b"\0" and block[257:263] == b"ustar\0":
        name = f"{_text(block[345:500])}/{name}"
    if block[156:157] == b"\0" and name.endswith("/"):  # so did tar before there were types
        kind = FOLDER
    size = _number(block[124:136]) if kind in _WITH_DATA else 0
    return Header(kind, name, size, bool(_number(block[100:108]) & _PERMISSIONS_X), _text(block[157:257]))


def _check(block: bytes) -> None:
    """The low half of adler32 is a sum of bytes, counted in C."""
    counted = zlib.adler32(block[156:], zlib.adler32(_BLANKS, zlib.adler32(block[:148])))
    stated = _number(block[148:156])
    if (stated + 1) % _ADLER != counted & 0xFFFF and stated != _signed_sum(block):
        raise HeaderError("a damaged header")


def _signed_sum(block: bytes) -> int:
    """Some old programs took bytes for signed numbers."""
    others = block[:148] + _BLANKS + block[156:]
    return sum(byte - 256 if byte > 127 else byte for byte in others)


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _number(field: bytes) -> int:
    """Octal digits, or, after a byte of 0x80 or 0xff, binary."""
    if field[0] & 0x80:
        return _binary(field)
    digits = field.split(b"\0", 1)[0].strip()
    try:
        return int(digits, 8) if digits else 0
    except ValueError:
        raise HeaderError(f"a header with {digits!r} for a number") from None


def _binary(field: bytes) -> int:
    number = int.from_bytes(field[1:], "big")
    if field[0] != 0x80 or number >> 63:
        raise HeaderError("a header with a number that is too large")
    return number


def long_text(data: bytes) -> str:
    """What a GNU header for a long name holds."""
    return _text(data)


def attributes(data: bytes) -> dict[str, str]:
    """The records `LENGTH KEY=VALUE` of a pax header. Raises HeaderError."""
    found, at, end = {}, 0, len(data.rstrip(b"\0"))
    while at < end:
        blank = data.find(b" ", at, at + _LENGTH_DIGITS)
        length = data[at:blank]
        if blank < 0 or not length.isdigit() or not len(length) + 1 < int(length) <= end - at:
            raise HeaderError("a damaged list of attributes")
        key, _, value = data[blank + 1 : at + int(length) - 1].partition(b"=")
        found[key.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        at += int(length)
    return found


def amended(header: Header, known: Mapping[str, str]) -> Header:
    """What attributes say, they say better. Raises HeaderError."""
    if any(key.startswith("GNU.sparse.") for key in known):
        header = header._replace(kind=SPARSE)
    size = known.get("size", "")
    if size and not size.isdigit():
        raise HeaderError(f"a header with {size!r} for a size")
    return header._replace(
        name=known.get("path") or header.name,
        link=known.get("linkpath") or header.link,
        size=int(size) if size and header.kind in _WITH_DATA else header.size,
    )
