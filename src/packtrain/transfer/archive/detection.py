"""Which inputs may be archives: told by their names and first bytes, before anything that unpacks is loaded."""

from __future__ import annotations

import re
from pathlib import Path

from packtrain.plan import Input, Item
from packtrain.transfer.urls import scheme_of

_STREAMED = (".tar", ".tgz", ".tbz", ".tbz2", ".txz", ".gz", ".bz2", ".xz")
_NAMED = (*_STREAMED, ".zip", ".7z", ".rar")
_MAGIC = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"PK", b"7z\xbc\xaf", b"Rar!")
_TAR_SUM = re.compile(rb"[0-7 \0]{8}")  # of a header's bytes, also where an old tar has no name for itself
_TAR_SUM_AT = slice(148, 156)
_HEAD_BYTES = 512


def may_stream(source: Input, item: Item) -> bool:
    """Whether to unpack it on its way: by its name, before a byte has come; in the end its first bytes decide.

    Files of a shared file system are copied as they are: that is quick, and what is wrong with them is no accident.
    """
    remote = all(scheme_of(ref.url) != "file" for ref in item.sources)
    return source.unpack == "auto" and remote and item.name.lower().endswith(_STREAMED)


def has_archives_name(name: str) -> bool:
    """Whether a person would think that it is one."""
    return name.lower().endswith(_NAMED)


def may_be_archive(path: Path) -> bool:
    """False only for what `transfer.unpack` would leave as it is."""
    with open(path, "rb") as file:
        head = file.read(_HEAD_BYTES)
    return head.startswith(_MAGIC) or _TAR_SUM.fullmatch(head[_TAR_SUM_AT]) is not None
