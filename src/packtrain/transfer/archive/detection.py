"""Cheap checks whether an input may be an archive, before the unpacker is imported."""

from __future__ import annotations

import re
from pathlib import Path

from packtrain.plan import Input, RemoteFile
from packtrain.transfer.urls import url_scheme

_STREAMABLE_SUFFIXES = (".tar", ".tgz", ".tbz", ".tbz2", ".txz", ".gz", ".bz2", ".xz")
_ARCHIVE_SUFFIXES = (*_STREAMABLE_SUFFIXES, ".zip", ".7z", ".rar")
_MAGIC = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"PK", b"7z\xbc\xaf", b"Rar!")
_TAR_CHECKSUM = re.compile(rb"[0-7 \0]{8}")  # in every tar header, also in old ones without magic
_TAR_CHECKSUM_FIELD = slice(148, 156)
_HEAD_BYTES = 512


def can_unpack_while_downloading(job_input: Input, remote_file: RemoteFile) -> bool:
    """Return whether to unpack a file while it downloads, judged by its name; its first bytes decide in the end.

    Files on a shared file system are copied first: that is fast, and damage to them is not transient.
    """
    is_remote = all(url_scheme(location.url) != "file" for location in remote_file.locations)
    return job_input.unpack == "auto" and is_remote and remote_file.name.lower().endswith(_STREAMABLE_SUFFIXES)


def has_archive_suffix(name: str) -> bool:
    """Return whether the name has the suffix of an archive."""
    return name.lower().endswith(_ARCHIVE_SUFFIXES)


def has_archive_magic(path: Path) -> bool:
    """Return whether the first bytes may be those of an archive; False is certain."""
    with open(path, "rb") as file:
        head = file.read(_HEAD_BYTES)
    return head.startswith(_MAGIC) or _TAR_CHECKSUM.fullmatch(head[_TAR_CHECKSUM_FIELD]) is not None
