"""From header to header through a tar, in a window of what was read: what each member is, and where its bytes lie."""

from __future__ import annotations

from typing import NamedTuple

from packtrain.indexing.read_window import Read, Window
from packtrain.transfer.archive import tar_header
from packtrain.transfer.archive.decompress import MAGIC
from packtrain.transfer.archive.tar_header import Header, HeaderError

FILE, LINK, FOLDER, TAR, PACKED, SPARSE, OTHER = "f", "h", "d", "t", "z", "s", "o"
_KINDS = {tar_header.FILE: FILE, tar_header.HARDLINK: LINK, tar_header.FOLDER: FOLDER, tar_header.SPARSE: SPARSE}
_SAYING = frozenset({tar_header.NAME, tar_header.LINK, tar_header.ATTRIBUTES, tar_header.DEFAULTS, tar_header.LABEL})
_CHANGING = ("path", "linkpath", "size", "GNU.sparse.")
_PACKED_TARS = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")
_LONGEST_LABEL = 256
_USTAR, _USTAR_AT = b"ustar", 257
_LOOKED_AT_ONCE, _LOOKED_AT = 1 << 17, 1 << 23


class Member(NamedTuple):
    at: int  # its first header
    behind: int  # the next member's
    kind: str
    name: str
    offset: int
    size: int
    link: str = ""
    text: str = ""  # of a small file whose ending says that it holds a class


def member(window: Window, at: int) -> Member | None:
    """The one that begins here; None at the archive's end. Raises HeaderError, EOFError."""
    known: dict[str, str] = {}
    begin, header = at, _header(window, at)
    while header is not None and header.kind in _SAYING:
        _say(header, window, at, known)
        at += tar_header.SIZE + _padded(header.size)
        header = _header(window, at)
        if header is None:
            raise EOFError("the member that a header announces is missing")
    if header is None:
        return None
    header = tar_header.amended(header, known)
    offset = at + tar_header.SIZE
    behind = offset + _padded(header.size)
    if offset + header.size > window.stop:
        raise EOFError("a member is cut")
    window.passed(behind - begin)
    kind = _kind(header, window, offset)
    text = _label(header, window, offset) if kind == FILE else ""
    return Member(begin, behind, kind, header.name, offset, header.size, header.link, text)


def _header(window: Window, at: int) -> Header | None:
    block = window.get(at, tar_header.SIZE)
    return None if block == tar_header.END else tar_header.parse(block)


def _padded(size: int) -> int:
    return size + -size % tar_header.SIZE


def _say(header: Header, window: Window, at: int, known: dict[str, str]) -> None:
    if header.size > tar_header.LARGEST:
        raise HeaderError(f"a header of {header.size} bytes")
    data = window.get(at + tar_header.SIZE, header.size)
    if header.kind == tar_header.NAME:
        known["path"] = tar_header.long_text(data)
    elif header.kind == tar_header.LINK:
        known["linkpath"] = tar_header.long_text(data)
    elif header.kind == tar_header.ATTRIBUTES:
        known.update(tar_header.attributes(data))
    elif header.kind == tar_header.DEFAULTS and any(key.startswith(_CHANGING) for key in tar_header.attributes(data)):
        raise HeaderError("names or sizes that hold for all members, which cannot be indexed: pack it anew")


def _kind(header: Header, window: Window, offset: int) -> str:
    """A tar inside is known by its name and its own first header."""
    kind = _KINDS.get(header.kind, OTHER)
    if kind != FILE or header.size < tar_header.SIZE:
        return kind
    name = header.name.lower()
    if name.endswith(".tar"):
        return TAR if is_tar(window.get(offset, tar_header.SIZE)) else FILE
    packed = name.endswith(_PACKED_TARS) and window.get(offset, tar_header.SIZE).startswith(tuple(MAGIC.values()))
    return PACKED if packed else FILE


def is_tar(block: bytes) -> bool:
    """By its first block; an empty one has only its end."""
    try:
        return block == tar_header.END or bool(tar_header.parse(block))
    except HeaderError:
        return False


def _label(header: Header, window: Window, offset: int) -> str:
    if not header.name.endswith(".cls") or not 0 < header.size <= _LONGEST_LABEL:
        return ""
    return window.get(offset, header.size).decode("utf-8", "replace").strip()


def first_header(read: Read, at: int, stop: int) -> int | None:
    """Where something stands that looks like a header, from here on; only a walk from the beginning tells if it is one.

    `at` is a place where one could be: a multiple of 512 from the archive's beginning."""
    for begin in range(at, min(stop, at + _LOOKED_AT), _LOOKED_AT_ONCE):
        data = read(begin, min(stop, begin + _LOOKED_AT_ONCE))
        found = data.find(_USTAR)
        while found >= 0:
            block = found - _USTAR_AT
            whole = block >= 0 and block % tar_header.SIZE == 0 and block + tar_header.SIZE <= len(data)
            if whole and is_tar(data[block : block + tar_header.SIZE]):
                return begin + block
            found = data.find(_USTAR, found + 1)
    return None
