"""An index that exists already: kept by this user, or beside the data."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from packtrain.errors import FormatError, TransferError
from packtrain.indexing.archive_reader import Remote, Stop, directly
from packtrain.plan import Item, Ref
from packtrain.stream.index import SUFFIX, Archive, Index, rebound
from packtrain.transfer.api import Reveal
from packtrain.transfer.archive import tar_header
from packtrain.transfer.archive.tar_header import HeaderError
from packtrain.transfer.block_checksums import SUFFIX as CHECKSUMS
from packtrain.transfer.block_checksums import Checksums, read_checksums
from packtrain.transfer.fetch import fetch
from packtrain.transfer.registry import source_for
from packtrain.transfer.urls import beside

_PROBES = 8


def key_of(archives: Sequence[Archive], choice: str) -> str:
    """Of an index that is kept: another archive under the same address has another."""
    parts = [[a.url, a.size, a.etag, a.modified, a.listing] for a in archives]
    return hashlib.sha256(json.dumps([parts, choice]).encode()).hexdigest()[:32]


def standing(path: Path, archives: tuple[Archive, ...], choice: str) -> Index | None:
    """What stands there, if it is the index of these archives as they are now."""
    try:
        index = Index.open(path)
    except (OSError, FormatError):
        return None
    return index if (index.archives, index.choice) == (archives, choice) else None


def shared(
    ref: Ref, reveal: Reveal, patience_s: float, stop: Stop, target: Path, archives: tuple[Archive, ...]
) -> Index | None:
    """The index that lies beside the data, brought here; None if there is none, or of another archive."""
    there = replace(ref, url=beside(ref.url.rstrip("/"), SUFFIX))
    aside = target.with_name(f".{target.name}.{os.getpid()}.shared")
    try:
        with _brought(there, reveal, patience_s, stop, aside):
            index = Index.open(aside)
            return rebound(index, archives, target) if _fits(index, archives) and not index.choice else None
    except (TransferError, FormatError):
        return None


def checksums(ref: Ref, reveal: Reveal, patience_s: float, stop: Stop, aside: Path, size: int) -> Checksums | None:
    """Those that lie beside an archive; None if there are none, or of another one. `aside` may be used meanwhile."""
    there = directly([replace(ref, url=beside(ref.url, CHECKSUMS))])[0]
    try:
        with _brought(there, reveal, patience_s, stop, aside):
            found = read_checksums(aside)
    except (TransferError, FormatError):
        return None
    return found if found.size == size else None


@contextlib.contextmanager
def _brought(ref: Ref, reveal: Reveal, patience_s: float, stop: Stop, aside: Path) -> Iterator[None]:
    """For a moment the object lies there. One that is missing is not waited for."""
    try:
        item = Item(aside.name, (ref,), source_for(ref, reveal).stat(ref).size)
        fetch(item, aside, reveal, patience_s=patience_s, stop=stop, progress=lambda done, total: None)
        yield
    finally:
        for left in aside.parent.glob(f"{aside.name}*"):
            left.unlink(missing_ok=True)


def _fits(index: Index, archives: tuple[Archive, ...]) -> bool:
    """Whoever made it may have had the archive under another address, so with another ETag."""
    theirs = [(archive.size, archive.listing) for archive in index.archives]
    same = [one.etag == own.etag for one, own in zip(index.archives, archives, strict=False) if one.url == own.url]
    return theirs == [(archive.size, archive.listing) for archive in archives] and all(same)


def spot_checked(index: Index, remote: Remote) -> bool:
    """Whether headers stand before some of the samples, as in the tar that was indexed."""
    step = max(1, len(index) // _PROBES)
    for number in range(0, len(index), step):
        one = index.parts(number)[0]
        try:
            header = tar_header.parse(remote.read(one.offset - tar_header.SIZE, one.offset))
        except HeaderError:
            return False
        if header.size not in (one.size, 0):  # pax may state it elsewhere
            return False
    return True
