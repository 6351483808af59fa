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
from packtrain.indexing.archive_reader import ArchiveReader, CancelCheck, bypass_caches
from packtrain.plan import Location, RemoteFile
from packtrain.stream.index import INDEX_SUFFIX, Index, IndexedArchive, write_relocated_index
from packtrain.transfer.api import SecretResolver
from packtrain.transfer.archive import tar_header
from packtrain.transfer.archive.tar_header import TarHeaderError
from packtrain.transfer.block_checksums import CHECKSUMS_SUFFIX as CHECKSUMS
from packtrain.transfer.block_checksums import BlockChecksums, read_checksums
from packtrain.transfer.fetch import fetch
from packtrain.transfer.registry import get_source
from packtrain.transfer.urls import append_to_url_path

_SPOT_CHECKS = 8


def index_cache_key(archives: Sequence[IndexedArchive], selection: str) -> str:
    """Of an index that is kept: another archive under the same address has another."""
    parts = [[a.url, a.size, a.etag, a.modified, a.listing_sha256] for a in archives]
    return hashlib.sha256(json.dumps([parts, selection]).encode()).hexdigest()[:32]


def open_if_current(path: Path, archives: tuple[IndexedArchive, ...], selection: str) -> Index | None:
    """What stands there, if it is the index of these archives as they are now."""
    try:
        index = Index.open(path)
    except (OSError, FormatError):
        return None
    return index if (index.archives, index.selection) == (archives, selection) else None


def fetch_published_index(
    location: Location,
    resolve_secret: SecretResolver,
    retry_timeout_s: float,
    check_cancelled: CancelCheck,
    path: Path,
    archives: tuple[IndexedArchive, ...],
) -> Index | None:
    """The index that lies beside the data, brought here; None if there is none, or of another archive."""
    there = replace(location, url=append_to_url_path(location.url.rstrip("/"), INDEX_SUFFIX))
    aside = path.with_name(f".{path.name}.{os.getpid()}.shared")
    try:
        with _temporary_download(there, resolve_secret, retry_timeout_s, check_cancelled, aside):
            index = Index.open(aside)
            return (
                write_relocated_index(index, archives, path)
                if _is_index_of(index, archives) and not index.selection
                else None
            )
    except (TransferError, FormatError):
        return None


def fetch_checksums(
    location: Location,
    resolve_secret: SecretResolver,
    retry_timeout_s: float,
    check_cancelled: CancelCheck,
    temporary_path: Path,
    size: int,
) -> BlockChecksums | None:
    """Those that lie beside an archive; None if there are none, or of another one. `aside` may be used meanwhile."""
    there = bypass_caches([replace(location, url=append_to_url_path(location.url, CHECKSUMS))])[0]
    try:
        with _temporary_download(there, resolve_secret, retry_timeout_s, check_cancelled, temporary_path):
            found = read_checksums(temporary_path)
    except (TransferError, FormatError):
        return None
    return found if found.size == size else None


@contextlib.contextmanager
def _temporary_download(
    location: Location,
    resolve_secret: SecretResolver,
    retry_timeout_s: float,
    check_cancelled: CancelCheck,
    temporary_path: Path,
) -> Iterator[None]:
    """For a moment the object lies there. One that is missing is not waited for."""
    try:
        item = RemoteFile(temporary_path.name, (location,), get_source(location, resolve_secret).stat(location).size)
        fetch(
            item,
            temporary_path,
            resolve_secret,
            retry_timeout_s=retry_timeout_s,
            check_cancelled=check_cancelled,
            on_progress=lambda done, total: None,
        )
        yield
    finally:
        for left in temporary_path.parent.glob(f"{temporary_path.name}*"):
            left.unlink(missing_ok=True)


def _is_index_of(index: Index, archives: tuple[IndexedArchive, ...]) -> bool:
    """Whoever made it may have had the archive under another address, so with another ETag."""
    theirs = [(archive.size, archive.listing_sha256) for archive in index.archives]
    same = [one.etag == own.etag for one, own in zip(index.archives, archives, strict=False) if one.url == own.url]
    return theirs == [(archive.size, archive.listing_sha256) for archive in archives] and all(same)


def passes_spot_check(index: Index, reader: ArchiveReader) -> bool:
    """Whether headers stand before some of the samples, as in the tar that was indexed."""
    step = max(1, len(index) // _SPOT_CHECKS)
    for number in range(0, len(index), step):
        one = index.parts(number)[0]
        try:
            header = tar_header.parse_header(reader.read(one.offset - tar_header.HEADER_BYTES, one.offset))
        except TarHeaderError:
            return False
        if header.size not in (one.size, 0):  # pax may state it elsewhere
            return False
    return True
