"""A folder below which files, folders and links are made, counted and kept within bounds.

Paths are relative to the folder, which is held open. Whether a path is safe is judged before, in `landing`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from packtrain.errors import FailedError
from packtrain.transfer.archive.byte_stream import Flow
from packtrain.transfer.archive.small_file_writer import Small, Writer
from packtrain.transfer.archive.space_budget import Room
from packtrain.transfer.engine.part_file import free_bytes

SMALL = 4 << 20  # files up to this size are written in one go
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE, _MODE_X = 0o666, 0o777  # never more: no setuid, no sticky bit
_VIEWS_AT_ONCE = 256  # the kernel takes 1024


class Ground:
    """`with Ground(…) as ground`: at the end of the block all is written, or an error is raised."""

    def __init__(self, folder: Path, limit: int | None, archive: str, wrote: Callable[[int], None]) -> None:
        """`wrote` gets the bytes taken so far."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._wrote = folder, wrote
        self._writer = Writer(self._write_small)
        self.room = Room(folder, limit, archive, self._writer.unwritten)
        self.files = 0

    def __enter__(self) -> Ground:
        self._fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._writer.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        try:
            self._writer.__exit__(*exc)
        finally:
            os.close(self._fd)

    def small(self, small: Small) -> None:
        """Soon, by another thread."""
        self.room.take(small.size, files=1)
        self._writer.put(small)
        self.files += 1
        self._wrote(self.room.taken)

    def file(self, path: str, executable: bool, data: Flow, name: str, archive: str) -> None:
        self._writer.settle()
        self.room.take(0, files=1)
        with self._writing(name, archive):
            handle = self._open(path, mode_of(executable), name, archive)
        try:
            for block in iter(data.some, memoryview(b"")):
                self.room.take(len(block))
                with self._writing(name, archive):
                    _write(handle, block)
                self._wrote(self.room.taken)
        finally:
            os.close(handle)
        self.files += 1

    def folder(self, path: str, name: str, archive: str) -> None:
        """Made, or found to be a folder and no link to one."""
        self.room.take(0, files=1)
        try:
            os.mkdir(path, dir_fd=self._fd)
            return
        except FileExistsError:
            mode = self._mode(path)
        except OSError as error:
            raise self._failure(error, name, archive) from error
        if stat.S_ISLNK(mode):
            raise unsafe(name, archive, "is a link, and another member goes through it")
        if not stat.S_ISDIR(mode):
            raise broken(name, archive, "is a folder where a file of that name is")

    def symlink(self, path: str, target: str, name: str, archive: str) -> None:
        self._writer.settle()
        self.room.take(0, files=1)
        with self._writing(name, archive):
            self._clear(path, name, archive)
            os.symlink(target, path, dir_fd=self._fd)

    def hardlink(self, path: str, source: str, name: str, archive: str) -> None:
        """`source` was judged to be one of our files."""
        self._writer.settle()
        self.room.take(0, files=1)
        with self._writing(name, archive):
            self._clear(path, name, archive)
            try:
                os.link(source, path, src_dir_fd=self._fd, dst_dir_fd=self._fd, follow_symlinks=False)
            except OSError as error:
                if error.errno in _NO_ROOM:
                    raise
                self._copy(path, source, name, archive)  # a file system without hard links
                return
        self.files += 1

    def is_file(self, path: str) -> bool:
        """A file that was made here, and no link to one."""
        self._writer.settle()
        return stat.S_ISREG(self._mode(path))

    def is_link(self, path: str) -> bool:
        return stat.S_ISLNK(self._mode(path))

    def _mode(self, path: str) -> int:
        try:
            return os.stat(path, dir_fd=self._fd, follow_symlinks=False).st_mode
        except OSError:
            return 0

    def _copy(self, path: str, source: str, name: str, archive: str) -> None:
        handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._fd)
        try:
            executable = bool(os.fstat(handle).st_mode & 0o100)
            self.file(path, executable, Flow(lambda: os.read(handle, SMALL)), name, archive)
        finally:
            os.close(handle)

    def _write_small(self, small: Small) -> None:
        try:
            handle = self._open(small.path, small.mode, small.name, small.archive)
            try:
                _write_views(handle, small.views, small.size)
            finally:
                os.close(handle)
        except OSError as error:
            raise self._failure(error, small.name, small.archive) from error

    def _open(self, path: str, mode: int, name: str, archive: str) -> int:
        try:
            return os.open(path, _NEW, mode, dir_fd=self._fd)
        except FileExistsError:
            self._clear(path, name, archive)
            return os.open(path, _NEW, mode, dir_fd=self._fd)

    def _clear(self, path: str, name: str, archive: str) -> None:
        """An older member of the name goes: nothing is written through it."""
        if stat.S_ISDIR(self._mode(path)):
            raise broken(name, archive, "is a file where a folder of that name is")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path, dir_fd=self._fd)

    @contextlib.contextmanager
    def _writing(self, name: str, archive: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._failure(error, name, archive) from error

    def _failure(self, error: OSError, name: str, archive: str) -> FailedError:
        if error.errno not in _NO_ROOM:
            return broken(name, archive, f"cannot be written ({error.strerror or error})")
        words = f"the disk is full at {name!r} of {archive}: {free_bytes(self._folder)} bytes are free"
        return FailedError("disk_full", words)


def mode_of(executable: bool) -> int:
    return _MODE_X if executable else _MODE


def unsafe(name: str, archive: str, words: str) -> FailedError:
    return FailedError("archive_unsafe", f"the member {name!r} of {archive} {words}")


def broken(name: str, archive: str, words: str) -> FailedError:
    return FailedError("archive_broken", f"the member {name!r} of {archive} {words}")


def _write_views(handle: int, views: list[memoryview], size: int) -> None:
    if len(views) > _VIEWS_AT_ONCE:
        views = [memoryview(b"".join(views))]
    if not size or os.writev(handle, views) == size:
        return
    os.lseek(handle, 0, os.SEEK_SET)
    for view in views:
        _write(handle, view)


def _write(handle: int, view: memoryview) -> None:
    while len(view):
        view = view[os.write(handle, view) :]
