"""From header to header through a tar, in a window of what was read: what each member is, and where its bytes lie."""

from __future__ import annotations

from typing import NamedTuple

from packtrain.indexing.read_window import ReadRangeFn, ReadWindow
from packtrain.transfer.archive import tar_header
from packtrain.transfer.archive.decompress import COMPRESSION_MAGIC
from packtrain.transfer.archive.tar_header import TarHeader, TarHeaderError

FILE, HARDLINK, FOLDER, NESTED_TAR, COMPRESSED_TAR, SPARSE, OTHER = "f", "h", "d", "t", "z", "s", "o"
_KIND_BY_TYPE = {
    tar_header.FILE: FILE,
    tar_header.HARDLINK: HARDLINK,
    tar_header.FOLDER: FOLDER,
    tar_header.SPARSE: SPARSE,
}
_METADATA_TYPES = frozenset(
    {
        tar_header.LONG_NAME,
        tar_header.LONG_LINK,
        tar_header.PAX_HEADER,
        tar_header.PAX_GLOBAL_HEADER,
        tar_header.VOLUME_LABEL,
    }
)
_UNSUPPORTED_GLOBAL_KEYS = ("path", "linkpath", "size", "GNU.sparse.")
_COMPRESSED_TAR_SUFFIXES = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")
_MAX_LABEL_BYTES = 256
_USTAR_MAGIC, _USTAR_OFFSET = b"ustar", 257
_SEARCH_CHUNK_BYTES, _MAX_SEARCH_BYTES = 1 << 17, 1 << 23


class ArchiveMember(NamedTuple):
    header_offset: int  # its first header
    next_offset: int  # the next member's
    kind: str
    name: str
    offset: int
    size: int
    link_target: str = ""
    label_text: str = ""  # of a small file whose ending says that it holds a class


def read_member(window: ReadWindow, start: int) -> ArchiveMember | None:
    """The one that begins here; None at the archive's end. Raises HeaderError, EOFError."""
    known: dict[str, str] = {}
    begin, header = start, _read_header(window, start)
    while header is not None and header.kind in _METADATA_TYPES:
        _apply_metadata_header(header, window, start, known)
        start += tar_header.HEADER_BYTES + _padded_size(header.size)
        header = _read_header(window, start)
        if header is None:
            raise EOFError("the member that a header announces is missing")
    if header is None:
        return None
    header = tar_header.apply_pax_records(header, known)
    offset = start + tar_header.HEADER_BYTES
    behind = offset + _padded_size(header.size)
    if offset + header.size > window.stop:
        raise EOFError("a member is cut")
    window.record_distance(behind - begin)
    kind = _detect_kind(header, window, offset)
    text = _read_label(header, window, offset) if kind == FILE else ""
    return ArchiveMember(begin, behind, kind, header.name, offset, header.size, header.link_target, text)


def _read_header(window: ReadWindow, offset: int) -> TarHeader | None:
    block = window.get(offset, tar_header.HEADER_BYTES)
    return None if block == tar_header.END_BLOCK else tar_header.parse_header(block)


def _padded_size(size: int) -> int:
    return size + -size % tar_header.HEADER_BYTES


def _apply_metadata_header(header: TarHeader, window: ReadWindow, offset: int, overrides: dict[str, str]) -> None:
    if header.size > tar_header.MAX_EXTENDED_HEADER_BYTES:
        raise TarHeaderError(f"a header of {header.size} bytes")
    data = window.get(offset + tar_header.HEADER_BYTES, header.size)
    if header.kind == tar_header.LONG_NAME:
        overrides["path"] = tar_header.parse_long_name(data)
    elif header.kind == tar_header.LONG_LINK:
        overrides["linkpath"] = tar_header.parse_long_name(data)
    elif header.kind == tar_header.PAX_HEADER:
        overrides.update(tar_header.parse_pax_records(data))
    elif header.kind == tar_header.PAX_GLOBAL_HEADER and any(
        key.startswith(_UNSUPPORTED_GLOBAL_KEYS) for key in tar_header.parse_pax_records(data)
    ):
        raise TarHeaderError("names or sizes that hold for all members, which cannot be indexed: pack it anew")


def _detect_kind(header: TarHeader, window: ReadWindow, offset: int) -> str:
    """A tar inside is known by its name and its own first header."""
    kind = _KIND_BY_TYPE.get(header.kind, OTHER)
    if kind != FILE or header.size < tar_header.HEADER_BYTES:
        return kind
    name = header.name.lower()
    if name.endswith(".tar"):
        return NESTED_TAR if is_tar(window.get(offset, tar_header.HEADER_BYTES)) else FILE
    packed = name.endswith(_COMPRESSED_TAR_SUFFIXES) and window.get(offset, tar_header.HEADER_BYTES).startswith(
        tuple(COMPRESSION_MAGIC.values())
    )
    return COMPRESSED_TAR if packed else FILE


def is_tar(block: bytes) -> bool:
    """By its first block; an empty one has only its end."""
    try:
        return block == tar_header.END_BLOCK or bool(tar_header.parse_header(block))
    except TarHeaderError:
        return False


def _read_label(header: TarHeader, window: ReadWindow, offset: int) -> str:
    if not header.name.endswith(".cls") or not 0 < header.size <= _MAX_LABEL_BYTES:
        return ""
    return window.get(offset, header.size).decode("utf-8", "replace").strip()


def find_header(read: ReadRangeFn, start: int, stop: int) -> int | None:
    """Where something stands that looks like a header, from here on; only a walk from the beginning tells if it is one.

    `at` is a place where one could be: a multiple of 512 from the archive's beginning."""
    for begin in range(start, min(stop, start + _MAX_SEARCH_BYTES), _SEARCH_CHUNK_BYTES):
        data = read(begin, min(stop, begin + _SEARCH_CHUNK_BYTES))
        found = data.find(_USTAR_MAGIC)
        while found >= 0:
            block = found - _USTAR_OFFSET
            whole = block >= 0 and block % tar_header.HEADER_BYTES == 0 and block + tar_header.HEADER_BYTES <= len(data)
            if whole and is_tar(data[block : block + tar_header.HEADER_BYTES]):
                return begin + block
            found = data.find(_USTAR_MAGIC, found + 1)
    return None
