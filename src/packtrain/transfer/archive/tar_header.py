"""Parser for the headers of tar archives: V7, ustar, GNU and pax. Pure: bytes in, headers out."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import NamedTuple

HEADER_BYTES = 512
MAX_EXTENDED_HEADER_BYTES = 1 << 24  # a larger header is an attack on memory
END_BLOCK = bytes(HEADER_BYTES)

FILE, FOLDER, SYMLINK, HARDLINK, DEVICE, SPARSE = "file", "folder", "symlink", "hardlink", "device", "sparse"
LONG_NAME, LONG_LINK, PAX_HEADER, PAX_GLOBAL_HEADER, VOLUME_LABEL = "name", "link", "attributes", "defaults", "label"

_KIND_BY_TYPEFLAG = {
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
    b"L": LONG_NAME,
    b"K": LONG_LINK,
    b"x": PAX_HEADER,
    b"X": PAX_HEADER,  # Solaris
    b"g": PAX_GLOBAL_HEADER,
    b"V": VOLUME_LABEL,
}
_KINDS_WITH_DATA = frozenset({FILE, LONG_NAME, LONG_LINK, PAX_HEADER, PAX_GLOBAL_HEADER, VOLUME_LABEL})
_ADLER32_MODULUS = 65521
_BLANK_CHECKSUM_FIELD = b" " * 8
_MAX_LENGTH_DIGITS = 20


class TarHeader(NamedTuple):
    """One header: a member, or an extended header for the next member."""

    kind: str  # one of the constants above
    name: str
    size: int  # bytes of data after the header
    mode: int  # permissions
    link_target: str


class TarHeaderError(ValueError):
    """A damaged header; its message is a noun phrase, such as "a damaged header"."""


def parse_header(block: bytes) -> TarHeader:
    """Parse a block of HEADER_BYTES.

    Raises:
        TarHeaderError: The block is not a valid header.
    """
    _verify_header_checksum(block)
    kind = _KIND_BY_TYPEFLAG.get(block[156:157])
    if kind is None:
        raise TarHeaderError(f"a member of the unknown type {block[156:157]!r}")
    name = _parse_text(block[:100])
    if block[345:346] != b"\0" and block[257:263] == b"ustar\0":
        name = f"{_parse_text(block[345:500])}/{name}"
    if block[156:157] == b"\0" and name.endswith("/"):  # V7 tar has no type for folders
        kind = FOLDER
    size = _parse_number(block[124:136]) if kind in _KINDS_WITH_DATA else 0
    return TarHeader(kind, name, size, _parse_number(block[100:108]), _parse_text(block[157:257]))


def _verify_header_checksum(block: bytes) -> None:
    """Raise TarHeaderError if the checksum is wrong. The low half of adler32 is a fast sum of bytes."""
    computed = zlib.adler32(block[156:], zlib.adler32(_BLANK_CHECKSUM_FIELD, zlib.adler32(block[:148])))
    stated = _parse_number(block[148:156])
    if (stated + 1) % _ADLER32_MODULUS != computed & 0xFFFF and stated != _signed_sum(block):
        raise TarHeaderError("a damaged header")


def _signed_sum(block: bytes) -> int:
    """Return the checksum that some old programs computed, with signed bytes."""
    blanked = block[:148] + _BLANK_CHECKSUM_FIELD + block[156:]
    return sum(byte - 256 if byte > 127 else byte for byte in blanked)


def _parse_text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _parse_number(field: bytes) -> int:
    """Parse octal digits, or a binary number after a byte of 0x80."""
    if field[0] & 0x80:
        return _parse_binary_number(field)
    digits = field.split(b"\0", 1)[0].strip()
    try:
        return int(digits, 8) if digits else 0
    except ValueError:
        raise TarHeaderError(f"a header with {digits!r} for a number") from None


def _parse_binary_number(field: bytes) -> int:
    number = int.from_bytes(field[1:], "big")
    if field[0] != 0x80 or number >> 63:
        raise TarHeaderError("a header with a number that is too large")
    return number


def parse_long_name(data: bytes) -> str:
    """Parse the data of a GNU header for a long name."""
    return _parse_text(data)


def parse_pax_records(data: bytes) -> dict[str, str]:
    """Parse the records `LENGTH KEY=VALUE` of a pax header.

    Raises:
        TarHeaderError: A record is damaged.
    """
    records, start, end = {}, 0, len(data.rstrip(b"\0"))
    while start < end:
        blank = data.find(b" ", start, start + _MAX_LENGTH_DIGITS)
        length = data[start:blank]
        if blank < 0 or not length.isdigit() or not len(length) + 1 < int(length) <= end - start:
            raise TarHeaderError("a damaged pax record")
        key, _, value = data[blank + 1 : start + int(length) - 1].partition(b"=")
        records[key.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        start += int(length)
    return records


def apply_pax_records(header: TarHeader, records: Mapping[str, str]) -> TarHeader:
    """Return the header with the name, link target and size of its pax records, which take precedence.

    Raises:
        TarHeaderError: The size is not a number.
    """
    if any(key.startswith("GNU.sparse.") for key in records):
        header = header._replace(kind=SPARSE)
    size = records.get("size", "")
    if size and not size.isdigit():
        raise TarHeaderError(f"a header with {size!r} for a size")
    return header._replace(
        name=records.get("path") or header.name,
        link_target=records.get("linkpath") or header.link_target,
        size=int(size) if size and header.kind in _KINDS_WITH_DATA else header.size,
    )
