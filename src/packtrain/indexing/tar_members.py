"""Parse the members of a tar: the kind, name, offset and size of each."""

from __future__ import annotations

from typing import NamedTuple

from packtrain.indexing.read_window import ReadRangeFn, ReadWindow
from packtrain.transfer.archive import tar_header
from packtrain.transfer.archive.formats import ARCHIVE_MAGIC, COMPRESSED_TAR_SUFFIXES
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
_MAX_LABEL_BYTES = 256
_USTAR_MAGIC, _USTAR_OFFSET = b"ustar", 257
_SEARCH_CHUNK_BYTES, _MAX_SEARCH_BYTES = 1 << 17, 1 << 23


class ArchiveMember(NamedTuple):
    """An entry of an archive."""

    header_offset: int  # where its first header starts
    next_offset: int  # where the next member starts
    kind: str  # FILE, HARDLINK, …
    name: str
    offset: int  # where its content starts
    size: int  # in bytes
    link_target: str = ""
    label_text: str = ""  # the content of a small label file (.cls)


def read_member(window: ReadWindow, start: int) -> ArchiveMember | None:
    """Return the member that starts at the offset; None at the end of the archive.

    Raises TarHeaderError for an invalid header, and EOFError if the archive is truncated.
    """
    overrides: dict[str, str] = {}
    header_offset, header = start, _read_header(window, start)
    while header is not None and header.kind in _METADATA_TYPES:
        _apply_metadata_header(header, window, start, overrides)
        start += tar_header.HEADER_BYTES + _padded_size(header.size)
        header = _read_header(window, start)
        if header is None:
            raise EOFError("the member after an extended header is missing")
    if header is None:
        return None
    header = tar_header.apply_pax_records(header, overrides)
    offset = start + tar_header.HEADER_BYTES
    next_offset = offset + _padded_size(header.size)
    if offset + header.size > window.stop:
        raise EOFError("a member is truncated")
    window.record_distance(next_offset - header_offset)
    kind = _detect_kind(header, window, offset)
    label_text = _read_label(header, window, offset) if kind == FILE else ""
    return ArchiveMember(
        header_offset, next_offset, kind, header.name, offset, header.size, header.link_target, label_text
    )


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
        raise TarHeaderError("global names or sizes, which cannot be indexed: repack the tar")


def _detect_kind(header: TarHeader, window: ReadWindow, offset: int) -> str:
    """Return the kind of a member. A nested tar has the suffix .tar and starts with a tar header."""
    kind = _KIND_BY_TYPE.get(header.kind, OTHER)
    if kind != FILE or header.size < tar_header.HEADER_BYTES:
        return kind
    name = header.name.lower()
    if name.endswith(".tar"):
        return NESTED_TAR if is_tar(window.get(offset, tar_header.HEADER_BYTES)) else FILE
    is_compressed = name.endswith(COMPRESSED_TAR_SUFFIXES) and window.get(offset, tar_header.HEADER_BYTES).startswith(
        ARCHIVE_MAGIC
    )
    return COMPRESSED_TAR if is_compressed else FILE


def is_tar(block: bytes) -> bool:
    """Return whether the first block of a file is that of a tar. An empty tar starts with its end block."""
    try:
        return block == tar_header.END_BLOCK or bool(tar_header.parse_header(block))
    except TarHeaderError:
        return False


def _read_label(header: TarHeader, window: ReadWindow, offset: int) -> str:
    if not header.name.endswith(".cls") or not 0 < header.size <= _MAX_LABEL_BYTES:
        return ""
    return window.get(offset, header.size).decode("utf-8", "replace").strip()


def find_header(read: ReadRangeFn, start: int, stop: int) -> int | None:
    """Return the offset of the first block that looks like a header, or None.

    Only a walk from the beginning can decide whether it is one. `start` is a multiple of 512 from the beginning of the
    archive.
    """
    for chunk_start in range(start, min(stop, start + _MAX_SEARCH_BYTES), _SEARCH_CHUNK_BYTES):
        data = read(chunk_start, min(stop, chunk_start + _SEARCH_CHUNK_BYTES))
        magic = data.find(_USTAR_MAGIC)
        while magic >= 0:
            block = magic - _USTAR_OFFSET
            is_aligned = block >= 0 and block % tar_header.HEADER_BYTES == 0
            header = data[block : block + tar_header.HEADER_BYTES] if is_aligned else b""
            if len(header) == tar_header.HEADER_BYTES and is_tar(header):
                return chunk_start + block
            magic = data.find(_USTAR_MAGIC, magic + 1)
    return None
