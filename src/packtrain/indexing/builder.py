"""Makes an index, unless there is one already."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from packtrain.errors import FailedError, TransferError
from packtrain.indexing import existing
from packtrain.indexing import listing as folders
from packtrain.indexing.archive_map import ArchiveMap
from packtrain.indexing.archive_reader import ArchiveReader
from packtrain.indexing.grouping import ArchiveFile, FileTable, compressed_error, make_draft
from packtrain.indexing.local_file import open_archive
from packtrain.indexing.resume_file import ScanResumeFile
from packtrain.indexing.tar_members import is_tar
from packtrain.indexing.tar_scanner import TarScanner
from packtrain.indexing.task_pool import TaskPool
from packtrain.indexing.zip_scanner import ZipScanner
from packtrain.plan import Location
from packtrain.stream import index_checksums
from packtrain.stream.index import (
    INDEX_SUFFIX,
    LAYOUT_FILES,
    LAYOUT_RANGES,
    Index,
    IndexedArchive,
    strip_credentials,
    write_index,
)
from packtrain.transfer.api import ListedObject, SecretResolver
from packtrain.transfer.archive import tar_header
from packtrain.transfer.archive.decompress import COMPRESSION_MAGIC
from packtrain.transfer.block_checksums import BlockChecksums
from packtrain.transfer.content_checks import detect_error_page
from packtrain.transfer.http.pool import connection_pool
from packtrain.transfer.urls import url_scheme

CancelCheck = Callable[[], None]
OnIndexProgress = Callable[[int, int | None, int], None]
"""Bytes of the archives that are charted, all their bytes, and files found so far."""

BUILT, CACHED, PUBLISHED = "made", "kept", "shared"
_ArchiveScanner = TarScanner | ZipScanner
_UNSUPPORTED_MAGIC = (b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"7z\xbc\xaf\x27\x1c", b"Rar!")
_ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x06")
_LATENCY_PROBES = 2
_CPU_S_PER_REQUEST = 0.0003  # a request, by the processor
_MIN_THREADS, _MAX_THREADS = 2, 64
_FEDERATED_SCHEMES = ("osdf", "pelican")


@dataclass(frozen=True)
class IndexRequest:
    """`archives`: of each its addresses, all as good as the other; one that ends in / means a folder.

    `grouped`: whether files that follow one another and differ by their endings only make one sample; None: as it
    seems. `below`: only files whose names begin so."""

    locations: Sequence[Sequence[Location]]
    resolve_secret: SecretResolver
    retry_timeout_s: float = 10.0
    group_files: bool | None = None
    prefix: str = ""

    @property
    def selection(self) -> str:
        """Tells indexes of the same archives apart."""
        return json.dumps([self.group_files, self.prefix]) if self.group_files is not None or self.prefix else ""


@dataclass(frozen=True)
class IndexResult:
    index: Index
    origin: str  # made, kept (it was there) or shared (it lay beside the data)


def _ignore_progress(done: int, total: int | None, files: int) -> None:
    """Nobody wants to know."""


def build_index(
    request: IndexRequest,
    path: Path,
    *,
    check_cancelled: CancelCheck = lambda: None,
    on_progress: OnIndexProgress = _ignore_progress,
) -> Index:
    """The index stands at `target`, or FailedError says why not. Killed at any moment, the next call goes on."""
    with connection_pool():
        return _IndexBuilder(request, path.parent, path, True, check_cancelled, on_progress).run().index


def get_or_build_index(
    request: IndexRequest,
    cache_dir: Path,
    path: Path | None = None,
    *,
    rebuild: bool = False,
    check_cancelled: CancelCheck = lambda: None,
    on_progress: OnIndexProgress = _ignore_progress,
) -> IndexResult:
    """As `build`, unless the index of these very archives exists. Without a target it is kept in the folder `home`."""
    with connection_pool():
        return _IndexBuilder(request, cache_dir, path, rebuild, check_cancelled, on_progress).run()


class _IndexBuilder:
    def __init__(
        self,
        request: IndexRequest,
        cache_dir: Path,
        path: Path | None,
        rebuild: bool,
        check_cancelled: CancelCheck,
        on_progress: OnIndexProgress,
    ) -> None:
        self._request, self._cache_dir, self._path, self._rebuild = request, cache_dir, path, rebuild
        self._check_cancelled, self._on_progress = check_cancelled, on_progress
        self._scanned_bytes = self._files_found = 0
        self._lock = threading.Lock()
        self._locations = [list(refs) for refs in request.locations]

    def run(self) -> IndexResult:
        listed = self._list_folders()
        return self._index_folders(listed) if listed else self._index_archives()

    def _list_folders(self) -> list[list[ListedObject]]:
        """Of folders; one that has nothing but tars is the tars."""
        are = {refs[0].url.endswith("/") for refs in self._locations}
        if len(are) > 1:
            raise FailedError("unsupported", "an index is of archives or of folders, not of both: make two")
        if are != {True}:
            return []
        wish = self._request
        listed = [
            folders.list_folder(refs[0], wish.resolve_secret, wish.retry_timeout_s, self._check_cancelled)
            for refs in self._locations
        ]
        every = [entry for entries in listed for entry in entries]
        if every and all(entry.name.endswith(".tar") for entry in every):
            self._locations = [[entry.location] for entry in every]
            return []
        return listed

    def _index_path(self, archives: tuple[IndexedArchive, ...]) -> Path:
        if self._path is None:
            self._cache_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path = self._cache_dir / (existing.index_cache_key(archives, self._request.selection) + INDEX_SUFFIX)
        return self._path

    # Folders

    def _index_folders(self, listings: Sequence[Sequence[ListedObject]]) -> IndexResult:
        archives = tuple(
            _describe_folder(refs, entries) for refs, entries in zip(self._locations, listings, strict=False)
        )
        there = self._find_existing(archives, None)
        if there is not None:
            return there
        gathered = FileTable()
        for number, entries in enumerate(listings):
            gathered.add(number, self._filter_by_prefix(folders.files_from_entries(entries)))
        return IndexResult(self._write_index(gathered, archives, LAYOUT_FILES, False), BUILT)

    # Archives

    def _index_archives(self) -> IndexResult:
        remotes = [
            open_archive(refs, self._request.resolve_secret, self._request.retry_timeout_s, self._check_cancelled)
            for refs in self._locations
        ]
        kinds = self._detect_formats(remotes)
        archives = tuple(map(_describe_archive, remotes))
        there = self._find_existing(archives, remotes[0] if kinds == [TarScanner] else None)
        if there is not None:
            return there
        threads = _choose_n_threads(remotes[0])
        with self._open_resume_file(archives) as charts, TaskPool(threads) as crew:
            parts = zip(kinds, remotes, charts, strict=False)
            parsed = [kind(remote, chart, crew, self._add_progress) for kind, remote, chart in parts]
            self._scan(parsed, threads, sum(remote.size for remote in remotes), crew)
            sums = self._fetch_checksums(archives, crew)
            return IndexResult(
                self._write_index(
                    self._collect_files(parsed), archives, LAYOUT_RANGES, self._request.group_files, sums
                ),
                BUILT,
            )

    def _fetch_checksums(self, archives: tuple[IndexedArchive, ...], task_pool: TaskPool) -> list[BlockChecksums]:
        """Those that lie beside the archives, if each has some; where the first has none, the others are not asked."""
        found: dict[int, BlockChecksums | None] = {}

        def fetch_one(number: int) -> None:
            wish, place, ref = self._request, self._index_path(archives), self._locations[number][0]
            aside = place.with_name(f".{place.name}.{os.getpid()}.{number}.sums")
            size = archives[number].size
            found[number] = existing.fetch_checksums(
                ref, wish.resolve_secret, wish.retry_timeout_s, self._check_cancelled, aside, size
            )

        fetch_one(0)
        for number in range(1, len(archives) if found[0] else 0):
            task_pool.submit(fetch_one, number)
        task_pool.wait_all(self._check_cancelled)
        sums = [one for one in (found.get(number) for number in range(len(archives))) if one]
        return sums if len(sums) == len(archives) else []

    def _find_existing(
        self, archives: tuple[IndexedArchive, ...], tar_reader: ArchiveReader | None
    ) -> IndexResult | None:
        """`tar`: to look into it whether what lies beside it fits."""
        place = self._index_path(archives)
        if self._rebuild:
            return None
        index = existing.open_if_current(place, archives, self._request.selection)
        if index is not None:
            return IndexResult(index, CACHED)
        if len(archives) > 1 or self._request.selection:
            return None
        wish, ref = self._request, self._locations[0][0]
        index = existing.fetch_published_index(
            ref, wish.resolve_secret, wish.retry_timeout_s, self._check_cancelled, place, archives
        )
        if index is None:
            return None
        if tar_reader is not None and not existing.passes_spot_check(index, tar_reader):
            place.unlink()
            return None
        return IndexResult(index, PUBLISHED)

    def _detect_formats(self, readers: Sequence[ArchiveReader]) -> list[type[_ArchiveScanner]]:
        """What each archive is; all are asked at once."""
        found: dict[int, type[_ArchiveScanner]] = {}

        def detect_one(number: int, remote: ArchiveReader) -> None:
            found[number] = _detect_format(remote)

        with TaskPool(min(len(readers), _MAX_THREADS)) as crew:
            for number, remote in enumerate(readers):
                crew.submit(detect_one, number, remote)
            crew.wait_all(self._check_cancelled)
        return [found[number] for number in range(len(readers))]

    @contextlib.contextmanager
    def _open_resume_file(self, archives: tuple[IndexedArchive, ...]) -> Iterator[list[ArchiveMap]]:
        """Charts with what an earlier process found."""
        place = self._index_path(archives)
        identity = [[archive.url, archive.size, archive.etag, archive.modified] for archive in archives]
        journal = ScanResumeFile(place.with_name(f".{place.name}.part"), identity)
        charts = [ArchiveMap(partial(journal.append_chain, number)) for number in range(len(archives))]
        useless = True
        try:
            for number, chain in journal.open():
                charts[number].add(chain, save=False)
            yield charts
        except BaseException as error:
            useless = _is_permanent(error)
            raise
        finally:
            journal.close(useless)

    def _scan(self, scanners: Sequence[_ArchiveScanner], threads: int, total_bytes: int, task_pool: TaskPool) -> None:
        for one in scanners:
            task_pool.submit(one.scan, max(1, threads // len(scanners)))
        task_pool.wait_all(lambda: self._report_progress(total_bytes))

    def _add_progress(self, n_bytes: int, n_files: int) -> None:
        with self._lock:
            self._scanned_bytes += n_bytes
            self._files_found += n_files

    def _report_progress(self, total_bytes: int) -> None:
        self._check_cancelled()
        self._on_progress(min(self._scanned_bytes, total_bytes), total_bytes, self._files_found)

    def _collect_files(self, scanners: Sequence[_ArchiveScanner]) -> FileTable:
        gathered = FileTable()
        for number, one in enumerate(scanners):
            gathered.add(number, self._filter_by_prefix(one.files()))
            self._check_cancelled()
        return gathered

    def _filter_by_prefix(self, files: Iterator[ArchiveFile]) -> Iterator[ArchiveFile]:
        below = self._request.prefix
        return (file for file in files if file.name.startswith(below)) if below else files

    def _write_index(
        self,
        table: FileTable,
        archives: tuple[IndexedArchive, ...],
        layout: str,
        group_files: bool | None,
        checksums: Sequence[BlockChecksums] = (),
    ) -> Index:
        if not table.names:
            where = ", ".join(archive.url for archive in archives[:3])
            below = f" below {self._request.prefix}" if self._request.prefix else ""
            raise FailedError("unsupported", f"{where} has no files{below}, so there is nothing to index")
        made = make_draft(table, archives, layout, group_files)
        made.selection = self._request.selection
        made.block_sizes, made.digests = index_checksums.pack_checksums(checksums)
        return write_index(made, self._index_path(archives))


def _detect_format(reader: ArchiveReader) -> type[_ArchiveScanner]:
    """By the first bytes. Raises FailedError for what cannot be read in places, or is no archive."""
    head = reader.read(0, tar_header.HEADER_BYTES)
    wrong = detect_error_page(reader.locations[0].url, head, reader.info.content_type if reader.info else None)
    if wrong:
        raise FailedError("unexpected_content", f"{reader.redacted_url}: {wrong}")
    if head.startswith((*COMPRESSION_MAGIC.values(), *_UNSUPPORTED_MAGIC)):
        raise compressed_error(reader.redacted_url)
    if head.startswith(_ZIP_MAGIC):
        return ZipScanner
    if len(head) < tar_header.HEADER_BYTES or not is_tar(head):
        raise FailedError(
            "archive_broken", f"{reader.redacted_url} is no tar and no zip: its first bytes are {head[:8]!r}"
        )
    return TarScanner


def _is_permanent(error: BaseException) -> bool:
    """Whether the archive itself is at fault, so that nobody will go on."""
    return isinstance(error, FailedError) and not isinstance(error, TransferError) and error.kind != "cancelled"


def _choose_n_threads(reader: ArchiveReader) -> int:
    """As many as the processor can serve while one of them waits: near by few, far away many."""
    waits = []
    for _ in range(_LATENCY_PROBES):
        began = time.monotonic()
        reader.read(0, tar_header.HEADER_BYTES)
        waits.append(time.monotonic() - began)
    return max(_MIN_THREADS, min(_MAX_THREADS, round(min(waits) / _CPU_S_PER_REQUEST)))


def _describe_archive(reader: ArchiveReader) -> IndexedArchive:
    assert reader.info is not None
    url, *mirrors = (strip_credentials(ref.url) for ref in reader.locations)
    # Objects never change in a federation, and each cache has its own times.
    if url_scheme(url) in _FEDERATED_SCHEMES or not reader.is_info_from_first_location:
        return IndexedArchive(url, reader.size, mirrors=tuple(mirrors))
    etag, modified = reader.info.etag or "", reader.info.last_modified or ""
    return IndexedArchive(url, reader.size, etag, "" if etag else modified, tuple(mirrors))


def _describe_folder(locations: Sequence[Location], entries: Sequence[ListedObject]) -> IndexedArchive:
    listing = hashlib.sha256()
    for entry in entries:
        listing.update(f"{entry.name}\0{entry.size}\n".encode("utf-8", "surrogateescape"))
    url, *mirrors = (strip_credentials(ref.url) for ref in locations)
    return IndexedArchive(
        url, sum(entry.size or 0 for entry in entries), mirrors=tuple(mirrors), listing_sha256=listing.hexdigest()
    )
