"""The archive formats that packtrain knows: one table of their suffixes, first bytes and properties.

This module is imported before the unpacker, so it is small.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from packtrain.plan import Input, RemoteFile
from packtrain.transfer.urls import url_scheme


@dataclass(frozen=True)
class ArchiveFormat:
    """One format.

    Attributes:
        name: The name.
        suffixes: File name suffixes, in lower case.
        magic: The possible first bytes; () for a tar, which is recognized by its header.
        growth: The typical size of the content relative to the archive; 0.0: packtrain cannot unpack this format.
        tar_suffixes: Short suffixes of a compressed tar.
        can_stream: It can be unpacked while it is downloaded.
        can_index: Its members can be read one by one.
        tool: The program that unpacks it; "": none is needed.
    """

    name: str
    suffixes: tuple[str, ...]
    magic: tuple[bytes, ...]
    growth: float = 0.0
    tar_suffixes: tuple[str, ...] = ()
    can_stream: bool = False
    can_index: bool = False
    tool: str = ""

    @property
    def can_unpack(self) -> bool:
        """Whether packtrain can unpack it, perhaps with a program of the machine."""
        return self.growth > 0


FORMATS = (
    ArchiveFormat("tar", (".tar",), (), 1.0, can_stream=True, can_index=True),
    ArchiveFormat("gz", (".gz",), (b"\x1f\x8b",), 2.0, (".tgz",), can_stream=True),
    ArchiveFormat("bz2", (".bz2",), (b"BZh",), 2.5, (".tbz", ".tbz2"), can_stream=True),
    ArchiveFormat("xz", (".xz",), (b"\xfd7zXZ\0",), 3.0, (".txz",), can_stream=True),
    # With files, empty, and empty in the zip64 format. The table of contents is at the end, so it cannot be streamed.
    ArchiveFormat("zip", (".zip",), (b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x06"), 2.0, can_index=True),
    ArchiveFormat("7z", (".7z",), (b"7z\xbc\xaf\x27\x1c",), 3.0, tool="7z"),
    ArchiveFormat("rar", (".rar",), (b"Rar!\x1a\x07",), 2.5, tool="unrar"),
    # Recognized as data that is not an error page, but not unpacked. zstd has skippable frames, lz4 an old format.
    ArchiveFormat(
        "zst", (".zst",), (b"\x28\xb5\x2f\xfd", *(bytes((first, 0x2A, 0x4D, 0x18)) for first in range(0x50, 0x60))),
        tar_suffixes=(".tzst",),
    ),
    ArchiveFormat("lz4", (".lz4",), (b"\x04\x22\x4d\x18", b"\x02\x21\x4c\x18")),
)  # fmt: skip
FORMATS_BY_NAME = {archive_format.name: archive_format for archive_format in FORMATS}
COMPRESSIONS = ("gz", "bz2", "xz")  # of single files, or of a tar

ARCHIVE_SUFFIXES = tuple(suffix for one in FORMATS for suffix in (*one.suffixes, *one.tar_suffixes))
ARCHIVE_MAGIC = tuple(magic for one in FORMATS for magic in one.magic)
COMPRESSED_TAR_SUFFIXES = tuple(
    suffix
    for one in FORMATS
    if not one.can_index
    for suffix in (*(f".tar{suffix}" for suffix in one.suffixes), *one.tar_suffixes)
)
# Zip files by content that programs use as they are.
_NEVER_UNPACKED_SUFFIXES = (
    ".npz", ".pt", ".pth", ".ckpt", ".keras", ".whl", ".jar", ".docx", ".xlsx", ".pptx", ".epub",
)  # fmt: skip
_TAR_CHECKSUM = re.compile(rb"[0-7 \0]{8}")  # in every tar header, also in old ones without magic
_TAR_CHECKSUM_FIELD = slice(148, 156)
_HEAD_BYTES = 512


def format_from_name(name: str) -> ArchiveFormat | None:
    """Return the format that the suffix of a name or path states, or None."""
    lower = name.lower()
    return next((one for one in FORMATS if lower.endswith((*one.suffixes, *one.tar_suffixes))), None)


def format_from_magic(head: bytes) -> ArchiveFormat | None:
    """Return the format that the first bytes show, or None; a tar has no magic."""
    return next((one for one in FORMATS if head.startswith(one.magic)), None)


def unpacked_format(name: str) -> ArchiveFormat | None:
    """Return the format of an archive that packtrain unpacks, judged by its name, or None."""
    archive_format = format_from_name(name)
    return archive_format if archive_format and archive_format.can_unpack else None


def is_never_unpacked(name: str) -> bool:
    """Return whether a file of this name is used as it is, even if its content is an archive."""
    return name.lower().endswith(_NEVER_UNPACKED_SUFFIXES)


def can_unpack_while_downloading(job_input: Input, remote_file: RemoteFile) -> bool:
    """Return whether to unpack a file while it downloads, judged by its name; its first bytes decide in the end.

    Files on a shared file system are copied first: that is fast, and damage to them is not transient.
    """
    archive_format = format_from_name(remote_file.name)
    is_remote = all(url_scheme(location.url) != "file" for location in remote_file.locations)
    return job_input.unpack == "auto" and is_remote and archive_format is not None and archive_format.can_stream


def may_be_archive(path: Path) -> bool:
    """Return whether the first bytes may be those of an archive; False is certain."""
    with open(path, "rb") as file:
        head = file.read(_HEAD_BYTES)
    return format_from_magic(head) is not None or _TAR_CHECKSUM.fullmatch(head[_TAR_CHECKSUM_FIELD]) is not None


def strip_archive_suffix(name: str) -> str:
    """Return the name without the suffix of its format; always a different name."""
    lower = name.lower()
    suffixes = (*COMPRESSED_TAR_SUFFIXES, *(suffix for one in FORMATS if one.can_stream for suffix in one.suffixes))
    suffix = next((suffix for suffix in suffixes if lower.endswith(suffix) and lower != suffix), None)
    return name[: -len(suffix)] if suffix else f"{name}.unpacked"
