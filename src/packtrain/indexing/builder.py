"""Build an index, unless a current one exists."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from packtrain import fileutil
from packtrain.errors import FailedError, TransferError
from packtrain.indexing import existing
from packtrain.indexing.archive_map import ArchiveMap
from packtrain.indexing.archive_reader import ArchiveReader, open_archive
from packtrain.indexing.grouping import ArchiveFile, FileTable, compressed_error, make_draft
from packtrain.indexing.listing import files_from_entries, list_folder
from packtrain.indexing.resume_file import ScanResumeFile
from packtrain.indexing.scan_settings import ScanSettings
from packtrain.indexing.tar_members import is_tar
from packtrain.indexing.tar_scanner import TarScanner
from packtrain.indexing.task_pool import TaskPool
from packtrain.indexing.zip_scanner import ZipScanner
from packtrain.plan import Location
from packtrain.stream.index import (
    INDEX_SUFFIX,
    LAYOUT_FILES,
    LAYOUT_RANGES,
    Index,
    IndexedArchive,
    strip_credentials,
)
from packtrain.stream.index_checksums import pack_checksums
from packtrain.stream.index_writer import write_index
from packtrain.transfer.api import ListedObject, SecretResolver
from packtrain.transfer.archive import tar_header
from packtrain.transfer.archive.formats import format_from_magic
from packtrain.transfer.http.pool import connection_pool
from packtrain.transfer.integrity.block_checksums import BlockChecksums
from packtrain.transfer.integrity.content_checks import detect_error_page
from packtrain.transfer.urls import filename_from_url, is_federated

CancelCheck = Callable[[], None]
OnIndexProgress = Callable[[int, int | None, int], None]
"""Called with the scanned bytes of the archives, their total size, and the number of files found so far."""

BUILT, CACHED, PUBLISHED = "built", "cached", "published"
_ArchiveScanner = TarScanner | ZipScanner
_LATENCY_PROBES = 2
_CPU_S_PER_REQUEST = 0.0003  # processor time that a request costs, in seconds


@dataclass(frozen=True)
class IndexRequest:
    """What to index."""

    locations: Sequence[
        Sequence[Location]
    ]  # for each archive its URLs, all with the same content; / at the end: a folder
    resolve_secret: SecretResolver
    retry_timeout_s: float = 10.0  # how long to retry a failing read
    group_files: bool | None = None  # whether consecutive files that differ only in their extension form one sample
    prefix: str = ""  # index only files whose names start with this
    scan: ScanSettings = field(default_factory=ScanSettings)

    @property
    def selection(self) -> str:
        """Distinguishes indexes of the same archives with different options."""
        return json.dumps([self.group_files, self.prefix]) if self.group_files is not None or self.prefix else ""


@dataclass(frozen=True)
class IndexResult:
    """An index, and where it came from."""

    index: Index
    origin: str  # BUILT now, CACHED by an earlier call, or PUBLISHED next to the data


def _ignore_progress(done: int, total: int | None, files: int) -> None:
    pass


def build_index(
    request: IndexRequest,
    path: Path,
    *,
    check_cancelled: CancelCheck = lambda: None,
    on_progress: OnIndexProgress = _ignore_progress,
) -> Index:
    """Build the index at `path`. After a kill at any moment, the next call resumes.

    Raises FailedError if the archives cannot be read or indexed.
    """
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
    """Return the index of the archives as they are now, and build it if there is none.

    Args:
        request: What to index.
        cache_dir: Folder for the index if `path` is None.
        path: The index file.
        rebuild: Build the index even if there is a current one.
        check_cancelled: Raises an exception to stop.
        on_progress: Called repeatedly while archives are scanned.

    Raises:
        FailedError: The archives cannot be read or indexed.
    """
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
        self._locations = [list(locations) for locations in request.locations]

    def run(self) -> IndexResult:
        listings = self._list_folders()
        return self._index_folders(listings) if listings else self._index_archives()

    def _list_folders(self) -> list[list[ListedObject]]:
        """Return the files of each folder; an empty list for archives. A folder of tars counts as these archives."""
        are_folders = {locations[0].url.endswith("/") for locations in self._locations}
        if len(are_folders) > 1:
            raise FailedError(
                "unsupported", "an index covers archives or folders, not both: build one index for each of them"
            )
        if are_folders != {True}:
            return []
        request = self._request
        listings = [
            list_folder(locations[0], request.resolve_secret, request.retry_timeout_s, self._check_cancelled)
            for locations in self._locations
        ]
        entries = [entry for listing in listings for entry in listing]
        if entries and all(entry.name.endswith(".tar") for entry in entries):
            self._locations = [[entry.location] for entry in entries]
            return []
        return listings

    def _index_path(self, archives: tuple[IndexedArchive, ...]) -> Path:
        if self._path is None:
            self._cache_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path = self._cache_dir / (existing.index_cache_key(archives, self._request.selection) + INDEX_SUFFIX)
        return self._path

    # Folders

    def _index_folders(self, listings: Sequence[Sequence[ListedObject]]) -> IndexResult:
        archives = tuple(
            _describe_folder(locations, entries) for locations, entries in zip(self._locations, listings, strict=False)
        )
        result = self._find_existing(archives, None)
        if result is not None:
            return result
        table = FileTable()
        for archive_id, entries in enumerate(listings):
            table.add(archive_id, self._filter_by_prefix(files_from_entries(entries)))
        return IndexResult(self._write_index(table, archives, LAYOUT_FILES, False), BUILT)

    # Archives

    def _index_archives(self) -> IndexResult:
        request = self._request
        readers = [
            open_archive(locations, request.resolve_secret, request.retry_timeout_s, self._check_cancelled)
            for locations in self._locations
        ]
        scanner_types = self._detect_formats(readers)
        archives = tuple(map(_describe_archive, readers))
        result = self._find_existing(archives, readers[0] if scanner_types == [TarScanner] else None)
        if result is not None:
            return result
        n_threads = _choose_n_threads(readers[0], request.scan)
        with self._open_resume_file(archives) as archive_maps, TaskPool(n_threads) as task_pool:
            scanners = [
                scanner_type(reader, archive_map, task_pool, self._add_progress, request.scan)
                for scanner_type, reader, archive_map in zip(scanner_types, readers, archive_maps, strict=False)
            ]
            self._scan(scanners, n_threads, sum(reader.size for reader in readers), task_pool)
            checksums = self._fetch_checksums(archives, task_pool)
            table = self._collect_files(scanners)
            index = self._write_index(table, archives, LAYOUT_RANGES, request.group_files, checksums)
            return IndexResult(index, BUILT)

    def _fetch_checksums(self, archives: tuple[IndexedArchive, ...], task_pool: TaskPool) -> list[BlockChecksums]:
        """Return the checksums published next to the archives, if every archive has them.

        If the first archive has none, the others are not tried.
        """
        checksums: dict[int, BlockChecksums | None] = {}

        def fetch_one(archive_id: int) -> None:
            request, path = self._request, self._index_path(archives)
            temporary_path = fileutil.temporary_path(path)
            checksums[archive_id] = existing.fetch_checksums(
                self._locations[archive_id][0],
                request.resolve_secret,
                request.retry_timeout_s,
                self._check_cancelled,
                temporary_path,
                archives[archive_id].size,
            )

        fetch_one(0)
        for archive_id in range(1, len(archives) if checksums[0] else 0):
            task_pool.submit(fetch_one, archive_id)
        task_pool.wait_all(self._check_cancelled)
        present = [item for item in (checksums.get(archive_id) for archive_id in range(len(archives))) if item]
        return present if len(present) == len(archives) else []

    def _find_existing(
        self, archives: tuple[IndexedArchive, ...], tar_reader: ArchiveReader | None
    ) -> IndexResult | None:
        """Return a cached or published index, or None. `tar_reader` is used to check a published index of a tar."""
        path = self._index_path(archives)
        if self._rebuild:
            return None
        index = existing.open_if_current(path, archives, self._request.selection)
        if index is not None:
            return IndexResult(index, CACHED)
        if len(archives) > 1 or self._request.selection:
            return None
        request, location = self._request, self._locations[0][0]
        index = existing.fetch_published_index(
            location, request.resolve_secret, request.retry_timeout_s, self._check_cancelled, path, archives
        )
        if index is None:
            return None
        if tar_reader is not None and not existing.passes_spot_check(index, tar_reader):
            path.unlink()
            return None
        return IndexResult(index, PUBLISHED)

    def _detect_formats(self, readers: Sequence[ArchiveReader]) -> list[type[_ArchiveScanner]]:
        """Return the scanner for each archive. All archives are read at the same time."""
        scanner_types: dict[int, type[_ArchiveScanner]] = {}

        def detect_one(archive_id: int, reader: ArchiveReader) -> None:
            scanner_types[archive_id] = _detect_format(reader)

        with TaskPool(min(len(readers), self._request.scan.max_threads)) as task_pool:
            for archive_id, reader in enumerate(readers):
                task_pool.submit(detect_one, archive_id, reader)
            task_pool.wait_all(self._check_cancelled)
        return [scanner_types[archive_id] for archive_id in range(len(readers))]

    @contextlib.contextmanager
    def _open_resume_file(self, archives: tuple[IndexedArchive, ...]) -> Iterator[list[ArchiveMap]]:
        """Yield a map for each archive, with what an earlier process found."""
        path = self._index_path(archives)
        identity = [[archive.url, archive.size, archive.etag, archive.modified] for archive in archives]
        resume_file = ScanResumeFile(path.with_name(f".{path.name}.scan"), identity)
        archive_maps = [ArchiveMap(partial(resume_file.append_chain, number)) for number in range(len(archives))]
        delete = True
        try:
            for archive_id, chain in resume_file.open():
                archive_maps[archive_id].add(chain, save=False)
            yield archive_maps
        except BaseException as error:
            delete = _is_permanent(error)
            raise
        finally:
            resume_file.close(delete)

    def _scan(self, scanners: Sequence[_ArchiveScanner], n_threads: int, total_bytes: int, task_pool: TaskPool) -> None:
        for scanner in scanners:
            task_pool.submit(scanner.scan, max(1, n_threads // len(scanners)))
        task_pool.wait_all(lambda: self._report_progress(total_bytes))

    def _add_progress(self, n_bytes: int, n_files: int) -> None:
        with self._lock:
            self._scanned_bytes += n_bytes
            self._files_found += n_files

    def _report_progress(self, total_bytes: int) -> None:
        self._check_cancelled()
        self._on_progress(min(self._scanned_bytes, total_bytes), total_bytes, self._files_found)

    def _collect_files(self, scanners: Sequence[_ArchiveScanner]) -> FileTable:
        table = FileTable()
        for archive_id, scanner in enumerate(scanners):
            table.add(archive_id, self._filter_by_prefix(scanner.files()))
            self._check_cancelled()
        return table

    def _filter_by_prefix(self, files: Iterator[ArchiveFile]) -> Iterator[ArchiveFile]:
        prefix = self._request.prefix
        return (file for file in files if file.name.startswith(prefix)) if prefix else files

    def _write_index(
        self,
        table: FileTable,
        archives: tuple[IndexedArchive, ...],
        layout: str,
        group_files: bool | None,
        checksums: Sequence[BlockChecksums] = (),
    ) -> Index:
        if not table.names:
            urls = ", ".join(archive.url for archive in archives[:3])
            prefix = f" with the prefix {self._request.prefix}" if self._request.prefix else ""
            raise FailedError("unsupported", f"{urls} has no files{prefix}, so there is nothing to index")
        draft = make_draft(table, archives, layout, group_files)
        draft.selection = self._request.selection
        draft.block_sizes, draft.digests = pack_checksums(checksums)
        return write_index(draft, self._index_path(archives))


def _detect_format(reader: ArchiveReader) -> type[_ArchiveScanner]:
    """Return the scanner for an archive, from its first bytes.

    Raises FailedError for a compressed archive, and for a file that is not an archive.
    """
    head = reader.read(0, tar_header.HEADER_BYTES)
    content_type = reader.info.content_type if reader.info else None
    problem = detect_error_page(filename_from_url(reader.locations[0].url), head, content_type)
    if problem:
        raise FailedError("unexpected_content", f"{reader.redacted_url}: {problem}")
    archive_format = format_from_magic(head)
    if archive_format is not None:
        if archive_format.can_index:
            return ZipScanner
        raise compressed_error(reader.redacted_url)
    if len(head) < tar_header.HEADER_BYTES or not is_tar(head):
        raise FailedError(
            "archive_broken", f"{reader.redacted_url} is neither a tar nor a zip: its first bytes are {head[:8]!r}"
        )
    return TarScanner


def _is_permanent(error: BaseException) -> bool:
    """Return whether the archive itself is at fault, so that resuming is pointless."""
    return isinstance(error, FailedError) and not isinstance(error, TransferError) and error.kind != "cancelled"


def _choose_n_threads(reader: ArchiveReader, settings: ScanSettings) -> int:
    """Return how many requests the processor can handle while one of them waits: few nearby, many far away."""
    latencies_s = []
    for _ in range(_LATENCY_PROBES):
        started_at = time.monotonic()
        reader.read(0, tar_header.HEADER_BYTES)
        latencies_s.append(time.monotonic() - started_at)
    n_threads = round(min(latencies_s) / _CPU_S_PER_REQUEST)
    return max(settings.min_threads, min(settings.max_threads, n_threads))


def _describe_archive(reader: ArchiveReader) -> IndexedArchive:
    assert reader.info is not None
    url, *mirrors = (strip_credentials(location.url) for location in reader.locations)
    # Objects of a federation never change, and each cache has its own modification times.
    if is_federated(url) or not reader.is_info_from_first_location:
        return IndexedArchive(url, reader.size, mirrors=tuple(mirrors))
    etag, modified = reader.info.etag or "", reader.info.last_modified or ""
    return IndexedArchive(url, reader.size, etag, "" if etag else modified, tuple(mirrors))


def _describe_folder(locations: Sequence[Location], entries: Sequence[ListedObject]) -> IndexedArchive:
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(f"{entry.name}\0{entry.size}\n".encode("utf-8", "surrogateescape"))
    url, *mirrors = (strip_credentials(location.url) for location in locations)
    return IndexedArchive(
        url, sum(entry.size or 0 for entry in entries), mirrors=tuple(mirrors), listing_sha256=digest.hexdigest()
    )
