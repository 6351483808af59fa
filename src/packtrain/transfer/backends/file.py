"""Files and folders of this machine: file:// addresses, as source and sink."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from packtrain.errors import TransferError
from packtrain.plan import Ref
from packtrain.transfer.api import WHOLE, Entry, ObjectInfo, Span
from packtrain.transfer.http.request_body import Sent, unwatched
from packtrain.transfer.urls import joined, path_of, shown

_TEMPORARY = ".packtrain-new-"
_COPY_BLOCK = 1 << 20
_KINDS = {
    errno.ENOENT: ("object_missing", "does not exist"),
    errno.ENOTDIR: ("object_missing", "does not exist"),
    errno.EISDIR: ("object_missing", "is a folder, not a file"),
    errno.EACCES: ("token_refused", "may not be accessed by this user"),
    errno.EPERM: ("token_refused", "may not be accessed by this user"),
    errno.ENOSPC: ("disk_full", "has no room left on its disk"),
    errno.EDQUOT: ("disk_full", "has no room left in its quota"),
}


class FileStream:
    def __init__(self, info: ObjectInfo, span: Span, url: str) -> None:
        self.info, self.start, self._url = info, span.start, url
        self._file = open(path_of(url), "rb")  # noqa: SIM115 - closed by `close`
        self._left: int | None = None if span.stop is None else max(0, span.stop - span.start)
        self._file.seek(span.start)

    def read(self, size: int, /) -> bytes:
        wanted = size if self._left is None else min(size, self._left)
        with _translated(self._url):
            data = self._file.read(wanted)
        if self._left is not None:
            self._left -= len(data)
        return data

    def readinto(self, buffer: memoryview, /) -> int:
        wanted = buffer if self._left is None else buffer[: self._left]
        with _translated(self._url):
            count = self._file.readinto(wanted)
        if self._left is not None:
            self._left -= count
        return count

    def close(self) -> None:
        self._file.close()


class FileStore:
    """Source and Sink over the file system."""

    def stat(self, ref: Ref) -> ObjectInfo:
        with _translated(ref.url):
            return _info(Path(path_of(ref.url)).stat())

    def open(self, ref: Ref, span: Span = WHOLE) -> FileStream:
        with _translated(ref.url):
            info = _info(Path(path_of(ref.url)).stat())
            return FileStream(info, span, ref.url)

    def list(self, ref: Ref) -> Iterator[Entry]:
        root = path_of(ref.url)
        for folder, folders, names in os.walk(root):
            folders.sort()
            for name in sorted(names):
                entry = _entry(ref, root, Path(folder, name))
                if entry is not None:
                    yield entry

    def put(self, ref: Ref, path: Path, sent: Sent = unwatched) -> None:
        target = Path(path_of(ref.url))
        temporary = target.with_name(f"{_TEMPORARY}{os.getpid()}-{os.urandom(4).hex()}")
        try:
            with _translated(ref.url):
                target.parent.mkdir(parents=True, exist_ok=True)
                _copy(path, temporary, sent)
                temporary.replace(target)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()

    def delete(self, ref: Ref) -> None:
        with _translated(ref.url), contextlib.suppress(FileNotFoundError):
            Path(path_of(ref.url)).unlink()


def _copy(path: Path, target: Path, sent: Sent) -> None:
    with open(path, "rb") as source, open(target, "xb") as sink:
        while True:
            block = source.read(_COPY_BLOCK)
            if not block:
                break
            sink.write(block)
            sent(len(block))
        os.fchmod(sink.fileno(), stat.S_IMODE(os.fstat(source.fileno()).st_mode) & 0o777)
        sink.flush()
        os.fsync(sink.fileno())


def _info(status: os.stat_result) -> ObjectInfo:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "is a folder")
    return ObjectInfo(size=status.st_size, etag=f"{status.st_mtime_ns:x}-{status.st_size:x}", ranges=True)


def _entry(prefix: Ref, root: str, path: Path) -> Entry | None:
    """None for what is no regular file, or not finished yet."""
    if path.name.startswith(_TEMPORARY) or not path.is_file():
        return None
    name = path.relative_to(root).as_posix()
    return Entry(name, path.stat().st_size, replace(prefix, url=joined(prefix.url, name)))


@contextlib.contextmanager
def _translated(url: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind, words = _KINDS.get(error.errno or 0, ("service_unavailable", f"cannot be used ({error.strerror})"))
        raise TransferError(kind, f"the file {shown(url)} {words}", shown(url)) from error
