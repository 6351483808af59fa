"""Which inputs may be archives: told by their names and first bytes, before anything that unpacks is loaded."""

from __future__ import annotations

import re
from pathlib import Path

from packtrain.plan import Input, RemoteFile
from packtrain.transfer.urls import url_scheme

_STREAMABLE_SUFFIXES = (".tar", ".tgz", ".tbz", ".tbz2", ".txz", ".gz", ".bz2", ".xz")
_ARCHIVE_SUFFIXES = (*_STREAMABLE_SUFFIXES, ".zip", ".7z", ".rar")
_MAGIC = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"PK", b"7z\xbc\xaf", b"Rar!")
_TAR_CHECKSUM = re.compile(rb"[0-7 \0]{8}")  # of a header's bytes, also where an old tar has no name for itself
_TAR_CHECKSUM_FIELD = slice(148, 156)
_HEAD_BYTES = 512


def can_unpack_while_downloading(job_input: Input, remote_file: RemoteFile) -> bool:
    """Whether to unpack it on its way: by its name, before a byte has come; in the end its first bytes decide.

    Files of a shared file system are copied as they are: that is quick, and what is wrong with them is no accident.
    """
    remote = all(url_scheme(ref.url) != "file" for ref in remote_file.locations)
    return job_input.unpack == "auto" and remote and remote_file.name.lower().endswith(_STREAMABLE_SUFFIXES)


def has_archive_suffix(name: str) -> bool:
    """Whether a person would think that it is one."""
    return name.lower().endswith(_ARCHIVE_SUFFIXES)


def has_archive_magic(path: Path) -> bool:
    """False only for what `transfer.unpack` would leave as it is."""
    with open(path, "rb") as file:
        head = file.read(_HEAD_BYTES)
    return head.startswith(_MAGIC) or _TAR_CHECKSUM.fullmatch(head[_TAR_CHECKSUM_FIELD]) is not None
