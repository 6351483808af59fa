"""Find an index or checksums that exist already: in the cache of this user, or next to the data."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from packtrain import fileutil
from packtrain.errors import FormatError, TransferError
from packtrain.indexing.archive_reader import ArchiveReader, CancelCheck, bypass_caches
from packtrain.plan import Location, RemoteFile
from packtrain.stream.index import INDEX_SUFFIX, Index, IndexedArchive
from packtrain.stream.index_writer import write_relocated_index
from packtrain.transfer.api import SecretResolver
from packtrain.transfer.archive import tar_header
from packtrain.transfer.archive.tar_header import TarHeaderError
from packtrain.transfer.fetch import fetch
from packtrain.transfer.integrity.block_checksums import CHECKSUMS_SUFFIX, BlockChecksums, read_checksums
from packtrain.transfer.registry import get_source
from packtrain.transfer.urls import append_to_url_path

_SPOT_CHECKS = 8


def index_cache_dir() -> Path:
    """Return the folder of this user's indexes."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "packtrain" / "indexes"


def index_cache_key(archives: Sequence[IndexedArchive], selection: str) -> str:
    """Return the name of a cached index. A changed archive at the same URL has another name."""
    identity = [
        [archive.url, archive.size, archive.etag, archive.modified, archive.listing_sha256] for archive in archives
    ]
    return hashlib.sha256(json.dumps([identity, selection]).encode()).hexdigest()[:32]


def open_if_current(path: Path, archives: tuple[IndexedArchive, ...], selection: str) -> Index | None:
    """Return the index at `path` if it describes the archives as they are now."""
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
    """Download the index that is stored next to the data, and write it to `path` with the URLs of `archives`.

    Returns None if there is none, or if it describes another archive.
    """
    index_location = replace(location, url=append_to_url_path(location.url.rstrip("/"), INDEX_SUFFIX))
    temporary_path = fileutil.temporary_path(path)
    try:
        with _temporary_download(index_location, resolve_secret, retry_timeout_s, check_cancelled, temporary_path):
            index = Index.open(temporary_path)
            if not _is_index_of(index, archives) or index.selection:
                return None
            return write_relocated_index(index, archives, path)
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
    """Download the checksums that are stored next to an archive of `size` bytes.

    Returns None if there are none, or if they belong to another archive.
    """
    checksums_location = bypass_caches([replace(location, url=append_to_url_path(location.url, CHECKSUMS_SUFFIX))])[0]
    try:
        with _temporary_download(checksums_location, resolve_secret, retry_timeout_s, check_cancelled, temporary_path):
            checksums = read_checksums(temporary_path)
    except (TransferError, FormatError):
        return None
    return checksums if checksums.size == size else None


@contextlib.contextmanager
def _temporary_download(
    location: Location,
    resolve_secret: SecretResolver,
    retry_timeout_s: float,
    check_cancelled: CancelCheck,
    temporary_path: Path,
) -> Iterator[None]:
    """Download an object to `temporary_path`, and delete it afterwards. A missing object is not retried."""
    try:
        size = get_source(location, resolve_secret).stat(location).size
        fetch(
            RemoteFile(temporary_path.name, (location,), size),
            temporary_path,
            resolve_secret,
            retry_timeout_s=retry_timeout_s,
            check_cancelled=check_cancelled,
            on_progress=lambda done, total: None,
        )
        yield
    finally:
        for leftover in temporary_path.parent.glob(f"{temporary_path.name}*"):
            leftover.unlink(missing_ok=True)


def _is_index_of(index: Index, archives: tuple[IndexedArchive, ...]) -> bool:
    """Return whether an index describes the archives. ETags are compared only for the same URL."""
    indexed = [(archive.size, archive.listing_sha256) for archive in index.archives]
    same_etags = [
        theirs.etag == ours.etag
        for theirs, ours in zip(index.archives, archives, strict=False)
        if theirs.url == ours.url
    ]
    return indexed == [(archive.size, archive.listing_sha256) for archive in archives] and all(same_etags)


def passes_spot_check(index: Index, reader: ArchiveReader) -> bool:
    """Return whether the tar has headers before some of the samples, as the index claims."""
    step = max(1, len(index) // _SPOT_CHECKS)
    for number in range(0, len(index), step):
        part = index.parts(number)[0]
        try:
            header = tar_header.parse_header(reader.read(part.offset - tar_header.HEADER_BYTES, part.offset))
        except TarHeaderError:
            return False
        if header.size not in (part.size, 0):  # a pax record may hold the size instead
            return False
    return True
