"""Find the files of a zip archive without compression.

The directory at the end of the archive lists the members. Only the local header of a member states
where its content starts.
"""

from __future__ import annotations

import io
import stat
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

from packtrain.errors import FailedError
from packtrain.indexing.archive_map import ArchiveMap, MemberChain
from packtrain.indexing.archive_reader import ArchiveReader
from packtrain.indexing.grouping import ArchiveFile, compressed_error
from packtrain.indexing.read_window import ReadWindow
from packtrain.indexing.scan_settings import OnScanProgress, ScanSettings
from packtrain.indexing.tar_members import FILE, ArchiveMember
from packtrain.indexing.tar_scanner import normalize_name
from packtrain.indexing.task_pool import TaskPool

if TYPE_CHECKING:
    import zipfile

_LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, …, lengths of the name and of the extra field
_LOCAL_SIGNATURE = b"PK\x03\x04"
_STORED, _ENCRYPTED = 0, 0x1
_MAX_READ_BYTES = 4 << 20


class ZipScanner:
    """Scans one zip. `scan` submits tasks; `files` returns the files when all tasks are done."""

    def __init__(
        self,
        reader: ArchiveReader,
        archive_map: ArchiveMap,
        task_pool: TaskPool,
        on_progress: OnScanProgress,
        settings: ScanSettings,
    ) -> None:
        self._reader, self._archive_map, self._settings = reader, archive_map, settings
        self._task_pool, self._on_progress = task_pool, on_progress
        self._infos: list[zipfile.ZipInfo] = []

    def scan(self, n_walks: int) -> None:
        """Read the directory and submit tasks that read the local headers. `n_walks` is ignored."""
        self._infos = sorted(self._stored_members(), key=lambda info: info.header_offset)
        max_members = self._settings.max_chain_members
        for first in range(0, len(self._infos), max_members):
            self._task_pool.submit(self._scan_members, self._infos[first : first + max_members])

    def _stored_members(self) -> Iterator[zipfile.ZipInfo]:
        for info in self._read_directory():
            mode = info.external_attr >> 16
            if info.is_dir() or stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                continue
            if info.flag_bits & _ENCRYPTED:
                raise FailedError("unsupported", f"{info.filename!r} in {self._reader.redacted_url} is encrypted")
            if info.compress_type != _STORED:
                raise compressed_error(f"{info.filename!r} in {self._reader.redacted_url}")
            yield info

    def _read_directory(self) -> list[zipfile.ZipInfo]:
        import zipfile

        url = self._reader.redacted_url
        try:
            with zipfile.ZipFile(_SeekableArchive(self._reader)) as directory:
                return directory.infolist()
        except zipfile.BadZipFile as error:
            if "not a zip file" in str(error):
                raise FailedError("truncated", f"{url} has no directory at its end: it is truncated") from None
            raise FailedError("archive_broken", f"{url} cannot be read: {error}") from None
        except (ValueError, NotImplementedError, struct.error) as error:
            raise FailedError("archive_broken", f"{url} cannot be read: {error}") from None

    def _scan_members(self, infos: list[zipfile.ZipInfo]) -> None:
        window, chain = ReadWindow(self._reader.read, self._reader.size), MemberChain(infos[0].header_offset)
        for info in infos:
            self._task_pool.raise_if_stopped()
            known = self._archive_map.find_member(info.header_offset)
            offset = known[0].offsets[known[1]] if known else self._find_data_offset(info, window)
            next_offset = offset + info.file_size
            chain.add(ArchiveMember(info.header_offset, next_offset, FILE, info.filename, offset, info.file_size))
            window.record_distance(next_offset - info.header_offset)
            self._on_progress(next_offset - info.header_offset, 1)
        self._archive_map.add(chain)

    def _find_data_offset(self, info: zipfile.ZipInfo, window: ReadWindow) -> int:
        message = f"{self._reader.redacted_url} has no header for {info.filename!r} at byte {info.header_offset}"
        try:
            header = window.get(info.header_offset, _LOCAL_HEADER.size)
        except EOFError:
            raise FailedError("archive_broken", message) from None
        signature, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(header)
        offset: int = info.header_offset + _LOCAL_HEADER.size + name_bytes + extra_bytes
        if signature != _LOCAL_SIGNATURE or offset + info.file_size > self._reader.size:
            raise FailedError("archive_broken", message)
        return offset

    def files(self) -> Iterator[ArchiveFile]:
        """Return the files. Of several with the same name, the last one counts."""
        files: dict[str, ArchiveFile] = {}
        for info in self._infos:
            known = self._archive_map.find_member(info.header_offset)
            assert known is not None
            name, offset = normalize_name(info.filename), known[0].offsets[known[1]]
            files.pop(name, None)
            files[name] = ArchiveFile(name, name.rpartition("/")[0], offset, info.file_size)
        return iter(files.values())


class _SeekableArchive(io.RawIOBase):
    """The archive as a file object for the module zipfile."""

    def __init__(self, reader: ArchiveReader) -> None:
        self._reader, self._offset = reader, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._offset

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self._reader.size}[whence]
        if base + offset < 0:
            raise OSError("seek to a negative offset")
        self._offset = base + offset
        return self._offset

    def read(self, size: int | None = -1) -> bytes:
        stop = self._reader.size if size is None or size < 0 else min(self._reader.size, self._offset + size)
        chunks = [
            self._reader.read(start, min(stop, start + _MAX_READ_BYTES))
            for start in range(self._offset, stop, _MAX_READ_BYTES)
        ]
        self._offset = max(self._offset, stop)
        return b"".join(chunks)
