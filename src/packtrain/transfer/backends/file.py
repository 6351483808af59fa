"""Source and sink for file:// URLs."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from packtrain.errors import TransferError
from packtrain.fileutil import atomic_writer, durable_mkdir, is_temporary_name, sync_folder
from packtrain.plan import Digest, Location
from packtrain.transfer.api import FULL_RANGE, ByteRange, ListedObject, ObjectInfo
from packtrain.transfer.progress import OnBytesSent, ignore_bytes_sent
from packtrain.transfer.urls import join_url, path_from_file_url, redact_url

_COPY_BLOCK_BYTES = 1 << 20
_FAILURE_KIND_BY_ERRNO = {
    errno.ENOENT: ("object_missing", "does not exist"),
    errno.ENOTDIR: ("object_missing", "does not exist"),
    errno.EISDIR: ("object_missing", "is a folder, not a file"),
    errno.EACCES: ("access_denied", "is not accessible for this user"),
    errno.EPERM: ("access_denied", "is not accessible for this user"),
    errno.ENOSPC: ("disk_full", "has no space left on its disk"),
    errno.EDQUOT: ("disk_full", "has no space left in its quota"),
}


class FileStream:
    """An open file."""

    def __init__(self, info: ObjectInfo, byte_range: ByteRange, url: str) -> None:
        self.info, self.start, self._url = info, byte_range.start, url
        self._file = open(path_from_file_url(url), "rb")  # noqa: SIM115 - closed by `close`
        self._remaining_bytes: int | None = (
            None if byte_range.stop is None else max(0, byte_range.stop - byte_range.start)
        )
        self._file.seek(byte_range.start)

    def read(self, size: int, /) -> bytes:
        count = size if self._remaining_bytes is None else min(size, self._remaining_bytes)
        with _map_os_errors(self._url):
            data = self._file.read(count)
        if self._remaining_bytes is not None:
            self._remaining_bytes -= len(data)
        return data

    def readinto(self, buffer: memoryview, /) -> int:
        window = buffer if self._remaining_bytes is None else buffer[: self._remaining_bytes]
        with _map_os_errors(self._url):
            count = self._file.readinto(window)
        if self._remaining_bytes is not None:
            self._remaining_bytes -= count
        return count

    def close(self) -> None:
        self._file.close()


class FileBackend:
    """Implements Source and Sink for the local file system."""

    def stat(self, location: Location) -> ObjectInfo:
        with _map_os_errors(location.url):
            return _info_from_stat(Path(path_from_file_url(location.url)).stat())

    def open(self, location: Location, byte_range: ByteRange = FULL_RANGE) -> FileStream:
        with _map_os_errors(location.url):
            info = _info_from_stat(Path(path_from_file_url(location.url)).stat())
            return FileStream(info, byte_range, location.url)

    def list(self, location: Location) -> Iterator[ListedObject]:
        root = path_from_file_url(location.url)
        for folder, folders, names in os.walk(root):
            folders.sort()
            for name in sorted(names):
                entry = _make_entry(location, root, Path(folder, name))
                if entry is not None:
                    yield entry

    def put(
        self,
        location: Location,
        path: Path,
        on_bytes_sent: OnBytesSent = ignore_bytes_sent,
        *,
        adopt_uploads: bool = True,
    ) -> None:
        target = Path(path_from_file_url(location.url))
        with _map_os_errors(location.url):
            durable_mkdir(target.parent)
            with open(path, "rb") as source, atomic_writer(target, durable=True) as sink:
                while block := source.read(_COPY_BLOCK_BYTES):
                    sink.write(block)
                    on_bytes_sent(len(block))
                os.fchmod(sink.fileno(), stat.S_IMODE(os.fstat(source.fileno()).st_mode) & 0o777)

    def copy(self, source: Location, target: Location, *, digest: Digest | None = None, may_move: bool = False) -> bool:
        """Rename the file if it may disappear. A copy is a file of its own, which the user may change in place."""
        source_path, target_path = Path(path_from_file_url(source.url)), Path(path_from_file_url(target.url))
        with _map_os_errors(source.url):
            source_path.stat()
        if not may_move:
            self.put(target, source_path)
            return True
        with _map_os_errors(target.url):
            durable_mkdir(target_path.parent)
            source_path.replace(target_path)
            sync_folder(target_path.parent)
        return True

    def delete(self, location: Location) -> None:
        with _map_os_errors(location.url), contextlib.suppress(FileNotFoundError):
            path = Path(path_from_file_url(location.url))
            path.unlink()
            sync_folder(path.parent)  # the record of a checkpoint must not reappear without its files


def _info_from_stat(stat_result: os.stat_result) -> ObjectInfo:
    if stat.S_ISDIR(stat_result.st_mode):
        raise IsADirectoryError(errno.EISDIR, "is a folder")
    return ObjectInfo(
        size=stat_result.st_size, etag=f"{stat_result.st_mtime_ns:x}-{stat_result.st_size:x}", accepts_ranges=True
    )


def _make_entry(prefix: Location, root: str, path: Path) -> ListedObject | None:
    """Return the entry of a file, or None if it is not a regular file or still being written."""
    if is_temporary_name(path.name) or not path.is_file():
        return None
    name = path.relative_to(root).as_posix()
    return ListedObject(name, path.stat().st_size, replace(prefix, url=join_url(prefix.url, name)))


@contextlib.contextmanager
def _map_os_errors(url: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind, reason = _FAILURE_KIND_BY_ERRNO.get(
            error.errno or 0, ("service_unavailable", f"cannot be used ({error.strerror})")
        )
        raise TransferError(kind, f"the file {redact_url(url)} {reason}", redact_url(url)) from error
